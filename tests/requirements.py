"""Which test shows which requirement, and where it lives: the marker, the pages made from it, the check.

    @requirement("EQ-8", "EB-7")
    def test_an_abandoned_event_is_eligible_again() -> None: ...

`python -m tests.requirements` writes docs/requirements.md and docs/documents/; with `--check` it only says what
is wrong. The tests are read, not imported, so it needs no database and no package to be installed.
"""

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parent
PROJECT = TESTS.parent


def requirement(*ids: str) -> pytest.MarkDecorator:
    """Say that a test, a class of tests or a module (`pytestmark = …`) shows these requirements."""
    return pytest.mark.requirement(*ids)


class Requirement(NamedTuple):
    text: str
    finished: bool  # the work that brings it is done, so it must have a test


class Document(NamedTuple):
    title: str
    page: str  # below docs/documents
    about: str


class Home(NamedTuple):
    """Where a requirement lives: files, by as much of their ends as tells them apart, and what is special about it."""

    files: str
    note: str = ""


class Citation(NamedTuple):
    id: str
    test: str  # as pytest names it: tests/engine/test_poll.py::test_…

    @property
    def link(self) -> str:
        """Its name is a sentence. Without the line: the page would change with every edit above the test."""
        file, *names = self.test.split("::")
        said = names[-1].removeprefix("test_").replace("_", " ") if names else Path(file).name
        return f"[{said}](../../{file})"


class Catalogue(NamedTuple):
    documents: dict[str, Document]  # by their prefix
    requirements: dict[str, Requirement]  # by id, as are homes
    homes: dict[str, Home]

    def of(self, prefix: str) -> dict[str, Requirement]:
        return {
            id: asked
            for id, asked in self.requirements.items()
            if id.rstrip("0123456789").rstrip("-") == prefix
        }


def catalogue() -> Catalogue:
    content = tomllib.loads((TESTS / "requirements.toml").read_text(encoding="utf-8"))
    return Catalogue(
        {prefix: Document(**fields) for prefix, fields in content["documents"].items()},
        {id: Requirement(**fields) for id, fields in content["requirements"].items()},
        {id: Home(*fields) for id, fields in content["homes"].items()},
    )


@cache
def sources() -> list[str]:
    """What a home may name: the engine, the package, the documents."""
    kinds = ("src/headrace/**/*.sql", "src/headrace/**/*.py", "docs/**/*.md", "examples/*")
    return [
        path.relative_to(PROJECT).as_posix()
        for kind in kinds
        for path in sorted(PROJECT.glob(kind))
        if path.is_file()
    ]


def found(name: str) -> str:
    """The one file that a home means: of several, the one that is nearest to the top."""
    files = [file for file in sources() if f"/{file}".endswith(f"/{name}")]
    nearest = min((file.count("/") for file in files), default=0)
    files = [file for file in files if file.count("/") == nearest]
    if len(files) != 1:
        raise SystemExit(f"tests/requirements.toml: {name} is {files or 'not there'}.")
    return files[0]


def cited_ids(expressions: list[ast.expr]) -> Iterator[str]:
    """The ids in `requirement(…)` calls, also in those inside lists or `pytest.param(marks=…)`."""
    for node in (node for expression in expressions for node in ast.walk(expression)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "requirement":
            yield from (ast.literal_eval(argument) for argument in node.args)


def citations_in(body: list[ast.stmt], place: str) -> Iterator[Citation]:
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name("pytestmark")], value=value):
                yield from (Citation(id, place) for id in cited_ids([value]))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                inside = f"{place}::{statement.name}"
                ids = list(cited_ids(statement.decorator_list))
                if ids and not statement.name.lower().startswith("test"):
                    raise SystemExit(f"{inside} cites {', '.join(ids)}, but it is not a test.")
                yield from (Citation(id, inside) for id in ids)
                if isinstance(statement, ast.ClassDef):
                    yield from citations_in(statement.body, inside)


def citations(folder: Path = TESTS) -> list[Citation]:
    return [
        citation
        for path in sorted(folder.rglob("test_*.py"))
        for citation in citations_in(
            ast.parse(path.read_text(encoding="utf-8")).body,
            path.relative_to(folder.parent).as_posix(),
        )
    ]


def problems(catalogue: Catalogue, cited: list[Citation]) -> list[str]:
    requirements, shown = catalogue.requirements, {citation.id for citation in cited}
    unknown = [
        f"{test} cites {id}, which is unknown." for id, test in cited if id not in requirements
    ]
    finished = [id for id, asked in requirements.items() if asked.finished]
    untested = [id for id in finished if id not in shown]
    promises = catalogue.of("G")  # which live everywhere
    homeless = [id for id in finished if id not in catalogue.homes and id not in promises]
    return [
        *unknown,
        *([f"Finished, but without a test: {', '.join(untested)}."] if untested else []),
        *([f"Finished, but living nowhere: {', '.join(homeless)}."] if homeless else []),
    ]


def pages(catalogue: Catalogue, cited: list[Citation]) -> dict[str, str]:
    """What is below docs/, by its path there."""
    links = defaultdict(list)
    for citation in cited:
        links[citation.id].append(citation.link)
    made = {"requirements.md": index(catalogue, links)}
    for prefix, document in catalogue.documents.items():
        table = promises if prefix == "G" else parts
        lines = [*in_words(prefix), *table(catalogue, prefix, links)]
        made[f"documents/{document.page}"] = "\n".join(
            [f"# {document.title}", "", document.about, "", WRITTEN, "", *lines, ""]
        )
    return made


def in_words(prefix: str) -> list[str]:
    """What stands before a document's requirements: what each of its names is here, and where it differs. See documents/pages."""
    page = TESTS / "documents" / "pages" / f"{prefix}.md"
    if not page.exists():
        return []
    return [page.read_text(encoding="utf-8"), "## Part by part", ""]


def index(catalogue: Catalogue, links: Mapping[str, list[str]]) -> str:
    rows = []
    for prefix, document in catalogue.documents.items():
        asked = catalogue.of(prefix)
        tests = {link for id in asked for link in links[id]}
        rows.append(
            f"| [{document.title}](documents/{document.page}) | {len(asked)} | {len(tests)} |"
        )
    return "\n".join([INDEX, *rows, ""])


def parts(catalogue: Catalogue, prefix: str, links: Mapping[str, list[str]]) -> Iterator[str]:
    yield "| | what it asks | where it lives | shown by |"
    yield "|---|---|---|---|"
    for id, asked in catalogue.of(prefix).items():
        home = catalogue.homes.get(id, Home(""))
        files = ", ".join(f"[{name}](../../{found(name)})" for name in home.files.split())
        lives = ". ".join(part for part in (files, home.note) if part)
        yield f"| {id} | {_cell(asked.text)} | {_cell(lives)} | {_shown(asked, links[id])} |"


def promises(catalogue: Catalogue, prefix: str, links: Mapping[str, list[str]]) -> Iterator[str]:
    for id, asked in catalogue.of(prefix).items():
        yield from (f"## {id}", "", asked.text, "", *(f"- {link}" for link in links[id]), "")


def _shown(asked: Requirement, links: list[str]) -> str:
    told = "<br>".join(f"• {link}" for link in links)
    return told or ("no test" if asked.finished else "later")


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


INDEX = """\
# Where it comes from

Headrace is made from five documents, written apart for one idea: events kept in a relational database, handed to workers
at least once, with a log of what happened. It keeps the promises of all five. For each document there is a page that says what each of its
names and defaults is here, where it differs and why, and then, part by part, what it asks for, where that lives, and the tests that show it.
The last page does the same for [what Headrace promises](guarantees.md) itself.

Written by `make requirements`.

| document | parts | tests |
|---|---|---|"""
WRITTEN = "Written by `make requirements`."


def main(arguments: list[str]) -> None:
    known, cited = catalogue(), citations()
    made = {PROJECT / "docs" / name: text for name, text in pages(known, cited).items()}
    if "--check" not in arguments:
        for path, text in made.items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return
    wrong = problems(known, cited)
    stale = [
        path.relative_to(PROJECT).as_posix()
        for path, text in made.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if stale:
        wrong.append(f"Not current: {', '.join(stale)}. make requirements")
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main(sys.argv[1:])

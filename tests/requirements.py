"""Which test shows which requirement, and where it lives: the marker, the pages made from it, the check.

    @requirement("EQ-8", "EB-7")
    def test_an_abandoned_event_is_eligible_again() -> None: ...

`python -m tests.requirements` writes docs/requirements.md and docs/documents/; with `--check` it only says what
is wrong; with ids it prints the names of their tests. The tests are read, not imported, so it needs no database and no package to be installed.
"""

import ast
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
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
    def file(self) -> str:
        return self.test.partition("::")[0]

    @property
    def sentence(self) -> str:
        """The test's name."""
        _, *names = self.test.split("::")
        return names[-1].removeprefix("test_").replace("_", " ") if names else Path(self.file).name


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
    shown = defaultdict(list)
    for citation in cited:
        shown[citation.id].append(citation)
    made = {"requirements.md": index(catalogue, shown)}
    for prefix, document in catalogue.documents.items():
        table = promises if prefix == "G" else parts
        lines = [*in_words(prefix), *table(catalogue, prefix, shown)]
        made[f"documents/{document.page}"] = "\n".join(
            [f"# {document.title}", "", document.about, "", WRITTEN, "", *lines, ""]
        )
    return made


def in_words(prefix: str) -> list[str]:
    """What stands before a document's requirements: what each of its names is here, and where it differs. See documents/pages."""
    page = TESTS / "documents" / "pages" / f"{prefix}.md"
    if not page.exists():
        return []
    return [page.read_text(encoding="utf-8"), "## Requirements and tests", "", TESTS_COUNTED, ""]


def index(catalogue: Catalogue, shown: Mapping[str, list[Citation]]) -> str:
    rows = []
    for prefix, document in catalogue.documents.items():
        asked = catalogue.of(prefix)
        tests = {citation.test for id in asked for citation in shown[id]}
        rows.append(
            f"| [{document.title}](documents/{document.page}) | {len(asked)} | {len(tests)} |"
        )
    return "\n".join([INDEX, *rows, ""])


def parts(catalogue: Catalogue, prefix: str, shown: Mapping[str, list[Citation]]) -> Iterator[str]:
    yield "| | requirement | code | tests |"
    yield "|---|---|---|---|"
    for id, asked in catalogue.of(prefix).items():
        home = catalogue.homes.get(id, Home(""))
        files = ", ".join(f"[{name}](../../{found(name)})" for name in home.files.split())
        lives = ". ".join(part for part in (files, home.note) if part)
        yield f"| {id} | {_cell(asked.text)} | {_cell(lives)} | {_shown(asked, shown[id])} |"


def promises(
    catalogue: Catalogue, prefix: str, shown: Mapping[str, list[Citation]]
) -> Iterator[str]:
    yield from (TESTS_COUNTED, "")
    for id, asked in catalogue.of(prefix).items():
        yield from (f"## {id}", "", asked.text, "", f"Tests: {_shown(asked, shown[id])}.", "")


def _shown(asked: Requirement, cited: list[Citation]) -> str:
    """By file: a page would drown in names, which `names` prints."""
    files = Counter(citation.file for citation in cited)
    told = ", ".join(
        f"[{Path(file).name}](../../{file})" + (f" ({tests})" if tests > 1 else "")
        for file, tests in files.items()
    )
    return told or ("no test" if asked.finished else "later")


def names(ids: Container[str], cited: list[Citation]) -> Iterator[str]:
    """The names of the tests of these requirements, which are sentences."""
    yield from (f"{one.id}  {one.file}: {one.sentence}" for one in cited if one.id in ids)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


INDEX = """\
# Requirements and test coverage

Headrace is built from five documents on one idea: events in a relational database, delivered to workers at least once, with a log.
It keeps the promises of all five. Each document's page tells what its names and defaults are here, where Headrace differs and why,
and each requirement's code and tests. The last page lists the tests of [Headrace's own guarantees](guarantees.md).

Written by `make requirements`.

| document | requirements | tests |
|---|---|---|"""
TESTS_COUNTED = "In brackets: a file's tests, if several. `python -m tests.requirements EQ-8 G4` prints their names."
WRITTEN = "Written by `make requirements`."


def main(arguments: list[str]) -> None:
    known, cited = catalogue(), citations()
    if ids := [one for one in arguments if one != "--check"]:
        print("\n".join(names(ids, cited)))
        return
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

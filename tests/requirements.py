"""Which test shows which requirement: the marker, `docs/requirements.md` made from it, the check.

    @requirement("EQ-8", "EB-7")
    def test_an_abandoned_event_is_eligible_again() -> None: ...

`python -m tests.requirements` writes the page; with `--check` it only says what is wrong.
The tests are read, not imported, so it needs no database and no package to be installed.
"""

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "requirements.md"


def requirement(*ids: str) -> pytest.MarkDecorator:
    """Say that a test, a class of tests or a module (`pytestmark = …`) shows these requirements."""
    return pytest.mark.requirement(*ids)


class Requirement(NamedTuple):
    text: str
    finished: bool  # the work that brings it is done, so it must have a test


class Citation(NamedTuple):
    id: str
    test: str  # as pytest names it: tests/engine/test_poll.py::test_…

    @property
    def link(self) -> str:
        # Without the line: the page would change with every edit above the test.
        file, _, name = self.test.partition("::")
        return f"[{name or Path(file).name}](../{file})"


def catalogue() -> tuple[dict[str, str], dict[str, Requirement]]:
    """The documents by their prefix, and the requirements by id."""
    content = tomllib.loads((TESTS / "requirements.toml").read_text(encoding="utf-8"))
    return content["documents"], {
        id: Requirement(**fields) for id, fields in content["requirements"].items()
    }


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


def problems(requirements: dict[str, Requirement], cited: list[Citation]) -> list[str]:
    shown = {citation.id for citation in cited}
    unknown = [
        f"{test} cites {id}, which is unknown." for id, test in cited if id not in requirements
    ]
    untested = [id for id, asked in requirements.items() if asked.finished and id not in shown]
    return unknown + ([f"Finished, but without a test: {', '.join(untested)}."] if untested else [])


def page(
    documents: dict[str, str], requirements: dict[str, Requirement], cited: list[Citation]
) -> str:
    links = defaultdict(list)
    for citation in cited:
        links[citation.id].append(citation.link)
    lines = [
        "# Requirements",
        "",
        "What was asked for, and the tests that show it. Written by `make requirements`.",
    ]
    for prefix, title in documents.items():
        lines += ["", f"## {title}", "", "| id | what it asks | shown by |", "|---|---|---|"]
        for id, asked in requirements.items():
            if id.rstrip("0123456789").rstrip("-") == prefix:
                shown = "<br>".join(links[id]) or ("no test" if asked.finished else "later")
                text = asked.text.replace("|", r"\|")
                lines.append(f"| {id} | {text} | {shown} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    documents, requirements = catalogue()
    cited = citations()
    text = page(documents, requirements, cited)
    if "--check" not in arguments:
        PAGE.write_text(text, encoding="utf-8")
        return
    found = problems(requirements, cited)
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        found.append("docs/requirements.md is not current: make requirements")
    if found:
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main(sys.argv[1:])

"""What is thrown at Headrace, and the answer each of these inputs must get: the page made from the tests.

`python -m tests.hostile` writes docs/documents/hostile-inputs.md. What stands there is what the tests are given, so it is imported from them.
"""

import html
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace import errors
from tests.client import test_hostile_input as in_python
from tests.engine import test_hostile_sql as in_sql
from tests.server import test_hostile_input as over_http

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs" / "documents" / "hostile-inputs.md"


class Input(NamedTuple):
    name: str
    answer: str
    kind: str = ""

    @property
    def what(self) -> str:
        return f"{self.kind}: {self.name}" if self.kind else self.name


class Way(NamedTuple):
    """A way in, and what is thrown in there."""

    title: str
    file: str
    about: str
    inputs: list[Input]


def ways() -> list[Way]:
    return [
        Way(
            "Over HTTP",
            "tests/server/test_hostile_input.py",
            "Nothing is published. Invalid HTTP also closes the connection.",
            [
                *(
                    Input(name, f"{status} `{code}`" if code else str(status))
                    for name, (_, status, code) in over_http.REFUSED.items()
                ),
                *(Input(name, str(status)) for name, (_, status) in over_http.RAW.items()),
                *(Input(name, "201, unchanged") for name in over_http.TAKEN),
            ],
        ),
        Way(
            "In Python",
            "tests/client/test_hostile_input.py",
            "An exception that says what is wrong, alone and in a batch. Nothing is published.",
            [
                *(Input(name, "`InvalidPayload`", "payload") for name in in_python.REFUSED),
                *(
                    Input(f"`publish({_call(fields)})`", "`InvalidInput`")
                    for fields in in_python.SENSELESS
                ),
                *(Input(name, "unchanged", "payload") for name in in_python.ACCEPTED),
            ],
        ),
        Way(
            "In SQL",
            "tests/engine/test_hostile_sql.py",
            "SQLSTATEs `QU…` are Headrace's, others PostgreSQL's, alone and in a batch. No row of any table changes.",
            [
                *(
                    Input(name, f"`{sqlstate}`{_called(sqlstate)}", "payload")
                    for name, (_, sqlstate) in in_sql.UNREADABLE.items()
                ),
                *(Input(text, "unchanged", "name and text") for text in in_sql.TEXTS),
            ],
        ),
    ]


def _call(fields: dict[str, object]) -> str:
    return ", ".join(f"{name}={_said(value)}" for name, value in fields.items())


def _said(value: object) -> str:
    text = f"Raw({bytes(value)!r})" if isinstance(value, msgspec.Raw) else repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text):,} characters)"


def _called(sqlstate: str) -> str:
    names = [
        kind.__name__
        for kind in vars(errors).values()
        if isinstance(kind, type) and vars(kind).get("sqlstate") == sqlstate
    ]
    return f" {names[0]}" if names else ""


def page() -> str:
    return "\n".join([*_lines(), ""])


def _lines() -> Iterator[str]:
    there = ways()
    yield from ("# Input validation: hostile inputs and their answers", "")
    yield f"{sum(len(way.inputs) for way in there)} hand-written inputs with the answer each must get ([G18](promises.md#g18)),"
    yield "and generated ones at the end. Written by `make requirements`."
    for way in there:
        yield from ("", f"## {way.title}", "", f"{way.about} [{way.file}](../../{way.file})", "")
        yield from ("| answer | inputs |", "|---|---|")
        for (answer, kind), names in _by_answer(way.inputs).items():
            told = "<br>".join([*([f"*{kind}:*"] if kind else []), *map(_cell, names)])
            yield f"| {answer} | {told} |"
    yield from ("", GENERATED)


def _by_answer(inputs: list[Input]) -> dict[tuple[str, str], list[str]]:
    found = defaultdict(list)
    for one in inputs:
        found[one.answer, one.kind].append(one.name)
    return found


def _cell(text: str) -> str:
    """As it is, in a table: what looks like markup is none."""
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
    if not shown.startswith("`"):
        shown = html.escape(shown, quote=False).replace("\\", "\\\\").replace("`", "\\`")
        for sign in "*_[]{}$":
            shown = shown.replace(sign, f"\\{sign}")
    return shown.replace("|", "\\|")


GENERATED = """\
## Generated inputs (fuzzing)

- Any JSON, through [SQL](../../tests/engine/test_hostile_sql.py), [Python](../../tests/client/test_hostile_input.py) and
  [HTTP](../../tests/server/test_hostile_input.py): returned equal, or refused whole.
- Any event with any fields, valid and invalid, through [SQL](../../tests/engine/test_hostile_sql.py): refused whole, or it can be claimed, failed and read.
- Valid and invalid requests from the OpenAPI description, for [every operation](../../tests/server/test_openapi.py): each answer is described there.
- Valid requests of every operation with [one wrong byte](../../tests/server/test_byte_flips.py): changed, lost, new, swapped or the last. Each gets an answer
  below 500 or a closed connection, and the server continues.
- Any sequence of calls, [compared with a model](../../tests/engine/test_machine.py).
- Every function of the engine and every operation of the server, [with objects of another namespace](../../tests/server/test_every_operation.py)."""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""What is thrown at Headrace, and the answer each of these inputs must get: the page made from the tests.

`python -m tests.hostile` writes docs/documents/hostile-inputs.md. What stands there is what the tests are given, so it is imported from them.
"""

import html
from collections.abc import Iterator
from http import HTTPStatus
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
    what: str
    answer: str


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
            "A status, a code, and a sentence; nothing is published. To what is not HTTP the connection is closed as well.",
            [
                *(
                    Input(name, f"{_status(status)} `{code}`" if code else _status(status))
                    for name, (_, status, code) in over_http.REFUSED.items()
                ),
                *(Input(name, _status(status)) for name, (_, status) in over_http.RAW.items()),
                *(Input(name, "201, and it comes back as it was") for name in over_http.TAKEN),
            ],
        ),
        Way(
            "In Python",
            "tests/client/test_hostile_input.py",
            "An exception that says what is wrong, alone and in a batch; nothing is published.",
            [
                *(Input(f"a payload: {name}", "`InvalidPayload`") for name in in_python.REFUSED),
                *(
                    Input(f"`publish({_call(fields)})`", "`InvalidInput`")
                    for fields in in_python.SENSELESS
                ),
                *(
                    Input(f"a payload: {name}", "comes back as it was")
                    for name in in_python.ACCEPTED
                ),
            ],
        ),
        Way(
            "In SQL",
            "tests/engine/test_hostile_sql.py",
            "An error with its SQLSTATE (`QU…` are Headrace's, the others PostgreSQL's own), alone and in a batch; no row of any table changes.",
            [
                *(
                    Input(f"a payload: {name}", f"`{sqlstate}`{_called(sqlstate)}")
                    for name, (_, sqlstate) in in_sql.UNREADABLE.items()
                ),
                *(
                    Input(f"a name and a text: {text}", "comes back as it was")
                    for text in in_sql.TEXTS
                ),
            ],
        ),
    ]


def _status(status: int) -> str:
    return f"{status} {HTTPStatus(status).phrase}"


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
    yield from ("# What is thrown at it", "")
    yield f"{sum(len(way.inputs) for way in there)} inputs that somebody made up, each with the answer it must get"
    yield "([G18](promises.md#g18)), and at the end those that are made by the thousand. Written by `make requirements`."
    for way in there:
        yield from ("", f"## {way.title}", "", f"{way.about} [{way.file}](../../{way.file})", "")
        yield from ("| | input | answer |", "|---|---|---|")
        for number, one in enumerate(way.inputs, 1):
            yield f"| {number} | {_cell(one.what)} | {one.answer} |"
    yield from ("", GENERATED)


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
## By the thousand

- Any JSON, through [SQL](../../tests/engine/test_hostile_sql.py), [Python](../../tests/client/test_hostile_input.py) and
  [HTTP](../../tests/server/test_hostile_input.py): it comes back equal, or it is refused whole.
- Any event with any fields, right and wrong, through [SQL](../../tests/engine/test_hostile_sql.py): it is refused whole, or it can be claimed, failed and told.
- Requests made from the server's own description, right ones and wrong ones, for
  [every operation](../../tests/server/test_description.py): each answer is one that the description knows.
- Good requests of every operation with [one wrong byte](../../tests/server/test_byte_flips.py): changed, lost, new, swapped or the last. Each is answered
  below 500 or the connection is closed, and the server goes on.
- Any sequence of calls, [beside a model of what they mean](../../tests/engine/test_machine.py).
- Every function of the engine and every operation of the server, [with the things of another namespace](../../tests/server/test_every_operation.py)."""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

"""`headrace doctor`: what a careful operator would look at, and how to mend what is found."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

import psycopg
import typer
from rich.text import Text

from headrace.cli.help import described
from headrace.cli.looking import PANEL
from headrace.cli.options import Data, Dsn, Json
from headrace.cli.showing import clean, count, json_line, say, width
from headrace.cli.source import database
from headrace.doctor import CHECKS, Finding, State, examine

FOUND = 1
"""The exit code when there is something to mend."""

MARKS: dict[State, tuple[str, str]] = {
    "fine": ("✓", "green"),
    "warning": ("!", "bold yellow"),
    "problem": ("✗", "bold red"),
    "unknown": ("?", "cyan"),
}
COLUMN = max(len(check.name) for check in CHECKS) + 6  # where what is said begins


def register(app: typer.Typer) -> None:
    examples = """
        headrace doctor
        headrace doctor --json | jq 'select(.state == "problem")'
        headrace doctor || mail -s "Headrace needs a look" ops@example.com
    """
    described(app, examples=examples, panel=PANEL)(doctor)


def doctor(json: Json = False, dsn: Dsn = None, data: Data = None) -> None:
    """Look at everything a careful operator would look at, and say how to mend what is wrong.

    The exit code is 0 when nothing is found, 1 when something is (a warning or a problem), 2 for a mistake in the command, 3 when the
    database cannot be reached. A check that the role may not make says so, and is no finding.
    """
    with (
        database(dsn, data) as where,
        psycopg.connect(where.dsn, autocommit=True, prepare_threshold=None) as connection,
    ):
        looked = examine(connection, where.dsn)
        findings = list(_told(looked)) if json else _shown(where.name, looked)
    if any(one.state in ("warning", "problem") for one in findings):
        raise typer.Exit(FOUND)


def _told(findings: Iterator[Finding]) -> Iterator[Finding]:
    for one in findings:
        typer.echo(json_line(one))
        yield one


def _shown(name: str, findings: Iterator[Finding]) -> list[Finding]:
    """Print findings as they come."""
    say(clean(name))
    shown: list[Finding] = []
    for about, group in groupby(findings, key=lambda one: one.about):
        say("")
        say(Text(about, style="bold"))
        before = None
        for one in group:
            _show(one, again=one.check == before)
            before = one.check
            shown.append(one)
    say("")
    say(summary(shown))
    return shown


def _show(finding: Finding, *, again: bool) -> None:
    mark, style = MARKS[finding.state]
    room = width()
    text = clean(finding.says)
    lines = textwrap.wrap(text, max(room - COLUMN, 30)) if room else [text]
    name = Text(("" if again else finding.check).ljust(COLUMN - 4))
    quiet = "dim" if finding.state == "fine" else ""
    say(Text.assemble("  ", (mark, style), " ", name, (lines[0], quiet)))
    for line in lines[1:]:
        say(Text(" " * COLUMN + line))
    if finding.mend is not None:
        # On one line, however long: it is there to be copied.
        say(Text.assemble(" " * COLUMN, ("→ ", style), (clean(finding.mend), "bold")))


def summary(findings: Sequence[Finding]) -> Text:
    states = Counter(one.state for one in findings)
    kinds: tuple[State, ...] = ("problem", "warning")
    found = [(count(states[kind], kind), MARKS[kind][1]) for kind in kinds if states[kind]]
    hidden = f"; {count(states['unknown'], 'check')} could not be made" if states["unknown"] else ""
    if not found:
        return Text.assemble(("Nothing to mend", "green"), f" in {len(CHECKS)} checks{hidden}.")
    return Text.assemble(*_joined(found), f" in {len(CHECKS)} checks{hidden}.")


def _joined(parts: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for n, part in enumerate(parts):
        if n:
            yield (", ", "")
        yield part

"""`headrace doctor`, `repair`: checks of a database, and remedies."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from headrace.cli.source import InDatabase
from headrace.cli.terminal.command import command
from headrace.cli.terminal.json import json_line
from headrace.cli.terminal.options import Json
from headrace.cli.terminal.text import clean, count, say, width

if TYPE_CHECKING:  # --help and completion do without it
    import psycopg

    from headrace.doctor import Diagnosis, State

FOUND = 1
"""The exit code when there is a warning or a problem."""

MARKS: dict[State, tuple[str, str]] = {
    "fine": ("✓", "green"),
    "warning": ("!", "bold yellow"),
    "problem": ("✗", "bold red"),
    "unknown": ("?", "cyan"),
}


@command(
    examples="""
    headrace doctor
    headrace doctor --json | jq 'select(.state == "problem")'
    headrace doctor || mail -s "Headrace needs a look" ops@example.com
    """,
)
def doctor(json: Json = False, *, where: InDatabase) -> None:
    """Check the database, the schema and the queues, and show how to fix problems.

    The exit code is 0 if all checks pass, 1 after a warning or a problem, 2 for a mistake in the
    command, 3 if the database cannot be reached. A check that the role may not run is reported, and
    is not a finding.
    """
    from headrace.doctor import compare, examine
    from headrace.driver.connect import open_session

    findings: list[Diagnosis] = []
    with where.each_database() as sources, ExitStack() as opened:
        several: dict[str, psycopg.Connection] = {}
        for source in sources:
            connection = several[source.name] = opened.enter_context(open_session(source.dsn))
            looked = examine(connection, source.dsn)
            findings += printed_json(looked) if json else printed(source.name, looked)
        if len(several) > 1:
            looked = compare(several)
            findings += printed_json(looked) if json else printed("All shards together", looked)
    if any(one.state in ("warning", "problem") for one in findings):
        raise typer.Exit(FOUND)


def printed_json(findings: Iterator[Diagnosis]) -> list[Diagnosis]:
    """Print findings as they come, for programs."""
    looked = []
    for one in findings:
        say(json_line(one))
        looked.append(one)
    return looked


def printed(name: str, findings: Iterator[Diagnosis]) -> list[Diagnosis]:
    """Print findings as they come, for people."""
    say(clean(name))
    column = max(len(name) for name in _checks()) + 6  # where the texts begin
    looked: list[Diagnosis] = []
    for about, group in groupby(findings, key=lambda one: one.about):
        say("")
        say(Text(about, style="bold"))
        before = None
        for one in group:
            _print(one, column, again=one.check == before)
            before = one.check
            looked.append(one)
    say("")
    say(summary(looked))
    return looked


def _checks() -> list[str]:
    from headrace.doctor import CHECKS

    return [check.name for check in CHECKS]


def _print(finding: Diagnosis, column: int, *, again: bool) -> None:
    mark, style = MARKS[finding.state]
    room = width()
    text = clean(finding.says)
    lines = textwrap.wrap(text, max(room - column, 30)) if room else [text]
    name = Text(("" if again else finding.check).ljust(column - 4))
    quiet = "dim" if finding.state == "fine" else ""
    say(Text.assemble("  ", (mark, style), " ", name, (lines[0], quiet)))
    for line in lines[1:]:
        say(Text(" " * column + line))
    if finding.mend is not None:
        # On one line, however long: it is there to be copied.
        say(Text.assemble(" " * column, ("→ ", style), (clean(finding.mend), "bold")))


def summary(findings: Sequence[Diagnosis]) -> Text:
    states = Counter(one.state for one in findings)
    kinds: tuple[State, ...] = ("problem", "warning")
    found = [(count(states[kind], kind), MARKS[kind][1]) for kind in kinds if states[kind]]
    hidden = f"; {count(states['unknown'], 'check')} could not run" if states["unknown"] else ""
    if not found:
        found = [("No problems", "green")]
    return Text.assemble(*_joined(found), f" in {len(_checks())} checks{hidden}.")


def _joined(parts: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for n, part in enumerate(parts):
        if n:
            yield (", ", "")
        yield part


@command(examples="headrace repair")
def repair(*, where: InDatabase) -> None:
    """Correct the sequence of ids, after a partial restore or a switch to a logical replica.

    Both copy the rows of the tables and not the sequence, and publishing is refused until this has
    run. A sequence that was altered gets the step of its shard again. If nothing is wrong it
    changes nothing.
    """
    from headrace.driver.connect import check_owner, open_session
    from headrace.driver.run import run
    from headrace.engine.database import repair_ids

    with where.each_database() as sources:
        for source in sources:
            with open_session(source.dsn) as connection:
                check_owner(connection)
                highest = run(connection, repair_ids(None), prepare=False)
            if highest is None:
                done = "nothing to repair, the sequence headrace.ids is ahead of its tables."
            else:
                done = f"repaired, ids continue after {highest}."
            typer.echo(f"{source.name}: {done}")

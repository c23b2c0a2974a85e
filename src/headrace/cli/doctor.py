"""`headrace doctor`: what a careful operator would look at, and how to mend what is found."""

from __future__ import annotations

import typer

from headrace.cli.help import described
from headrace.cli.looking import PANEL
from headrace.cli.options import Data, Dsn, Json
from headrace.cli.source import database

FOUND = 1
"""The exit code when there is something to mend."""


def register(app: typer.Typer) -> None:
    examples = """
        headrace doctor
        headrace doctor --json | jq 'select(.state == "problem")'
        headrace doctor || mail -s "Headrace needs a look" ops@example.com
    """
    described(app, examples=examples, panel=PANEL)(doctor)
    described(app, examples="headrace repair", panel=PANEL)(repair)


def doctor(json: Json = False, dsn: Dsn = None, data: Data = None) -> None:
    """Look at everything a careful operator would look at, and say how to mend what is wrong.

    The exit code is 0 when nothing is found, 1 when something is (a warning or a problem), 2 for a mistake in the command, 3 when the
    database cannot be reached. A check that the role may not make says so, and is no finding.
    """
    from headrace.cli.findings import shown, told
    from headrace.doctor import examine
    from headrace.opening import open_session

    with (
        database(dsn, data) as where,
        open_session(where.dsn) as connection,
    ):
        looked = examine(connection, where.dsn)
        findings = told(looked) if json else shown(where.name, looked)
    if any(one.state in ("warning", "problem") for one in findings):
        raise typer.Exit(FOUND)


def repair(dsn: Dsn = None, data: Data = None) -> None:
    """Bring the sequence of ids forward, after a restore of a part of a dump or a switch to a copy by logical replication.

    Both bring the rows of the tables and leave the sequence behind, and publishing is refused until this was run. Where nothing is to
    be done it changes nothing.
    """
    from headrace import statements
    from headrace.opening import check_owner, open_session
    from headrace.running import run

    with (
        database(dsn, data) as where,
        open_session(where.dsn) as connection,
    ):
        check_owner(connection)
        highest = run(connection, statements.repair_ids(None), prepare=False)
    if highest is None:
        typer.echo(
            f"{where.name}: nothing to repair, the sequence headrace.ids is ahead of its tables."
        )
    else:
        typer.echo(f"{where.name}: repaired, ids go on after {highest}.")

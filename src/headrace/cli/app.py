"""The commands, their options and what is said when something goes wrong."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from rich.console import Console

from headrace import migrate as migration
from headrace.cli.source import database
from headrace.errors import HeadraceError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A durable event queue and bus that lives in PostgreSQL.",
)
complaint = Console(stderr=True, highlight=False)

Dsn = Annotated[
    str | None,
    typer.Option(
        help="PostgreSQL to use; else HEADRACE_DSN, DATABASE_URL, or an embedded one.",
        show_default=False,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the embedded PostgreSQL; else HEADRACE_DATA, or .headrace here.",
        show_default=False,
    ),
]


@app.callback(invoke_without_command=True)
def about(
    show: Annotated[bool, typer.Option("--version", help="Say which release this is.")] = False,
) -> None:
    """Answer --version."""
    if show:
        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


@app.command()
def up(
    dsn: Dsn = None,
    data: Data = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Add events, workers, and a worker's death to look at.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option("--for", help="Stop by itself after so many seconds.")
    ] = None,
) -> None:
    """Start everything on this machine: PostgreSQL, the schema, the upkeep. Ctrl-C stops it."""
    from headrace.cli import demonstration, upkeep

    with database(dsn, data) as where:
        with psycopg.connect(where.dsn, autocommit=True) as connection:
            migration.migrate(connection)
        if demo:
            demonstration.run(where, seconds)
        else:
            upkeep.run(where, seconds)


@app.command()
def migrate(
    dsn: Dsn = None,
    data: Data = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL instead of running it.")
    ] = False,
) -> None:
    """Bring a database to this release. Safe to repeat, and while workers run."""
    if sql:
        sys.stdout.write(migration.script())
        return
    with (
        database(dsn, data) as where,
        psycopg.connect(where.dsn, autocommit=True) as connection,
    ):
        changed = migration.migrate(connection)
    typer.echo(f"{where.name}: {'migrated to this release' if changed else 'up to date'}.")


def run() -> None:
    """Run the command that was asked for; a user's mistake gets a sentence, not a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except (HeadraceError, psycopg.Error) as error:
        complaint.print(f"[bold red]headrace:[/] {str(error).strip()}", soft_wrap=True)
        sys.exit(1)

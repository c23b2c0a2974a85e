"""The commands, their options and what is said when something goes wrong."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from rich.console import Console
from rich.markup import escape

from headrace import migrate as migration
from headrace.cli.options import Data, Dsn
from headrace.cli.source import database
from headrace.cli.tokens import tokens
from headrace.errors import HeadraceError
from headrace.opening import open_source

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A durable event queue and bus that lives in PostgreSQL.",
)
complaint = Console(stderr=True, highlight=False)

app.add_typer(tokens, name="tokens")


@app.callback(invoke_without_command=True)
def about(
    show: Annotated[bool, typer.Option("--version", help="Say which release this is.")] = False,
) -> None:
    """Answer --version."""
    if show:
        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[
    int | None,
    typer.Option(
        help="Port to listen on, 0 for any that is free; else 8080, or any if that is taken.",
        show_default=False,
        min=0,
        max=65535,
    ),
]
Connections = Annotated[int, typer.Option(help="Connections to PostgreSQL, at most.", min=3)]
Pooler = Annotated[
    bool,
    typer.Option("--pooler", help="There is a transaction pooler in front of PostgreSQL."),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure-no-auth", help="Ask nobody for a token, though others can reach this address."
    ),
]
Seconds = Annotated[
    float | None, typer.Option("--for", help="Stop by itself after so many seconds.")
]


@app.command()
def up(
    dsn: Dsn = None,
    data: Data = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Add events, workers, and a worker's death to look at.")
    ] = False,
    host: Host = "127.0.0.1",
    port: Port = None,
    seconds: Seconds = None,
    insecure: Insecure = False,
) -> None:
    """Start everything on this machine: PostgreSQL, the schema, the API, the upkeep. Ctrl-C stops it."""
    from headrace.cli import demonstration, serve

    address = serve.Address(host, port, insecure=insecure)
    with database(dsn, data) as where:
        with psycopg.connect(where.dsn, autocommit=True) as connection:
            migration.migrate(connection)
        if demo:
            with serve.beside(where, address) as url:
                demonstration.run(where, seconds, url)
        else:
            serve.run(where, address, seconds, greeting="Headrace is up")


@app.command(name="serve")
def serve_(
    dsn: Dsn = None,
    data: Data = None,
    host: Host = "127.0.0.1",
    port: Port = None,
    connections: Connections = 10,
    pooler: Pooler = False,
    seconds: Seconds = None,
    insecure: Insecure = False,
) -> None:
    """Serve the HTTP API on a database that has the schema (see migrate). Ctrl-C or SIGTERM stops it."""
    from headrace.cli import serve

    address = serve.Address(host, port, connections, prepare=not pooler, insecure=insecure)
    with database(dsn, data) as where:
        open_source(where.dsn, None, migrate=where.embedded, namespace="default")
        serve.run(where, address, seconds, greeting="Headrace serves")


@app.command()
def migrate(
    dsn: Dsn = None,
    data: Data = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL instead of running it.")
    ] = False,
    core: Annotated[
        bool | None,
        typer.Option("--core/--no-core", help="Have a schema core of views and functions."),
    ] = None,
    pgmq: Annotated[
        bool | None,
        typer.Option("--pgmq/--no-pgmq", help="Have pgmq's functions, for its clients."),
    ] = None,
) -> None:
    """Bring a database to this release. Safe to repeat, and while workers run.

    What is asked for beside it is kept up to date from then on, until --no-… removes it.
    """
    parts = {"core": core, "pgmq": pgmq}
    add = [name for name, wanted in parts.items() if wanted is True]
    remove = [name for name, wanted in parts.items() if wanted is False]
    if sql:
        sys.stdout.write(migration.script(add=add, remove=remove))
        return
    with (
        database(dsn, data) as where,
        psycopg.connect(where.dsn, autocommit=True) as connection,
    ):
        changed = migration.migrate(connection, add=add, remove=remove)
    typer.echo(f"{where.name}: {'migrated to this release' if changed else 'up to date'}.")


@app.command()
def worker(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NODE", help="Where the node is, as in shop.tasks:node.")
    ],
    dsn: Dsn = None,
    data: Data = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Handlers at once, instead of what the node says.")
    ] = None,
    grace: Annotated[
        float | None, typer.Option(min=0, help="Seconds that handlers get to end when it stops.")
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Answer /healthz, /readyz and /metrics there."),
    ] = None,
    json_logs: Annotated[
        bool, typer.Option("--json-logs", help="Log a JSON object a line, on standard error.")
    ] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start again when Python in this folder changes.")
    ] = False,
) -> None:
    """Run a node of yours. SIGTERM or Ctrl-C lets its handlers end; a second one does not."""
    from headrace.cli import reloading
    from headrace.cli import worker as working

    if reload:
        again = [argument for argument in sys.argv[1:] if argument != "--reload"]
        raise typer.Exit(reloading.run(again, Path.cwd()))
    working.run(target, working.Options(dsn, data, concurrency, grace, health, json_logs))


def run() -> None:
    """Run the command that was asked for; a user's mistake gets a sentence, not a traceback."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except (HeadraceError, psycopg.Error) as error:
        complaint.print(f"[bold red]headrace:[/] {escape(str(error).strip())}", soft_wrap=True)
        sys.exit(1)

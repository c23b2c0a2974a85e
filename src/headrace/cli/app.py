"""The commands, their options and what is said when something goes wrong."""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.text import Text

from headrace.cli import (
    bench,
    changing,
    doctor,
    events,
    lifeline,
    looking,
    publish,
    replay,
    show,
    states,
    tail,
    times,
)
from headrace.cli.dead import dead
from headrace.cli.failing import (
    INTERRUPTED,
    MISTAKE,
    TERMINATED,
    ClickError,
    complaint,
)
from headrace.cli.help import Group, described
from headrace.cli.namespaces import namespaces
from headrace.cli.options import Data, Dsn, Pooler
from headrace.cli.queues import queues
from headrace.cli.roles import roles
from headrace.cli.schedules import schedules
from headrace.cli.showing import clean_lines, err, out
from headrace.cli.signals import ending_in_order
from headrace.cli.source import database, prepared
from headrace.cli.tokens import tokens
from headrace.cli.transfer import state
from headrace.redaction import redacted

HERE, QUEUES = "On this machine", "Queues"

app = typer.Typer(
    cls=Group,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A durable event queue and bus that lives in PostgreSQL.",
)


@app.callback(invoke_without_command=True)
def about(
    show: Annotated[bool, typer.Option("--version", help="Say which release this is.")] = False,
    trace: Annotated[
        bool, typer.Option("--traceback", help="Show where an error was raised, for who mends it.")
    ] = False,
) -> None:
    """Answer --version."""
    _shown["traceback"] = trace
    if show:
        from importlib.metadata import version

        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


_shown = {"traceback": False}

Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")]
Port = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        help="Port to listen on, 0 for any that is free; else 8080, or any if that is taken.",
        show_default=False,
        min=0,
        max=65535,
    ),
]
Connections = Annotated[
    int, typer.Option(metavar="NUMBER", help="Connections to PostgreSQL, at most.", min=4)
]
Open = Annotated[
    bool,
    typer.Option("--open", help="Ask nobody for a token: whoever reaches it is administrator."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the first token, an administrator's; else HEADRACE_TOKEN. It is made if there never was one.",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Name by which it may be asked, as behind a proxy; may be repeated. * is any.",
    ),
]
MaxEvents = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Events that a request may publish, at most.",
        show_default="10000",
        min=1,
    ),
]
Requests = Annotated[
    int | None,
    typer.Option(
        "--requests",
        metavar="NUMBER",
        help="Requests a second that a token, or a namespace, may send; 0 for any number.",
        show_default="1000",
        min=0,
    ),
]
Streams = Annotated[
    int | None,
    typer.Option(
        "--streams",
        metavar="NUMBER",
        help="Streams that a token, or a namespace, may follow at once.",
        show_default="100",
        min=1,
    ),
]
Lease = Annotated[
    timedelta | None,
    typer.Option(
        "--lease",
        parser=times.lease,
        metavar="TIME",
        envvar="HEADRACE_LEASE",
        show_envvar=False,
        help="How long a claim lasts where neither it nor its queue says so: 10m; else HEADRACE_LEASE.",
        show_default="60s",
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option("--for", metavar="SECONDS", help="Stop by itself after so many seconds."),
]


@described(
    app,
    panel=HERE,
    examples="""
    headrace up
    headrace up --demo
    headrace up --host 0.0.0.0 --port 8080 --token-file token
    """,
)
def up(
    dsn: Dsn = None,
    data: Data = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Add events, workers, and a worker's death to look at.")
    ] = False,
    host: Host = "127.0.0.1",
    port: Port = None,
    seconds: Seconds = None,
    open: Open = False,
    token_file: TokenFile = None,
    allow_host: AllowHost = None,
    lease: Lease = None,
) -> None:
    """Start everything on this machine: PostgreSQL, the schema, the API, the upkeep. Ctrl-C stops it."""
    from headrace.cli import demonstration, serve
    from headrace.migrate import migrate as bring_up_to_date
    from headrace.opening import open_session

    address = serve.Address(
        host,
        port,
        open=open,
        open_until_token=True,
        token_file=token_file,
        hosts=tuple(allow_host or ()),
        limits=_given(lease=_seconds(lease)),
    )
    with database(dsn, data) as where:
        with open_session(where.dsn) as connection:
            bring_up_to_date(connection)
        if demo:
            with serve.beside(where, address) as url:
                demonstration.run(where, seconds, url)
        else:
            serve.run(where, address, seconds, greeting="Headrace is up")


@described(
    app,
    "serve",
    panel=HERE,
    examples="""
    headrace serve
    headrace serve --open
    headrace serve --host 0.0.0.0 --port 8080 --connections 20
    """,
)
def serve_(
    dsn: Dsn = None,
    data: Data = None,
    host: Host = "127.0.0.1",
    port: Port = None,
    connections: Connections = 10,
    pooler: Pooler = False,
    seconds: Seconds = None,
    open: Open = False,
    token_file: TokenFile = None,
    allow_host: AllowHost = None,
    max_events: MaxEvents = None,
    requests: Requests = None,
    streams: Streams = None,
    lease: Lease = None,
) -> None:
    """Serve the HTTP API on a database that has the schema (see migrate). Ctrl-C, SIGTERM or SIGHUP stops it."""
    from headrace.cli import serve

    address = serve.Address(
        host,
        port,
        connections,
        prepare=not pooler,
        open=open,
        token_file=token_file,
        hosts=tuple(allow_host or ()),
        limits=_given(events=max_events, requests=requests, streams=streams, lease=_seconds(lease)),
    )
    with prepared(dsn, data) as where:
        serve.run(where, address, seconds, greeting="Headrace serves")


def _given(**limits: float | None) -> dict[str, float]:
    return {name: limit for name, limit in limits.items() if limit is not None}


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()


@described(
    app,
    panel=HERE,
    examples="""
    headrace migrate
    headrace migrate --sql | less
    headrace migrate --core --pg-cron
    """,
)
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
    partman: Annotated[
        bool | None,
        typer.Option("--partman/--no-partman", help="Have pg_partman make and detach the months."),
    ] = None,
    pg_cron: Annotated[
        bool | None,
        typer.Option("--pg-cron/--no-pg-cron", help="Have pg_cron tick and run the schedules."),
    ] = None,
    pgmq: Annotated[
        bool | None,
        typer.Option("--pgmq/--no-pgmq", help="Have pgmq's functions, for its clients."),
    ] = None,
) -> None:
    """Bring a database to this release. Safe to repeat, and while workers run.

    What is asked for beside it is kept up to date from then on, until --no-… removes it.
    """
    from headrace.cli.migrating import migrate_with_bar
    from headrace.migrate import script
    from headrace.opening import open_session

    parts = {"core": core, "partman": partman, "pg_cron": pg_cron, "pgmq": pgmq}
    add = [name for name, wanted in parts.items() if wanted is True]
    remove = [name for name, wanted in parts.items() if wanted is False]
    if sql:
        sys.stdout.write(script(add=add, remove=remove))
        return
    with (
        database(dsn, data) as where,
        open_session(where.dsn) as connection,
    ):
        changed = migrate_with_bar(connection, add=add, remove=remove)
    typer.echo(f"{where.name}: {'migrated to this release' if changed else 'up to date'}.")


@described(
    app,
    panel=HERE,
    examples="""
    headrace worker shop.tasks:node
    headrace worker shop.tasks:node --concurrency 20 --health 0.0.0.0:9000 --json-logs
    headrace worker shop.tasks:node --reload
    """,
)
def worker(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NODE", help="Where the node is, as in shop.tasks:node.")
    ],
    dsn: Dsn = None,
    data: Data = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", min=1, help="Handlers at once, instead of what the node says."
        ),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="Seconds that handlers get to end when it stops."
        ),
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


bench.register(app)
publish.register(app)
events.register(app)
show.register(app)
changing.register(app)
tail.register(app)
replay.register(app)
app.add_typer(dead, name="dead", rich_help_panel="Events")
states.register(app)
app.add_typer(queues, name="queues", rich_help_panel=QUEUES)
app.add_typer(state, name="state", rich_help_panel=QUEUES)
app.add_typer(schedules, name="schedules", rich_help_panel=QUEUES)
app.add_typer(namespaces, name="namespaces", rich_help_panel=QUEUES)
looking.register(app)
doctor.register(app)
app.add_typer(tokens, name="tokens", rich_help_panel="What is going on")
app.add_typer(roles, name="roles", rich_help_panel="What is going on")


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command that was asked for, and exit; whatever goes wrong is a sentence, and an exit code that means something."""
    with ending_in_order() as requests:
        lifeline.watch()
        try:
            _run(arguments)
        except SystemExit as ended:
            if requests.terminated and ended.code == INTERRUPTED:
                sys.exit(TERMINATED)
            raise


def _run(arguments: Sequence[str] | None) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a terminal that cannot show a character must not end a command
            stream.reconfigure(errors="backslashreplace")
    try:
        code: Any = _command()(arguments, prog_name="headrace", standalone_mode=False)
        out().file.flush()
    except BrokenPipeError:
        # What is still to be written goes nowhere: Python would complain of it, and exit with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except typer.Abort:
        _complain("\nNothing was changed.")
        sys.exit(INTERRUPTED)
    except ClickError as error:
        sys.exit(_misused(error))
    except Exception as error:
        sys.exit(_failed(error))
    sys.exit(code if isinstance(code, int) else 0)


@cache
def _command() -> Any:
    return typer.main.get_command(app)


def _misused(error: Any) -> int:
    path = error.ctx.command_path if getattr(error, "ctx", None) else "headrace"
    sentence = " ".join(_in_groups(error.format_message()).split()).replace(": Value error, ", ": ")
    ended = sentence if sentence.endswith((".", "?")) else f"{sentence}."
    _complain(f"{ended} (See: {path} --help)")
    return MISTAKE


def _in_groups(sentence: str) -> str:
    """Who types the name of a command that is in a group means that one, not one that looks like it."""
    wanted = re.match(r"No such command '([\w-]+)'", sentence)
    groups = _command().commands.items()
    meant = [
        f"'{name} {wanted[1]}'"
        for name, group in groups
        if wanted and wanted[1] in getattr(group, "commands", {})
    ]
    return f"{wanted[0]}. Did you mean {' or '.join(meant)}?" if wanted and meant else sentence


def _failed(error: Exception) -> int:
    if _shown["traceback"]:
        traceback.print_exception(error)
    found = complaint(error)
    if found is not None:
        _complain(found.sentence)
        return found.code
    said = f"{type(error).__name__}: {error}"
    _complain(f"{said} (nobody has foreseen this: headrace --traceback … shows where)")
    return 1


def _complain(sentence: str) -> None:
    words = Text("headrace: ", style="bold red")
    words.append(clean_lines(redacted(sentence)).strip(), style="not bold default")
    err().print(words, soft_wrap=not err().is_terminal)

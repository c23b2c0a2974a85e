"""The table of commands: `headrace --help` in code."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.bench.bench import bench
from headrace.cli.commands.admin_log import admin_log
from headrace.cli.commands.attention import attention
from headrace.cli.commands.cancel_reset_erase import cancel, erase, rerun, reset
from headrace.cli.commands.checkpoints import checkpoint, checkpoints
from headrace.cli.commands.dead import dead
from headrace.cli.commands.doctor import doctor, repair
from headrace.cli.commands.events import events
from headrace.cli.commands.migrate import migrate
from headrace.cli.commands.namespaces import namespaces
from headrace.cli.commands.nodes import nodes, workers
from headrace.cli.commands.publish import publish
from headrace.cli.commands.queue_states import drain, pause, resume
from headrace.cli.commands.queues import queues
from headrace.cli.commands.replay import replay
from headrace.cli.commands.roles import roles
from headrace.cli.commands.schedules import schedules
from headrace.cli.commands.serve import serve
from headrace.cli.commands.shards import shards
from headrace.cli.commands.show import show
from headrace.cli.commands.state import state
from headrace.cli.commands.stats import stats
from headrace.cli.commands.tail import tail
from headrace.cli.commands.tokens import tokens
from headrace.cli.commands.up import up
from headrace.cli.commands.why import why
from headrace.cli.commands.worker import worker
from headrace.cli.terminal.command import Command, Group
from headrace.cli.terminal.help import Group as HelpGroup

# A new command is declared in its module and listed here, in the order of `headrace --help`.
COMMANDS: dict[str, tuple[Command | Group, ...]] = {
    "Servers and workers": (up, serve, migrate, worker, bench),
    "Events": (publish, events, show, why, cancel, reset, rerun, erase, tail, replay, dead),
    "Queues": (
        *(checkpoint, checkpoints, pause, resume, drain),
        *(queues, state, schedules, namespaces),
    ),
    "Operations": (
        *(stats, attention, nodes, workers, admin_log, doctor, repair),
        *(tokens, roles, shards),
    ),
}

app = typer.Typer(
    cls=HelpGroup,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A durable event queue and bus that lives in PostgreSQL.",
)
for _section, _commands in COMMANDS.items():
    for _command in _commands:
        _command.add_to(app, _section)

shown = {"traceback": False}
"""The options before the command."""


@app.callback(invoke_without_command=True)
def about(
    show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    trace: Annotated[
        bool, typer.Option("--traceback", help="Show the Python traceback of an error.")
    ] = False,
) -> None:
    """Read the options before the command."""
    shown["traceback"] = trace
    if show:
        from importlib.metadata import version

        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit

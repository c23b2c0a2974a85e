"""`headrace worker MODULE:NODE`: finds a node in your code and runs it until it is told to stop."""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
import threading
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.source import InDatabase
from headrace.cli.terminal.command import command
from headrace.errors import HeadraceError

if TYPE_CHECKING:  # --help and completion do without it
    from headrace.node.node import Node

logger = logging.getLogger("headrace.worker")

_IMPORTING = re.compile(rf"importlib|^{re.escape(__file__)}$")

Target = Annotated[
    str, typer.Argument(metavar="MODULE:NODE", help="The node in your code, as shop.tasks:node.")
]
Concurrency = Annotated[
    int | None,
    typer.Option(metavar="NUMBER", min=1, help="Handlers at once; default: as in the node's code."),
]
Grace = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="Seconds for handlers to finish at shutdown."),
]
Health = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics there."),
]
JsonLogs = Annotated[
    bool, typer.Option("--json-logs", help="Log one JSON object per line, on standard error.")
]
Reload = Annotated[
    bool, typer.Option("--reload", help="Restart when a Python file in this folder changes.")
]


class NotImported(HeadraceError):
    """The module exists, and raises an exception when it is imported."""


@dataclass(frozen=True)
class Options:
    """Settings of a node on the command line; None: as in its code."""

    concurrency: Concurrency = None
    grace: Grace = None
    health: Health = None
    json_logs: JsonLogs = False


@command(
    examples="""
    headrace worker shop.tasks:node
    headrace worker shop.tasks:node --concurrency 20 --health 0.0.0.0:9000 --json-logs
    headrace worker shop.tasks:node --reload
    """,
)
def worker(target: Target, *, options: Options, reload: Reload = False, where: InDatabase) -> None:
    """Run a node of your code. SIGTERM or Ctrl-C finishes running handlers; a second signal
    exits at once."""
    if reload:
        from headrace.cli.commands.reload import run_again

        arguments = [argument for argument in sys.argv[1:] if argument != "--reload"]
        raise typer.Exit(run_again(arguments, Path.cwd()))
    _run(target, options, where)


def _run(target: str, options: Options, where: InDatabase) -> None:
    from headrace.node.registrations import handlers_of
    from headrace.telemetry import logs

    logs.configure(json=options.json_logs)
    node = found(target)
    _apply(node, options, where)
    said = node.settings
    logger.info(
        "node %s handles %s from the queue %s/%s",
        said.node_id,
        ", ".join(handlers_of(node).types) or "nothing",
        said.namespace,
        said.queue,
        extra={"node": said.node_id},
    )
    code = 0
    try:
        node.run(health=options.health)
    except SystemExit as exhausted:
        code = int(exhausted.code or 0)
    logger.info("node %s has stopped", said.node_id, extra={"node": said.node_id})
    _leave_threads(code)
    if code:
        raise typer.Exit(code)


def _leave_threads(code: int) -> None:
    """End the process soon, even if a handler started a thread that does not end: Python would
    wait for it."""
    from headrace.node.overseer import LEAVING

    left = [one.name for one in threading.enumerate() if not one.daemon]
    left.remove(threading.main_thread().name)
    if left:
        logger.warning("threads that handlers started are still running: %s", ", ".join(left))
        end = threading.Timer(LEAVING, os._exit, [code])
        end.daemon = True
        end.start()


def _apply(node: Node, options: Options, where: InDatabase) -> None:
    """Replace settings of the node by those of the command line."""
    changes: dict[str, Any] = {}
    if where.dsn is not None or where.data is not None:
        changes |= {"dsn": where.dsn, "data": where.data}
    if options.concurrency is not None:
        changes["concurrency"] = options.concurrency
    node.settings = replace(node.settings, **changes)
    if options.grace is not None:
        node.grace = options.grace


def found(target: str) -> Node:
    """The node that `shop.tasks:node` names."""
    from headrace.node.node import Node

    name, colon, attribute = target.partition(":")
    if name.endswith(".py") or "/" in name:
        meant = name.removesuffix(".py").strip("./").replace("/", ".")
        raise _mistake(f"name the module, not the file: {meant}:{attribute or 'node'}")
    if not colon or not name or not attribute:
        raise _mistake(f"{target!r} is not MODULE:NODE, as in shop.tasks:node")
    module = imported(name)
    try:
        node = attrgetter(attribute)(module)
    except AttributeError:
        there = [known for known, value in vars(module).items() if isinstance(value, Node)]
        others = f"; its nodes are: {', '.join(there)}" if there else ", and no node"
        raise _mistake(f"the module {name} has no {attribute!r}{others}") from None
    if not isinstance(node, Node):
        raise _mistake(f"{target} is not a headrace.Node; its type is {type(node).__name__}")
    return node


def imported(name: str) -> ModuleType:
    """The module, looked for in this folder first."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Is this module missing, or one that it imports?
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise _mistake(
                f"there is no module {error.name!r} in {here} or on Python's path"
            ) from None
        raise _not_imported(name, error) from error
    except Exception as error:
        raise _not_imported(name, error) from error


def _mistake(sentence: str) -> typer.BadParameter:
    return typer.BadParameter(sentence, param_hint="'MODULE:NODE'")


def _not_imported(name: str, error: Exception) -> NotImported:
    """With the error's traceback, from where the module's own code begins."""
    from headrace.model.failure_text import failure_text

    trace = error.__traceback__
    while trace is not None and _IMPORTING.search(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return NotImported(f"cannot import {name}.\n{failure_text(error.with_traceback(trace))}")

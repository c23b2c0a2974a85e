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
from typing import Any

import typer

from headrace import logs
from headrace.errors import HeadraceError
from headrace.failures import failure_text
from headrace.node.node import Node
from headrace.node.overseer import LEAVING

logger = logging.getLogger("headrace.worker")

_IMPORTING = re.compile(rf"importlib|^{re.escape(__file__)}$")


class NotImported(HeadraceError):
    """The module is there, and raises an exception when it is imported."""


@dataclass(frozen=True)
class Options:
    """What the command line says about a node, instead of what its code says; None: as that does."""

    dsn: str | None = None
    data: Path | None = None
    concurrency: int | None = None
    grace: float | None = None
    health: str | None = None
    json_logs: bool = False


def run(target: str, options: Options) -> None:
    """Work until SIGTERM or Ctrl-C; a second one ends it at once."""
    logs.configure(json=options.json_logs)
    node = found(target)
    apply(node, options)
    said = node.settings
    logger.info(
        "node %s handles %s of the queue %s/%s",
        said.node_id,
        ", ".join(node._handlers.types) or "nothing",
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
    """End the process soon, also if a handler has begun a thread that does not end: Python would wait for it."""
    left = [one.name for one in threading.enumerate() if not one.daemon]
    left.remove(threading.main_thread().name)
    if left:
        logger.warning("threads that handlers have begun are left behind: %s", ", ".join(left))
        end = threading.Timer(LEAVING, os._exit, [code])
        end.daemon = True
        end.start()


def apply(node: Node, options: Options) -> None:
    """Have the node do as the command line says."""
    changes: dict[str, Any] = {}
    if options.dsn is not None or options.data is not None:
        changes |= {"dsn": options.dsn, "data": options.data}
    if options.concurrency is not None:
        changes["concurrency"] = options.concurrency
    node.settings = replace(node.settings, **changes)
    if options.grace is not None:
        node.grace = options.grace


def found(target: str) -> Node:
    """The node that is named as `shop.tasks:node`."""
    name, colon, attribute = target.partition(":")
    if name.endswith(".py") or "/" in name:
        meant = name.removesuffix(".py").strip("./").replace("/", ".")
        raise _mistake(f"name the module, not the file: {meant}:{attribute or 'node'}")
    if not colon or not name or not attribute:
        raise _mistake(f"a node is named as MODULE:NODE, as in shop.tasks:node, not {target!r}")
    module = imported(name)
    try:
        node = attrgetter(attribute)(module)
    except AttributeError:
        there = [known for known, value in vars(module).items() if isinstance(value, Node)]
        others = f"; its nodes are: {', '.join(there)}" if there else ", and no node"
        raise _mistake(f"the module {name} has no {attribute!r}{others}") from None
    if not isinstance(node, Node):
        raise _mistake(f"{target} is no headrace.Node, but of the type {type(node).__name__}")
    return node


def imported(name: str) -> ModuleType:
    """The module, looked for in this folder first."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Is it this one that is missing, or one that it imports?
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise _mistake(
                f"there is no module {error.name!r} in {here} or where Python looks"
            ) from None
        raise _not_imported(name, error) from error
    except Exception as error:
        raise _not_imported(name, error) from error


def _mistake(sentence: str) -> typer.BadParameter:
    return typer.BadParameter(sentence, param_hint="'MODULE:NODE'")


def _not_imported(name: str, error: Exception) -> NotImported:
    """With the error's traceback, from where the module's own code begins."""
    trace = error.__traceback__
    while trace is not None and _IMPORTING.search(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return NotImported(f"{name} cannot be imported.\n{failure_text(error.with_traceback(trace))}")

"""A node for `headrace worker`, which notes every start of a handler before the handler does anything:

["start", kind, event, attempt, time]

The time is the machine's monotonic one, which all its processes share whatever their clocks say.
"""

import asyncio
import json
import os
import random
import re
import select
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Any

from headrace import Claimed, Node

EFFECT = "insert into effects values (%s, %s)"

options = json.loads(os.environ["LABORATORY"])
node = Node(**options["node"])
notes = os.open(options["notes"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def note(event: Claimed) -> None:
    line = ["start", event.type, event.id, event.attempt, time.monotonic()]
    os.write(notes, json.dumps(line).encode() + b"\n")


def a_while() -> float:
    return random.uniform(0, options["longest"])


@node.on_event("plain")
async def plain(event: Claimed) -> None:
    note(event)
    await asyncio.sleep(a_while())


@node.on_event("effect", backoff=0.1)
async def effect(event: Claimed, connection: Any) -> None:
    note(event)
    await connection.execute(EFFECT, [event.id, event.attempt])
    await asyncio.sleep(a_while())


@node.on_event("retried", backoff=0.1)
def retried(event: Claimed, connection: Any) -> None:
    note(event)
    connection.execute(EFFECT, [event.id, event.attempt])
    select.select([], [], [], a_while())  # which asks no clock
    if event.retry_count < event.payload["fails"]:
        raise RuntimeError("not yet")


@node.on_event("stubborn", timeout=1, backoff=0.1)
async def stubborn(event: Claimed) -> None:
    """At first it does not end, in one way or another."""
    note(event)
    while event.attempt == 1:
        match event.id % 4:
            case 0:
                re.match("(?:a|a)*b", "a" * 60)  # holds Python's global lock
            case 1:
                threading.Event().wait()  # blocks the loop
            case _:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(3600)


@node.on_event("hanging", timeout=1, backoff=0.1)
def hanging(event: Claimed, connection: Any) -> None:
    note(event)
    connection.execute(EFFECT, [event.id, event.attempt])
    while event.attempt == 1:
        threading.Event().wait()


@node.on_event("cancelled")
async def cancelled(event: Claimed) -> None:
    """Is cancelled three times, by itself; nobody counts that."""
    note(event)
    if event.attempt <= 3:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
    await asyncio.sleep(a_while())


async def poison(event: Claimed) -> None:
    note(event)
    os.kill(os.getpid(), signal.SIGKILL)


async def cut_off(event: Claimed, connection: Any) -> None:
    """Loses its connection each time: its session is terminated, its socket is closed, or it crashes the server."""
    note(event)
    await asyncio.sleep(a_while())
    match event.id % 5:
        case 0:
            os.kill(connection.info.backend_pid, signal.SIGKILL)
            await connection.execute("select 1")
        case 1 | 2:
            await connection.execute("select pg_terminate_backend(pg_backend_pid())")
        case _:
            with socket.socket(fileno=os.dup(connection.fileno())) as its:
                its.shutdown(socket.SHUT_RDWR)
            await connection.execute("select 1")


node.on_event("poison")(cut_off if options["poison"] == "connections" else poison)

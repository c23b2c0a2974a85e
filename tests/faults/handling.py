"""A process that runs a node. Its handlers note in a file when they begin: what a killed process has noted
survives it.

    [type, event, attempt, crashes, retry_count, time]
"""

import asyncio
import json
import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from headrace import Claimed, Node
from headrace.node import overseer, stop
from headrace.telemetry import logs

EFFECT = "insert into effects values (%s)"
BACKTRACKING = (
    r"(?:a|a)*b"  # in time that doubles with every character, and with Python's global lock held
)


class Notes:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def begins(self, event: Claimed) -> None:
        note = [event.type, event.id, event.attempt, event.crashes, event.retry_count, time.time()]
        os.write(self._file, json.dumps(note).encode() + b"\n")


def handle_async(node: Node, notes: Notes) -> None:
    @node.on_event("sleep")
    async def sleep(event: Claimed) -> None:
        notes.begins(event)
        await asyncio.sleep(event.payload)

    @node.on_event("long at first")
    async def long_at_first(event: Claimed) -> None:
        notes.begins(event)
        await asyncio.sleep(3600 if event.attempt == 1 else 0)

    @node.on_event("effect", backoff=0.1)
    async def effect(event: Claimed, connection: Any) -> None:
        notes.begins(event)
        await connection.execute(EFFECT, [event.id])
        await asyncio.sleep(event.payload)


def handle_plainly(node: Node, notes: Notes) -> None:
    @node.on_event("sleep")
    def sleep(event: Claimed) -> None:
        notes.begins(event)
        time.sleep(event.payload)

    @node.on_event("effect", backoff=0.1)
    def effect(event: Claimed, connection: Any) -> None:
        notes.begins(event)
        connection.execute(EFFECT, [event.id])
        time.sleep(event.payload)


def handle_badly(node: Node, notes: Notes) -> None:
    @node.on_event("block")
    async def block_the_loop(event: Claimed) -> None:
        notes.begins(event)
        time.sleep(event.payload)  # noqa: ASYNC251

    @node.on_event("hang")
    def hang(event: Claimed) -> None:
        notes.begins(event)
        threading.Event().wait()

    @node.on_event("die")
    async def die(event: Claimed) -> None:
        notes.begins(event)
        os._exit(3)

    @node.on_event("nothing")
    async def nothing(event: Claimed) -> None: ...


def handle_stubbornly(node: Node, notes: Notes) -> None:
    @node.on_event("swallow")
    async def swallow(event: Claimed) -> None:
        notes.begins(event)
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    @node.on_event("spin")
    async def spin(event: Claimed) -> None:
        notes.begins(event)
        while True:
            pass

    @node.on_event("backtrack")
    async def backtrack(event: Claimed) -> None:
        notes.begins(event)
        re.match(BACKTRACKING, "a" * 60)

    @node.on_event("backtrack.plainly")
    def backtrack_plainly(event: Claimed) -> None:
        notes.begins(event)
        re.match(BACKTRACKING, "a" * 60)

    @node.on_event("executor")
    async def executor(event: Claimed) -> None:
        notes.begins(event)
        await asyncio.to_thread(threading.Event().wait)


def handle_late(node: Node, notes: Notes) -> None:
    @node.on_event("fork")
    def fork_and_terminate(event: Claimed) -> None:
        notes.begins(event)
        ready, is_ready = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(is_ready, b"!")
            signal.pause()
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM

    @node.on_event("late.block", timeout=0.1, backoff=3600)
    async def block_for_longer_than_its_timeout(event: Claimed) -> None:
        notes.begins(event)
        threading.Event().wait()

    @node.on_event("late.backtrack", timeout=0.1)
    async def backtrack_for_longer_than_its_timeout(event: Claimed) -> None:
        notes.begins(event)
        re.match(BACKTRACKING, "a" * 60)

    @node.on_event("late.hang", timeout=0.1, backoff=3600)
    def hang_for_longer_than_its_timeout(event: Claimed) -> None:
        notes.begins(event)
        threading.Event().wait()


def main() -> None:
    notes, log, kind, options = json.loads(sys.argv[1])
    logs.configure(json=True, stream=open(log, "w"))  # noqa: SIM115, PTH123 - to the end
    if telling := options.pop("telling"):
        stop.TELLING = overseer.LAST_WORDS = telling
    node = Node(options.pop("node_id", f"node-{os.getpid()}"), **options)
    noted = Notes(notes)
    handle_async(node, noted) if kind == "async" else handle_plainly(node, noted)
    for handle in (handle_badly, handle_stubbornly, handle_late):
        handle(node, noted)
    node.run()


if __name__ == "__main__":
    main()

"""A process that runs a node and notes every start of a handler before the handler does anything:

["start", kind, event, attempt, time]
"""

import asyncio
import json
import os
import random
import select
import signal
import sys
import time
from typing import Any

from headrace import Claimed, Node, logs

EFFECT = "insert into effects values (%s, %s)"


def main() -> None:
    options = json.loads(sys.argv[1])
    file = os.open(options["notes"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    logs.configure(json=True, stream=open(options["log"], "a"))  # noqa: SIM115, PTH123 - to the end
    node = Node(**options["node"])
    longest = options["longest"]

    def note(event: Claimed) -> None:
        line = ["start", event.type, event.id, event.attempt, time.time()]
        os.write(file, json.dumps(line).encode() + b"\n")

    def a_while() -> float:
        return random.uniform(0, longest)

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

    @node.on_event("poison")
    async def poison(event: Claimed) -> None:
        note(event)
        os.kill(os.getpid(), signal.SIGKILL)

    node.run()


if __name__ == "__main__":
    main()

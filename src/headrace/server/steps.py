"""What is done to very many deliveries: in steps, for as long as a client should wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from headrace.server.operations import Call
from headrace.statements import Statement, Step

LONGEST = 10.0  # seconds


class Stepped(msgspec.Struct, frozen=True):
    """How many it was done to, and whether there are more: then ask again."""

    deliveries: int
    more: bool


async def take_steps(call: Call, step: Callable[[Step | None], Statement[Step]]) -> Stepped:
    """Each step is committed on its own."""
    now = asyncio.get_running_loop().time
    until = now() + LONGEST
    last = await call.services.directory.ask(step(None))
    while last.more and now() < until and not call.services.stopping.is_set():
        last = await call.services.directory.ask(step(last))
    return Stepped(last.done, last.more)

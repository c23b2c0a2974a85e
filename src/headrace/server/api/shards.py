"""The shards of an installation, and the live log of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from psycopg_pool import PoolTimeout
from starlette.responses import Response

from headrace.errors import HeadraceError, Unavailable
from headrace.model import LogEntry
from headrace.server.api.values import told
from headrace.server.feed import PAGE
from headrace.server.http.operation import Call, Operation, Query, answer
from headrace.server.http.refusal import Refusal
from headrace.server.shards import NEVER

LOOK_EVERY = 0.5  # seconds between two looks at the log of all shards


class ShardBody(msgspec.Struct, frozen=True):
    """A shard, and how many slots of keys have their home there."""

    number: int
    server: str
    answers: bool
    slots: int
    arriving: int
    """Slots whose events are held back until the home before has none left."""


class Shards(msgspec.Struct, frozen=True):
    """The shards of the installation; none where it is one database."""

    stride: int
    """The most shards there can ever be: an event's shard is its id modulo this number."""
    mark: int
    """Events up to this id are shard 0's."""
    shards: list[ShardBody]
    missing: list[str]
    """The servers that have not answered since this server was started."""


async def list_shards(call: Call) -> Response:
    """The shards, whether they answer, and how many of the 1,024 slots of keys each has. The list is
    empty where the server works on one database."""
    directory: Any = call.services.directory
    if not directory.over_shards:
        return answer(Shards(1, 0, [], []))
    found = await call.client.states()  # type: ignore[attr-defined]
    known = directory.whole.fleet.shards
    stride = next(iter(known.values())).stride
    mark = known[0].mark if 0 in known else 0
    if call.caller.namespaces is None:
        return answer(
            Shards(stride, mark, [told(ShardBody, one) for one in found], directory.absent)
        )
    # Where the servers are is not for those who see some namespaces only.
    named = [told(ShardBody, one, server=f"shard {one.number}") for one in found]
    return answer(Shards(stride, mark, named, [NEVER for _ in directory.absent]))


class ShardsFollower:
    """A client that follows the log of all shards. It reads by itself: its position is a cursor with
    a place on each of them."""

    def __init__(self, call: Call, mark: str | None, cursor: str) -> None:
        self._call, self._mark, self.cursor = call, mark, cursor
        self.rewound_to: int | None = None

    @classmethod
    async def begin(cls, call: Call, asked: str | None) -> ShardsFollower:
        """Raises if there is no such log, or no such place in it."""
        if asked is None:
            mark = await call.client.log_now()  # type: ignore[attr-defined]
            cursor = mark.partition(" ")[0]
        else:
            mark, cursor = None, asked
        await call.client.log_since(cursor, limit=1)
        return cls(call, mark, cursor)

    async def pages(self, stopping: asyncio.Event) -> AsyncIterator[list[LogEntry]]:
        """Pages, also empty ones; `cursor` and `rewound_to` are those after the page."""
        while not stopping.is_set():
            try:
                page = await self._call.client.log_since(self.cursor, limit=PAGE, mark=self._mark)
            except (Unavailable, PoolTimeout):  # no shard answers
                self.rewound_to = None
                yield []
            else:
                self.cursor, self._mark = page.cursor, page.mark
                self.rewound_to = page.rewound_to
                yield page.entries
                if len(page.entries) == PAGE:
                    continue
            await asyncio.sleep(LOOK_EVERY)


def refuse(error: HeadraceError) -> Refusal:
    return Refusal(
        400,
        "invalid_last_event_id",
        f"The Last-Event-ID is not one of the log of several shards: leave it out. ({error})",
    )


OPERATIONS = (Operation("GET", "/shards", list_shards, "read", Query, answers={200: Shards}),)

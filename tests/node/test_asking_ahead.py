"""A node with fast handlers asks for more before it decodes what it got, and no promise suffers."""

import asyncio
from typing import Any

import pytest

from headrace import Claimed
from headrace.engine.claim import Polled
from headrace.node.runner import NodeRunner
from tests.database import Database
from tests.node.nodes import node, running, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

SLOTS = 10
MANY = 8000


class Watched:
    """What a node asks for, and what has come and is not decoded yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.undecoded = 0
        self.asked: list[tuple[int, int]] = []  # limited, and undecoded then
        self.most = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.is_held = asyncio.Event()
        claim, read = NodeRunner.claim, NodeRunner.read

        async def claimed(runner: NodeRunner, lane: Any, wanted: int, limited: int) -> Polled:
            self.asked.append((limited, self.undecoded))
            self.most = max(self.most, self.undecoded + wanted)
            polled = await claim(runner, lane, wanted, limited)
            self.undecoded += polled.size
            return polled

        async def decoded(runner: NodeRunner, polled: Polled) -> list[Claimed]:
            if len(self.ahead) > 2 and not self.go_on.is_set():
                self.is_held.set()
                await self.go_on.wait()
            self.undecoded -= polled.size
            return await read(runner, polled)

        monkeypatch.setattr(NodeRunner, "claim", claimed)
        monkeypatch.setattr(NodeRunner, "read", decoded)

    @property
    def ahead(self) -> list[tuple[int, int]]:
        return [one for one in self.asked if one[1]]


@requirement("G15")
async def test_it_asks_before_it_decodes_and_claims_no_more_than_before(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue()
    queue.publish_many([("a", n) for n in range(MANY)])
    watched = Watched(monkeypatch)
    one = node(db, concurrency=SLOTS)
    seen: set[Any] = set()

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        seen.add(event.payload)

    async with running(one):
        await until(lambda: len(seen) == MANY)
        await until(lambda: queue.stats().completed == MANY)
    assert watched.ahead
    assert watched.most <= 2000 + SLOTS
    assert all(limited <= max(0, SLOTS - coming) for limited, coming in watched.ahead), (
        "events with a limit wait for a handler in the queue, not in a buffer"
    )


@requirement("G14")
async def test_a_stop_hands_back_what_was_asked_for_ahead_and_charges_nothing(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue()
    queue.publish_many([("a", n) for n in range(MANY)])
    watched = Watched(monkeypatch)
    watched.go_on.clear()
    one = node(db, concurrency=SLOTS)

    @one.on_event("a")
    async def handle(event: Claimed) -> None: ...

    await one.start()
    await asyncio.wait_for(watched.is_held.wait(), 60)
    stopping = asyncio.create_task(one.stop())
    await until(one._running()._ending.is_set)
    watched.go_on.set()
    await stopping
    stats = queue.stats()
    assert stats.processing == stats.claimed_ahead == 0
    assert stats.ready == MANY - stats.completed > 0
    assert {claim.attempt for claim in queue.poll(max_events=1000)} == {1}

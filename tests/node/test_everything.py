"""Everything at once: handlers of all kinds that succeed, fail, hang and are cut off, on nodes that come and go. Each event
comes to one end, and nothing is left behind."""

import asyncio
import random
import time
from collections import Counter
from typing import Any

import pytest

from headrace import Claimed, Context, Discard, Node, Retry
from tests.database import Database
from tests.node.nodes import node, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

INSERT = "insert into effects values (%s)"


class Mischief:
    """What handlers do, by a seed that is printed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.starts: Counter[int] = Counter()

    def outcome(self, event: Claimed) -> Any:
        self.starts[event.id] += 1
        match self._random.randrange(20):
            case 0:
                raise ValueError("no")
            case 1:
                return Retry(after=0)
            case 2:
                return Discard("never")
            case 3:
                raise StopIteration
        return None

    def pause(self) -> float:
        return self._random.choice([0, 0, 0, 0.001, 0.01, 0.2])


def troubled(db: Database, name: str, mischief: Mischief, dispatch: Any) -> Node:
    one = node(db, name, dispatch=dispatch, concurrency=6, connections=3, lease=5, idle=0.1)
    policy: Any = {"max_retries": 3, "backoff": 0}

    @one.on_event("async", timeout=0.1, **policy)
    async def awaited(event: Claimed) -> Any:
        await asyncio.sleep(mischief.pause())
        return mischief.outcome(event)

    @one.on_event("plain", "both", timeout=0.1, **policy)
    def plain(event: Claimed, context: Context) -> Any:
        time.sleep(mischief.pause())
        return mischief.outcome(event)

    @one.on_event("both", timeout=0.1, concurrency=2, **policy)
    async def beside(event: Claimed) -> Any:
        await asyncio.sleep(mischief.pause())
        return mischief.outcome(event)

    @one.on_event("written", timeout=0.1, **policy)
    async def written(event: Claimed, connection: Any) -> Any:
        await connection.execute(INSERT, [event.id])
        await asyncio.sleep(mischief.pause())
        return mischief.outcome(event)

    @one.on_event("written.plainly", **policy)
    def written_plainly(event: Claimed, connection: Any) -> Any:
        connection.execute(INSERT, [event.id])
        time.sleep(mischief.pause())
        return mischief.outcome(event)

    @one.on_batch("batch", size=7, **policy)
    async def batch(events: list[Claimed]) -> Any:
        await asyncio.sleep(mischief.pause())
        return [mischief.outcome(event) for event in events]

    @one.on_batch("batch.written", size=7, **policy)
    def batch_written(events: list[Claimed], connection: Any) -> None:
        for event in events:
            connection.execute(INSERT, [event.id])
        if mischief.pause():
            raise ValueError("not these")

    return one


TYPES = ["async", "plain", "both", "written", "written.plainly", "batch", "batch.written"]


def is_at_rest(one: Node) -> bool:
    """Whether a node has given back all that it had."""
    service = one._running()
    return not (
        service.slots.taken
        or service._share.transactional.taken
        or service.runs.running
        or service.finisher.leases
        or service.keeper.holding
        or service.buffered
    )


async def come_and_go(one: Node, mischief: Mischief, over: asyncio.Event) -> None:
    while not over.is_set():
        await one.start()
        await asyncio.sleep(0.3 + mischief.pause() * 3)
        await one.stop(random.choice([0, 0.05, 5]))


@requirement("G4", "G7", "G9", "G10", "G14")
@pytest.mark.parametrize("dispatch", ["atomic", "collect"])
@pytest.mark.parametrize(
    "count", [3, pytest.param(150, marks=[pytest.mark.long, pytest.mark.timeout(300)])]
)
async def test_every_event_comes_to_one_end_and_nothing_is_left_behind(
    db: Database, dispatch: str, count: int
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    mischief = Mischief(seed)
    db.sql("create table effects (event bigint)")
    queue = db.queue()
    ids = queue.publish_many([(type, n) for n in range(count) for type in TYPES])
    steady, fickle = (
        troubled(db, "steady", mischief, dispatch),
        troubled(db, "fickle", mischief, dispatch),
    )
    over = asyncio.Event()
    deadline = time.monotonic() + 200
    await steady.start()
    coming = asyncio.create_task(come_and_go(fickle, mischief, over))
    while db.sql("select count(*) from headrace.deliveries") != [(0,)]:
        assert time.monotonic() < deadline, db.sql("select * from headrace.deliveries limit 5")
        if mischief.pause() == 0.2:
            cut(db)
        await asyncio.sleep(0.1)
    over.set()
    await coming
    await until(lambda: is_at_rest(steady))
    await steady.stop()
    ends = Counter(queue.event(id).status for id in ids)
    assert sum(ends.values()) == len(ids)
    assert set(ends) <= {"COMPLETED", "FAILED", "COMPLETED_WITH_ERRORS"}
    completed = {
        id
        for id in ids
        if queue.event(id).type in ("written", "written.plainly", "batch.written")
        and queue.event(id).status == "COMPLETED"
    }
    assert Counter(event for (event,) in db.sql("select event from effects")) == Counter(completed)


def cut(db: Database) -> None:
    """The connections of a handler or two."""
    db.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
        " and pid <> pg_backend_pid() and state = 'idle in transaction' limit 2"
    )

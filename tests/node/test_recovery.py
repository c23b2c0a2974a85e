"""A node's start: what an earlier one left is taken over, and a node's end: the state of its queue is saved."""

import asyncio

import pytest

from headrace import Claimed
from headrace.driver.patience import Outage
from headrace.node.lease import registration
from headrace.node.lease.keeper import LeaseKeeper
from headrace.node.lease.registration import Registration
from tests.database import Database
from tests.node.nodes import node, running, until
from tests.pooler import pgbouncer
from tests.requirements import requirement

LOCKED = "select locked_under is not null from headrace.instances"
HOLDS = "select count(*) from headrace.leases where instance is not null"


def keeper(db: Database, dsn: str | None = None, **options: bool) -> LeaseKeeper:
    made = LeaseKeeper(
        dsn or db.dsn, "default", "main", 60.0, Outage("n"), on_lost=print, **options
    )
    made.start()
    made.register(Registration("node")).result(30)
    return made


def die(db: Database, dead: LeaseKeeper) -> None:
    """As if it had been killed: its thread ends without a word, and its session with it."""
    dead._registration.leave = lambda: None  # type: ignore[method-assign]
    dead.close(30)
    alive = "select * from pg_locks where locktype = 'advisory' and objsubid = 1"
    db.wait_for(lambda: db.sql(alive) == [])


def claim(db: Database, instance: str) -> int:
    id = db.queue().publish("a").id
    claimed = "select * from headrace.poll('default', lease => '1 hour', instance => %s)"
    assert [row[0] for row in db.sql(claimed, [instance])] == [id]
    return id


@requirement("QS-11", "QS-13")
def test_what_a_dead_start_held_is_there_before_the_first_claim(db: Database) -> None:
    dead = keeper(db)
    id = claim(db, dead.instance)
    die(db, dead)
    new = keeper(db)  # registered, and so it has recovered
    assert db.queue().event(id).status == "PENDING"
    assert [record.events_recovered for record in db.queue().recoveries()] == [1]
    new.close(30)
    assert db.sql("select * from headrace.instances") == []


def test_who_dies_later_is_recovered_from_at_a_heartbeat(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "HEARTBEAT", 0.05)
    first, second = keeper(db), keeper(db)
    id = claim(db, first.instance)
    assert db.queue().recoveries() == []
    dead = first
    dead._registration.leave = lambda: None  # type: ignore[method-assign]
    dead.close(30)
    db.wait_for(lambda: len(db.queue().recoveries()) == 1)
    assert db.queue().event(id).status == "PENDING"
    second.close(30)


def test_who_dies_a_moment_later_is_recovered_from_long_before_a_heartbeat(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "HEARTBEAT", 3600.0)
    dead = keeper(db)
    claim(db, dead.instance)
    second = keeper(db)  # as if it had come before the server knew that the first was killed
    dead._registration.leave = lambda: None  # type: ignore[method-assign]
    dead.close(30)
    db.wait_for(lambda: len(db.queue().recoveries()) == 1)
    second.close(30)


def test_a_lost_connection_is_locked_anew(db: Database) -> None:
    one = keeper(db)
    assert db.sql(LOCKED) == [(True,)]
    session = "select pid from pg_locks where locktype = 'advisory' and objsubid = 1"
    [(pid,)] = db.sql(session)
    db.sql("select pg_terminate_backend(%s)", [pid])
    db.wait_for(lambda: db.sql(session) == [])
    one.register(Registration("node"))
    db.wait_for(lambda: db.sql(session) not in ([], [(pid,)]))
    assert db.sql(LOCKED) == [(True,)]
    one.close(30)


def test_behind_a_pooler_there_is_no_lock_and_nobody_takes_it_for_dead(db: Database) -> None:
    with pgbouncer(db) as dsn:
        pooled = keeper(db, dsn, prepare=False)
        assert db.sql(LOCKED) == [(False,)]
        id = claim(db, pooled.instance)
        pooled._registration.leave = lambda: None  # type: ignore[method-assign]
        pooled.close(30)
    new = keeper(db)
    assert db.queue().event(id).status == "PROCESSING"
    new.close(30)


@pytest.mark.anyio
async def test_what_a_node_claims_is_known_to_be_its_start_s(db: Database) -> None:
    go = asyncio.Event()
    one = node(db)

    @one.on_event("a")
    async def wait(event: Claimed) -> None:
        await go.wait()

    db.queue().publish("a")
    async with running(one):
        await until(lambda: db.sql(HOLDS) == [(1,)])
        go.set()


@pytest.mark.anyio
@requirement("QS-10")
async def test_a_node_that_stops_saves_the_state_of_its_queue(db: Database) -> None:
    one = node(db, grace=30)

    @one.on_event("a")
    async def handle(event: Claimed) -> None: ...

    queue = db.queue()
    last = queue.publish_many([("a", {})] * 3)[-1]
    queue.publish("unknown")
    async with running(one):
        await until(lambda: queue.stats().completed == 3)
    saved = db.sql("select id, jsonb_array_length(events) from headrace.event_queue_state")
    assert saved == [("default/main", 1)]
    assert queue.checkpoint().checkpoint_id == str(last)

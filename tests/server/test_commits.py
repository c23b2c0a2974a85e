"""A server whose PostgreSQL answers and commits nothing, or is away: it says so, in time, and by the right name."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from headrace.driver import readiness
from headrace.driver.readiness import Readiness
from tests.database import Database
from tests.faults.awaited import Awaiting
from tests.faults.awaited import awaiting as awaiting  # the fixtures
from tests.faults.awaited import awaiting_server as awaiting_server
from tests.requirements import requirement
from tests.server.running import Running, running

pytestmark = requirement("G20")


@pytest.fixture
def house(awaiting: Awaiting) -> Iterator[Running]:
    """With one connection for all that is not finishes and heartbeats."""
    with running(awaiting, connections=3) as house, house.client() as client:
        client.post("/events", json={})  # what is looked up once is known from now on
        yield house


def limit(house: Running, seconds: float) -> None:
    house.server.directory.pools["work"].bound = seconds


def told(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json().get("code", "")


def test_it_is_not_ready_while_nothing_is_committed(house: Running, awaiting: Awaiting) -> None:
    with house.client() as client:
        assert client.get("/readyz").is_success
        with awaiting.nobody_follows():
            awaiting.wait_for(lambda: not client.get("/readyz").is_success, patience=20)
            refused = client.get("/readyz")
            assert told(refused) == (503, "database_unavailable")
            assert "synchronous standby" in refused.json()["error"]
            assert client.get("/healthz").is_success
        awaiting.wait_for(lambda: client.get("/readyz").is_success)


def test_a_server_that_takes_no_writes_is_not_ready(awaiting: Awaiting) -> None:
    awaiting.sql(f"alter database {awaiting.name} set default_transaction_read_only = on")
    with running(awaiting) as house, house.client() as client:
        refused = client.get("/readyz")
        assert told(refused) == (503, "database_unavailable")
        assert "read-only" in refused.json()["error"]


@pytest.mark.anyio
async def test_those_who_ask_within_a_second_share_one_commit(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[float] = []
    run = readiness.run_async

    async def counted(session: Any, statement: Any, *, prepare: bool) -> Any:
        commits.append(time.monotonic())
        return await run(session, statement, prepare=prepare)

    monkeypatch.setattr(readiness, "run_async", counted)
    proof = Readiness(db.dsn)
    try:
        while len(commits) < 2:
            assert await asyncio.gather(*(proof.trouble() for _ in range(50))) == [None] * 50
            await asyncio.sleep(0.01)
    finally:
        await proof.close()
    # From when it was asked for the first, which then had to connect.
    assert commits[1] - commits[0] > 0.5


@pytest.mark.anyio
async def test_what_the_trouble_was_is_known_for_a_while(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is back before the pools have connected to it: a request that found no connection did not meet overload."""
    monkeypatch.setattr(readiness, "LASTS", 0.0)
    proof = Readiness(db.dsn)
    try:
        assert await proof.trouble_lately() is None
        with monkeypatch.context() as away:
            away.setattr(readiness, "run_async", _lost)
            assert await proof.trouble() == readiness.AWAY
        assert await proof.trouble() is None
        assert await proof.trouble_lately() == readiness.AWAY
        monkeypatch.setattr(readiness, "LATELY", 0.0)
        assert await proof.trouble_lately() is None
    finally:
        await proof.close()


async def _lost(*_: Any, **__: Any) -> Any:
    raise psycopg.OperationalError("the connection is lost")


def test_a_publish_whose_commit_hangs_ends_in_time_as_unknown(
    house: Running, awaiting: Awaiting
) -> None:
    limit(house, 0.5)
    with house.client() as client, awaiting.nobody_follows():
        refused = client.post("/events", json={}, headers={"Idempotency-Key": "k"})
        assert told(refused) == (504, "outcome_unknown")
        assert "Idempotency-Key" in refused.json()["error"]


def test_a_publish_whose_wait_is_cancelled_is_not_called_a_success(
    house: Running, awaiting: Awaiting
) -> None:
    answers: list[tuple[int, str]] = []
    with house.client() as client, awaiting.nobody_follows():
        asking = threading.Thread(
            target=lambda: answers.append(told(client.post("/events", json={})))
        )
        asking.start()
        awaiting.wait_until_waiting()
        while asking.is_alive():  # the server's own commits wait, too
            for pid in awaiting.waiting():
                awaiting.sql("select pg_cancel_backend(%s)", [pid])
            asking.join(0.05)
    assert answers == [(504, "outcome_unknown")]


def test_when_no_connection_is_free_because_nothing_is_committed_it_says_so(
    house: Running, awaiting: Awaiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "PATIENCE", 0.5)
    house.wait_no_longer_than(0.3)
    with house.client() as client:
        first = threading.Thread(target=lambda: client.post("/events", json={}))
        with awaiting.nobody_follows():
            first.start()
            awaiting.wait_until_waiting()
            assert client.get("/events").is_success  # which has connections of its own
            awaiting.wait_for(lambda: not client.post("/events", json={}).is_success)
            assert told(client.post("/events", json={})) == (503, "database_unavailable")
        first.join()


def test_a_repeated_publish_that_waits_for_the_first_one_says_that_nothing_is_committed(
    awaiting: Awaiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one, whose commit hangs, holds the lock of its idempotency key."""
    monkeypatch.setattr(readiness, "PATIENCE", 0.5)
    same = {"json": {}, "headers": {"Idempotency-Key": "k"}}
    with running(awaiting, connections=8) as house, house.client() as client:
        client.post("/events", json={})
        first = threading.Thread(target=lambda: client.post("/events", **same))
        with awaiting.nobody_follows():
            first.start()
            awaiting.wait_until_waiting()
            assert told(client.post("/events", **same)) == (503, "database_unavailable")
        first.join()


def test_an_outage_is_not_called_an_overload(house: Running, awaiting: Awaiting) -> None:
    house.wait_no_longer_than(0.3)
    with house.client() as client:
        with psycopg.connect(awaiting.server.dsn, autocommit=True) as admin:
            admin.execute(f"alter database {awaiting.name} allow_connections false")
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
                [awaiting.name],
            )
        seen = [told(client.post("/events", json={})) for _ in range(3)]
        # The first may have met a connection that was about to be lost.
        assert set(seen[1:]) <= {(503, "database_unavailable"), (504, "outcome_unknown")}
        assert seen[-1] == (503, "database_unavailable")
        assert "overloaded" not in {code for _, code in seen}
        with psycopg.connect(awaiting.server.dsn, autocommit=True) as admin:
            admin.execute(f"alter database {awaiting.name} allow_connections true")
    awaiting._own = None  # it was terminated with the others

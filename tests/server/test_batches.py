"""Requests that come at the same time share one statement, and each gets its own answer."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import httpx
import pytest
from psycopg.errors import LockNotAvailable

from headrace.engine.publish import Published
from headrace.engine.statement import Statement
from headrace.errors import HeadraceError, InvalidInput
from headrace.model import NewEvent
from headrace.server import batches, clients
from headrace.server.batches import (
    MOST,
    MOST_BYTES,
    UNDER_WAY,
    Batcher,
    Batches,
)
from tests.database import Database
from tests.requirements import requirement
from tests.server.running import Running, running


class Engine:
    """Notes what is asked together, and answers when it is let."""

    def __init__(self, *, held: bool = False) -> None:
        self.asked: list[list[Any]] = []
        self.may_answer = asyncio.Event()
        if not held:
            self.may_answer.set()

    async def run(self, asked: list[Any]) -> list[str]:
        self.asked.append(asked)
        await self.may_answer.wait()
        for place, one in enumerate(asked):
            if one == "lost":
                raise ConnectionError
            if one == "bad":
                raise InvalidInput("bad", place)
            if one == "bad somewhere":
                raise HeadraceError("bad")
        return [f"done {one}" for one in asked]


async def ask(batcher: Batcher[Any, Any], *asked: Any) -> list[Any]:
    return await asyncio.gather(*map(batcher.ask, asked), return_exceptions=True)


async def under_way(batcher: Batcher[Any, Any], engine: Engine) -> asyncio.Task[Any]:
    """A statement with one request."""
    task = asyncio.create_task(batcher.ask("early"))
    while not engine.asked:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return task


@pytest.mark.anyio
async def test_a_lone_request_goes_at_once_and_alone() -> None:
    engine = Engine()
    batcher = Batcher(engine.run)
    assert [await batcher.ask(n) for n in range(3)] == ["done 0", "done 1", "done 2"]
    assert engine.asked == [[0], [1], [2]]
    await asyncio.sleep(0)
    assert batcher.is_idle


@pytest.mark.anyio
async def test_who_comes_while_others_are_under_way_goes_together() -> None:
    engine = Engine(held=True)
    batcher = Batcher(engine.run)
    early = await under_way(batcher, engine)
    late = [asyncio.create_task(batcher.ask(f"late {n}")) for n in range(MOST + 5)]
    await asyncio.sleep(0)
    engine.may_answer.set()
    await asyncio.gather(early, *late)
    assert [len(asked) for asked in engine.asked] == [1, MOST, 5]


@pytest.mark.anyio
async def test_what_is_large_goes_in_several() -> None:
    engine = Engine(held=True)
    batcher = Batcher(engine.run)
    tasks = [asyncio.create_task(batcher.ask(n, MOST_BYTES // 2)) for n in range(5)]
    await asyncio.sleep(0)
    engine.may_answer.set()
    await asyncio.gather(*tasks)
    assert max(map(len, engine.asked)) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("bad", ["bad", "bad somewhere"])
async def test_one_that_is_refused_is_refused_alone(bad: str) -> None:
    engine = Engine()
    answers = await ask(Batcher(engine.run), 1, bad, 2, bad, 3)
    assert [str(answer) for answer in answers] == ["done 1", "bad", "done 2", "bad", "done 3"]
    assert [getattr(answer, "position", None) for answer in answers] == [None] * 5


@pytest.mark.anyio
async def test_where_all_are_held_up_all_are_told_before_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    async def run(together: list[int]) -> list[int]:
        asked.append(len(together))
        await asyncio.sleep(0.02)
        raise LockNotAvailable

    monkeypatch.setattr(batches, "SEARCH", 0.05)
    answers = await ask(Batcher(run), *range(MOST))
    assert [type(answer) for answer in answers] == [LockNotAvailable] * MOST
    assert len(asked) < 10, "one by one it would be several hundred"


@pytest.mark.anyio
async def test_what_may_have_been_done_is_not_done_again() -> None:
    engine = Engine(held=True)
    batcher = Batcher(engine.run)
    early = await under_way(batcher, engine)
    tasks = [asyncio.create_task(batcher.ask(n)) for n in (1, "lost", 2)]
    await asyncio.sleep(0)
    engine.may_answer.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ConnectionError] * 3
    await early
    assert engine.asked[1:] == [[1, "lost", 2]]


@pytest.mark.anyio
async def test_nobody_is_kept_waiting_by_a_statement_that_is_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "SLOW", 0.01)
    engine = Engine(held=True)
    batcher = Batcher(engine.run)
    tasks = []
    for n in range(UNDER_WAY + 2):
        tasks.append(asyncio.create_task(batcher.ask(n)))
        while len(engine.asked) < min(n + 1, UNDER_WAY):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    assert len(engine.asked) == UNDER_WAY, "and no more than so many"
    engine.may_answer.set()
    await asyncio.gather(*tasks)
    assert len(engine.asked) == UNDER_WAY + 1


class Stored:
    """In place of the database: what was published, and in how many statements."""

    def __init__(self) -> None:
        self.documents: list[str] = []

    def for_event(self, namespace: str, event: NewEvent) -> tuple[int, "Stored"]:
        return 0, self

    async def ask(self, statement: Statement[Any]) -> Published:
        self.documents.append(statement.params[1])
        published = json.loads(statement.params[1])
        count = sum(len(event.get("payloads", [1])) for event in published)
        return Published(list(range(1, count + 1)), datetime.now(UTC), frozenset(), False)


@requirement("G18")
@pytest.mark.anyio
async def test_what_is_too_long_for_one_statement_goes_in_two() -> None:
    """The payloads are short, and what describes them is not."""
    stored = Stored()
    together = Batches(stored)  # type: ignore[arg-type]
    long = [NewEvent("a", n, title=f"{n}" * 1_000_000) for n in range(12)]
    events = await asyncio.gather(*(together.publish("default", event, 1) for event in long))
    assert [event.payload for event in events] == list(range(12))
    assert len(stored.documents) == 2


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """Statements are held up here, and those who come meanwhile are to go together."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batches, "SLOW", 10.0)
        patched.setattr(clients, "LIMITS", ())
        yield


@contextmanager
def held_up(house: Running, table: str) -> Iterator[None]:
    """Nobody writes into a table as long as this lasts."""
    with house.db.connect(autocommit=False) as connection:
        connection.execute(f"lock table headrace.{table} in share mode")
        yield
        connection.rollback()


def all_at_once(
    house: Running, namespace: str, table: str, requests: list[tuple[str, dict[str, Any]]]
) -> list[httpx.Response]:
    """The answers to requests that came while the statements before them were held up."""
    with ThreadPoolExecutor(len(requests)) as threads, house.client(namespace) as client:
        with held_up(house, table):
            answers: list[Future[httpx.Response]] = []
            for path, body in requests:
                answers.append(threads.submit(client.post, path, json=body))
                if len(answers) == 1:
                    house.db.wait_for(lambda: how_many_wait(house) == 1)
            under_way = house.server.server_state.tasks
            house.db.wait_for(lambda: len(under_way) == len(requests))
        return [answer.result() for answer in answers]


def how_many_wait(house: Running) -> int:
    [(count,)] = house.db.sql(
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'"
    )
    return int(count)


@requirement("G18")
def test_publishes_at_the_same_time_are_one_statement_and_one_bad_one_is_refused_alone(
    house: Running, api: httpx.Client
) -> None:
    bodies: list[dict[str, Any]] = [{"payload": {"n": n}} for n in range(12)]
    bodies[5] = {"payload": {"n": 5}, "tags": "a,,b"}
    bodies[8] = {"payload": {"n": 8}, "priority": 10}
    answers = all_at_once(
        house, api.params["namespace"], "events", [("/events", body) for body in bodies]
    )
    statuses = [answer.status_code for answer in answers]
    assert statuses == [400 if n in (5, 8) else 201 for n in range(12)]
    assert "tag" in answers[5].json()["error"]
    assert "priority" in answers[8].json()["error"]
    assert "position" not in answers[8].json()
    assert [a.json()["payload"] for a in answers if a.is_success] == [
        body["payload"] for n, body in enumerate(bodies) if n not in (5, 8)
    ]
    moments = house.db.sql(
        "select count(distinct e.created_at) from headrace.events e"
        " join headrace.namespaces n on n.id = e.namespace where n.name = %s",
        [api.params["namespace"]],
    )
    assert moments[0][0] <= 5


@requirement("G2")
def test_idempotency_keys_are_kept_among_many(house: Running, api: httpx.Client) -> None:
    old = api.post("/events", json={"payload": 0, "idempotency_key": "old"}).json()
    bodies = [{"payload": n // 2, "idempotency_key": f"k{n // 2}"} for n in range(8)]
    bodies[3] = {"payload": 0, "idempotency_key": "old"}
    bodies[6] = {"payload": "other", "idempotency_key": "old"}
    answers = all_at_once(
        house, api.params["namespace"], "idempotency", [("/events", body) for body in bodies]
    )
    ids = [answer.json().get("id") for answer in answers]
    assert answers[6].status_code == 409
    assert answers[6].json()["code"] == "idempotency_conflict"
    assert answers[6].json()["event_id"] == old["id"] == ids[3]
    assert [a.status_code for n, a in enumerate(answers) if n != 6] == [201] * 7
    assert ids[0] == ids[1]
    assert ids[4] == ids[5]
    assert len({ids[0], ids[2], ids[4], ids[7], old["id"]}) == 5
    for answer in (a.json() for n, a in enumerate(answers) if n != 6):
        assert api.get(f"/events/{answer['id']}").json() == answer
    assert answers[3].headers["idempotency-replayed"] == "true"


@requirement("G6", "G7")
def test_ends_at_the_same_time_are_one_statement_with_a_verdict_each(
    house: Running, api: httpx.Client
) -> None:
    api.post("/events/batch", json={"events": [{}] * 8})
    asked = {"worker_id": "w:1", "limit": 8}
    claimed = [one["id"] for one in api.post("/events/claim", json=asked).json()["events"]]
    me = {"worker_id": "w:1"}
    requests: list[tuple[str, dict[str, Any]]] = [(f"/events/{id}/complete", me) for id in claimed]
    requests[3] = (f"/events/{claimed[3]}/fail", {**me, "error_message": "no"})
    requests[4] = (f"/events/{claimed[4]}/complete", {"worker_id": "w:2"})
    requests[5] = (f"/events/{claimed[5]}/release", me)
    requests[6] = (f"/events/{10**12}/complete", me)
    answers = all_at_once(house, api.params["namespace"], "outcomes", requests)
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 409, 200, 404, 200]
    assert answers[3].json()["retry_scheduled"] is True
    assert answers[5].json()["action"] == "RELEASED"
    assert [answer.json()["event_id"] for answer in answers[:4]] == claimed[:4]


def test_an_end_that_is_held_up_holds_up_nobody_else(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "LIMITS", ("set lock_timeout = '0.3s'",))
    monkeypatch.setattr(batches, "SLOW", 0.05)
    with running(db) as house, house.client() as client:
        client.post("/events/batch", json={"events": [{}] * 6})
        asked = {"worker_id": "w:1", "limit": 6}
        ids = [one["id"] for one in client.post("/events/claim", json=asked).json()["events"]]
        with (
            db.connect(autocommit=False) as other,
            ThreadPoolExecutor(6) as threads,
        ):
            other.execute("select from headrace.held where event = %s for update", [ids[2]])
            end = partial(client.post, json={"worker_id": "w:1"})
            answers = list(threads.map(end, [f"/events/{id}/complete" for id in ids]))
            assert [answer.status_code for answer in answers] == [200, 200, 503, 200, 200, 200]
            assert answers[2].json()["code"] == "overloaded"
            other.rollback()
        assert client.post(f"/events/{ids[2]}/complete", json={"worker_id": "w:1"}).is_success

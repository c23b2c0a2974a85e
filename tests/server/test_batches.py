"""Requests that come at the same time share one statement, and each gets its own answer."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from headrace.driver import batch
from headrace.server import clients
from tests.database import Database
from tests.requirements import requirement
from tests.server.running import Running, running


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """Statements are held up here, and those who come meanwhile are to go together."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch, "SLOW", 10.0)
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


@requirement("G6")
def test_claims_at_the_same_time_are_one_statement_with_a_lease_for_each_worker(
    house: Running, api: httpx.Client
) -> None:
    api.post("/events/batch", json={"events": [{"payload": n} for n in range(8)]})
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/events/claim", {"worker_id": f"w:{n}"}) for n in range(10)
    ]
    requests[4][1]["limit"] = 2
    requests[5][1]["types"] = ["none.*"]
    answers = all_at_once(house, api.params["namespace"], "leases", requests)
    assert [answer.status_code for answer in answers] == [200] * 10
    claimed = [answer.json()["events"] for answer in answers]
    assert claimed[5] == []
    events = [one for its in claimed for one in its]
    assert sorted(one["payload"] for one in events) == list(range(8))
    mine = [
        (one["id"], f"w:{n}", one["lease_token"]) for n, its in enumerate(claimed) for one in its
    ]
    stored = house.db.sql(
        "select h.event, l.worker, l.token::text from headrace.held h"
        " join headrace.leases l on l.id = h.lease and l.token = h.token"
        " join headrace.namespaces s on s.id = l.namespace where s.name = %s",
        [api.params["namespace"]],
    )
    assert sorted(stored) == sorted(mine)
    assert len({token for *_, token in mine}) == len([its for its in claimed if its])
    statements = house.db.sql(
        "select count(distinct l.xmin::text), count(*) from headrace.leases l"
        " join headrace.namespaces s on s.id = l.namespace where s.name = %s",
        [api.params["namespace"]],
    )
    assert statements[0][0] <= 4 < statements[0][1]
    for id, worker, token in mine:
        other = {
            "worker_id": worker,
            "lease_token": mine[0][2] if id != mine[0][0] else mine[-1][2],
        }
        assert api.post(f"/events/{id}/complete", json=other).status_code == 409
        ended = {"worker_id": worker, "lease_token": token}
        assert api.post(f"/events/{id}/complete", json=ended).is_success


@requirement("G6")
def test_heartbeats_at_the_same_time_are_answered_one_by_one(
    house: Running, api: httpx.Client
) -> None:
    api.post("/events/batch", json={"events": [{}] * 6})
    ids = [
        api.post("/events/claim", json={"worker_id": f"w:{n}"}).json()["events"][0]["id"]
        for n in range(6)
    ]
    api.post(f"/events/{ids[4]}/cancel")
    requests: list[tuple[str, dict[str, Any]]] = [
        (f"/events/{id}/heartbeat", {"worker_id": f"w:{n}", "lease": 100 * (n + 1)})
        for n, id in enumerate(ids)
    ]
    requests[2][1]["worker_id"] = "w:9"
    requests[3][1]["lease_token"] = "00000000-0000-4000-8000-000000000000"
    requests.append((f"/events/{10**12}/heartbeat", {"worker_id": "w:1"}))
    answers = all_at_once(house, api.params["namespace"], "leases", requests)
    assert [answer.status_code for answer in answers] == [200, 200, 409, 409, 409, 200, 404]
    good = [n for n, answer in enumerate(answers) if answer.is_success]
    assert [answers[n].json()["event_id"] for n in good] == [ids[n] for n in good]
    lasts = house.db.sql(
        "select l.worker, extract(epoch from l.until - l.extended_at)::int from headrace.leases l"
        " join headrace.namespaces s on s.id = l.namespace where s.name = %s and l.extended_at is not null",
        [api.params["namespace"]],
    )
    assert sorted(lasts) == [("w:0", 100), ("w:1", 200), ("w:5", 600)]


def test_an_end_that_is_held_up_holds_up_nobody_else(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "LIMITS", ("set lock_timeout = '0.3s'",))
    monkeypatch.setattr(batch, "SLOW", 0.05)
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

"""One server over several shards: as over one database, and what a shard that is down costs."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.client.shards import Shards, down, key_on
from tests.database import Server
from tests.server.running import Running, running


@pytest.fixture(scope="module")
def shards(server: Server) -> Iterator[Shards]:
    made = Shards(server, 3)
    yield made
    made.close()


@pytest.fixture(scope="module")
def server_of_all(shards: Shards) -> Iterator[Running]:
    with running(several(shards)) as started:
        yield started


def several(shards: Shards) -> Any:
    class Lines:
        dsn = "\n".join(shards.dsn)
        sql = staticmethod(shards.sql)

    return Lines()


@pytest.fixture
def api(server_of_all: Running, shards: Shards) -> Iterator[httpx.Client]:
    name = server_of_all.new_namespace()
    with server_of_all.client(name) as client:
        client.space = name  # type: ignore[attr-defined]
        yield client


@pytest.fixture
def bare(server_of_all: Running) -> Iterator[httpx.Client]:
    """For what is about all namespaces."""
    with server_of_all.client() as client:
        yield client


def publish(api: httpx.Client, **event: Any) -> int:
    answer = api.post("/events", json={"type": "a", "payload": {}, **event})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def key_of(api: httpx.Client, number: int) -> str:
    return key_on(number, namespace=api.space)  # type: ignore[attr-defined]


def test_events_find_their_shards(api: httpx.Client) -> None:
    free = [publish(api) for _ in range(6)]
    assert len(Counter(id % 64 for id in free)) > 1
    for number in range(3):
        key = key_of(api, number)
        assert {publish(api, key=key) % 64 for _ in range(3)} == {number}
    assert api.get(f"/events/{free[0]}").json()["id"] == free[0]
    assert api.get("/events", params={"limit": 100}).json()["total"] == 15
    assert api.post(f"/events/{free[0]}/cancel", json={}).status_code == 200


def test_an_idempotency_key_is_known_on_its_shard(api: httpx.Client) -> None:
    header = {"Idempotency-Key": "order-42"}
    body = {"type": "a", "payload": {}}
    first, second = (api.post("/events", json=body, headers=header) for _ in range(2))
    assert first.json()["id"] == second.json()["id"]
    assert second.headers["Idempotency-Replayed"] == "true"


def test_a_batch_is_split_by_the_homes_of_its_keys(api: httpx.Client) -> None:
    events = [{"type": "a", "payload": {}, "key": key_of(api, n % 3)} for n in range(6)]
    ids = api.post("/events/batch", json={"events": events}).json()["ids"]
    assert [id % 64 for id in ids] == [0, 1, 2, 0, 1, 2]


def test_claims_go_back_to_their_shards(api: httpx.Client) -> None:
    ids = {publish(api, key=key_of(api, n)) for n in range(3)}
    said = api.post("/events/claim", json={"worker_id": "w", "limit": 10}).json()["events"]
    assert {one["id"] for one in said} == ids
    worker = {"worker_id": "w"}
    first, second, third = sorted(ids)
    assert api.post(f"/events/{first}/start", json=worker).status_code == 200
    assert api.post(f"/events/{second}/heartbeat", json=worker).status_code == 200
    for id in (first, second):
        assert api.post(f"/events/{id}/complete", json=worker).status_code == 200
    failed = api.post(f"/events/{third}/fail", json={**worker, "error_message": "no"})
    assert failed.status_code == 200


def test_a_worker_that_waits_is_woken_by_any_shard(api: httpx.Client) -> None:
    import threading

    found: list[Any] = []
    ask = {"worker_id": "w", "limit": 1, "wait": 20}
    waiting = threading.Thread(
        target=lambda: found.append(api.post("/events/claim", json=ask).json()["events"])
    )
    waiting.start()
    id = publish(api, key=key_of(api, 2))
    waiting.join(30)
    assert [one["id"] for one in found[0]] == [id]


def follow(api: httpx.Client, count: int, **cursor: str) -> tuple[list[int], str]:
    """The first so many events that the stream tells, and the last cursor."""
    told, last = [], ""
    with api.stream("GET", "/events/stream", **cursor) as answer:  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                last = value
            elif name == "data":
                told.append(json.loads(value)["event_id"])
                if len(told) == count:
                    break
    return told, last


def test_the_stream_tells_of_all_shards_and_goes_on_after_a_cursor(api: httpx.Client) -> None:
    ids = [publish(api, key=key_of(api, n % 3)) for n in range(6)]
    told, cursor = follow(api, 6, params={"after": "0", "namespace": api.space})  # type: ignore[attr-defined,arg-type]
    assert sorted(told) == sorted(ids)
    assert [part.partition("~")[0] for part in cursor.split(",")] == ["0", "1", "2"]
    more = publish(api)
    told, _ = follow(api, 1, headers={"Last-Event-ID": cursor})  # type: ignore[arg-type]
    assert told == [more]
    wrong = api.get("/events/stream", headers={"Last-Event-ID": "nonsense"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_last_event_id")


def test_settings_and_lists(api: httpx.Client, bare: httpx.Client, shards: Shards) -> None:
    assert api.post("/queues", json={"name": "mail", "types": ["mail.*"]}).status_code == 201
    counts = [
        part.sql(
            "select count(*) from headrace.queues where name = 'mail' and space = %s", [api.space]
        )  # type: ignore[attr-defined]
        for part in shards.parts
    ]
    assert counts == [[(1,)]] * 3
    for path in ("/history", "/attention", "/schedules", "/dead-letters", "/nodes", "/workers"):
        assert api.get(path).status_code == 200, path
    said = bare.get("/metrics").text
    assert 'headrace_shard_up{shard="2"} 1' in said
    assert f'headrace_published_total{{namespace="{api.space}"' in said  # type: ignore[attr-defined]


def test_the_shards_are_listed(bare: httpx.Client) -> None:
    said = bare.get("/shards").json()
    assert [one["number"] for one in said["shards"]] == [0, 1, 2]
    assert (said["stride"], said["missing"]) == (64, [])
    assert all(one["answers"] for one in said["shards"])


def test_a_shard_that_is_down_costs_its_own_keys(
    api: httpx.Client, bare: httpx.Client, shards: Shards
) -> None:
    lost = publish(api, key=key_of(api, 1))
    with down(shards.parts[1]):
        key = key_of(api, 1)
        refused = api.post("/events", json={"type": "a", "payload": {}, "key": key})
        assert (refused.status_code, refused.json()["code"]) == (503, "database_unavailable")
        assert publish(api, key=key_of(api, 2)) % 64 == 2
        assert {publish(api) % 64 for _ in range(6)} <= {0, 2}
        listed = api.get("/events")
        assert listed.status_code == 200
        assert "shard 1" in listed.headers["Headrace-Missing-Shards"]
        ready = bare.get("/readyz")
        assert ready.status_code == 200
        assert any("shard 1" in one for one in ready.json()["without"])
        assert [one["answers"] for one in bare.get("/shards").json()["shards"]] == [
            True,
            False,
            True,
        ]
        assert 'headrace_shard_up{shard="1"} 0' in bare.get("/metrics").text
        assert api.get(f"/events/{lost}").status_code == 503
    until = time.monotonic() + 60
    while api.get(f"/events/{lost}").status_code != 200:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert bare.get("/readyz").json() == {"status": "ready"}

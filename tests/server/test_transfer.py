"""A queue as a file over HTTP: exported, moved, imported."""

import json
from collections.abc import Iterator

import httpx
import pytest

from headrace import EventQueue
from tests.server.running import Running


@pytest.fixture
def space(house: Running) -> str:
    return house.new_namespace()


@pytest.fixture
def api(house: Running) -> Iterator[httpx.Client]:
    with house.client() as client:
        yield client


@pytest.fixture
def queue(house: Running, space: str) -> EventQueue:
    return EventQueue(house.db.connect(), namespace=space, worker="w:1")


def test_a_queue_is_downloaded_and_uploaded(
    api: httpx.Client, queue: EventQueue, space: str
) -> None:
    queue.publish_many([("t", {"n": n}) for n in range(1500)])
    queue.fail(queue.poll()[0], "no", retry_in=600)
    answer = api.get(f"/queues/{space}/main/export")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = answer.content.splitlines()
    assert json.loads(lines[0])["format"] == "headrace state"
    assert lines[-1].startswith(b'{"end":{"events":1500,')
    done = api.post(
        f"/queues/{space}/copy/import",
        content=iter(answer.content.splitlines(keepends=True)),
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert done.status_code == 200, done.text
    assert done.json() == {
        **{"is_new": True, "kept_ids": False, "stored": 0, "already": 0},
        **{"ready": 1499, "delayed": 1, "dead": 0},
    }
    again = api.post(f"/queues/{space}/copy/import", content=answer.content, headers={"Content-Type": "application/x-ndjson"})  # fmt: skip
    assert again.json()["already"] == 1500


def test_a_file_that_is_not_whole_is_refused(
    api: httpx.Client, queue: EventQueue, space: str
) -> None:
    queue.publish("t", {})
    file = api.get(f"/queues/{space}/main/export").content
    for damaged in (file[:-1], file[: len(file) // 2], file.replace(b'"t"', b'"u"'), b"", b"{}"):
        answer = api.post(f"/queues/{space}/copy/import", content=damaged, headers={"Content-Type": "application/x-ndjson"})  # fmt: skip
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert [one["name"] for one in api.get("/queues", params={"namespace": space}).json()["queues"]] == ["main"]  # fmt: skip


def test_a_move_wants_a_paused_queue(api: httpx.Client, queue: EventQueue, space: str) -> None:
    queue.publish("t", {})
    [claim] = queue.poll()
    refused = api.post(f"/queues/{space}/main/export")
    assert (refused.status_code, refused.json()["code"]) == (409, "queue_not_paused")
    api.post(f"/queues/{space}/main/pause")
    moved = api.post(f"/queues/{space}/main/export").content
    assert json.loads(moved.splitlines()[0])["move"] is True
    lost = api.post(f"/events/{claim.id}/complete", params={"namespace": space}, json={"worker_id": "w:1", "attempt": claim.attempt})  # fmt: skip
    assert lost.status_code == 409


def test_a_client_that_goes_away_leaves_nothing_open(
    api: httpx.Client, house: Running, queue: EventQueue, space: str
) -> None:
    for _ in range(4):
        queue.publish_many([("t", {"text": "x" * 1000}) for _ in range(5000)])
    with api.stream("GET", f"/queues/{space}/main/export") as answer:
        assert next(answer.iter_raw(1000))
    is_open = "select exists (select from pg_stat_activity where datname = current_database() and state = 'idle in transaction')"  # fmt: skip
    house.db.wait_for(lambda: house.db.sql(is_open) == [(False,)])
    assert api.get(f"/queues/{space}/main/export").content.count(b"\n") == 22


def test_what_is_not_there_is_not_found(api: httpx.Client, space: str) -> None:
    assert api.get(f"/queues/{space}/nothing/export").status_code == 404
    assert api.get("/queues/nowhere/main/export").status_code == 404
    assert api.post("/queues/nowhere/main/import", content=b"{}", headers={"Content-Type": "application/x-ndjson"}).status_code == 404  # fmt: skip


def test_settings_are_taken_by_the_names_that_the_state_has_for_them(
    api: httpx.Client, space: str
) -> None:
    config = {
        **{"maxQueueDepth": 10000, "batchSize": 100, "processingInterval": 1000},
        **{"persistenceThreshold": 500, "highWatermark": 8000},
    }
    made = api.post("/queues", params={"namespace": space}, json={"name": "main-queue", **config})
    assert made.status_code == 201, made.text
    assert api.get(f"/queues/{space}/main-queue/state").json()["config"] == config
    changed = {**config, "batchSize": 7, "highWatermark": None}
    assert api.patch(f"/queues/{space}/main-queue", json=changed).status_code == 200
    assert api.get(f"/queues/{space}/main-queue/state").json()["config"] == changed
    twice = api.patch(f"/queues/{space}/main-queue", json={"batchSize": 7, "batch_size": 7})
    assert (twice.status_code, twice.json()["code"]) == (400, "invalid_input")
    assert twice.json()["error"].startswith("batchSize and batch_size are the same setting")

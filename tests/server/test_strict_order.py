"""A queue of strict order over HTTP: what is subscribed to next is the oldest of all."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.running import Running


@pytest.fixture
def space(house: Running) -> str:
    return house.new_namespace()


@pytest.fixture
def api(house: Running, space: str) -> Iterator[httpx.Client]:
    with house.client(space) as client:
        yield client


def published(api: httpx.Client, **event: Any) -> int:
    answer = api.post("/events", json={"payload": 1, **event})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["id"])


def following(api: httpx.Client, **params: Any) -> int | None:
    answer = api.get("/events/subscribe", params={"tags": "*", "worker_id": "w", **params})
    return int(answer.json()["id"]) if answer.status_code == 200 else None


def test_next_is_the_oldest_whatever_its_tags(
    house: Running, api: httpx.Client, space: str
) -> None:
    with house.client() as admin:
        changed = admin.patch(f"/queues/{space}/main", json={"order": "oldest"})
    assert changed.status_code == 200
    assert changed.json()["order"] == "oldest"
    ids = [published(api, tags=tags) for tags in ["b", "a", "c,a", "b", "a", "c"] * 2]
    assert [following(api) for _ in ids] == ids
    assert following(api) is None


def test_the_order_is_a_setting(house: Running, api: httpx.Client, space: str) -> None:
    made = api.post("/queues", json={"name": "strict", "order": "oldest"})
    assert (made.status_code, made.json()["order"]) == (201, "oldest")
    where = f"/queues/{space}/strict"
    with house.client() as admin:
        assert admin.patch(where, json={"order": None}).json()["order"] == "fair"
        refused = admin.patch(where, json={"order": "newest"})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_body")

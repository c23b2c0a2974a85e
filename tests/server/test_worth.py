"""One request takes what it is worth: of memory, and of the time of others."""

import json
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from headrace.server.limits import Limits
from tests.database import Database
from tests.server.running import Running, running

OURS = "application/json"
CLOUD = "application/cloudevents-batch+json"


def batch(media_type: str, event: bytes, times: int) -> bytes:
    events = b",".join([event] * times)
    return b'{"events":[%b]}' % events if media_type == OURS else b"[%b]" % events


@contextmanager
def at_most(times: int, body: bytes) -> Iterator[None]:
    """The memory of this process, in which server and client are."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < times * len(body)


@pytest.mark.parametrize("media_type", [OURS, CLOUD])
def test_three_million_events_are_refused_before_they_are_read(
    api: httpx.Client, media_type: str
) -> None:
    body = batch(media_type, b"{}", 3_000_000)
    with at_most(10, body):
        answer = api.post("/events/batch", content=body, headers={"Content-Type": media_type})
    assert answer.status_code == 413
    assert (answer.json()["code"], answer.json()["limit"]) == ("too_many_events", 10_000)
    assert "10,000" in answer.json()["error"]
    assert api.get("/events").json()["total"] == 0


@pytest.mark.parametrize("media_type", [OURS, CLOUD])
@pytest.mark.parametrize("element", [b"1", b"null", b'""', b"[]"])
def test_millions_that_are_no_events_are_refused_at_the_first(
    api: httpx.Client, media_type: str, element: bytes
) -> None:
    body = batch(media_type, element, 3_000_000)
    with at_most(10, body):
        answer = api.post("/events/batch", content=body, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_body")
    assert "Expected `object`" in answer.json()["error"]


@pytest.mark.parametrize("media_type", [OURS, CLOUD])
@pytest.mark.parametrize(
    ("last", "code"),
    [(b"1", "invalid_body"), (b"{", "invalid_json"), (b'{"a":' + b"[" * 5000, "invalid_json")],
)
def test_a_long_batch_that_cannot_be_read_is_refused_in_a_sentence(
    api: httpx.Client, media_type: str, last: bytes, code: str
) -> None:
    many = b",".join([b'{"title":"long enough"}'] * 9_999)
    body = batch(media_type, many + b"," + last, 1)
    answer = api.post("/events/batch", content=body, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert api.get("/events").json()["total"] == 0


@pytest.mark.parametrize(
    ("media_type", "event"),
    [
        (OURS, b'{"headers":{"a":[%b]}}'),
        (OURS, b'{"backoff":{"a":[%b]}}'),
        (OURS, b'{"another":{"a":[%b]}}'),
        (CLOUD, b'{"specversion":"1.0","id":"1","source":"s","type":"t","another":[%b]}'),
    ],
)
def test_what_is_refused_is_not_read_first(
    api: httpx.Client, media_type: str, event: bytes
) -> None:
    body = batch(media_type, event % b",".join([b"[]"] * 2_000_000), 1)
    with at_most(10, body):
        answer = api.post("/events/batch", content=body, headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["code"][:8]) == (400, "invalid_")


def test_the_one_that_is_wrong_is_named(api: httpx.Client) -> None:
    answer = api.post("/events/batch", json={"events": [{}, {"headers": []}]})
    assert (answer.status_code, answer.json()["position"]) == (400, 1)
    assert api.get("/events").json()["total"] == 0


def test_as_many_as_were_said_are_taken(db: Database) -> None:
    with running(db, limits=Limits(events=3)) as house, house.client() as client:
        for events, status in ((3, 201), (4, 413)):
            long = {"title": "long enough to be counted"}
            answer = client.post("/events/batch", json={"events": [long] * events})
            assert answer.status_code == status
        assert answer.json()["limit"] == 3


def test_others_are_answered_while_a_long_batch_is_published(house: Running) -> None:
    namespace = house.new_namespace()
    answers: list[int] = []

    def publish() -> None:
        event = {"type": "a", "payload": {"text": "x" * 1000}}
        body = json.dumps({"events": [event] * 10_000})
        headers = {"Content-Type": OURS}
        with house.client(namespace) as client:
            answers.append(client.post("/events/batch", content=body, headers=headers).status_code)

    thread = threading.Thread(target=publish)
    meanwhile = 0
    with house.client() as client:
        thread.start()
        while thread.is_alive():
            assert client.get("/healthz").is_success
            meanwhile += not answers
    thread.join()
    assert answers == [201]
    assert meanwhile > 10

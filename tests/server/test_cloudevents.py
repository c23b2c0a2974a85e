"""CloudEvents over HTTP, and the trace that a publisher is in."""

import json
from typing import Any

import httpx
import pytest

from headrace import EventQueue
from tests.server.running import Running

EVENT: dict[str, Any] = {
    **{"specversion": "1.0", "id": "A234-1234", "source": "/shop/orders", "type": "order.created"},
    **{
        "subject": "Order 42",
        "time": "2026-04-05T17:31:00Z",
        "datacontenttype": "application/json",
    },
    **{"dataschema": "https://schema.example/1", "comexampleextension": 7, "flag": True},
    "data": {"order": 42, "lines": [1, {"a": None}]},
}
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def send(api: httpx.Client, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/cloudevents+json; charset=utf-8", **headers}
    return api.post("/events", content=content, headers=headers)


def shown(api: httpx.Client, id: int) -> Any:
    return api.get(f"/events/{id}", params={"details": True}).json()


def test_one_is_published_as_it_is(api: httpx.Client) -> None:
    response = send(api, {**EVENT, "tags": "a,b", "partitionkey": "42", "correlationid": "c1"})
    assert response.status_code == 201
    event = shown(api, response.json()["id"])
    assert (event["type"], event["title"], event["payload"]) == (
        "order.created",
        "Order 42",
        EVENT["data"],
    )
    assert (event["tags"], event["key"], event["correlation_id"]) == ("a,b", "42", "c1")
    assert event["source"] == {
        **{"type": "external", "id": "/shop/orders", "event_id": "A234-1234"},
        **{"subject": "Order 42", "time": "2026-04-05T17:31:00Z", "flag": "true"},
        **{"datacontenttype": "application/json", "dataschema": "https://schema.example/1"},
        "comexampleextension": "7",
    }


def test_the_same_source_and_id_are_the_same_event(api: httpx.Client) -> None:
    first, again = send(api, EVENT), send(api, EVENT)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["Idempotency-Replayed"] == "true"
    assert send(api, {**EVENT, "id": "other"}).json()["id"] != first.json()["id"]
    assert send(api, {**EVENT, "source": "/else"}).json()["id"] != first.json()["id"]
    changed = send(api, {**EVENT, "data": 1})
    assert (changed.status_code, changed.json()["code"]) == (409, "idempotency_conflict")
    keyed = send(api, {**EVENT, "data": 1}, **{"Idempotency-Key": "mine"})
    assert keyed.status_code == 201
    long = {**EVENT, "source": "x" * 500}
    assert send(api, long).json()["id"] == send(api, long).json()["id"]


@pytest.mark.parametrize(
    ("data", "payload"),
    [
        ({}, None),
        ({"data": None}, None),
        ({"data": "text", "datacontenttype": "text/plain"}, "text"),
        ({"data": [1.5]}, [1.5]),
        ({"data_base64": "AAEC"}, {"data_base64": "AAEC"}),
    ],
)
def test_its_data_is_the_payload(api: httpx.Client, data: dict[str, Any], payload: Any) -> None:
    event = {name: value for name, value in EVENT.items() if not name.startswith("data")}
    assert send(api, {**event, **data}).json()["payload"] == payload


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"specversion": None}, "invalid_cloudevent"),
        ({"specversion": "0.3"}, "invalid_cloudevent"),
        ({"specversion": 1.0}, "invalid_cloudevent"),
        ({"id": ""}, "invalid_cloudevent"),
        ({"source": None}, "invalid_cloudevent"),
        ({"type": {"a": 1}}, "invalid_cloudevent"),
        ({"extension": [1]}, "invalid_cloudevent"),
        ({"data_base64": "AA=="}, "invalid_cloudevent"),
        ({"data": {"a": "\u0000"}}, "invalid_payload"),
        ({"type": "a\u0000"}, "invalid_input"),
        ({"subject": "x" * 100000}, "invalid_input"),
    ],
)
def test_what_is_none_is_refused(api: httpx.Client, change: dict[str, Any], code: str) -> None:
    answer = send(api, {**EVENT, **change})
    assert (answer.status_code, answer.json()["code"]) == (400, code)


@pytest.mark.parametrize("body", [b"[]", b"1", b"{", b'{"specversion": 1e999}', b"\xff", b'"x"'])
def test_what_is_no_object_is_refused(api: httpx.Client, body: bytes) -> None:
    answer = send(api, body)
    assert answer.status_code == 400
    assert answer.json()["code"] in ("invalid_body", "invalid_json", "invalid_cloudevent")


def test_many_are_published_together(api: httpx.Client) -> None:
    headers = {"Content-Type": "application/cloudevents-batch+json"}
    events = [{**EVENT, "id": str(n), "data": n} for n in range(3)]
    answer = api.post("/events/batch", content=json.dumps(events), headers=headers)
    assert answer.status_code == 201
    ids = answer.json()["ids"]
    assert [shown(api, id)["payload"] for id in ids] == [0, 1, 2]
    assert (
        api.post("/events/batch", content=json.dumps(events), headers=headers).json()["ids"] == ids
    )
    wrong = api.post("/events/batch", content=json.dumps([{}]), headers=headers)
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_cloudevent")


class TestTraces:
    def test_the_publishers_goes_with_the_event(self, api: httpx.Client, house: Running) -> None:
        headers = {"traceparent": PARENT}
        published = api.post("/events", json={"type": "a"}, headers=headers).json()
        assert shown(api, published["id"])["trace_id"] == PARENT
        queue = EventQueue(house.db.connect(), namespace=api.params["namespace"])
        [claimed] = queue.poll(types=["a"])
        assert claimed.trace_id == PARENT
        [many] = api.post("/events/batch", json={"events": [{}]}, headers=headers).json()["ids"]
        assert shown(api, many)["trace_id"] == PARENT
        cloud = send(api, EVENT, traceparent=PARENT).json()
        assert shown(api, cloud["id"])["trace_id"] == PARENT

    def test_what_the_event_says_comes_first_and_nonsense_is_passed_by(
        self, api: httpx.Client
    ) -> None:
        own = api.post("/events", json={"trace_id": "own"}, headers={"traceparent": PARENT}).json()
        assert shown(api, own["id"])["trace_id"] == "own"
        none = api.post("/events", json={}, headers={"traceparent": "nonsense'; --"}).json()
        assert shown(api, none["id"])["trace_id"] is None
        cloud = send(api, {**EVENT, "traceparent": PARENT}).json()
        assert shown(api, cloud["id"])["trace_id"] == PARENT

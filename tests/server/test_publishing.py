from typing import Any

import httpx
import pytest

from tests.requirements import requirement
from tests.server.running import Running


@requirement("API-5", "API-6")
def test_an_event_is_published_and_answered_as_documented(api: httpx.Client) -> None:
    sent = {
        "title": "Send Email Notification",
        "description": "Send welcome email to new user",
        "tags": "email,priority-high,notification",
        "payload": {"user_id": 12345, "variables": {"name": "Alice"}},
    }
    answer = api.post("/events", json=sent)
    assert answer.status_code == 201
    body = answer.json()
    assert list(body) == [
        *("id", "title", "description", "tags", "status", "payload", "retry_count"),
        *("max_retries", "next_retry_at", "created_at", "updated_at"),
    ]
    assert {name: body[name] for name in sent} == sent
    assert api.get(f"/events/{body['id']}").json() == body


def test_its_headers_reach_whoever_handles_it(api: httpx.Client) -> None:
    headers = {"tenant": "acme", "limits": {"bytes": 0.5, "tries": [1, None]}, "größe": "ü"}
    for path, body in (
        ("/events", {"headers": headers}),
        ("/events/batch", {"events": [{"headers": headers}]}),
    ):
        assert api.post(path, json=body).status_code == 201
        [claimed] = api.post("/events/claim", json={"worker_id": "w:1"}).json()["events"]
        assert claimed["headers"] == headers
        shown = api.get(f"/events/{claimed['id']}", params={"details": "true"}).json()
        assert shown["headers"] == headers
    refused = api.post("/events", json={"headers": ["tenant"]})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_body")


@pytest.mark.parametrize(
    ("queue", "taken"),
    [
        ({}, True),
        ({"types": ["b", "a.*"]}, True),
        ({"types": ["b.*"]}, False),
        ({"tags": ["x", "z"]}, True),
        ({"tags": ["x", "z"], "all_tags": True}, False),
        ({"tags": ["x", "y"], "all_tags": True}, True),
        ({"types": ["a.*"], "tags": ["z"]}, False),
    ],
)
def test_it_is_pending_only_in_a_queue_that_gets_it(
    api: httpx.Client, queue: dict[str, Any], taken: bool
) -> None:
    api.post("/queues", json={"name": "q", **queue})
    event = {"type": "a.b", "tags": "y,x"}
    published = api.post("/events", params={"queue": "q"}, json=event).json()
    assert published["status"] == ("PENDING" if taken else None)
    assert api.get(f"/events/{published['id']}", params={"queue": "q"}).json() == published


def test_in_a_queue_that_is_switched_off_nothing_is_pending(house: Running) -> None:
    space = house.new_namespace()
    with house.client() as client:
        client.patch(f"/queues/{space}/main", json={"takes": False})
        published = client.post("/events", params={"namespace": space}, json={})
        assert published.json()["status"] is None
        assert client.get(published.headers["Location"]).json() == published.json()


def test_where_it_is_said_to_be_it_is(house: Running) -> None:
    odd = "a&b ä?"
    with house.client() as client:
        client.post("/namespaces", json={"name": odd})
        client.post("/queues", params={"namespace": odd}, json={"name": "q"})
        for params in ({}, {"namespace": odd}, {"namespace": odd, "queue": "q"}):
            published = client.post("/events", params=params, json={"title": "x"})
            assert client.get(published.headers["Location"]).json() == published.json()
        cron = {"name": "ab", "cron_expression": "0 2 * * *"}
        made = client.post("/schedules", params={"namespace": odd}, json=cron)
        assert client.get(made.headers["Location"]).json() == made.json()
        fired = client.post("/schedules/ab/run", params={"namespace": odd})
        assert client.get(fired.headers["Location"]).json() == fired.json()


def test_what_is_rare_among_what_has_ended_is_looked_for_a_stretch_at_a_time(
    api: httpx.Client, house: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.server.api.events.look.LOOK_AT", 100)
    rare = api.post("/events", json={"type": "rare", "key": "k", "tags": "t"}).json()["id"]
    api.post("/events/batch", json={"events": [{"type": "common"}] * 250})
    for asked in ({"types": "rare"}, {"key": "k"}, {"tags": "t"}, {"q": "rar"}):
        found, looks, going_on = [], 0, {}
        while True:
            page = api.get("/events", params={**asked, **going_on}).json()
            found += [event["id"] for event in page["events"]]
            if "searched_to" not in page:
                break
            assert page["total_is_exact"] is False
            going_on, looks = {"before": page["searched_to"]}, looks + 1
        assert (found, looks >= 2) == ([rare], True)
    # What waits is found by itself, and so is what nobody has chosen from.
    for asked in ({"types": "rare", "status": "PENDING"}, {"key": "k", "status": "PENDING,FAILED"}):
        page = api.get("/events", params=asked).json()
        assert ([event["id"] for event in page["events"]], page["total"]) == ([rare], 1)
        assert not page.keys() & {"searched_to", "total_is_exact"}
    assert api.get("/events", params={"limit": 5}).json()["total"] == 251


def test_who_comes_without_a_path_is_shown_where_to_begin(house: Running) -> None:
    answer = httpx.get(house.url)
    assert (answer.status_code, answer.headers["Location"]) == (307, "/docs")


def test_a_path_that_is_not_there_is_told_as_json(api: httpx.Client) -> None:
    answer = api.get("/nowhere")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert api.delete("/events").headers["allow"] == "GET, HEAD, POST"


def test_concurrent_publishes_are_all_there(house: Running, api: httpx.Client) -> None:
    ids = [api.post("/events", json={"payload": {"n": n}}).json()["id"] for n in range(20)]
    assert api.get("/events", params={"limit": 1}).json()["total"] == 20
    assert len(set(ids)) == 20


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (
            "status=pending",
            "The query is not valid: Invalid enum value 'pending' - at `$.status[0]`. "
            "Use one of PENDING, PROCESSING, ",
        ),
        (
            "since=2025-12-24",
            "The value 2025-12-24 of the parameter since is not valid: "
            "write a time like 2025-12-24T10:30:00Z.",
        ),
        (
            "limit=null",
            "The value null of the parameter limit is not valid: leave it out, or give a value.",
        ),
        (
            "orphan_after=nan",
            "The query is not valid: Expected `float` >= 0.0 - at `$.orphan_after`.",
        ),
        ("colour=red", "The query is not valid: Object contains unknown field `colour`."),
    ],
)
def test_a_wrong_query_is_told_what_is_wrong(house: Running, query: str, sentence: str) -> None:
    error = httpx.get(f"{house.url}/events?{query}").json()["error"]
    assert error.startswith(sentence)


def test_all_tags_are_all_wherever_that_is_said(api: httpx.Client) -> None:
    api.post("/events", json={"tags": "a"})
    assert [api.get("/events", params={"tags": t}).json()["total"] for t in ("*", "b", "b,*")] == [
        1,
        0,
        1,
    ]


@requirement("G2")
def test_an_events_own_key_comes_before_the_requests(api: httpx.Client) -> None:
    own, header = {"idempotency_key": "own"}, {"Idempotency-Key": "other"}
    first = api.post("/events", json=own).json()
    assert api.post("/events", json=own, headers=header).json() == first
    many = api.post("/events/batch", json={"events": [{}, own]}, headers=header).json()
    assert many["ids"][1] == first["id"]
    assert api.post("/events/batch", json={"events": [{}, own]}, headers=header).json() == many
    for path, body in ("/events", {}), ("/events/batch", {"events": [{}]}):
        empty = api.post(path, json=body, headers={"Idempotency-Key": ""})
        assert empty.json()["error"] == "The Idempotency-Key is empty: leave it out, or give a key."


def test_nothing_is_published_into_a_namespace_that_is_not_there(api: httpx.Client) -> None:
    empty = api.post("/events/batch", json={"events": []}, params={"namespace": "nowhere"})
    assert (empty.status_code, empty.json()["code"]) == (404, "namespace_not_found")
    here = api.post("/events/batch", json={"events": []})
    assert (here.status_code, here.json()) == (201, {"ids": []})

"""What was taken from a worker over HTTP: its heartbeats tell it. And why an event waits."""

import httpx

from tests.server.running import Running


def claimed(api: httpx.Client, count: int) -> list[int]:
    """The ids of events that one worker has claimed together."""
    for n in range(count):
        assert api.post("/events", json={"payload": n, "tags": "t"}).status_code == 201
    answer = api.post("/events/claim", json={"worker_id": "w", "limit": count, "tags": ["t"]})
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["events"]]


def test_a_heartbeat_names_the_events_that_were_taken(api: httpx.Client) -> None:
    first, second, third = claimed(api, 3)

    def beat(id: int) -> httpx.Response:
        return api.post(f"/events/{id}/heartbeat", json={"worker_id": "w"})

    assert "taken" not in beat(first).json()
    assert api.post(f"/events/{second}/cancel").status_code == 200
    assert api.post(f"/events/{third}/reset").status_code == 200
    assert beat(first).json()["taken"] == {str(second): "CANCELLED", str(third): "RESET"}
    lost = beat(second)
    assert (lost.status_code, lost.json()["code"]) == (409, "lease_lost")
    assert "CANCELLED" in lost.json()["error"]
    assert api.post(f"/events/{first}/complete", json={"worker_id": "w"}).status_code == 200


def test_why_an_event_waits_in_one_queue_or_in_all(api: httpx.Client) -> None:
    assert api.post("/queues", json={"name": "second"}).status_code == 201
    id = api.post("/events", json={"payload": 1, "delay": 60}).json()["id"]
    answer = api.get(f"/events/{id}/why")
    assert answer.status_code == 200
    body = answer.json()
    assert body["event_id"] == id
    codes = [(one["queue"], one["code"]) for one in body["reasons"]]
    assert codes == [
        ("main", "delayed"),
        ("main", "unhandled"),
        ("second", "delayed"),
        ("second", "unhandled"),
    ]
    assert body["reasons"][0]["message"].startswith("it is delayed until ")
    assert body["reasons"][0]["until"].endswith("Z")
    assert body["reasons"][1]["about"] == {"type": "event"}
    [only, _] = api.get(f"/events/{id}/why", params={"queue": "second"}).json()["reasons"]
    assert only["queue"] == "second"
    assert api.get(f"/events/{id}/why", params={"queue": "none"}).status_code == 404
    assert api.get(f"/events/{id + 1000}/why").status_code == 404


def test_another_tenants_events_are_not_there(house: Running, api: httpx.Client) -> None:
    id = api.post("/events", json={"payload": 1}).json()["id"]
    with house.client(house.new_namespace()) as other:
        assert other.get(f"/events/{id}/why").status_code == 404

"""Over HTTP: snooze, run again, unique while unfinished, debounce."""

from typing import Any

import httpx
import pytest

from tests.server.running import Running


def claimed(api: httpx.Client) -> dict[str, Any]:
    api.post("/events", json={}).raise_for_status()
    answer = api.get("/events/subscribe", params={"tags": "*", "worker_id": "w"})
    body: dict[str, Any] = answer.json()
    return body


def release(api: httpx.Client, event: dict[str, Any], **body: Any) -> httpx.Response:
    return api.post(f"/events/{event['id']}/release", json={"worker_id": "w", "attempt": 1, **body})


def test_a_release_with_a_delay_snoozes(api: httpx.Client) -> None:
    event = claimed(api)
    told = release(api, event, delay=30).json()
    assert told["action"] == "SNOOZED"
    shown = api.get(f"/events/{event['id']}", params={"include_logs": True}).json()
    assert (shown["status"], shown["snoozes"]) == ("PENDING", 1)
    assert shown["next_retry_at"] == told["next_retry_at"]
    assert shown["logs"][-1]["action"] == "SNOOZED"
    assert shown["logs"][-1]["due_at"] == told["next_retry_at"]
    assert release(api, event, delay=30).json() == told
    assert release(api, event).json()["code"] == "finish_conflict"


@pytest.mark.parametrize("delay", [-1, 315_360_001, "30", []])
def test_a_snooze_that_is_no_time_is_refused(api: httpx.Client, delay: Any) -> None:
    event = claimed(api)
    assert release(api, event, delay=delay).status_code == 400
    assert api.get(f"/events/{event['id']}").json()["status"] == "PROCESSING"


def test_a_snooze_too_many_is_told_as_a_failure(house: Running, api: httpx.Client) -> None:
    queue = f"/queues/{api.params['namespace']}/main"
    with house.client() as admin:
        changed = admin.patch(queue, json={"max_snoozes": 0}).json()
    assert changed["max_snoozes"] == 0
    told = release(api, claimed(api), delay=1).json()
    assert told["action"] == "FAILED"
    assert "next_retry_at" in told


def test_an_ended_event_is_run_again(house: Running, api: httpx.Client) -> None:
    event = claimed(api)
    place = f"/events/{event['id']}"
    params = {"namespace": api.params["namespace"]}
    with house.client() as admin:
        early = admin.post(f"{place}/rerun", params=params)
        assert (early.status_code, early.json()["code"]) == (409, "not_ended")
        api.post(f"{place}/complete", json={"worker_id": "w", "attempt": 1})
        again = admin.post(f"{place}/rerun", params={**params, "reason": "once more"})
        assert (again.status_code, again.json()["status"]) == (200, "PENDING")
        admin.post(f"{place}/cancel", params=params)
        admin.post(f"{place}/erase", params=params)
        erased = admin.post(f"{place}/rerun", params=params)
        assert (erased.status_code, erased.json()["code"]) == (409, "already_ended")
        unknown = admin.post("/events/999999999/rerun", params=params)
        assert unknown.status_code == 404


def test_an_event_of_a_held_unique_key_is_the_one_that_holds_it(
    house: Running, api: httpx.Client
) -> None:
    first = api.post("/events", json={"payload": 1, "unique": "k"})
    again = api.post("/events", json={"payload": 2, "unique": "k"})
    assert again.json()["id"] == first.json()["id"]
    assert again.json()["payload"] == 1
    assert again.headers["idempotency-replayed"] == "true"
    batch = api.post("/events/batch", json={"events": [{"unique": "k"}, {"unique": "l"}]}).json()
    assert batch["ids"][0] == first.json()["id"] != batch["ids"][1]

    place = f"/events/{first.json()['id']}"
    params = {"namespace": api.params["namespace"]}
    with house.client() as admin:
        admin.post(f"{place}/cancel", params=params)
        second = api.post("/events", json={"unique": "k"}).json()
        held = admin.post(f"{place}/rerun", params=params)
    assert (held.status_code, held.json()["code"]) == (409, "unique_key_held")
    assert held.json()["event_id"] == second["id"]


def test_a_debounced_event_supersedes_the_one_that_waits(api: httpx.Client) -> None:
    event = {"debounce": "k", "settle": 60, "at_latest": 600}
    first, second = (api.post("/events", json=event).json()["id"] for _ in range(2))
    shown = api.get(f"/events/{first}", params={"include_logs": True, "details": True}).json()
    assert (shown["status"], shown["superseded_by"]) == ("CANCELLED", second)
    assert shown["debounce"] == "k"
    assert shown["logs"][-1]["superseded_by"] == second
    for wrong in ({"settle": 0}, {"settle": None}, {"at_latest": 1}, {"delay": 5}):
        refused = api.post("/events", json={**event, **wrong})
        assert refused.status_code == 400, wrong

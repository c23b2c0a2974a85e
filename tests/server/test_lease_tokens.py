"""Over HTTP, too, a claim is proved."""

from typing import Any

import httpx
import pytest

from tests.requirements import requirement
from tests.server.running import Running

WRONG = "00000000-0000-4000-8000-000000000000"
CALLS = ("start", "heartbeat", "complete", "fail", "release")


def claimed(api: httpx.Client, worker: str = "w1") -> dict[str, Any]:
    api.post("/events", json={"payload": 1}).raise_for_status()
    answer = api.get("/events/subscribe", params={"tags": "*", "worker_id": worker})
    body: dict[str, Any] = answer.json()
    return body


def tell(
    api: httpx.Client, call: str, event: dict[str, Any], **body: Any
) -> tuple[int, str | None]:
    answer = api.post(f"/events/{event['id']}/{call}", json=body)
    return answer.status_code, answer.json().get("code")


@requirement("G6")
@pytest.mark.parametrize("call", CALLS)
def test_a_worker_does_not_speak_for_another(api: httpx.Client, call: str) -> None:
    event = claimed(api)
    assert tell(api, call, event, worker_id="w2", attempt=1) == (409, "lease_lost")
    assert tell(api, call, event, worker_id="w2") == (409, "lease_lost")
    assert api.get(f"/events/{event['id']}").json()["status"] == "PROCESSING"
    assert tell(api, call, event, worker_id="w1", attempt=1)[0] == 200


@pytest.mark.parametrize("call", CALLS)
def test_a_token_that_is_sent_must_fit(api: httpx.Client, call: str) -> None:
    event, other = claimed(api), claimed(api)
    for token in (WRONG, other["lease_token"]):
        refused = tell(api, call, event, worker_id="w1", attempt=1, lease_token=token)
        assert refused == (409, "lease_lost")
    garbage = tell(api, call, event, worker_id="w1", lease_token="x")
    assert garbage == (400, "invalid_body")
    assert tell(api, call, event, worker_id="w1", lease_token=event["lease_token"])[0] == 200


@pytest.mark.parametrize("call", CALLS)
def test_a_queue_may_require_the_token(house: Running, api: httpx.Client, call: str) -> None:
    queue = f"/queues/{api.params['namespace']}/main"
    with house.client() as admin:
        settings = admin.patch(queue, json={"require_lease_token": True})
    assert settings.json()["require_lease_token"] is True
    event = claimed(api)
    answer = api.post(f"/events/{event['id']}/{call}", json={"worker_id": "w1", "attempt": 1})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert "requires the lease_token" in answer.text
    assert tell(api, call, event, worker_id="w1", lease_token=event["lease_token"])[0] == 200


def test_those_who_look_do_not_see_the_token(api: httpx.Client) -> None:
    event = claimed(api)
    for path in (
        f"/events/{event['id']}",
        "/events",
        "/workers",
        f"/events/{event['id']}?include=story",
    ):
        answer = api.get(path)
        assert answer.status_code == 200
        assert event["lease_token"] not in answer.text

"""What the dashboard asks for: charts, what needs attention, an event's story, search."""

import re
from typing import Any

import httpx
import pytest

from tests.database import Database
from tests.server.running import Running, running

WORKER = {"worker_id": "w:1"}
TRACEBACK = (
    'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nValueError: no'
)


def publish(api: httpx.Client, **fields: Any) -> int:
    return int(api.post("/events", json=fields).json()["id"])


def claim(api: httpx.Client, **fields: Any) -> Any:
    [claimed] = api.post("/events/claim", json={**WORKER, "limit": 1, **fields}).json()["events"]
    return claimed


@pytest.mark.parametrize(
    ("range", "step", "points"),
    [("15m", 5, 180), ("1h", 20, 180), ("6h", 120, 180), ("24h", 480, 180), ("7d", 3600, 168)],
)
def test_a_chart_has_a_point_for_every_step(
    house: Running, api: httpx.Client, range: str, step: int, points: int
) -> None:
    publish(api)
    house.db.sql("select headrace.tick()")
    chart = api.get("/history", params={"range": range}).json()
    assert chart.keys() == {"namespace", "queue", "from", "to", "step", "points"}
    assert (chart["step"], len(chart["points"])) == (step, points)
    assert chart["from"] == chart["points"][0]["at"]
    assert chart["from"] < chart["to"]
    assert chart["points"][0] == {
        "at": chart["from"],
        "seconds": step,
        **dict.fromkeys(("published", "completed", "failed", "retried", "dead"), 0),
        **dict.fromkeys(("depth", "oldest_age")),
        **dict.fromkeys(("wait_p50", "wait_p95", "wait_p99", "run_p50", "run_p95", "run_p99")),
    }


def test_a_chart_is_of_the_queue_that_is_asked_for(api: httpx.Client) -> None:
    chart = api.get("/history").json()
    assert (chart["queue"], chart["step"]) == ("main", 20)
    assert api.get("/history", params={"queue": "none"}).json()["code"] == "queue_not_found"
    wrong = api.get("/history", params={"range": "2h"})
    assert "Use one of 15m, 1h, 6h, 24h, 7d." in wrong.json()["error"]


def test_what_needs_attention_is_said_in_words(house: Running, api: httpx.Client) -> None:
    space = api.params["namespace"]
    house.db.sql("select headrace.tick()")  # that nobody has yet would be found, too
    assert api.get("/attention").json() == {"findings": []}
    publish(api)
    house.db.sql("select headrace.pause(%s, 'main', 'anna')", [space])
    [finding] = api.get("/attention").json()["findings"]
    assert finding.pop("since")
    assert finding == {
        "code": "paused",
        "level": "warning",
        "sentence": "The queue main was paused by anna, and 1 event waits in it.",
        "namespace": space,
        "queue": "main",
        "about": {"waiting": 1, "actor": "anna"},
    }
    assert api.get("/attention", params={"namespace": "nowhere"}).status_code == 404


def test_a_token_is_told_of_its_namespaces_alone(db: Database) -> None:
    db.sql("select headrace.tick()")  # that nobody has yet would be found, too
    for name in ("own", "other"):
        queue = db.queue(namespace=name)
        queue.publish("a")
        queue.pause()
    token = db.queue().create_token("a token", ["read"], namespaces=["own"])
    with running(db) as house, house.client() as api:
        api.headers["Authorization"] = f"Bearer {token}"
        found = api.get("/attention").json()["findings"]
        assert {one["namespace"] for one in found} == {"own"}
        assert api.get("/attention", params={"namespace": "other"}).status_code == 404
        assert api.get("/history", params={"namespace": "other"}).status_code == 404


def test_a_session_in_the_way_is_named_to_who_may_know_of_all_namespaces(db: Database) -> None:
    db.sql("select headrace.tick()")
    outsider = db.connect(application_name="another tenant")
    outsider.execute("select pg_advisory_lock(headrace._advisory_lock('sleepers'), 1)")
    queue = db.queue()
    tokens = [
        queue.create_token("one's", ["read"], namespaces=["default"]),
        queue.create_token("all", ["read"]),
    ]
    with running(db) as house, house.client() as api:
        for token, codes in zip(tokens, ([], ["lock_in_the_way"]), strict=True):
            api.headers["Authorization"] = f"Bearer {token}"
            found = api.get("/attention").json()["findings"]
            assert [one["code"] for one in found] == codes


def test_an_event_tells_its_story(api: httpx.Client) -> None:
    root = publish(api, type="order", max_retries=2)
    child = publish(api, type="bill", causation_id=str(root), correlation_id=str(root))
    for _ in range(2):
        held = claim(api, types=["order"])
        fail = {**WORKER, "error_message": TRACEBACK, "retry_in": 0, "execution_time_ms": 7}
        api.post(f"/events/{held['id']}/fail", json=fail)
    api.post(f"/events/{root}/reset")
    held = claim(api, types=["order"])
    told = api.get(f"/events/{root}", params={"include": "story"}).json()
    assert "deliveries" not in told
    assert "logs" not in told
    story = told["story"]
    assert [
        (one["attempt"], one["action"], one["execution_time_ms"], one["error_message"])
        for one in story["attempts"]
    ] == [
        (1, "FAILED", 7, "ValueError: no"),
        (2, "FAILED", 7, "ValueError: no"),
        (held["attempt"], None, None, None),
    ]
    first = story["attempts"][0]
    assert (first["worker_id"], first["queue"]) == ("w:1", "main")
    assert first["error_traceback"] == TRACEBACK
    assert re.fullmatch(r"[\d-]{10}T[\d:]{8}\.\d{3}Z", first["ended_at"])
    assert [one["status"] for one in story["deliveries"]] == ["PROCESSING"]
    [caused] = story["causes"]
    assert (caused["id"], caused["type"], caused["status"]) == (child, "bill", "PENDING")
    assert (story["caused_by"], story["same_correlation"]) == (None, [])
    cause = api.get(f"/events/{child}", params={"include": "story"}).json()["story"]["caused_by"]
    assert cause["id"] == root
    assert api.get("/events/999999999", params={"include": "story"}).status_code == 404
    both = {"include": "story", "include_logs": "true", "deliveries": "true", "details": "true"}
    assert {"story", "logs", "deliveries", "type"} <= api.get(
        f"/events/{root}", params=both
    ).json().keys()


def search(api: httpx.Client, q: str, **params: Any) -> list[int]:
    answer = api.get("/events", params={"q": q, **params}).json()
    assert answer["total"] == len(answer["events"])
    return [one["id"] for one in answer["events"]]


def test_search_finds_what_somebody_has_in_his_hand(api: httpx.Client) -> None:
    order = publish(api, type="order.created", idempotency_key="order-7")
    paid = publish(api, type="order.paid", correlation_id="chain-1")
    publish(api, type="mail")
    assert search(api, str(order)) == search(api, "order-7") == [order]
    assert search(api, "chain-1") == [paid]
    assert search(api, "order.") == [paid, order]
    assert search(api, "order.", status="COMPLETED") == search(api, "nothing") == []
    assert search(api, "100%") == search(api, "'; --") == []
    assert api.get("/events", params={"q": "a", "types": "b"}).json()["code"] == "invalid_query"
    assert api.get("/events", params={"q": ""}).json()["code"] == "invalid_query"

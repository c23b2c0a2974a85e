"""The HTTP document's examples, in its order and its words, over real HTTP and field by field."""

import re
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.database import Database
from tests.requirements import requirement
from tests.server.running import Running

EMAIL = {
    "title": "Send Email Notification",
    "description": "Send welcome email to new user",
    "tags": "email,priority-high,notification",
    "payload": {
        "user_id": 12345,
        "email": "user@example.com",
        "template": "welcome",
        "variables": {"name": "Alice", "signup_date": "2025-12-24"},
    },
}
WORKER = "worker-02:8742"
COMPLETE = {"worker_id": WORKER, "execution_time_ms": 1250, "status_code": 200}
FAIL = {
    "worker_id": WORKER,
    "execution_time_ms": 5000,
    "status_code": 500,
    "error_message": "Connection timeout: mail server unreachable. Will retry.",
}


class Time:
    """Equal to any time as the document writes them."""

    def __eq__(self, text: object) -> bool:
        return isinstance(text, str) and bool(
            re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text)
        )

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "<a time>"


TIME = Time()


class Token:
    """Equal to any lease token."""

    def __eq__(self, text: object) -> bool:
        return isinstance(text, str) and bool(re.fullmatch(r"[0-9a-f-]{36}", text))

    def __hash__(self) -> int:
        return 0


TOKEN = Token()


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def subscribe(api: httpx.Client, tags: str = "email,notification", **more: Any) -> httpx.Response:
    return api.get("/events/subscribe", params={"tags": tags, "worker_id": WORKER, **more})


def logs(api: httpx.Client, id: int) -> list[dict[str, Any]]:
    return api.get(f"/events/{id}", params={"include_logs": "true"}).json()["logs"]


@pytest.fixture
def db(house: Running) -> Database:
    return house.db


@requirement("API-1", "API-5", "API-6", "PG-3")
def test_1_create_job(api: httpx.Client) -> None:
    answer = api.post("/events", json=EMAIL)
    assert answer.status_code == 201
    created = answer.json()
    assert created == {
        "id": created["id"],
        **EMAIL,
        "status": "PENDING",
        "retry_count": 0,
        "max_retries": 3,
        "next_retry_at": None,
        "created_at": TIME,
        "updated_at": created["created_at"],
    }
    assert isinstance(created["id"], int)


@requirement("API-3", "API-7", "API-8", "API-16")
def test_2_poll_for_jobs(api: httpx.Client) -> None:
    created = api.post("/events", json=EMAIL).json()
    answer = subscribe(api)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json() == {
        "id": created["id"],
        "title": "Send Email Notification",
        "tags": "email,priority-high,notification",
        "status": "PROCESSING",
        "payload": EMAIL["payload"],
        "retry_count": 0,
        "max_retries": 3,
        "created_at": created["created_at"],
        "attempt": 1,
        "lease_expires_at": TIME,
        "lease_token": TOKEN,
    }
    nothing = subscribe(api)
    assert (nothing.status_code, nothing.content) == (204, b"")
    assert "content-type" not in nothing.headers
    assert "content-length" not in nothing.headers


@requirement("API-7")
def test_2_both_parameters_are_required_and_any_tag_will_do(api: httpx.Client) -> None:
    api.post("/events", json=EMAIL)
    for missing in ({"tags": "email"}, {"worker_id": WORKER}):
        refused = api.get("/events/subscribe", params=missing)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_query")
    assert subscribe(api, "payment").status_code == 204
    assert subscribe(api, "payment,notification").status_code == 200


@requirement("API-9")
def test_3_mark_success(api: httpx.Client) -> None:
    id = api.post("/events", json=EMAIL).json()["id"]
    subscribe(api)
    answer = api.post(f"/events/{id}/complete", json=COMPLETE)
    assert answer.status_code == 200
    completed = answer.json()
    assert completed == {
        "event_id": id,
        "worker_id": WORKER,
        "action": "COMPLETED",
        "status_code": 200,
        "execution_time_ms": 1250,
        "created_at": TIME,
    }
    event = api.get(f"/events/{id}").json()
    assert event["status"] == "COMPLETED"
    assert event["updated_at"] == completed["created_at"]


@requirement("API-2", "API-4", "API-10", "API-12")
def test_4_report_failure_and_retry(api: httpx.Client, db: Database) -> None:
    id = api.post("/events", json=EMAIL).json()["id"]
    subscribe(api)
    answer = api.post(f"/events/{id}/fail", json=FAIL)
    assert answer.status_code == 200
    failed = answer.json()
    assert failed == {
        "event_id": id,
        "worker_id": WORKER,
        "action": "FAILED",
        "status_code": 500,
        "error_message": FAIL["error_message"],
        "execution_time_ms": 5000,
        "retry_scheduled": True,
        "next_retry_at": TIME,
        "created_at": TIME,
    }
    assert at(failed["next_retry_at"]) - at(failed["created_at"]) == timedelta(minutes=5)
    event = api.get(f"/events/{id}").json()
    assert {name: event[name] for name in ("status", "retry_count", "next_retry_at")} == {
        "status": "PENDING",
        "retry_count": 1,
        "next_retry_at": failed["next_retry_at"],
    }
    assert logs(api, id)[-1]["action"] == "FAILED"
    assert subscribe(api).status_code == 204
    db.advance(minutes=5)
    assert subscribe(api).json()["retry_count"] == 1


@requirement("API-11", "API-12", "API-20")
def test_4_max_retries_exceeded(api: httpx.Client, db: Database) -> None:
    id = api.post("/events", json=EMAIL).json()["id"]
    for _ in range(2):
        subscribe(api)
        assert api.post(f"/events/{id}/fail", json=FAIL).status_code == 200
        db.advance(minutes=5, seconds=1)
    subscribe(api)
    for _ in range(2):  # and again: the same
        answer = api.post(f"/events/{id}/fail", json=FAIL)
        assert answer.status_code == 400
        assert answer.json() == {
            "error": "Max retries exceeded",
            "retry_count": 3,
            "max_retries": 3,
        }
    event = api.get(f"/events/{id}").json()
    assert (event["status"], event["retry_count"]) == ("FAILED", 3)
    assert event["next_retry_at"] is None
    actions = [entry["action"] for entry in logs(api, id)]
    assert actions == ["PICKED", "FAILED"] * 3 + ["DEAD_LETTERED"]


@requirement("API-13")
def test_5_get_event_details(api: httpx.Client) -> None:
    created = api.post("/events", json=EMAIL).json()
    id = created["id"]
    subscribe(api)
    completed = api.post(f"/events/{id}/complete", json=COMPLETE).json()
    answer = api.get(f"/events/{id}", params={"include_logs": "true"})
    assert answer.status_code == 200
    event = answer.json()
    first, second = (entry["id"] for entry in event["logs"])
    assert event == {
        "id": id,
        **EMAIL,
        "status": "COMPLETED",
        "retry_count": 0,
        "max_retries": 3,
        "next_retry_at": None,
        "created_at": created["created_at"],
        "updated_at": completed["created_at"],
        "logs": [
            {"id": first, "worker_id": WORKER, "action": "PICKED", "created_at": TIME},
            {
                "id": second,
                "worker_id": WORKER,
                "action": "COMPLETED",
                "status_code": 200,
                "execution_time_ms": 1250,
                "created_at": completed["created_at"],
            },
        ],
    }
    assert first < second
    del event["logs"]
    assert api.get(f"/events/{id}").json() == event


@requirement("API-14")
def test_6_list_events(api: httpx.Client, db: Database) -> None:
    payment = {"title": "Process Payment", "tags": "payment,priority-high", "max_retries": 3}
    pending = api.post("/events", json=payment).json()
    subscribe(api, "payment")
    failed = api.post(f"/events/{pending['id']}/fail", json=FAIL).json()
    created = api.post("/events", json=EMAIL).json()
    subscribe(api)
    completed = api.post(f"/events/{created['id']}/complete", json=COMPLETE).json()
    first = {
        "id": created["id"],
        "title": "Send Email Notification",
        "status": "COMPLETED",
        "tags": "email,priority-high,notification",
        "retry_count": 0,
        "created_at": created["created_at"],
        "updated_at": completed["created_at"],
    }
    second = {
        "id": pending["id"],
        "title": "Process Payment",
        "status": "PENDING",
        "tags": "payment,priority-high",
        "retry_count": 1,
        "next_retry_at": failed["next_retry_at"],
        "created_at": pending["created_at"],
        "updated_at": failed["created_at"],
    }

    def listed(**params: Any) -> dict[str, Any]:
        answer = api.get("/events", params=params)
        assert answer.status_code == 200
        return answer.json()

    both = {"events": [first, second], "total": 2, "limit": 10, "offset": 0}
    assert listed(limit=10) == both
    assert listed() == {**both, "limit": 20}
    assert listed(tags="priority-high,none", limit=10) == both
    one = {"events": [second], "total": 1, "limit": 10, "offset": 0}
    assert listed(status="PENDING", limit=10) == one
    assert listed(tags="payment", limit=10) == one
    assert listed(limit=1, offset=1) == {**both, "events": [second], "limit": 1, "offset": 1}
    assert listed(status="PROCESSING")["total"] == listed(status="FAILED")["total"] == 0


@requirement("API-15", "API-1")
def test_the_log_of_a_success_with_one_retry(api: httpx.Client, db: Database) -> None:
    id = api.post("/events", json=EMAIL).json()["id"]
    one, two = "worker-01:7234", "worker-02:8742"
    subscribe(api, worker_id=one)
    db.advance(seconds=1)
    started = api.post(f"/events/{id}/start", json={"worker_id": one})
    assert started.json() == {
        "event_id": id,
        "worker_id": one,
        "action": "STARTED",
        "created_at": TIME,
    }
    db.advance(seconds=8)
    failure = {
        "worker_id": one,
        "status_code": 503,
        "error_message": "Service unavailable, will retry",
        "execution_time_ms": 8000,
    }
    api.post(f"/events/{id}/fail", json=failure)
    db.advance(minutes=5, seconds=16)
    subscribe(api, worker_id=two)
    db.advance(seconds=15)
    api.post(f"/events/{id}/complete", json={**COMPLETE, "worker_id": two})

    entries = logs(api, id)
    shapes = [{**entry, "event_id": id, "id": ..., "created_at": ...} for entry in entries]
    known = {"id": ..., "event_id": id, "created_at": ...}
    assert shapes == [
        {**known, "worker_id": one, "action": "PICKED"},
        {**known, "worker_id": one, "action": "STARTED"},
        {
            **known,
            "worker_id": one,
            "action": "FAILED",
            "status_code": 503,
            "error_message": "Service unavailable, will retry",
            "execution_time_ms": 8000,
        },
        {**known, "worker_id": two, "action": "PICKED"},
        {
            **known,
            "worker_id": two,
            "action": "COMPLETED",
            "status_code": 200,
            "execution_time_ms": 1250,
        },
    ]
    ids = [entry["id"] for entry in entries]
    assert ids == sorted(set(ids))
    assert all(entry["created_at"] == TIME for entry in entries)
    assert logs(api, id) == entries


@requirement("API-1", "API-19")
def test_process_a_publishes_process_b_consumes(api: httpx.Client, db: Database) -> None:
    batch = {
        "title": "Batch Report Generation",
        "tags": "reporting,batch",
        "payload": {"report_type": "sales", "month": "2025-12"},
    }
    answer = api.post("/events", json=batch)
    assert answer.status_code == 201
    assert answer.json()["description"] is None
    id = answer.json()["id"]

    mine = subscribe(api, "reporting", worker_id="worker-03:9100").json()
    assert (mine["id"], mine["status"]) == (id, "PROCESSING")
    db.advance(seconds=15)
    done = {"worker_id": "worker-03:9100", "execution_time_ms": 15000, "status_code": 200}
    assert api.post(f"/events/{id}/complete", json=done).status_code == 200
    assert api.get(f"/events/{id}").json()["status"] == "COMPLETED"

    other = {"tags": "payment", "worker_id": "worker-04:9101"}
    assert api.get("/events/subscribe", params=other).status_code == 204
    db.advance(seconds=5)
    payment = api.post("/events", json={"tags": "payment"}).json()
    assert api.get("/events/subscribe", params=other).json()["id"] == payment["id"]


@requirement("API-20", "G8")
def test_an_end_may_be_repeated_and_is_logged_once(api: httpx.Client, db: Database) -> None:
    for action, body, other, its_body in (
        ("complete", COMPLETE, "fail", FAIL),
        ("fail", FAIL, "complete", COMPLETE),
    ):
        id = api.post("/events", json=EMAIL).json()["id"]
        subscribe(api)
        first = api.post(f"/events/{id}/{action}", json=body)
        db.advance(seconds=3)
        again = api.post(f"/events/{id}/{action}", json=body)
        assert (again.status_code, again.json()) == (200, first.json())
        otherwise = api.post(f"/events/{id}/{other}", json=its_body)
        assert (otherwise.status_code, otherwise.json()["code"]) == (409, "finish_conflict")
        assert len(logs(api, id)) == 2


@requirement("API-17", "API-21")
def test_an_orphan_is_listed_and_reset(api: httpx.Client, db: Database) -> None:
    id = api.post("/events", json=EMAIL).json()["id"]
    subscribe(api)
    db.advance(seconds=31)
    orphans = api.get("/events", params={"orphaned": "true"}).json()
    assert [event["id"] for event in orphans["events"]] == [id]
    answer = api.post(f"/events/{id}/reset", params={"reason": "worker_timeout"})
    assert answer.status_code == 200
    assert (answer.json()["id"], answer.json()["status"]) == (id, "PENDING")
    entry = logs(api, id)[-1]
    assert (entry["action"], entry["error_message"]) == ("RESET", "worker_timeout")
    late = api.post(f"/events/{id}/complete", json=COMPLETE)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    assert subscribe(api, worker_id="worker-09:1").json()["attempt"] == 2


@requirement("API-22")
def test_how_large_a_payload_may_be_can_be_adjusted(api: httpx.Client, house: Running) -> None:
    larger = {"payload": {"a": "x" * 3_000_000}}
    try:
        house.db.sql("select headrace.configure('max_payload', '4194304')")
        house.db.wait_for(lambda: api.post("/events", json=larger).status_code == 201)
        nightly = {"name": "nightly", "cron_expression": "0 2 * * *", **larger}
        assert api.post("/schedules", json=nightly).status_code == 201
        house.db.sql("select headrace.configure('max_payload', '65536')")
        refused = api.post("/events", json={"payload": {"a": "x" * 70_000}})
        assert (refused.status_code, refused.json()["code"]) == (413, "payload_too_large")
        assert "64 KiB" in refused.json()["error"]
    finally:
        house.db.sql("select headrace.configure('max_payload', null)")
    house.db.wait_for(
        lambda: api.post("/events", json=larger).json().get("code") == "body_too_large"
    )


@requirement("API-22")
def test_a_payload_has_at_most_a_mebibyte(api: httpx.Client) -> None:
    most = "x" * (1024 * 1024 - 10)
    assert api.post("/events", json={"payload": {"a": most}}).status_code == 201
    refused = api.post("/events", json={"payload": {"a": most + "x" * 20}})
    assert (refused.status_code, refused.json()["code"]) == (413, "payload_too_large")
    refused = api.post("/events", json={"payload": {"a": most + "x" * 70_000}})
    assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")

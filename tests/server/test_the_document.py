"""The HTTP document's examples, in its order and its words, over real HTTP and field by field."""

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest

from headrace.server.limits import Limits
from tests.database import Database
from tests.requirements import requirement
from tests.server.running import Running, running

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


@pytest.fixture
def admin(house: Running) -> Iterator[httpx.Client]:
    """For what names its namespace in its path."""
    with house.client() as client:
        yield client


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


@requirement("API-9", "API-17", "G6")
@pytest.mark.parametrize("action", ["complete", "fail"])
def test_a_worker_that_knows_no_lease_and_no_heartbeat_ends_a_job_of_ten_minutes(
    api: httpx.Client, db: Database, action: str
) -> None:
    id = api.post("/events", json=EMAIL).json()["id"]
    assert subscribe(api).json()["status"] == "PROCESSING"
    db.advance(minutes=10)
    db.sql("select headrace.tick()")
    assert api.get(f"/events/{id}").json()["status"] == "PENDING"
    body = {**(COMPLETE if action == "complete" else FAIL), "execution_time_ms": 600_000}
    answer = api.post(f"/events/{id}/{action}", json=body)
    assert answer.status_code == 200
    assert answer.json()["execution_time_ms"] == 600_000
    event = api.get(f"/events/{id}", params={"details": "true"}).json()
    is_done = action == "complete"
    assert event["status"] == ("COMPLETED" if is_done else "PENDING")
    assert (event["retry_count"], event["crashes"]) == (0 if is_done else 1, 0)
    ended = "COMPLETED" if is_done else "FAILED"
    assert [entry["action"] for entry in logs(api, id)] == ["PICKED", "ABANDONED", ended]
    assert subscribe(api).status_code == 204
    # And again: the same.
    assert api.post(f"/events/{id}/{action}", json=body).json() == answer.json()


@requirement("API-17", "G6")
@pytest.mark.parametrize("action", ["complete", "fail"])
def test_it_comes_too_late_once_another_worker_has_the_event(
    api: httpx.Client, db: Database, action: str
) -> None:
    id = api.post("/events", json=EMAIL).json()["id"]
    subscribe(api)
    db.advance(minutes=10)
    db.sql("select headrace.tick()")
    assert subscribe(api, worker_id="worker-01:7234").json()["id"] == id
    late = api.post(f"/events/{id}/{action}", json=COMPLETE if action == "complete" else FAIL)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")
    assert api.get(f"/events/{id}").json()["status"] == "PROCESSING"


@requirement("API-17", "G6")
def test_a_heartbeat_does_not_come_late(api: httpx.Client, db: Database) -> None:
    id = api.post("/events", json=EMAIL).json()["id"]
    subscribe(api)
    db.advance(minutes=10)
    db.sql("select headrace.tick()")
    late = api.post(f"/events/{id}/heartbeat", json={"worker_id": WORKER})
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


@requirement("API-21", "G6")
def test_an_event_that_was_abandoned_is_reset(api: httpx.Client, db: Database) -> None:
    id = api.post("/events", json=EMAIL).json()["id"]
    subscribe(api)
    db.advance(minutes=10)
    db.sql("select headrace.tick()")
    answer = api.post(f"/events/{id}/reset", params={"reason": "worker_timeout"})
    assert (answer.status_code, answer.json()["status"]) == (200, "PENDING")
    assert [entry["action"] for entry in logs(api, id)] == ["PICKED", "ABANDONED", "RESET"]
    late = api.post(f"/events/{id}/complete", json=COMPLETE)
    assert (late.status_code, late.json()["code"]) == (409, "lease_lost")


def lasts(db: Database, claimed: dict[str, Any]) -> float:
    """For how many seconds from now an event is its worker's."""
    [(now,)] = db.sql("select headrace._now()")
    return (at(claimed["lease_expires_at"]) - now).total_seconds()


@requirement("API-17")
def test_how_long_a_claim_lasts_is_a_setting_of_its_queue(
    api: httpx.Client, admin: httpx.Client, db: Database
) -> None:
    main = f"/queues/{api.params['namespace']}/main"
    for _ in range(4):
        api.post("/events", json=EMAIL)
    assert 50 < lasts(db, subscribe(api).json()) <= 60
    assert admin.get(main).json()["lease"] is None
    changed = admin.patch(main, json={"lease": 900})
    assert (changed.status_code, changed.json()["lease"]) == (200, 900)
    assert 800 < lasts(db, subscribe(api).json()) <= 900
    claim = {"tags": "email", "worker_id": WORKER}
    [claimed] = api.post("/events/claim", json=claim).json()["events"]
    assert 800 < lasts(db, claimed) <= 900
    assert lasts(db, subscribe(api, lease=5).json()) <= 5  # a claim that says so itself
    assert admin.patch(main, json={"lease": None}).json()["lease"] is None
    for wrong in (0, 604801, "long"):
        assert admin.patch(main, json={"lease": wrong}).status_code == 400
    made = api.post("/queues", json={"name": "slow", "lease": 1800})
    assert (made.status_code, made.json()["lease"]) == (201, 1800)


@requirement("API-17")
def test_how_long_a_claim_lasts_is_a_setting_of_the_server(
    house: Running, admin: httpx.Client
) -> None:
    namespace, db = house.new_namespace(), house.db
    with running(db, limits=Limits(lease=1200)) as server, server.client(namespace) as api:
        for _ in range(3):
            api.post("/events", json=EMAIL)
        assert 1100 < lasts(db, subscribe(api).json()) <= 1200
        assert lasts(db, subscribe(api, lease=5).json()) <= 5
        main = f"/queues/{namespace}/main"
        assert admin.patch(main, json={"lease": 90}).status_code == 200  # it comes first
        slow: list[float] = []

        def claimed() -> bool:
            """As soon as the server knows, which is after some seconds."""
            api.post("/events", json=EMAIL)
            slow.append(lasts(db, subscribe(api).json()))
            return slow[-1] <= 90

        db.wait_for(claimed)
        assert slow[-1] > 80


@requirement("API-17")
def test_a_server_knows_at_once_what_was_changed_through_it(house: Running) -> None:
    namespace, db = house.new_namespace(), house.db
    main = f"/queues/{namespace}/main"
    with (
        running(db, limits=Limits(lease=1200)) as server,
        server.client(namespace) as api,
        server.client() as admin,
    ):
        for lease, least, most in [(90, 80, 90), (None, 1100, 1200), (300, 200, 300)]:
            changed = admin.patch(main, json={"lease": lease})
            assert changed.status_code == 200
            api.post("/events", json=EMAIL)
            assert least < lasts(db, subscribe(api).json()) <= most


@requirement("API-20", "G8")
@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "late"])
def test_a_repeat_is_answered_with_what_was_recorded_first(
    api: httpx.Client, db: Database, is_late: bool
) -> None:
    otherwise = {"worker_id": WORKER, "execution_time_ms": 9999, "status_code": 201}
    less = {"worker_id": WORKER}
    for action, body in (("complete", COMPLETE), ("fail", FAIL)):
        id = api.post("/events", json=EMAIL).json()["id"]
        subscribe(api)
        if is_late:
            db.advance(seconds=61)
            db.sql("select headrace.tick()")
        first = api.post(f"/events/{id}/{action}", json=body)
        entries = logs(api, id)
        for repeat in (otherwise, less, {**otherwise, "attempt": 1}, body):
            message = {"error_message": "another"} if action == "fail" else {}
            again = api.post(f"/events/{id}/{action}", json={**message, **repeat})
            assert (again.status_code, again.json()) == (200, first.json())
        assert logs(api, id) == entries


@requirement("API-20", "G8")
def test_a_repeat_of_what_was_given_up_says_what_was_said_first(api: httpx.Client) -> None:
    id = api.post("/events", json=EMAIL).json()["id"]
    subscribe(api)
    first = api.post(f"/events/{id}/fail", json={**FAIL, "reason": "No such address"})
    assert (first.status_code, first.json()["retry_scheduled"]) == (200, False)
    again = api.post(f"/events/{id}/fail", json=FAIL)
    assert (again.status_code, again.json()) == (200, first.json())
    assert api.get(f"/events/{id}").json()["reason"] == "No such address"


@requirement("API-13", "G9")
def test_an_event_whose_workers_died_four_times_says_so(api: httpx.Client, db: Database) -> None:
    id = api.post("/events", json=EMAIL).json()["id"]
    alive = api.get(f"/events/{id}").json()
    assert not {"crashes", "reason"} & alive.keys()
    for _ in range(4):
        assert subscribe(api).json()["id"] == id
        db.advance(seconds=61)
        db.sql("select headrace.tick()")
    event = api.get(f"/events/{id}").json()
    assert {name: event[name] for name in ("status", "retry_count", "crashes", "reason")} == {
        "status": "FAILED",
        "retry_count": 0,
        "crashes": 3,  # the first one charges nobody
        "reason": "Its workers crashed or lost their leases",
    }
    [listed] = api.get("/events", params={"status": "FAILED"}).json()["events"]
    assert (listed["crashes"], listed["reason"]) == (3, event["reason"])


@requirement("API-5")
@pytest.mark.parametrize(
    "payload",
    [
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": {"c": 1, "c": 2}}, "list": [{"x": 1, "x": null}]}',
        '{"exact": 1.0, "long": 1.50, "big": 1e2, "small": 1E-7, "zero": -0, "minus": -0.0}',
        '{"a": [1e2, 1.5e1, 1.50e1, 1.00e1, 1E+2, 100e-2, -0e0, 0e9, -1e-3, -0.0e-3, 1e30]}',
        '{"b": [-0.05, 1e16, 1.0e16, 9007199254740993e0, 123456789e-9], "1e2": "1e2"}',
        '{"int": 12345678901234567890123, "digits": 0.1000000000000000055511151231257827}',
        '{"text": "\\u00e9\\ud83d\\ude00\\/\\n", "\\u0061": 1, "a": 2, "é": "e\u0301"}',
        '{"long key": 1, "b": 2, "a": 3}',
        '[1, [], {}, "", null, true]',
        '"text"',
        "null",
        "{}",
    ],
)
@pytest.mark.parametrize("kind", ["document", "cloudevent"])
def test_the_answer_to_a_publish_shows_what_is_stored(
    api: httpx.Client, payload: str, kind: str
) -> None:
    if kind == "document":
        body = f'{{"title": "Odd", "tags": " a , b ", "payload": {payload}}}'
        created = api.post("/events", content=body, headers={"Content-Type": "application/json"})
    else:
        body = (
            f'{{"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {payload}}}'
        )
        media = {"Content-Type": "application/cloudevents+json"}
        created = api.post("/events", content=body, headers=media)
    assert created.status_code == 201
    found = api.get(f"/events/{created.json()['id']}")
    as_written = partial(json.loads, parse_float=str, parse_int=str)
    assert as_written(created.text) == as_written(found.text)


@requirement("API-14")
def test_how_much_of_a_list_is_told_at_once_is_limited(api: httpx.Client) -> None:
    for good in ({"limit": 1}, {"limit": 1000}, {"offset": 0}, {"offset": 10_000}):
        assert api.get("/events", params=good).status_code == 200
    for bad in ({"limit": 0}, {"limit": 1001}, {"offset": -1}, {"offset": 10_001}):
        refused = api.get("/events", params=bad)
        assert refused.status_code == 400
        assert next(iter(bad)) in refused.text.lower()


@requirement("API-5")
def test_a_publisher_is_told_of_pressure(api: httpx.Client, admin: httpx.Client) -> None:
    main = f"/queues/{api.params['namespace']}/main"
    assert "pressure" not in api.post("/events", json=EMAIL).json()
    changed = admin.patch(main, json={"high_watermark": 1})
    assert changed.status_code == 200
    assert api.post("/events", json=EMAIL).json()["pressure"] is True
    assert api.post("/events/batch", json={"events": [EMAIL]}).json()["pressure"] is True


@requirement("API-1", "API-5", "API-7", "API-9", "API-10", "API-13", "API-14", "API-19", "API-21")
def test_the_documents_requests_one_after_the_other(api: httpx.Client, db: Database) -> None:
    """With its names and values, as one worker and one publisher would send them."""
    # 1 to 3, and 5: a job that goes well
    email = api.post("/events", json=EMAIL)
    id = email.json()["id"]
    assert (email.status_code, email.json()["status"]) == (201, "PENDING")
    picked = api.get(
        "/events/subscribe", params={"tags": "email,notification", "worker_id": WORKER}
    )
    assert (picked.status_code, picked.json()["id"]) == (200, id)
    done = api.post(f"/events/{id}/complete", json=COMPLETE)
    assert (done.status_code, done.json()["action"]) == (200, "COMPLETED")
    assert api.get(f"/events/{id}", params={"include_logs": "true"}).json()["status"] == "COMPLETED"

    # 4 and 6: one that fails, and waits for its retry
    payment = {"title": "Process Payment", "tags": "payment,priority-high"}
    other = api.post("/events", json=payment).json()["id"]
    assert (
        api.get("/events/subscribe", params={"tags": "payment", "worker_id": WORKER}).json()["id"]
        == other
    )
    failed = api.post(f"/events/{other}/fail", json=FAIL)
    assert (failed.status_code, failed.json()["retry_scheduled"]) == (200, True)
    waiting = api.get("/events", params={"status": "PENDING", "limit": "10"}).json()
    assert [event["id"] for event in waiting["events"]] == [other]
    assert waiting["events"][0]["next_retry_at"] == failed.json()["next_retry_at"]

    # Process A and process B
    report = {
        "title": "Batch Report Generation",
        "tags": "reporting,batch",
        "payload": {"report_type": "sales", "month": "2025-12"},
    }
    batch = api.post("/events", json=report).json()["id"]
    mine = api.get("/events/subscribe", params={"tags": "reporting", "worker_id": "worker-03:9100"})
    assert (mine.json()["id"], mine.json()["status"]) == (batch, "PROCESSING")
    db.advance(seconds=15)
    ended = {"worker_id": "worker-03:9100", "execution_time_ms": 15000, "status_code": 200}
    assert api.post(f"/events/{batch}/complete", json=ended).status_code == 200
    assert api.get(f"/events/{batch}").json()["status"] == "COMPLETED"
    assert (
        api.get(
            "/events/subscribe", params={"tags": "payment", "worker_id": "worker-04:9101"}
        ).status_code
        == 204
    )
    db.advance(seconds=5)
    assert (
        api.get(
            "/events/subscribe", params={"tags": "payment", "worker_id": "worker-04:9101"}
        ).status_code
        == 204
    )

    # What is repeated, and what is orphaned
    again = api.post(f"/events/{batch}/complete", json=ended)
    assert again.status_code == 200
    assert [entry["action"] for entry in logs(api, batch)] == ["PICKED", "COMPLETED"]
    db.advance(minutes=5)
    assert (
        api.get(
            "/events/subscribe", params={"tags": "payment", "worker_id": "worker-04:9101"}
        ).json()["id"]
        == other
    )
    db.advance(seconds=31)
    reset = api.post(f"/events/{other}/reset", params={"reason": "worker_timeout"})
    assert (reset.status_code, reset.json()["status"]) == (200, "PENDING")
    actions = [entry["action"] for entry in logs(api, other)]
    assert actions == ["PICKED", "FAILED", "PICKED", "RESET"]

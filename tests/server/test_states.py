"""The state of a queue over HTTP: the documented document, checkpoints, recoveries."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headrace import EventQueue
from tests.requirements import requirement
from tests.server.running import Running

MILLISECONDS = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def space(house: Running) -> str:
    return house.new_namespace()


@pytest.fixture
def api(house: Running) -> Iterator[httpx.Client]:
    with house.client() as client:
        yield client


@pytest.fixture
def queue(house: Running, space: str) -> EventQueue:
    return EventQueue(house.db.connect(), namespace=space, worker="w:1")


def ok(response: httpx.Response, status: int = 200) -> Any:
    assert response.status_code == status, response.text
    return response.json()


@requirement("QS-3", "QS-4", "QS-5", "QS-6", "QS-7", "QS-8", "QS-9")
def test_the_state_is_the_documented_document(
    house: Running, api: httpx.Client, queue: EventQueue, space: str
) -> None:
    source = {"type": "integration", "id": "stripe", "name": "Stripe Payments"}
    done = queue.publish("done").id
    failed = queue.publish("payment.received", {"amount": 750.0}, version="1.2.0", source=source, correlation_id="c")  # fmt: skip
    queue.publish("later", {})
    queue.complete(queue.poll(types=["done"]), execution_time_ms=42)
    queue.fail(queue.poll(types=["payment.received"])[0], "Connection timeout", retry_in=600)
    answers: list[httpx.Response] = []

    def has_a_checkpoint() -> bool:
        """Not while a tick of the server's is writing: it might publish something below."""
        answers.append(api.get(f"/queues/{space}/main/state", params={"limit": 1}))
        return ok(answers[-1])["checkpointId"] is not None

    house.db.wait_for(has_a_checkpoint)
    answer = answers[-1]
    state = ok(answer)
    assert answer.headers["x-total-count"] == "2"
    assert set(state) == {"id", "events", "checkpointId", "queueMetrics", "config", "status", "created_at", "updated_at"}  # fmt: skip
    [event] = state["events"]
    assert set(event) == {"eventId", "pattern", "version", "source", "timestamp", "payload", "metadata"}  # fmt: skip
    times = [state["created_at"], state["updated_at"], event["timestamp"], event["metadata"].pop("lastErrorTime")]  # fmt: skip
    assert all(re.fullmatch(MILLISECONDS, time) for time in times)
    assert (event["eventId"], event["pattern"], event["version"]) == (str(failed.id), "payment.received", "1.2.0")  # fmt: skip
    assert (event["source"], event["payload"]) == (source, {"amount": 750.0})
    assert event["metadata"] == {"correlationId": "c", "retryCount": 1, "lastError": "Connection timeout"}  # fmt: skip
    assert (state["id"], state["checkpointId"], state["status"]) == (f"{space}/main", str(done), "active")  # fmt: skip
    assert state["queueMetrics"] == {"totalProcessed": 1, "totalErrors": 1, "avgProcessingTimeMs": 42}  # fmt: skip
    assert set(state["config"]) == {"maxQueueDepth", "batchSize", "processingInterval", "persistenceThreshold", "highWatermark"}  # fmt: skip
    page = ok(api.get(f"/queues/{space}/main/state", params={"after": failed.id}))
    assert [event["pattern"] for event in page["events"]] == ["later"]


@requirement("QS-10", "QS-12", "QS-15")
def test_a_checkpoint_is_taken_and_listed(api: httpx.Client, queue: EventQueue, space: str) -> None:
    first, second = queue.publish_many([("a", {})] * 2)
    queue.complete(queue.poll())
    taken = ok(api.post(f"/queues/{space}/main/checkpoint"), 201)
    assert re.fullmatch(MILLISECONDS, taken["created_at"])
    assert (taken["queue_id"], taken["checkpoint_id"], taken["event_count"]) == (f"{space}/main", str(first), 1)  # fmt: skip
    assert (taken["lag"], taken["reason"]) == (1, f"event {second} waits to be claimed")
    queue.complete(queue.poll())
    listed = ok(api.get(f"/queues/{space}/main/checkpoints"))
    documented = ("id", "queue_id", "checkpoint_id", "event_count", "created_at")
    assert listed["checkpoints"] == [{name: taken[name] for name in documented}]
    assert listed["now"] == {"checkpoint_id": str(second), "event_count": 2, "lag": 0, "lag_is_exact": True, "oldest_at": None, "reason": None}  # fmt: skip


@requirement("QS-13")
def test_a_recovery_is_told_as_it_is_documented(
    house: Running, api: httpx.Client, space: str
) -> None:
    assert ok(api.get(f"/queues/{space}/main/recoveries")) == {"recoveries": []}
    house.db.sql(
        "insert into headrace.recoveries (namespace, queue, node_id, instance, checkpoint_id, events_recovered,"
        " recovery_start_time, recovery_complete_time) select namespace, id, 'n', gen_random_uuid(), '7', 42,"
        " '2024-03-15T10:15:00Z', '2024-03-15T10:15:00.5Z' from headrace.queues where space = %s",
        [space],
    )
    assert ok(api.get(f"/queues/{space}/main/recoveries"))["recoveries"] == [
        {
            "id": "recovery-sequence-log",
            "checkpointId": "7",
            "eventsRecovered": 42,
            "recoveryStartTime": "2024-03-15T10:15:00.000Z",
            "recoveryCompleteTime": "2024-03-15T10:15:00.500Z",
            "status": "completed",
        }
    ]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("nowhere/state", "queue_not_found"),
        ("main/state?limit=1001", "invalid_query"),
        ("main/state?after=-1", "invalid_query"),
        ("main/checkpoints?limit=0", "invalid_query"),
        ("main/checkpoints?before=yesterday", "invalid_query"),
        ("nowhere/checkpoints", "queue_not_found"),
        ("nowhere/recoveries", "queue_not_found"),
    ],
)
def test_what_is_not_there_or_makes_no_sense(
    api: httpx.Client, space: str, path: str, code: str
) -> None:
    assert api.get(f"/queues/{space}/{path}").json()["code"] == code

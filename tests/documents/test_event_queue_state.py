"""The event queue state (003), in its own order: a queue's state, when it is kept, and a queue that is made of one."""

from typing import Any

import pytest

import headrace
from tests.database import Database, Server
from tests.requirements import requirement

CONFIG = {
    "maxQueueDepth": 10000,
    "batchSize": 100,
    "processingInterval": 1000,
    "persistenceThreshold": 500,
    "highWatermark": 8000,
}
XERO = {"type": "integration", "id": "xero_main", "name": "Xero Accounting"}
STRIPE = {"type": "integration", "id": "stripe_payments", "name": "Stripe Payments"}


def main_queue(db: Database) -> "headrace.EventQueue":
    """The queue of the document's example, with its settings and its two events."""
    queue = db.queue(queue="main-queue", worker="w")
    queue.create_queue("main-queue", config=CONFIG)
    queue.publish("before", {})
    queue.complete(queue.poll(), execution_time_ms=42)
    queue.publish(
        "invoice.created",
        {"invoice_id": "INV-001", "amount": 1500.00},
        version="1.0.0",
        source=XERO,
        correlation_id="corr_xyz789",
    )
    queue.publish(
        "payment.received",
        {"payment_id": "PAY-002", "amount": 750.00},
        version="1.0.0",
        source=STRIPE,
        correlation_id="corr_xyz789",
    )
    for _ in range(2):
        [claim] = queue.poll(types=["payment.received"])
        queue.fail(claim, "Connection timeout", retry_in=60)
        db.advance(seconds=61)
        queue.tick()
    return queue


def without(state: Any, *names: str) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name not in names}


def check_example(state: Any) -> None:
    invoice, payment = state["events"]
    assert without(invoice, "eventId", "timestamp") == {
        "pattern": "invoice.created",
        "version": "1.0.0",
        "source": XERO,
        "payload": {"invoice_id": "INV-001", "amount": 1500.00},
        "metadata": {"correlationId": "corr_xyz789", "retryCount": 0},
    }
    assert payment["metadata"].pop("lastErrorTime") > payment["timestamp"]
    assert without(payment, "eventId", "timestamp") == {
        "pattern": "payment.received",
        "version": "1.0.0",
        "source": STRIPE,
        "payload": {"payment_id": "PAY-002", "amount": 750.00},
        "metadata": {
            "correlationId": "corr_xyz789",
            "retryCount": 2,
            "lastError": "Connection timeout",
        },
    }
    assert (state["config"], state["status"]) == (CONFIG, "active")


@requirement("QS-1", "QS-3", "QS-4", "QS-5", "QS-8")
def test_the_example_of_a_state(db: Database) -> None:
    queue = main_queue(db)
    state = queue.state()
    assert state["id"] == "default/main-queue"
    assert state["queueMetrics"] == {
        "totalProcessed": 1,
        "totalErrors": 2,
        "avgProcessingTimeMs": 42,
    }
    check_example(state)


@requirement("QS-1")
def test_the_example_is_rebuilt_in_another_database(db: Database, server: Server) -> None:
    queue = main_queue(db)
    other = server.lend()
    try:
        other.step(minutes=5)
        rebuilt = other.queue(queue="main-queue")
        rebuilt.import_state(queue.export_state())
        check_example(rebuilt.state())
        old, new = queue.state()["events"], rebuilt.state()["events"]
        assert [event["timestamp"] for event in new] == [event["timestamp"] for event in old]
    finally:
        other.give_back()


@requirement("QS-8")
def test_settings_are_changed_by_the_documents_names(db: Database) -> None:
    queue = db.queue()
    queue.change_queue("main", **CONFIG)
    assert queue.state()["config"] == CONFIG
    assert queue.queue().processing_interval.total_seconds() == 1
    queue.change_queue("main", highWatermark=None)
    assert queue.state()["config"] == {**CONFIG, "highWatermark": None}
    with pytest.raises(headrace.InvalidInput, match="the same setting"):
        queue.change_queue("main", batchSize=1, batch_size=1)
    with pytest.raises(headrace.InvalidInput, match="no setting 'maxDepth'"):
        queue.change_queue("main", maxDepth=1)


@requirement("QS-4")
@pytest.mark.parametrize("type", ["workflow", "task", "integration", "external", "person", ""])
def test_the_type_of_a_source_is_one_of_four(db: Database, type: str) -> None:
    source = {"type": type, "id": "1", "name": "n"}
    if type in ("person", ""):
        with pytest.raises(headrace.InvalidInput, match="workflow, task, integration or external"):
            db.queue().publish("t", {}, source=source)
    else:
        assert db.queue().event(db.queue().publish("t", {}, source=source).id).source == source


@requirement("QS-10")
def test_a_threshold_that_is_set_is_looked_at_within_the_second(db: Database) -> None:
    """Also if the next look at all queues was ten seconds away."""
    queue = db.queue()
    queue.tick()
    db.advance(seconds=11)
    queue.tick()
    queue.change_queue("main", persistenceThreshold=5)
    queue.publish_many([("t", {})] * 5)
    db.advance(seconds=1)
    queue.tick()
    [(waiting,)] = db.sql("select jsonb_array_length(events) from headrace.event_queue_state where id = 'default/main'")  # fmt: skip
    assert waiting == 5

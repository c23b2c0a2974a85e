"""A namespace in which there is something of everything that the dashboard shows."""

import json
from dataclasses import dataclass
from typing import Any

from headrace import EventQueue
from tests.database import Database

TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "billing.py", line 41, in charge\n'
    "    gateway.pay(order)\n"
    "ConnectionError: the gateway does not answer"
)


@dataclass(frozen=True)
class World:
    """What is where: the ids of events by what became of them."""

    namespace: str
    db: Database
    queue: EventQueue
    waiting: int
    delayed: int
    processing: int
    completed: int
    dead: list[int]
    """Four of one kind, and one of another."""
    cause: int
    caused: int


def make(db: Database, namespace: str) -> World:
    queue = db.queue(namespace=namespace, worker="till-1:4711")
    queue.create_queue("mail", types=["mail.*"])

    def claim(type: str, **options: Any) -> Any:
        [claimed] = queue.poll(types=[type], max_events=1, lease=3600, **options)
        return claimed

    completed = queue.publish("order.paid", {"order": 1}, tags=["eu", "card"]).id
    queue.complete(claim("order.paid"), execution_time_ms=42)
    dead = [queue.publish("order.charge", {"order": n}, max_retries=1).id for n in range(4)]
    for _ in dead:
        queue.fail(claim("order.charge"), error=TRACEBACK)
    dead.append(queue.publish("order.ship", {"order": 9}, max_retries=1).id)
    queue.fail(claim("order.ship"), error="ValueError: no such address")
    cause = queue.publish("order.created", {"order": 7}, title="Order 7", description="The seventh")
    caused = queue.publish(
        "mail.send",
        {"to": "a@example.com"},
        causation_id=str(cause.id),
        correlation_id=str(cause.id),
    )
    queue.publish("order.pack", {"order": 7})
    processing = claim("order.pack").id
    delayed = queue.publish("order.remind", {"order": 7}, delay=3600).id
    waiting = queue.publish("order.count", {"n": 1}, tags=["eu"], key="customer-7").id
    queue.schedule_task("nightly", "0 2 * * *", "report.due", timezone="Europe/Berlin")
    register(db, namespace, "till-1", "till-1:4711", ["order.*", "mail.*"])
    db.sql("select headrace.tick()")
    ids = (waiting, delayed, processing, completed, dead, cause.id, caused.id)
    return World(namespace, db, queue, *ids)


def register(
    db: Database, namespace: str, name: str, worker: str, handles: list[str], **more: Any
) -> None:
    """A node that was just heard of."""
    db.sql(
        "select headrace.register_node(namespace => %s, node_id => %s, instance => gen_random_uuid(), worker => %s,"
        " handles => %s, display_name => %s, description => %s, metadata => %s::jsonb)",
        [
            *(namespace, name, worker, handles),
            more.get("display_name"),
            more.get("description"),
            json.dumps(more.get("metadata", {})),
        ],
    )

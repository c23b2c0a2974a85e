"""A web application and a task queue whose module connects when it is imported, and whose workers are forked after that."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import celery

import headrace

queue = headrace.connect(os.environ["HEADRACE_DSN"], pool_size=2)
queue.publish("imported", os.getpid())


def publish(payload: str) -> dict[str, Any]:
    """What its publisher is told of an event, what is stored under that id, and by which process."""
    event = queue.publish("a", payload, idempotency_key=payload)
    return {"id": event.id, "stored": queue.event(event.id).payload, "process": os.getpid()}


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = repr(publish(environ["PATH_INFO"][1:])).encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Connection", "close")])
    return [body]


folder = Path(os.environ["TASKS"])
app = celery.Celery("preloaded", broker="filesystem://", backend=f"file://{folder}/results")
app.conf.broker_transport_options = {
    "data_folder_in": f"{folder}/tasks",
    "data_folder_out": f"{folder}/tasks",
    "control_folder": f"{folder}/control",
    "polling_interval": 0.01,
}
app.task(name="publish")(publish)

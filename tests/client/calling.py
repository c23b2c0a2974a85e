"""Calls tasks of Celery, without a connection of its own, and prints what became of them."""

import os
import sys
from pathlib import Path

import celery

folder = Path(os.environ["TASKS"])
app = celery.Celery("calling", broker="filesystem://", backend=f"file://{folder}/results")
app.conf.broker_transport_options = {
    "data_folder_in": f"{folder}/tasks",
    "data_folder_out": f"{folder}/tasks",
    "control_folder": f"{folder}/control",
}
called = {
    payload: app.send_task("publish", [payload])
    for payload in (f"task-{n}" for n in range(int(sys.argv[1])))
}
print({payload: result.get(timeout=50, interval=0.02) for payload, result in called.items()})

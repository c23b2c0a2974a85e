"""A child process that ends with its parent, even after a kill -9 of the parent.

The parent alone holds one end of a pipe. The child waits for the end of the pipe, which the kernel
signals when the parent dies, and then sends itself SIGTERM. The signal that Linux can send to the
children of a dead parent does not exist everywhere.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
import weakref
from typing import Any

LIFELINE = "HEADRACE_LIFELINE"  # in a child's environment: the descriptor of its end


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program that calls `watch`."""
    child_end, parent_end = os.pipe()
    try:
        environment = {**options.pop("env", os.environ), LIFELINE: str(child_end)}
        process = subprocess.Popen(command, env=environment, pass_fds=[child_end], **options)
    except BaseException:
        os.close(parent_end)
        raise
    finally:
        os.close(child_end)
    weakref.finalize(process, os.close, parent_end)
    return process


def watch(patience: float | None = None) -> None:
    """In the child: SIGTERM when the parent dies, and an exit by force `patience` seconds later."""
    given = os.environ.pop(LIFELINE, None)
    if given is None:
        return
    end = int(given)
    os.set_inheritable(end, False)
    threading.Thread(
        target=_wait, args=(end, patience), name="headrace parent", daemon=True
    ).start()


def _wait(end: int, patience: float | None) -> None:
    while os.read(end, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    if patience is not None:
        time.sleep(patience)
        os._exit(1)

"""A worker of the demonstration: claims, works for a moment, finishes; tells its parent line by line."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time

import headrace
from headrace.cli.signals import stop_on_signals

LEASE = 5.0
BATCH = 8


def tell(*words: object) -> None:
    """One line for whoever watches; a watcher who is gone ends the worker."""
    print(*words, flush=True)


def work(queue: headrace.EventQueue, claimed: headrace.Claimed) -> None:
    """Spend some time on an event. Payments fail now and then, and come back later."""
    started = time.perf_counter()
    time.sleep(random.uniform(0.02, 0.12))
    spent = int((time.perf_counter() - started) * 1000)
    if claimed.type == "payment.requested" and random.random() < 0.3:
        verdict = queue.fail(
            claimed, "the bank said: try again later", retry_in=3, execution_time_ms=spent
        )
        tell("dead" if verdict.retry_at is None else "failed", claimed.id, claimed.type)
    else:
        queue.complete(claimed, execution_time_ms=spent)
        tell("completed", claimed.id, claimed.type, claimed.attempt)


def main() -> None:
    """Work until told to stop, then hand back what has not begun."""
    stop = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which sends SIGTERM
    with stop_on_signals(stop), headrace.connect() as queue:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while not stop.is_set():
            batch = queue.poll(max_events=BATCH, lease=LEASE)
            if batch:
                tell("claimed", *(claimed.id for claimed in batch))
            for claimed in batch:
                if stop.is_set():
                    queue.release(claimed)
                    continue
                try:
                    work(queue, claimed)
                except headrace.LeaseLost:
                    tell("lost", claimed.id, claimed.type)
            if not batch:
                stop.wait(0.2)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(0)

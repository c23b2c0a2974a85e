"""Publishes at a given rate, in batches, until its input is closed.

Each payload carries the moment at which it was to be published: when the queue is slow, the wait for it counts, too.
"""

import json
import sys
import threading
import time

import headrace
from bench.payloads import TYPE, payloads
from bench.workers.speaking import closed, said, wait_for_go

DSN = "application_name=bench"
TELL_EVERY = 1.0


def publish(rate: float, together: int, over: threading.Event) -> None:
    given = payloads(together)
    due = told = time.monotonic()
    count = 0
    with headrace.connect(DSN, pool_size=1) as queue:
        while not over.wait(max(due - time.monotonic(), 0)):
            queue.publish_many([(TYPE, {**payload, "at": due}) for payload in given])
            count += together
            due += together / rate
            if time.monotonic() - told >= TELL_EVERY:
                told = time.monotonic()
                said("published", json.dumps({"events": count, "late": max(told - due, 0)}))
                count = 0


def main(rate: float, together: int) -> None:
    wait_for_go()
    over = threading.Event()
    thread = threading.Thread(target=publish, args=(rate, together, over))
    thread.start()
    closed()
    over.set()
    thread.join()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))

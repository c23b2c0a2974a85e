"""Publishes some events a second, or handles them, whatever happens to its connections: Headrace, and pgmq in a plain loop."""

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

import headrace
from bench.loop import runner
from bench.payloads import TYPE
from bench.scaling.histogram import Histogram
from bench.workers import timing
from bench.workers.speaking import closed, said, wait_for_go

DSN = "application_name=bench"
RATE = 20
SEND = "select pgmq.send('bench', %s)"
READ = "select msg_id, message from pgmq.read('bench', 60, 50)"
REST = 0.01  # seconds between two reads that found nothing, and between two connections


class Pgmq:
    """A connection that is made anew when it is lost."""

    def __init__(self) -> None:
        self._connection: psycopg.Connection[Any] | None = None

    def ask(self, query: str, value: object = None) -> list[Any]:
        while True:
            try:
                if self._connection is None:
                    self._connection = psycopg.connect(DSN, autocommit=True)
                asked = self._connection.execute(query, None if value is None else (value,))
                return asked.fetchall()
            except psycopg.OperationalError:
                self._connection = None
                time.sleep(REST)


def ours() -> Callable[[float], object]:
    queue = headrace.connect(DSN)

    def publish(due: float) -> None:
        while True:
            try:
                queue.publish(TYPE, {"at": due})
            except (psycopg.OperationalError, headrace.Unavailable):
                time.sleep(0)  # again: an event more does no harm here
            else:
                return

    return publish


def publish(send: Callable[[float], object], over: threading.Event) -> None:
    due = time.monotonic()
    while not over.wait(max(due - time.monotonic(), 0)):
        send(due)
        due += 1 / RATE


def read(over: threading.Event) -> None:
    queue, took, told = Pgmq(), Histogram(), time.monotonic()
    while not over.is_set():
        if time.monotonic() - told >= timing.TELL_EVERY:
            told = time.monotonic()
            said("handled", json.dumps(took.counts))
            took.counts.clear()
        rows = queue.ask(READ)
        for id, message in rows:
            took.add(time.monotonic() - message["at"])
            queue.ask("select pgmq.delete('bench', %s::bigint)", id)
        if not rows:
            time.sleep(REST)


def until_closed(work: Callable[[threading.Event], object]) -> None:
    wait_for_go()
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,), daemon=True)
    thread.start()
    said("started", time.monotonic())
    closed()
    over.set()
    thread.join(5)


def main(who: str, what: str) -> None:
    timing.TELL_EVERY = 0.1
    if (who, what) == ("headrace", "work"):
        with runner() as loop:
            loop.run(timing.work())
    elif what == "work":
        until_closed(read)
    else:
        pgmq = Pgmq()
        send = ours() if who == "headrace" else lambda due: pgmq.ask(SEND, Jsonb({"at": due}))
        until_closed(lambda over: publish(send, over))


if __name__ == "__main__":
    main(*sys.argv[1:])

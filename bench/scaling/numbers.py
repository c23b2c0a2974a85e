"""How many do it, how much it is, for how many: processes, connections, payloads, queues."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import ExitStack, closing
from typing import Any

import headrace
from bench.cases.pipeline import overlap
from bench.machine import machine
from bench.measure import Meter
from bench.payloads import BATCH, TYPE, Payload
from bench.scaling.costs import Costs, costs, metered
from bench.scaling.draining import Drain
from bench.scaling.figure import Case, Notes, Setting
from bench.scaling.filling import fill
from bench.scaling.programs import Program
from bench.server import Server

ROUNDS = 3
PROCESSES = 8  # of publishers, at most: 64 would do little else than take turns
TOGETHER = 4_000_000  # bytes of payloads in a batch, at most


def cases() -> list[Case]:
    return [
        Case("workers", "Worker processes", "worker processes", workers),
        Case("publishers", "Publishing connections", "connections", publishers),
        Case("payloads", "Sizes of payloads", "bytes of a payload", payloads),
        Case("queues", "Queues that take every event", "queues", queues),
    ]


def workers(setting: Setting, notes: Notes) -> dict[str, Any]:
    events = setting.choose(800_000, 100_000)
    with setting.server() as server, closing(Meter(server.dsn)) as meter:
        with server.database() as dsn, headrace.connect(dsn) as queue:
            for _ in range(ROUNDS):
                for count in (1, 2, 3, 4, 6, 8):
                    fill(queue, events)
                    with closing(Drain(dsn, count)) as drain:
                        notes.note("drain", count, **costs(meter.take(drain, events)))
        return machine(server)


def publishers(setting: Setting, notes: Notes) -> dict[str, Any]:
    seconds = setting.choose(8, 2)
    with setting.server() as server, closing(Meter(server.dsn)) as meter:
        for _ in range(setting.choose(ROUNDS, 1)):
            for batch, series in ((1, "one by one"), (100, "a hundred together")):
                for count in (1, 2, 4, 8, 16, 32, 64):
                    with server.database() as dsn:
                        notes.note(series, count, **published(dsn, meter, count, batch, seconds))
        return machine(server)


def published(dsn: str, meter: Meter, connections: int, together: int, seconds: float) -> Costs:
    processes = min(connections, PROCESSES)
    with ExitStack() as opened:
        programs = [
            opened.enter_context(Program("publishing", dsn, connections // processes, together))
            for _ in range(processes)
        ]
        for program in programs:
            program.hear("ready")
        events = 0

        def publish() -> None:
            nonlocal events
            for program in programs:
                program.tell("go")
            time.sleep(seconds)
            for program in programs:
                program.tell("stop")
            events = sum(int(program.hear("published")) for program in programs)

        found = metered(meter, 1, publish, lambda: sum(program.cpu for program in programs))
    rate = found.pop("rate")
    assert rate is not None
    each = {name: None if used is None else used / events for name, used in found.items()}
    return {"rate": rate * events, **each}


def payloads(setting: Setting, notes: Notes) -> dict[str, Any]:
    with setting.server() as server, closing(Meter(server.dsn)) as meter:
        for _ in range(setting.choose(ROUNDS, 1)):
            for size in (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000):
                events = min(40_000, setting.choose(200_000_000, 40_000_000) // size)
                _sized(server, meter, notes, size, events)
        return machine(server)


def _sized(server: Server, meter: Meter, notes: Notes, size: int, events: int) -> None:
    given = [_payload(size, number) for number in range(min(events, 1_000, TOGETHER // size))]
    batches = events // len(given)
    events = batches * len(given)
    with server.database() as dsn, headrace.connect(dsn) as queue:

        def publish() -> None:
            for _ in range(batches):
                queue.publish_many([(TYPE, payload) for payload in given])

        _note_size(notes, "bulk publish", size, metered(meter, events, publish))
        with closing(Drain(dsn)) as drain:
            _note_size(notes, "drain by one node", size, costs(meter.take(drain, events)))


def _note_size(notes: Notes, series: str, size: int, found: Costs) -> None:
    notes.note(series, size, **found, megabytes=(found["rate"] or 0) * size / 1e6)


def _payload(size: int, number: int) -> Payload:
    """As JSON so long. Digits that repeat nothing: what compresses well would flatter."""
    frame = len('{"order":1000000,"note":""}')
    digits = max(size - frame, 0)
    text = f"{random.Random(number).getrandbits(4 * digits or 1):0{digits}x}"[:digits]
    return {"order": 1_000_000 + number, "note": text}


def queues(setting: Setting, notes: Notes) -> dict[str, Any]:
    events = setting.choose(100_000, 20_000)
    with setting.server() as server, closing(Meter(server.dsn)) as meter:
        for _ in range(ROUNDS):
            for count in (1, 2, 4, 8):
                with server.database() as dsn, headrace.connect(dsn) as queue:
                    names = ["main", *(f"also-{number}" for number in range(2, count + 1))]
                    for name in names[1:]:
                        queue.create_queue(name)
                    found = metered(meter, events, lambda queue=queue: fill(queue, events))
                    notes.note("bulk publish, per event", count, **found)
                    drained = metered(
                        meter,
                        events * count,
                        lambda dsn=dsn, names=names: asyncio.run(_drain(dsn, names, events)),
                    )
                    notes.note("drain of all, per delivery", count, **drained)
        return machine(server)


async def _drain(dsn: str, names: list[str], events: int) -> None:
    for name in names:
        async with await headrace.connect_async(dsn, queue=name) as queue:

            async def claim(queue: headrace.AsyncEventQueue = queue) -> list[headrace.Claimed]:
                return await queue.poll(max_events=BATCH)

            async def work(batch: list[headrace.Claimed]) -> None:
                for event in batch:
                    event.payload["order"]

            await overlap(events, claim, work, queue.complete)

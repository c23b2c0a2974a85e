"""What it costs to find the shard: the same work over one, two and four shards on one machine. Rates mean nothing
there, because the shards share its cores; the CPU for an event does."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import Any

import headrace
from bench.machine import machine
from bench.measure import Meter
from bench.scaling.costs import metered
from bench.scaling.figure import Case, Notes, Setting

ROUNDS, SHORTER = 5, 3
COUNTS = (1, 2, 4)
DEARER = 1.1
"""What several shards may cost, in CPU for an event, in comparison with one."""
BY_HAND = ", by hand"
"""The same calls of plain clients of the same databases in turn, where nothing is to be found: what is dearer there than
on one database is the price of several sessions on one machine."""
BATCH, CLAIM = 1000, 500
WARM = 400


def cases() -> list[Case]:
    return [Case("shards", "Shards", "shards", shards)]


def shards(setting: Setting, notes: Notes) -> dict[str, Any]:
    events = setting.choose(200_000, 50_000)
    with setting.server() as server, closing(Meter(server.dsn)) as meter:
        for _ in range(setting.choose(ROUNDS, SHORTER)):
            for count in COUNTS:
                with ExitStack() as stack:
                    dsns = [stack.enter_context(server.database(empty=True)) for _ in range(count)]
                    for number, dsn in enumerate(dsns):
                        headrace.migrate(dsn, stride=64, shard=number)
                    worked(dsns, meter, events, notes)
        judge(notes)
        return machine(server)


def worked(dsns: list[str], meter: Meter, events: int, notes: Notes) -> None:
    """Publish and drain in bulk and one by one, in one process. The keys have homes everywhere."""
    few = events // 50
    with headrace.connect(dsns) as queue:
        if len(dsns) > 1:
            queue.spread_slots()  # type: ignore[attr-defined]
        warm_up(queue)
        plain = queue.shards if len(dsns) > 1 else {0: queue}  # type: ignore[attr-defined]
        keys = [(queue.shard_of(key), key) for key in (f"hand-{n}" for n in range(few))]
        work = (
            ("publish in bulk", events, lambda: publish(queue, events)),
            ("drain in bulk", events, lambda: drain(queue)),
            ("publish with a key", few, lambda: publish_keyed(queue, few)),
            ("drain one by one", few, lambda: drain_one_by_one(queue)),
            (f"publish with a key{BY_HAND}", few, lambda: publish_by_hand(plain, keys)),
            (f"drain one by one{BY_HAND}", few, lambda: drain_by_hand(plain)),
        )
        for series, many, does in work:
            found = metered(meter, many, does)
            cpu = (found["client_cpu_us"] or 0) + (found["server_cpu_us"] or 0)
            notes.note(series, len(dsns), cpu_us=cpu, **found)


def warm_up(queue: headrace.EventQueue) -> None:
    """Every shard has planned each statement, and written the first image of its pages, before anything is measured:
    that is done once for a database, not for an event."""
    publish(queue, 8 * BATCH)
    publish_keyed(queue, WARM, "warm")
    drain(queue)
    publish(queue, WARM)
    drain_one_by_one(queue)


def publish(queue: headrace.EventQueue, events: int) -> None:
    for begin in range(0, events, BATCH):
        many = min(BATCH, events - begin)
        queue.publish_many(("a", {"n": begin + n, "is": "x" * 180}) for n in range(many))


def drain(queue: headrace.EventQueue) -> None:
    while claimed := queue.poll(max_events=CLAIM):
        queue.complete(claimed)


def publish_keyed(queue: headrace.EventQueue, few: int, name: str = "key") -> None:
    for n in range(few):
        queue.publish("a", {"n": n}, idempotency_key=f"{name}-{n}")


def drain_one_by_one(queue: headrace.EventQueue) -> None:
    while claimed := queue.poll_one():
        queue.complete(claimed)


def publish_by_hand(plain: dict[int, headrace.EventQueue], keys: list[tuple[int, str]]) -> None:
    for n, (home, key) in enumerate(keys):
        plain[home].publish("a", {"n": n}, idempotency_key=key)


def drain_by_hand(plain: dict[int, headrace.EventQueue]) -> None:
    left = list(plain.values())
    while left:
        for queue in list(left):
            if claimed := queue.poll_one():
                queue.complete(claimed)
            else:
                left.remove(queue)


def judge(notes: Notes) -> None:
    for series in dict.fromkeys(one.series for one in notes.samples):
        found = notes.medians(series, "cpu_us")
        if series.endswith(BY_HAND):
            routed = notes.medians(series.removesuffix(BY_HAND), "cpu_us")
            worst = max(routed[count] / found[count] for count in found if count > 1)
            notes.find(
                f"{series.removesuffix(BY_HAND)}: CPU beside plain clients of the same shards in turn, at most {DEARER}",
                f"{worst:.3f}",
                worst <= DEARER,
            )
            continue
        worst = max(found.values()) / found[1]
        notes.find(
            f"{series}: CPU for an event over several shards, beside one, at most {DEARER}",
            f"{worst:.3f}",
            worst <= DEARER,
        )

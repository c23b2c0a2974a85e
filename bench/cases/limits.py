"""What a limit on a queue's depth costs its publishers, who stay below it."""

from bench.cases import bulk, single
from bench.measure import Contender

LIMITS = {"max_queue_depth": 1_000_000, "high_watermark": 500_000}


def contenders(limited: str, free: str) -> list[Contender]:
    return _named(single.Ours(limited), single.Ours(free))


def bulk_contenders(limited: str, free: str) -> list[Contender]:
    return _named(bulk.Ours(limited), bulk.Ours(free))


def _named(limited: single.Ours | bulk.Ours, free: single.Ours | bulk.Ours) -> list[Contender]:
    limited.queue.change_queue("main", **LIMITS)
    free.name = "no limits"
    return [limited, free]

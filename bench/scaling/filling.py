"""Events by the million, in an even stream: the same few thousand payloads again and again, so that memory stays small."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import datetime

import headrace
from bench.payloads import BATCH, TYPE, Payload, in_batches, payloads

Types = Callable[[int], str]


def one_type(number: int) -> str:
    return TYPE


def batches(events: int) -> Iterator[list[Payload]]:
    kept = in_batches(payloads(10 * BATCH))
    for at, batch in zip(range(0, events, BATCH), itertools.cycle(kept), strict=False):
        yield batch[: events - at]


def fill(
    queue: headrace.EventQueue, events: int, types: Types = one_type, at: datetime | None = None
) -> None:
    numbers = itertools.count()
    for batch in batches(events):
        if at is None:
            queue.publish_many([(types(next(numbers)), payload) for payload in batch])
        else:
            queue.publish_many([headrace.NewEvent(TYPE, payload, at=at) for payload in batch])

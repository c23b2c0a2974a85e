"""A worker of the demo: a node whose handlers report to the parent process line by line."""

from __future__ import annotations

import asyncio
import os
import random
import time
from typing import Any

import msgspec

import headrace
from headrace.cli.demo import lifeline

LEASE = 5.0
AT_ONCE = 12

node = headrace.Node(
    os.environ.get("HEADRACE_DEMO_NODE", "demo"),
    concurrency=AT_ONCE,
    lease=LEASE,
    grace=3,
    display_name="Demonstration",
    description="Sample orders, mails, payments and reports",
)


class Order(msgspec.Struct):
    """The payload of an order; another payload becomes a dead letter, with the reason."""

    number: int
    items: int


def tell(*words: object) -> None:
    """Report a line to the parent; without a parent the worker ends. A handler in a thread may
    report at the same time: one write of a short line to a pipe is never mixed with another, a
    print may be."""
    try:
        os.write(1, f"{' '.join(map(str, words))}\n".encode())
    except BrokenPipeError:
        os._exit(0)


async def work(event: headrace.Claimed, least: float, most: float) -> None:
    """Spend some time on an event."""
    tell("began", event.id)
    await asyncio.sleep(random.uniform(least, most))


def done(event: headrace.Claimed) -> None:
    tell("completed", event.id, event.type, event.attempt)


@node.on_event("order.created", backoff=headrace.Fixed(5))
async def order(event: Order, context: headrace.AsyncContext) -> None:
    """Quick, and the cause of others."""
    await work(context.event, 0.01, 0.05)
    await context.emit("email.requested", {"order": event.number})
    if event.items > 2:
        await context.emit("payment.requested", {"order": event.number, "items": event.items})
    done(context.event)


@node.on_event("email.requested", concurrency=4)
async def mail(event: headrace.Claimed) -> None:
    """Slow, and never more than four at once."""
    await work(event, 0.1, 0.3)
    done(event)


@node.on_event("payment.requested", max_retries=3, backoff=headrace.Exponential(2, factor=2))
async def pay(event: headrace.Claimed) -> headrace.Retry | None:
    """Fails now and then at the first attempt, and is retried."""
    await work(event, 0.02, 0.1)
    luck = random.random() if event.attempt == 1 else 1
    if luck < 0.1:
        tell("failed", event.id)
        raise ConnectionError("the bank does not answer")
    if luck < 0.18:
        tell("failed", event.id)
        return headrace.Retry(after=3, reason="the bank said: later")
    done(event)
    return None


@node.on_event("report.requested")
def report(event: headrace.Claimed) -> None:
    """A plain function, which runs in a thread and takes its time."""
    tell("began", event.id)
    time.sleep(random.uniform(0.5, 1.5))
    done(event)


@node.on_event("import.finished", max_retries=0)
async def imported(event: headrace.Claimed) -> Any:
    """Discards an event now and then that can never succeed."""
    if event.payload.get("rows") == 0:
        tell("failed", event.id)
        return headrace.Discard("an import of nothing")
    await work(event, 0.01, 0.05)
    done(event)
    return None


@node.every("*/10 * * * * *", name="demo.reports")
async def reports(event: headrace.Claimed, context: headrace.AsyncContext) -> None:
    """Once every ten seconds, however many workers there are."""
    tell("began", event.id)
    await context.emit("report.requested", {"for": str(event.scheduled_for)})
    done(event)


@node.every("30 2 * * *", timezone="Europe/Berlin", name="demo.nightly")
async def nightly(event: headrace.Claimed) -> None:
    """Once a night."""
    await work(event, 0.5, 1)
    done(event)


if __name__ == "__main__":
    lifeline.watch(patience=2 * LEASE)
    node.run()

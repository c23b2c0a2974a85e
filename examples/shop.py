"""A shop's worker: `headrace worker shop:node` runs it in this folder, or `python shop.py`.

It finds its database as everything does: HEADRACE_DSN, DATABASE_URL, or an embedded one in ./.headrace.
Give it something to do from another terminal:

    python -c 'import headrace; headrace.connect().publish("order.created", {"order": 42, "total": 12.5})'
"""

from dataclasses import dataclass
from typing import Any

import headrace

node = headrace.Node("shop-worker", concurrency=20)


@dataclass
class Order:
    order: int
    total: float


@node.on_event("order.created", max_retries=5, backoff=headrace.Exponential(first=2))
async def charge(event: Order, connection: Any, context: headrace.AsyncContext) -> None:
    """Asks for the connection, so the invoice, the mail that is asked for and the end of the event are one
    transaction. A payload that does not match Order is dead-lettered, and says why."""
    await connection.execute("create table if not exists invoices (number bigint, total numeric)")
    await connection.execute("insert into invoices values (%s, %s)", (event.order, event.total))
    await context.emit("mail.requested", {"order": event.order})


@node.on_event("mail.requested", timeout=30, concurrency=5)
def send(event: headrace.Claimed) -> headrace.Retry | None:
    """A plain function runs in a thread, these never more than five at once."""
    print(
        "mail for order", event.payload["order"], "caused by event", event.causation_id, flush=True
    )


@node.every("0 2 * * *", timezone="Europe/Berlin")
async def nightly(event: headrace.Claimed) -> None:
    """Once every night, however many workers there are."""
    print("the night of", event.scheduled_for)


if __name__ == "__main__":
    node.run()

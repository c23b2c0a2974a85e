"""Drain a queue of a thousand tenants with one process, with a limit for each of them, and with none."""

import headrace
from bench.cases import bulk, drain
from bench.measure import Contender
from bench.payloads import BATCH, TYPE, Payload

TENANTS = 1_000
# More than the batches that are in work at the same time can have of a tenant.
LIMITS = [headrace.Limit("tag", prefix="tenant:", at_once=50)]


class Publisher(bulk.Ours):
    def publish(self, batch: list[Payload]) -> None:
        self.queue.publish_many(
            [
                headrace.NewEvent(TYPE, payload, tags=[f"tenant:{number % TENANTS}"])
                for number, payload in enumerate(batch)
            ]
        )


class Ours(drain.Ours):
    publisher = Publisher

    def limit(self, limits: list[headrace.Limit] | None) -> None:
        self.published.queue.change_queue("main", limits=limits)


def contenders(limited: str, free: str) -> list[Contender]:
    assert BATCH >= TENANTS
    one, other = Ours(limited), Ours(free)
    one.limit(LIMITS)
    other.name = "no limits"
    return [one, other]

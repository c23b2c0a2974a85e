"""A worker that takes one event at a time: a poll and its completion, each committed before the next."""

import headrace
from bench.cases import single
from bench.measure import Contender, Watch
from bench.payloads import TYPE, payloads


def contenders(dsn: str, other: str) -> list[Contender]:
    return [Ours(dsn), Publish(other)]


class Ours(Contender):
    name = "headrace"
    tables = ("headrace.ready", "headrace.leases", "headrace.counts")

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.queue = headrace.connect(dsn)

    def prepare(self, events: int) -> None:
        for payload in payloads(events):  # one by one: a claim of a batch takes a pack apart
            self.queue.publish(TYPE, payload)

    def run(self, events: int, watch: Watch) -> None:
        watch.start()
        for _ in range(events):
            claimed = self.queue.poll_one()
            assert claimed is not None
            self.queue.complete(claimed)
        watch.stop()

    def close(self) -> None:
        self.queue.close()
        super().close()


class Publish(single.Ours):
    """What one commit that stores an event costs."""

    name = "publish"

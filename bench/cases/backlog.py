"""What a claim takes when a great many events wait: of the same type, or of another."""

import headrace
from bench.measure import Contender, Watch
from bench.payloads import BATCH, TYPE, Payload, in_batches, payloads

SHARE = 100  # the short backlog is a hundredth of the long one
CLAIM = 50  # events per claim
RARE = "customer.complained"


def contenders(long: str, short: str, backlog: int) -> list[Contender]:
    return [
        Claims("headrace", long, [(TYPE, backlog)], None),
        Claims("short backlog", short, [(TYPE, max(backlog // SHARE, 1))], None),
    ]


def rare_contenders(behind: str, alone: str, backlog: int) -> list[Contender]:
    return [
        Claims("headrace", behind, [(TYPE, backlog)], RARE),
        Claims("no backlog", alone, [], RARE),
    ]


class Claims(Contender):
    """Claims and finishes some, of one type or of all, as many as were added before."""

    tables = ("headrace.ready", "headrace.events", "headrace.leases", "headrace.counts")

    def __init__(
        self, name: str, dsn: str, backlog: list[tuple[str, int]], type: str | None
    ) -> None:
        super().__init__(dsn)
        self.name = name
        self.types = [type] if type else None
        self.refill_type = type or TYPE
        self.queue = headrace.connect(dsn)
        for of_type, count in backlog:
            for at in range(0, count, BATCH):
                self._publish(of_type, payloads(min(BATCH, count - at)))
        self.vacuum()  # as autovacuum would have by now

    def prepare(self, events: int) -> None:
        for batch in in_batches(payloads(events)):
            self._publish(self.refill_type, batch)

    def run(self, events: int, watch: Watch) -> None:
        claimed: list[headrace.Claimed] = []
        watch.start()
        while len(claimed) < events:
            wanted = min(CLAIM, events - len(claimed))
            batch = self.queue.poll(types=self.types, max_events=wanted)
            if len(batch) < wanted:
                raise RuntimeError(f"{self.name}: {len(batch)} events claimed instead of {wanted}")
            claimed += batch
        watch.stop()
        for at in range(0, events, BATCH):
            self.queue.complete(claimed[at : at + BATCH])

    def close(self) -> None:
        self.queue.close()
        super().close()

    def _publish(self, type: str, batch: list[Payload]) -> None:
        self.queue.publish_many([(type, payload) for payload in batch])

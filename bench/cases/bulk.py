"""Bulk publish: dicts in, a thousand per transaction, encoding included."""

import psycopg

import headrace
from bench import peers
from bench.cases import nodes
from bench.measure import Contender, Watch
from bench.payloads import TYPE, Payload, encode, in_batches, payloads


def contenders(dsn: str) -> list[Contender]:
    pgmq = [Pgmq(dsn)] if peers.has_pgmq() else []
    return [Ours(dsn), Floor(dsn), *pgmq, *nodes.publishers(dsn, "bulk")]


class Bulk(Contender):
    """Publishes batch after batch; how, is its contenders' matter."""

    batches: list[list[Payload]]

    def prepare(self, events: int) -> None:
        self.batches = in_batches(payloads(events))

    def run(self, events: int, watch: Watch) -> None:
        watch.start()
        for batch in self.batches:
            self.publish(batch)
        watch.stop()

    def publish(self, batch: list[Payload]) -> None:
        raise NotImplementedError


class Ours(Bulk):
    name = "headrace"

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.queue = headrace.connect(dsn)

    def publish(self, batch: list[Payload]) -> None:
        self.queue.publish_many([(TYPE, payload) for payload in batch])

    def close(self) -> None:
        self.queue.close()
        super().close()


class Floor(Bulk):
    name = "floor"

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.connection = psycopg.connect(dsn, autocommit=True)

    def publish(self, batch: list[Payload]) -> None:
        with self.connection.cursor().copy("copy floor (payload) from stdin") as copy:
            for payload in batch:
                copy.write_row((encode(payload).decode(),))

    def close(self) -> None:
        self.connection.close()
        super().close()


class Pgmq(Floor):
    name = "pgmq"

    def publish(self, batch: list[Payload]) -> None:
        # One document and not an array of a thousand texts: that takes psycopg twice as long.
        document = b"[%b]" % b",".join([encode(payload) for payload in batch])
        self.connection.execute(
            "select count(*) from pgmq.send_batch('bench', array(select jsonb_array_elements(%s::jsonb)))",
            (document.decode(),),
        )

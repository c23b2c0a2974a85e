"""Publish one event at a time from one client, each committed before the next."""

import psycopg

import headrace
from bench import peers
from bench.cases import nodes
from bench.measure import Contender, Watch
from bench.payloads import TYPE, Payload, encode, payloads


def contenders(dsn: str) -> list[Contender]:
    pgmq = [Pgmq(dsn)] if peers.has_pgmq() else []
    return [Ours(dsn), Floor(dsn), *pgmq, *nodes.publishers(dsn, "single")]


class Single(Contender):
    payloads: list[Payload]

    def prepare(self, events: int) -> None:
        self.payloads = payloads(events)

    def run(self, events: int, watch: Watch) -> None:
        publish = self.publish
        watch.start()
        for payload in self.payloads:
            publish(payload)
        watch.stop()

    def publish(self, payload: Payload) -> int:
        raise NotImplementedError


class Ours(Single):
    name = "headrace"

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.queue = headrace.connect(dsn)

    def publish(self, payload: Payload) -> int:
        return self.queue.publish(TYPE, payload).id

    def close(self) -> None:
        self.queue.close()
        super().close()


class Floor(Single):
    name = "floor"
    statement = "insert into floor (payload) values (%s) returning id"

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self.connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=0)

    def publish(self, payload: Payload) -> int:
        row = self.connection.execute(self.statement, (encode(payload).decode(),)).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self.connection.close()
        super().close()


class Pgmq(Floor):
    name = "pgmq"
    statement = "select * from pgmq.send('bench', %s::jsonb)"

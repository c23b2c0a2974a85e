"""Over HTTP: publishes on one connection and on many, and work done by many."""

from __future__ import annotations

from bench.http import Line, Process, Request, ask_all, connect, cycle, get, post
from bench.loop import runner
from bench.measure import Contender, Watch
from bench.payloads import encode, payloads

MANY = 32
SERVE = ("-c", "from headrace.cli import main; main()", "serve", "--open", "--port", "0", "--dsn")
FLOOR = ("-m", "bench.floor_server")
WORK = get("/events/subscribe?tags=*&worker_id=bench:1")


def contenders(dsn: str, lines: int) -> list[Contender]:
    return [Publish(dsn, lines), FloorPublish(dsn, lines)]


def work_contenders(dsn: str) -> list[Contender]:
    return [Work(dsn, MANY), FloorWork(dsn, MANY)]


class Http(Contender):
    """A server of its own, and connections to it that last from turn to turn."""

    serve: tuple[str, ...]

    def __init__(self, dsn: str, lines: int) -> None:
        super().__init__(dsn)
        self.server = Process(*self.serve, dsn)
        self.runner = runner()
        self.lines: list[Line] = self.runner.run(connect(self.server.port, lines))

    def close(self) -> None:
        for line in self.lines:
            line.close()
        self.runner.close()
        self.server.close()
        super().close()


class _Publish(Http):
    requests: list[Request]

    def prepare(self, events: int) -> None:
        self.requests = [
            post("/events", encode({"title": "An order", "payload": payload}))
            for payload in payloads(events)
        ]

    def run(self, events: int, watch: Watch) -> None:
        watch.start()
        self.latencies = self.runner.run(ask_all(self.lines, self.requests))
        watch.stop()


class Publish(_Publish):
    name = "headrace"
    serve = SERVE


class FloorPublish(_Publish):
    name = "floor"
    serve = FLOOR


class _Work(Http):
    def run(self, events: int, watch: Watch) -> None:
        watch.start()
        self.latencies = self.runner.run(cycle(self.lines, WORK, _complete, events))
        watch.stop()


class Work(_Work):
    name = "headrace"
    serve = SERVE
    tables = ("headrace.ready", "headrace.leases", "headrace.held", "headrace.counts")

    def prepare(self, events: int) -> None:
        for payload in payloads(events):
            self.admin.execute(
                "select headrace.publish('default', jsonb_build_object('payload', %s::jsonb))",
                [encode(payload).decode()],
            )


class FloorWork(_Work):
    name = "floor"
    serve = FLOOR
    tables = ("floor",)

    def prepare(self, events: int) -> None:
        with self.admin.cursor() as cursor:
            cursor.executemany(
                "insert into floor (payload) values (%s)",
                [(encode(payload).decode(),) for payload in payloads(events)],
            )


def _complete(answered: bytes) -> Request:
    id = answered[len(b'{"id":') : answered.index(b",")].decode()
    return post(f"/events/{id}/complete", b'{"worker_id":"bench:1","execution_time_ms":1}')

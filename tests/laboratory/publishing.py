"""A process that publishes until it is told to stop, and keeps a ledger of its own.

A line is written, and on the disk, before the thing it announces is tried:

    ["intent", key, kind]            it is about to publish this
    ["ok", key, event, seconds, at]  it was told that it is published, and as which event
    ["unknown", key, error, seconds, at]  it was not told; it asks again under the same key
    ["refused", key, error]          it was told that it is not published
    ["absent", key]                  it has found out by itself that it is not published
    ["forked", process]              it has forked, connected as it was, a child that publishes too
    ["cancelled", times]             it has given up so many calls, each after milliseconds

Told to stop, it first finds out about everything it does not know.
"""

import asyncio
import json
import os
import random
import select
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple
from zlib import crc32

import psycopg
from psycopg_pool import PoolTimeout

import headrace

MANY = 1000  # tries: an innocent is not to die of what happens to its workers
PATIENCE = 0.2  # seconds between two tries


def pause(seconds: float) -> None:
    select.select([], [], [], seconds)  # which asks no clock: it may be wrong by days, on purpose


class Unknown(Exception):
    """Nobody knows whether it is published."""


class Refused(Exception):
    """It is not published, and will not be."""


class Ledger:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *lines: list[object]) -> None:
        os.write(self._file, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        os.fdatasync(self._file)


class New(NamedTuple):
    """What is to be published."""

    key: str
    kind: str
    payload: dict[str, Any]


class OverPython:
    """Through the client, and, for the kind `outbox`, in a transaction with a row of its own."""

    def __init__(self, dsn: str, prepare: bool, timeout: float, tries: int = MANY) -> None:
        self._dsn, self._prepare, self._timeout, self._tries = dsn, prepare, timeout, tries
        self._dsns = dsn.splitlines()  # several are shards
        self._queue: headrace.EventQueue | None = None

    def publish(self, events: list[New]) -> list[int]:
        with self._told():
            return self.queue.publish_many(
                {
                    **{"type": new.kind, "payload": new.payload, "idempotency_key": new.key},
                    "max_retries": None if new.kind == "poison" else self._tries,
                }
                for new in events
            )

    def publish_with_row(self, new: New) -> int:
        with self._told(), self._committed(new.key) as connection:
            connection.execute("insert into orders values (%s)", [new.key])
            return self.queue.publish(
                "plain", new.payload, connection=connection, max_retries=self._tries
            ).id

    def has_row(self, key: str) -> bool:
        """As far as a failover cannot change it: what is seen may not be replicated yet."""
        with self._told(), self._committed(key) as connection:
            connection.execute("select pg_logical_emit_message(true, 'laboratory', '')")
            return bool(connection.execute("select from orders where key = %s", [key]).fetchall())

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (headrace.Unavailable, headrace.PartlyStored, headrace.ShardMismatch) as error:
            raise Unknown(repr(error)) from error
        except headrace.HeadraceError as error:
            raise Refused(repr(error)) from error
        except (psycopg.Error, OSError) as error:
            raise Unknown(repr(error)) from error

    @contextmanager
    def _committed(self, key: str) -> Iterator[psycopg.Connection[Any]]:
        """A transaction of its own, whose COMMIT is believed only if the standby has it."""
        warnings: list[str | None] = []
        dsn = self._dsns[crc32(key.encode()) % len(self._dsns)]
        with psycopg.connect(dsn, connect_timeout=5, prepare_threshold=None) as connection:
            connection.add_notice_handler(lambda notice: warnings.append(notice.source_function))
            hurry = threading.Timer(self._timeout, connection.cancel)
            hurry.start()  # PostgreSQL itself waits for a standby without end
            try:
                yield connection
                connection.commit()
            finally:
                hurry.cancel()
        if "SyncRepWaitForLSN" in warnings:
            raise psycopg.OperationalError("the standby was not waited for")

    @property
    def queue(self) -> headrace.EventQueue:
        if self._queue is None:
            self._queue = headrace.connect(
                self._dsn, prepare=self._prepare, migrate=False, timeout=self._timeout
            )
        return self._queue


class Impatient(OverPython):
    """Through the client for asyncio, with a pool of three: calls of twelve at a time, each cancelled after milliseconds if it
    is not done."""

    def __init__(
        self, dsn: str, prepare: bool, timeout: float, seconds: float, ledger: Ledger
    ) -> None:
        super().__init__(dsn, prepare, timeout)
        self._seconds = seconds
        self._ledger = ledger
        self._loop = asyncio.Runner()
        self._awaited: headrace.AsyncEventQueue | None = None
        self._known: dict[str, int] = {}

    def publish(self, events: list[New]) -> list[int]:
        with self._told():
            return self._loop.run(self._publish_all(events))

    async def _publish_all(self, events: list[New]) -> list[int]:
        if self._awaited is None:
            opening = headrace.connect_async(self._dsn, pool_size=3, migrate=False)
            self._awaited = await opening
        calls = (self._publish(self._awaited, new) for new in events)
        told = await asyncio.gather(*calls, return_exceptions=True)
        late = [one for one in told if isinstance(one, TimeoutError)]
        if late:
            self._ledger.write(["cancelled", len(late)])
        for one in told:
            if isinstance(one, PoolTimeout):
                raise Refused("the pool has no connection left") from one
            if isinstance(one, BaseException):
                raise one
        return told  # type: ignore[return-value]

    async def _publish(self, queue: headrace.AsyncEventQueue, new: New) -> int:
        if new.key in self._known:  # since the last time, when others were not
            return self._known[new.key]
        retries = None if new.kind == "poison" else MANY
        async with asyncio.timeout(random.uniform(0, self._seconds)):
            event = await queue.publish(
                new.kind, new.payload, idempotency_key=new.key, max_retries=retries
            )
            self._known[new.key] = event.id
            return event.id


class OverHttp:
    def __init__(self, url: str) -> None:
        import httpx  # which takes its time to load

        self._failed = httpx.HTTPError
        known = {"Authorization": f"Bearer {os.environ['HEADRACE_TOKEN']}"}
        self._client = httpx.Client(base_url=url, timeout=10, headers=known)

    def publish(self, events: list[New]) -> list[int]:
        return [self._publish(new) for new in events]

    def _publish(self, new: New) -> int:
        try:
            answer = self._client.post(
                "/events",
                json={
                    **{"type": new.kind, "payload": new.payload},
                    "max_retries": None if new.kind == "poison" else MANY,
                },
                headers={"Idempotency-Key": new.key},
            )
        except self._failed as error:
            raise Unknown(repr(error)) from error
        if answer.status_code == 201:
            return int(answer.json()["id"])
        if answer.status_code in (429, 503, 504):
            raise Unknown(answer.text)
        raise Refused(f"{answer.status_code} {answer.text}")


class Publisher:
    def __init__(self, options: dict[str, Any]) -> None:
        self._ledger = Ledger(options["ledger"])
        self._name = options["name"]
        self._random = random.Random(options["seed"])
        self._pause = options["pause"]
        self._numbers = count(1)
        self._way: Any
        kinds = dict(options["kinds"])
        self._bursts = options["bursts"]
        if options["url"]:
            self._way = OverHttp(options["url"])
            kinds.pop("outbox", None)
        else:
            way = os.environ["HEADRACE_DSN"], options["prepare"], options["timeout"]
            late = options.get("impatience")
            self._way = (
                Impatient(*way, late, self._ledger)
                if late
                else OverPython(*way, options.get("tries", MANY))
            )
        if not options["poison"]:
            kinds.pop("poison", None)
        self._kinds, self._weights = list(kinds), list(kinds.values())
        self._forks = options.get("forks", 0)
        self._children: list[int] = []
        self.stopped = False

    def run(self) -> None:
        while not self.stopped:
            self._publish_some()
            if self._random.random() < self._forks:
                self._fork()
        for child in self._children:
            os.waitpid(child, 0)

    def _fork(self) -> None:
        child = os.fork()
        if child:
            self._children.append(child)
            self._ledger.write(["forked", child])
            return
        try:
            self._name, self._numbers = f"{self._name}.{os.getpid()}", count(1)
            for _ in range(10):
                self._publish_some()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    def _publish_some(self) -> None:
        events = [self._new() for _ in range(self._random.choice(self._bursts))]
        self._ledger.write(*(["intent", new.key, new.kind] for new in events))
        together = [new for new in events if new.kind != "outbox"]
        if together:
            self._insist(together)
        for new in events:
            if new.kind == "outbox":
                self._outbox(new)
        pause(self._pause)

    def _new(self) -> New:
        key = f"{self._name}.{next(self._numbers)}"
        [kind] = self._random.choices(self._kinds, self._weights)
        return New(key, kind, {"key": key, "fails": self._random.randint(1, 2)})

    def _insist(self, events: list[New]) -> None:
        """Until it is known what has become of them."""
        while True:
            began = time.monotonic()
            try:
                ids = self._way.publish(events)
            except Unknown as error:
                self._unknown(events, error, began)
                pause(PATIENCE)
            except Refused as error:
                self._ledger.write(*(["refused", new.key, str(error)[:200]] for new in events))
                return
            else:
                took = time.monotonic() - began
                told = zip(events, ids, strict=True)
                now = time.monotonic()
                self._ledger.write(*(["ok", new.key, id, took, now] for new, id in told))
                return

    def _outbox(self, new: New) -> None:
        """A row and an event, both or neither. It may not be tried twice: whether the row is there tells."""
        began = time.monotonic()
        try:
            id = self._way.publish_with_row(new)
        except Unknown as error:
            self._unknown([new], error, began)
        else:
            now = time.monotonic()
            self._ledger.write(["ok", new.key, id, now - began, now])
            return
        while True:
            try:
                there = self._way.has_row(new.key)
            except Unknown:
                pause(PATIENCE)
            else:
                self._ledger.write(["ok", new.key, -1, 0] if there else ["absent", new.key])
                return

    def _unknown(self, events: list[New], error: Unknown, began: float) -> None:
        now = time.monotonic()
        said = str(error)[:200]
        self._ledger.write(*(["unknown", new.key, said, now - began, now] for new in events))


def main() -> None:
    publisher = Publisher(json.loads(os.environ["LABORATORY"]))

    def stop(number: int, frame: object) -> None:
        publisher.stopped = True

    signal.signal(signal.SIGTERM, stop)
    publisher.run()


if __name__ == "__main__":
    main()

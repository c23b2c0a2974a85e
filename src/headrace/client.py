"""The client for plain Python: it connects, and borrows every verb of the engine. async_client.py
has the same, awaited."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from headrace.driver.borrow import Borrows
from headrace.driver.connect import (
    SETTLE,
    Source,
    migrate_source,
    open_source,
    several,
    single,
)
from headrace.driver.pool import Sessions
from headrace.driver.run import run
from headrace.driver.runner import Pool, Runner, alone_over
from headrace.driver.servers import Terms, open_server, terms
from headrace.driver.session import Session
from headrace.driver.session_state import BOUND
from headrace.driver.shards import (
    LOOK_EVERY,
    NO_FILES,
    PATIENCE,
    Members,
    PlainShards,
    View,
    borrow_all,
)
from headrace.engine.arguments import time_limit
from headrace.engine.caller import Connection
from headrace.engine.database import shard as its_shard
from headrace.engine.shard_pages import replays
from headrace.engine.shard_routes import by_claim
from headrace.engine.state import Replay
from headrace.engine.transfer import File
from headrace.engine.verbs import Verbs, borrows
from headrace.errors import InvalidInput
from headrace.model import AnyClaim, Claimed, DeadLetter, Duration, Event, Extended, Imported
from headrace.model.codec import Codec, Codecs


def connect(
    dsn: str | Sequence[str] | None = None,
    *,
    namespace: str = "default",
    queue: str = "main",
    data: str | Path | None = None,
    migrate: bool | None = None,
    prepare: bool = True,
    pool_size: int = 4,
    worker: str | None = None,
    timeout: Duration = BOUND,
    codec: Codec | Sequence[Codec] | None = None,
) -> EventQueue:
    """Open a queue: in the database that is named, or else in a private PostgreSQL.

    A database is named by `dsn`, HEADRACE_DSN or DATABASE_URL, in this order. Without one, a server
    is started from installed binaries, in the folder `data`, HEADRACE_DATA or `.headrace`, and
    stopped after its last user. There the schema is made at once, in a database of yours only with
    `migrate=True`. A namespace that is not there is created. `prepare=False` is for a transaction
    pooler in between: then no prepared statements are used; without it, a pooler is detected.
    `worker` is a name for people to read. A forked child has connections of its own. `timeout`:
    seconds that each call may take, from waiting for a connection to the end of its commit; then it
    raises NotStored or OutcomeUnknown. A call of several steps (a bulk publish, a redrive) has this
    time for each step. `codec` encodes the payloads that are published: docs/codec.md.

    Several DSNs are the shards of one installation: docs/scaling.md. HEADRACE_DSN may name them, one
    a line. The client opens as long as one of them answers.
    """
    bound = time_limit(timeout)
    dsns = several(dsn, data)
    if dsns is not None:
        return ShardedQueue(
            dsns,
            terms(
                data,
                migrate,
                namespace=namespace,
                worker=worker,
                prepare=prepare,
                pool_size=pool_size,
                bound=bound,
                codec=codec,
            ),
            queue,
        )
    with ExitStack() as opened:
        source = open_source(single(dsn), data, migrate, namespace, prepare=prepare, bound=bound)
        opened.callback(source.close)
        prepare = source.prepare
        pool = _pool(source, pool_size, bound, _settle if prepare else None)
        opened.enter_context(pool)
        pool.wait(bound)  # a program that ends at once must not leave a connection half made
        made = EventQueue(
            pool, namespace=namespace, queue=queue, worker=worker, prepare=prepare, codec=codec
        )
        made._owned = opened.pop_all()
        return made


def migrate(
    dsn: str | None = None,
    *,
    add: Collection[str] = (),
    remove: Collection[str] = (),
    stride: int | None = None,
    shard: int | None = None,
) -> bool:
    """Bring a database to this release, as `headrace migrate` does; False when it was there already.

    The database is named by `dsn`, HEADRACE_DSN or DATABASE_URL, in this order. add, remove:
    optional parts. stride, shard: make a new database that shard of at most `stride`, or an
    existing one their shard 0; a shard never changes. None: it stays what it is.
    """
    return migrate_source(dsn, add=add, remove=remove, stride=stride, shard=shard)


def _pool(
    source: Source,
    size: int,
    bound: float,
    configure: Callable[[Session], None] | None,
    **options: Any,
) -> Sessions:
    """A pool of connections of our own, to be opened."""
    return Sessions(
        source.dsn,
        join=source.join,
        bound=bound,
        kwargs={"autocommit": True, "prepare_threshold": 0 if source.prepare else None},
        configure=configure,
        min_size=1,
        max_size=size,
        name="headrace",
        open=False,
        **options,
    )


def _settle(session: Session) -> None:
    session.command(SETTLE)


class EventQueue(Runner, Borrows):
    """A queue in a namespace, over a pool or over a connection of the caller's.

    Over a pool, every call is a transaction of its own, committed when it returns, and the client
    may be used by many threads. Over a connection, a call takes part in whatever transaction that
    is in; it may be psycopg's or another library's (docs/transactions.md), as may be those given as
    `connection`.

    For the other parts of Headrace: `verbs` are the calls on this queue, and `run` runs one of
    them.
    """

    def __init__(
        self,
        pool_or_connection: Pool | Connection,
        *,
        namespace: str = "default",
        queue: str = "main",
        worker: str | None = None,
        prepare: bool = True,
        codec: Codec | Sequence[Codec] | None = None,
    ) -> None:
        super().__init__(pool_or_connection, prepare=prepare)
        alone = alone_over(pool_or_connection)
        self.verbs = Verbs(namespace, queue, worker, alone, Codecs(codec))
        self._owned = ExitStack()

    def decode(self, event: Event | Claimed | DeadLetter) -> Any:
        """The payload of an event as it was published: what is read or claimed has it as it is
        stored. InvalidPayload: the codec that it names is not one of this client."""
        return self.verbs.codecs.payload(event)

    # Of two kinds of arguments: a borrowed verb would have the type of one of them.
    @overload
    def extend(self, claimed: AnyClaim, lease: Duration | None = None) -> Extended: ...
    @overload
    def extend(
        self, claimed: Sequence[AnyClaim], lease: Duration | None = None
    ) -> list[Extended]: ...
    @borrows(Verbs.extend)  # type: ignore[misc]
    def extend(self, *given: Any, **named: Any) -> Any:
        return self.run(self.verbs.extend(*given, **named))

    @borrows(Verbs.import_state)
    def import_state(self, file: File, **named: Any) -> Imported:
        return self.run(self.verbs.import_state(file, **named))

    @borrows(Verbs.replay, Iterator[Event])
    def replay(self, **asked: Any) -> Iterator[Event]:
        return self._replayed(self.verbs.replay(**asked))

    def _replayed(self, replay: Replay) -> Iterator[Event]:
        while not replay.is_over:
            yield from self.run(self.verbs.replay_on(replay))
            if replay.pause:
                time.sleep(replay.pause)

    @borrows(Verbs.export_state, Iterator[bytes])
    def export_state(self, *, move: bool = False, actor: str | None = None) -> Iterator[bytes]:
        if move:
            self.take_turns(self.verbs.fence(actor))
        export = self.verbs.export_state(move=move)
        with self.snapshot() as run:
            while not export.is_over:
                yield export.line(run(export.step()))

    def close(self) -> None:
        """Close what `connect` has opened; a pool or a connection of the caller's stays open."""
        self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'/'.join(self.verbs.names)}>"


class ShardedQueue(PlainShards, EventQueue):
    """A queue over several shards: each verb finds its shards by the list in driver/borrow.py."""

    def __init__(self, dsns: Sequence[str], terms: Terms, queue: str) -> None:
        self.verbs = Verbs(terms.namespace, queue, terms.worker, codecs=Codecs(terms.codec))
        self._owned = ExitStack()
        self._terms = terms
        self._members = Members(dsns)
        self._is_over = threading.Event()
        self._owned.callback(self._is_over.set)
        try:
            with self._members.reaching() as attempt:
                for name in self._members.dsns:
                    with attempt(name):
                        self._reach(name)
        except BaseException:
            self.close()
            raise
        if self._members.fleet.absent:
            threading.Thread(target=self._look_on, name="headrace shards", daemon=True).start()

    def _reach(self, name: str) -> None:
        """Open a server, and take it in."""
        terms, members = self._terms, self._members
        opened = open_server(members.dsns[name], terms)
        with ExitStack() as kept:
            kept.callback(opened.source.close)
            members.fleet.admit(name, opened.shard)

            def configure(session: Session) -> None:
                if opened.source.prepare:
                    _settle(session)
                members.check(name, opened.shard, run(session, its_shard(), prepare=False))

            limits = {"timeout": min(terms.bound, PATIENCE)}
            pool = _pool(opened.source, terms.pool_size, terms.bound, configure, **limits)
            kept.enter_context(pool)
            one = EventQueue(
                pool,
                namespace=self.verbs.namespace,
                queue=self.verbs.queue_name,
                worker=terms.worker,
                prepare=opened.source.prepare,
                codec=terms.codec,
            )
            members.join(name, opened, one)
            self._owned.push(kept.pop_all())

    def _look_on(self) -> None:
        while self._members.fleet.absent and not self._is_over.wait(LOOK_EVERY):
            for name in self._members.fleet.absent:
                with self._members.looking(name):
                    self._reach(name)

    @borrows(Verbs.extend)
    def extend(self, *given: Any, **named: Any) -> Any:
        return self.follow(self.plan(Verbs.extend, by_claim, given, named))

    @borrows(Verbs.import_state)
    def import_state(self, file: File, **named: Any) -> Imported:
        raise InvalidInput(NO_FILES)

    @borrows(Verbs.export_state, Iterator[bytes])
    def export_state(self, *, move: bool = False, actor: str | None = None) -> Iterator[bytes]:
        raise InvalidInput(NO_FILES)

    @borrows(Verbs.replay, Iterator[Event])
    def replay(self, **asked: Any) -> Iterator[Event]:
        each = replays(asked, sorted(self.shards))
        parts = [self.shards[number].replay(**mine) for number, mine in each.items()]
        return merge(*parts, key=lambda event: event.created_at)


borrow_all(ShardedQueue, is_async=False)


def beside(queue: EventQueue, namespace: str, name: str) -> EventQueue:
    """Another queue, by the connections of this client, for as long as it is open."""
    worker = queue.verbs.worker
    if not isinstance(queue, ShardedQueue):
        source, prepare = queue._source, queue._prepare
        return EventQueue(source, namespace=namespace, queue=name, worker=worker, prepare=prepare)
    made = ShardedQueue.__new__(ShardedQueue)
    made.verbs = Verbs(namespace, name, worker)
    made._owned = ExitStack()
    made._members = View(queue._members, lambda one: beside(one.queue, namespace, name))
    return made

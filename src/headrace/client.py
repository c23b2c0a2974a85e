"""The client for plain Python: it connects, and borrows every verb of the engine. async_client.py
has the same, awaited."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from headrace.driver.borrow import Borrows
from headrace.driver.connect import SETTLE, migrate_source, open_source
from headrace.driver.pool import Sessions
from headrace.driver.runner import Pool, Runner, alone_over
from headrace.driver.session import Session
from headrace.driver.session_state import BOUND
from headrace.engine.arguments import time_limit
from headrace.engine.caller import Connection
from headrace.engine.state import Replay
from headrace.engine.transfer import File
from headrace.engine.verbs import Verbs, borrows
from headrace.model import AnyClaim, Duration, Event, Extended, Imported


def connect(
    dsn: str | None = None,
    *,
    namespace: str = "default",
    queue: str = "main",
    data: str | Path | None = None,
    migrate: bool | None = None,
    prepare: bool = True,
    pool_size: int = 4,
    worker: str | None = None,
    timeout: Duration = BOUND,
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
    time for each step.
    """
    bound = time_limit(timeout)
    with ExitStack() as opened:
        source = open_source(dsn, data, migrate, namespace, prepare=prepare, bound=bound)
        opened.callback(source.close)
        prepare = source.prepare
        options = {"autocommit": True, "prepare_threshold": 0 if prepare else None}
        pool = Sessions(
            source.dsn,
            join=source.join,
            bound=bound,
            kwargs=options,
            configure=_settle if prepare else None,
            min_size=1,
            max_size=pool_size,
            name="headrace",
            open=False,
        )
        opened.enter_context(pool)
        pool.wait(bound)  # a program that ends at once must not leave a connection half made
        made = EventQueue(pool, namespace=namespace, queue=queue, worker=worker, prepare=prepare)
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
    ) -> None:
        super().__init__(pool_or_connection, prepare=prepare)
        self.verbs = Verbs(namespace, queue, worker, alone_over(pool_or_connection))
        self._owned = ExitStack()

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

"""Sessions that race: each is a connection with the engine's calls, and any call can be made to wait."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from threading import Thread
from typing import Any, Generic, TypeVar

from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from tests.database import PATIENCE, Database

READ_COMMITTED = "read committed"
REPEATABLE_READ = "repeatable read"
SERIALIZABLE = "serializable"
ISOLATION_LEVELS = (READ_COMMITTED, REPEATABLE_READ, SERIALIZABLE)

Result = TypeVar("Result")


class Session:
    """A connection to a test's database and the engine's functions as methods."""

    def __init__(self, db: Database, **options: Any) -> None:
        self.connection = db.connect(row_factory=namedtuple_row, **options)

    def sql(self, query: str, params: Any = None) -> list[Any]:
        cursor = self.connection.execute(query, params)
        return cursor.fetchall() if cursor.description else []

    def begin(self, isolation: str = READ_COMMITTED) -> None:
        """Open a transaction whose snapshot, where it keeps one, is of now."""
        self.sql(f"begin isolation level {isolation}")
        self.sql("select")

    def commit(self) -> None:
        self.sql("commit")

    def rollback(self) -> None:
        self.sql("rollback")

    def hurry(self) -> "Session":
        """From now on whatever waits for a lock fails instead."""
        self.sql("set lock_timeout = '25ms'")
        return self

    def hush(self) -> "Session":
        """From now on it notifies nobody: NOTIFY takes a lock at commit that others at work wait for."""
        self.sql("set headrace.notify = off")
        return self

    def publish(self, count: int = 1, **event: Any) -> list[int]:
        [(ids,)] = self.sql(
            "select ids from headrace.publish('default', %s)", [Jsonb([event] * count)]
        )
        return ids

    def poll(self, max_events: int = 1, *, each: bool = False, **options: Any) -> list[Any]:
        options = {"max_events": max_events, "each": each, **options}
        named = ", ".join(f'"{name}" => %({name})s' for name in options)
        return self.sql(f"select * from headrace.poll('default', {named})", options)

    def finish(self, claims: Iterable[Any], *, lease: bool = True, **other: Any) -> list[str]:
        """Complete, or do what `other` says: finish(claims, action="fail"). The verdicts, in order."""
        claims = list(claims)
        rows = self.sql(
            "select * from headrace.finish('default', 'main', %s::bigint[], %s::int[], %s::bigint[],"
            " others => %s)",
            [
                [claim.id for claim in claims],
                [claim.attempt for claim in claims],
                [claim.lease for claim in claims] if lease else None,
                Jsonb({str(n): other for n, _ in enumerate(claims, 1)}) if other else None,
            ],
        )
        verdicts = {row.item: row.verdict for row in rows}
        return [verdicts.get(n, "counted") for n, _ in enumerate(claims, 1)]

    def extend(self, *leases: int, by: str = "1 minute") -> list[str]:
        rows = self.sql(
            "select * from headrace.extend('default', 'main', %s::bigint[], %s)", [list(leases), by]
        )
        return [row.state for row in sorted(rows)]

    def resolve(self, claim: Any) -> str | None:
        return self.sql(
            "select headrace.resolve('default', 'main', %s, %s)", [claim.id, claim.attempt]
        )[0][0]

    def tick(self, *, upkeep: bool = False) -> Any:
        return self.sql("select * from headrace.tick(upkeep => %s)", [upkeep])[0]

    def keep_up(self) -> bool:
        """Tick for as long as there is more to do; whether the upkeep was done in the end."""
        while (tick := self.tick()).more:
            pass
        return tick.kept_up

    def reap(self) -> int:
        """How many leases that ran out were ended."""
        return self.sql("select headrace._tick_expired(100)")[0][0]

    def outcomes(self, event: int) -> list[str]:
        """What the log has on the ends of an event's attempts, oldest first."""
        return [
            row.action
            for row in self.sql(
                "select action from headrace.event_log('default', %s) order by id", [event]
            )
            if row.action not in ("EMITTED", "PICKED")
        ]


class Background(Generic[Result]):
    """A call that runs in a thread of its own, because it may have to wait."""

    def __init__(self, call: Callable[..., Result], *arguments: Any, **options: Any) -> None:
        self._future: Future[Result] = Future()
        Thread(target=self._run, args=(call, arguments, options), daemon=True).start()

    def _run(self, call: Callable[..., Result], arguments: Any, options: Any) -> None:
        try:
            self._future.set_result(call(*arguments, **options))
        except BaseException as error:
            self._future.set_exception(error)

    @property
    def over(self) -> bool:
        return self._future.done()

    def result(self) -> Result:
        return self._future.result(PATIENCE)


def blocked(
    db: Database, session: Session, call: Callable[..., Any], *arguments: Any, **options: Any
) -> Background[Any]:
    """Make a session's call in the background and wait until a lock holds it up."""
    waiting = Background(call, *arguments, **options)
    db.wait_until_blocked(session.connection)
    return waiting


def everything_is_in_one_place(db: Database) -> bool:
    return all(len(places) == 1 for places in db.placement().values())

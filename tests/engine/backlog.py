"""Queues full of deliveries, filled faster than publish could, and consumers that empty them."""

from typing import Any

from tests.database import Database
from tests.engine.footprint import Footprint, footprint

ID, ATTEMPT, LEASE, HINTS = 0, 1, 11, 14  # columns of what poll returns

# As publish would have left them: ready.seq is the event's id, every route is known.
EVENTS = """
insert into headrace.events (id, created_at, route, namespace, version, priority, type, payload)
select headrace._id_at(%(first)s + g), %(now)s, headrace._route(%(kind)s || '.' || g %% %(routes)s, null), %(namespace)s, 1, 5,
       %(kind)s || '.' || g %% %(routes)s, '{"n": 1}'
from generate_series(0, %(count)s - 1) g
"""
READY = """
insert into headrace.ready (event, created_at, route, seq, queue, priority, suspect)
select headrace._id_at(%(first)s + g), %(now)s, headrace._route(%(kind)s || '.' || g %% %(routes)s, null), headrace._id_at(%(first)s + g),
       %(queue)s, 5, %(suspect)s
from generate_series(0, %(count)s - 1) g
"""
DELAYED = """
insert into headrace.delayed (event, created_at, due_at, route, queue, priority)
select headrace._id_at(%(first)s + g), %(now)s, %(now)s + %(delay)s + g * interval '1 ms',
       headrace._route(%(kind)s || '.' || g %% %(routes)s, null), %(queue)s, 5
from generate_series(0, %(count)s - 1) g
"""
ROUTES = """
insert into headrace.routes (namespace, route, type, tags, created_at)
select %(namespace)s, headrace._route(%(kind)s || '.' || g, null), %(kind)s || '.' || g, '{}', %(now)s
from generate_series(0, %(routes)s - 1) g
"""

# Vacuum and analyze run when a test says so.
LEFT_ALONE = """
do $$
declare name text;
begin
    for name in select oid::regclass from pg_class
                where relnamespace = 'headrace'::regnamespace and relkind = 'r' loop
        execute format('alter table %s set (autovacuum_enabled = false)', name);
    end loop;
end $$
"""

# As if somebody had looked already, for as long as a test may take.
LOOKED = """
insert into headrace.samplings (step, at, reached)
select 5, date_bin('5 seconds', headrace._now(), 'epoch') + n * interval '5 seconds', 0 from generate_series(-1, 720) n
on conflict do nothing
"""


WITHOUT_AUTOVACUUM = """
do $$
declare
    its text;
begin
    for its in select oid::regclass from pg_class where relnamespace = 'headrace'::regnamespace and relkind = 'r' loop
        execute format('alter table %s set (autovacuum_enabled = off)', its);
    end loop;
end $$
"""


def leave_alone(db: Database) -> None:
    """Have no tick look how deep the queues are, every five seconds, nor save their states, every ten: what that costs
    is shown elsewhere. And have nobody analyze the tables: entries that are dead to all but him are read again."""
    db.sql(LOOKED)
    db.sql("select headrace.configure('state_interval', 'off')")
    db.sql(WITHOUT_AUTOVACUUM)


def fill(
    db: Database,
    count: int,
    *,
    kind: str = "work",
    routes: int = 1,
    suspect: bool = False,
    delay: str | None = None,
    namespace: str = "default",
) -> None:
    """Put deliveries of the types kind.0, kind.1 … into a namespace's main queue."""
    db.sql(LEFT_ALONE)
    [(space, queue, first, now)] = db.sql(
        "select q.namespace, q.id, headrace.place(nextval('headrace.ids')) + 1, headrace._now()"
        " from headrace.queues q where q.space = %s",
        [namespace],
    )
    values = {
        "count": count, "kind": kind, "routes": routes, "suspect": suspect, "delay": delay,
        "namespace": space, "queue": queue, "first": first, "now": now,
    }  # fmt: skip
    db.sql("select setval('headrace.ids', headrace._id_at(%s))", [first + count])
    for statement in (EVENTS, READY if delay is None else DELAYED, ROUTES):
        db.sql(statement, values)


class Consumer:
    """Polls and finishes as a client does: it hands the hints back, and sweeps when told to.

    What each call touched is kept.
    """

    def __init__(self, db: Database, *, namespace: str = "default", **arguments: Any) -> None:
        self.connection = db.connect()
        self.arguments = {
            "namespace": namespace,
            "worker": "consumer",
            "max_events": 500,
            "lease": "1 day",  # nothing runs out while a test takes its time
            **arguments,
        }
        self.claimed: list[Any] = []
        self.hints: str | None = None

    def claim(self, *, sweep: bool = False) -> None:
        """Poll without looking at what it touches, which takes longer than the poll."""
        self._take(self.connection.execute(*self._call(sweep)).fetchall())

    def poll(self, *, sweep: bool = False) -> Footprint:
        claimed, touched = footprint(self.connection, *self._call(sweep))
        self._take(claimed)
        return touched

    def _call(self, sweep: bool) -> tuple[str, dict[str, Any]]:
        given = {**self.arguments, "hints": self.hints, "sweep": sweep}
        names = ", ".join(f'"{name}" => %({name})s' for name in given)
        return f"select * from headrace.poll({names})", given

    def _take(self, claimed: list[Any]) -> None:
        self.claimed = claimed
        self.hints = claimed[0][HINTS] if claimed else None

    def complete(self) -> None:
        """Complete what the last poll claimed."""
        answers = self.connection.execute(*self._end()).fetchall()
        assert answers == [], "each completion counted"

    def finish(self) -> Footprint:
        """The same, and what it touched."""
        answers, touched = footprint(self.connection, *self._end())
        assert answers == [], "each completion counted"
        touched.deliveries = len(self.claimed)
        return touched

    def _end(self) -> tuple[str, list[Any]]:
        columns = ([row[column] for row in self.claimed] for column in (ID, ATTEMPT, LEASE))
        call = "select * from headrace.finish(%s, 'main', %b, %b, %b)"
        return call, [self.arguments["namespace"], *columns]

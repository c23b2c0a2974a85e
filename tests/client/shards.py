"""A test's database as several shards: HEADRACE_TEST_SHARDS=3 runs the tests of the clients over them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from headrace.engine.shards import slot_of
from headrace.testing.database import MOVABLE_CLOCK
from tests.database import STOPPABLE_CLOCK, Database, Server

COUNT = int(os.environ.get("HEADRACE_TEST_SHARDS") or 1)
STRIDE = 64

# Each shard is the home of as many keys as the others.
SPREAD = """\
select headrace._lock_slots();
update headrace.slots set home = slot % {count}, version = 1;
select headrace._slots_changed();
"""


class Shards(Database):
    """Databases that are the shards of one installation, behind the face of one."""

    def __init__(self, server: Server, count: int = COUNT) -> None:
        self.parts = [
            server.lend_shard(STRIDE, number, *prepared(count)) for number in range(count)
        ]
        super().__init__(server, self.parts[0].name)
        self.dsn: Any = [part.dsn for part in self.parts]

    @property
    def first_dsn(self) -> str:
        first: str = self.dsn[0]
        return first

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return self.parts[0].connect(**options)

    def sql(self, query: str, params: Any = None) -> list[tuple[Any, ...]]:
        """The rows of all shards, one after the other; of a count, the sum."""
        rows = [row for part in self.parts for row in part.sql(query, params)]
        is_count = query.lstrip().startswith("select count(*) from") and {*map(len, rows)} == {1}
        return [(sum(count for (count,) in rows),)] if is_count else rows

    def part_of(self, id: int) -> Database:
        return self.parts[id % STRIDE]

    def placement(self, queue: str = "main") -> dict[int, list[str]]:
        found = [part.placement(queue) for part in self.parts]
        return {id: places for part in found for id, places in part.items()}

    def advance(self, **duration: float) -> None:
        for part in self.parts:
            part.advance(**duration)

    def step(self, **duration: float) -> None:
        for part in self.parts:
            part.step(**duration)

    def close(self) -> None:
        super().close()
        for part in self.parts:
            part.give_back()


def prepared(count: int) -> tuple[str, ...]:
    return MOVABLE_CLOCK, STOPPABLE_CLOCK, SPREAD.format(count=count)


def key_on(number: int, which: int = 0, namespace: str = "default") -> str:
    """A key whose home is this shard."""
    keys = (f"key-{n}" for n in range(10_000) if slot_of(namespace, f"key-{n}") % 3 == number)
    return [next(keys) for _ in range(which + 1)][-1]


@contextmanager
def down(part: Database) -> Iterator[None]:
    """A shard that cannot be reached: its database has another name meanwhile."""
    with psycopg.connect(part.server.dsn, autocommit=True) as admin:
        rename(admin, part.name, f"{part.name}_away")
        yield
        rename(admin, f"{part.name}_away", part.name)


def rename(admin: Any, name: str, other: str) -> None:
    old, new = sql.Identifier(name), sql.Identifier(other)
    admin.execute(sql.SQL("alter database {} with allow_connections false").format(old))
    end = "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s"
    for left in reversed(range(100)):  # a session that is just beginning is in no list
        admin.execute(end, [name])
        try:
            admin.execute(sql.SQL("alter database {} rename to {}").format(old, new))
            break
        except psycopg.errors.ObjectInUse:
            assert left
    admin.execute(sql.SQL("alter database {} with allow_connections true").format(new))

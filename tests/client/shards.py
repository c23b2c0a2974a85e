"""A test's database as several shards: HEADRACE_TEST_SHARDS=3 runs the tests of the clients over them."""

import os
from typing import Any

import psycopg

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

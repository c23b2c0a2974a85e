"""What a call touches, relation by relation, as PostgreSQL itself counts it.

The counters of the running transaction are exact and there at once, on every version; what other
sessions do is not in them. `blocks` are pages looked at, cached or not; `entries` are index
entries, or rows of a sequential scan, gone through, dead ones included.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg

# Not by transaction, in truth, but since the last flush, and inside a transaction nothing is
# flushed: the difference of two readings in one transaction is what happened between them.
COUNTERS = """
select coalesce(owner.relname || ' (toast)', c.relname),
       pg_stat_get_xact_numscans(c.oid), pg_stat_get_xact_tuples_returned(c.oid),
       pg_stat_get_xact_blocks_fetched(c.oid)
from pg_class c
left join pg_index i on i.indexrelid = c.oid
left join pg_class owner on owner.reltoastrelid = coalesce(i.indrelid, c.oid)
where c.relkind in ('r', 'i', 't')
  and 'headrace'::regnamespace in (c.relnamespace, owner.relnamespace)
"""


@dataclass(frozen=True)
class Touched:
    scans: int = 0
    entries: int = 0
    blocks: int = 0

    def __add__(self, other: Self) -> "Touched":
        return Touched(
            self.scans + other.scans, self.entries + other.entries, self.blocks + other.blocks
        )

    def __sub__(self, other: Self) -> "Touched":
        return Touched(
            self.scans - other.scans, self.entries - other.entries, self.blocks - other.blocks
        )


@dataclass
class Footprint:
    """What some calls touched together, and how many deliveries they were for."""

    relations: dict[str, Touched] = field(default_factory=dict)
    deliveries: int = 0

    def __add__(self, other: Self) -> "Footprint":
        names = self.relations.keys() | other.relations.keys()
        return Footprint(
            {name: self[name] + other[name] for name in names}, self.deliveries + other.deliveries
        )

    def __getitem__(self, relation: str) -> Touched:
        return self.relations.get(relation, Touched())

    @property
    def total(self) -> Touched:
        return sum(self.relations.values(), Touched())

    @property
    def blocks_each(self) -> float:
        return self.total.blocks / self.deliveries

    @property
    def entries_each(self) -> float:
        return self.total.entries / self.deliveries

    def __str__(self) -> str:
        per = max(1, self.deliveries)
        lines = [
            f"{touched.blocks / per:9.3f} blocks {touched.entries / per:9.3f} entries"
            f" {touched.scans:7} scans  {name}"
            for name, touched in sorted(self.relations.items(), key=lambda item: -item[1].blocks)
        ]
        return "\n".join([f"per delivery of {self.deliveries}:", *lines])


def _reading(connection: psycopg.Connection[Any]) -> dict[str, Touched]:
    reading: dict[str, Touched] = {}
    for name, *numbers in connection.execute(COUNTERS):
        reading[name] = reading.get(name, Touched()) + Touched(*numbers)
    return reading


def footprint(
    connection: psycopg.Connection[Any], call: str, params: Any = None
) -> tuple[list[Any], Footprint]:
    """The rows of a call, committed, and what it touched; it counts as work for as many rows."""
    with connection.transaction():
        before = _reading(connection)
        cursor = connection.execute(call, params)
        rows = cursor.fetchall() if cursor.description else []
        after = _reading(connection)
    changed = {name: after[name] - before.get(name, Touched()) for name in after}
    return rows, Footprint({n: t for n, t in changed.items() if t != Touched()}, len(rows))


def altogether(footprints: Iterable[Footprint]) -> Footprint:
    return sum(footprints, Footprint())

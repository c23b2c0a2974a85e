"""The database itself: its version, whether it commits, its shard, and its sequence of ids."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from headrace.engine.statement import Statement


def version() -> Statement[tuple[int, int]]:
    return Statement(
        "select major, minor from headrace.version()", (), lambda rows: (rows[0][0], rows[0][1])
    )


class Shard(NamedTuple):
    """Which shard a database is: `number` of at most `stride`."""

    stride: int
    number: int
    mark: int
    """Ids up to here are this shard's, whatever they leave."""
    identity: UUID
    """Of the database; a copy has the same."""


def shard() -> Statement[Shard]:
    return Statement(
        "select stride, shard, mark, identity from headrace.shard()",
        (),
        lambda rows: Shard(*rows[0]),
    )


def ids_behind() -> Statement[int | None]:
    """The highest number in the tables, if the sequence is behind it."""
    return Statement("select headrace.ids_behind()", (), lambda rows: rows[0][0])


def repair_ids(actor: str | None) -> Statement[int | None]:
    return Statement("select headrace.repair_ids(%s)", (actor,), lambda rows: rows[0][0])


class Proof(NamedTuple):
    """Of a database that commits."""

    version: tuple[int, int]
    read_only: bool


def prove_commit() -> Statement[Proof]:
    """A commit that changes nothing and yet has to be written, and to wait for a synchronous
    standby. It calls no function of the schema, which may be another release's."""
    return Statement(
        "select v.major, v.minor, pg_catalog.current_setting('transaction_read_only') operator(pg_catalog.=) 'on', "
        "case when not pg_catalog.pg_is_in_recovery() "
        "then pg_catalog.pg_logical_emit_message(true, 'headrace', '') end from headrace.version() v",
        (),
        lambda rows: Proof((rows[0][0], rows[0][1]), rows[0][2]),
    )


def started_within(seconds: float) -> Statement[bool]:
    """Whether the server itself was started so lately."""
    return Statement(
        "select pg_catalog.pg_postmaster_start_time() operator(pg_catalog.>) "
        "(pg_catalog.clock_timestamp() operator(pg_catalog.-) pg_catalog.make_interval(secs => %s))",
        (seconds,),
        lambda rows: bool(rows[0][0]),
    )

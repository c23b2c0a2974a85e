"""Reaches one of several servers, and asks which shard it is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from psycopg.conninfo import conninfo_to_dict

from headrace.driver.connect import Source, open_session, open_source, usable
from headrace.driver.run import run
from headrace.engine import shards
from headrace.engine.database import Shard, shard
from headrace.engine.shards import Slot
from headrace.errors import InvalidInput
from headrace.model.codec import Codec


class Opened(NamedTuple):
    """A server that was reached: its source is to be closed after it."""

    source: Source
    shard: Shard
    slots: list[Slot]


class Terms(NamedTuple):
    """How the servers are opened: as `connect` was told."""

    namespace: str
    worker: str | None
    prepare: bool
    pool_size: int
    bound: float
    creates: bool = True
    """A namespace that is not there is created."""
    codec: Codec | Sequence[Codec] | None = None


def terms(
    data: object,
    migrate: bool | None,
    *,
    namespace: str,
    worker: str | None,
    prepare: bool,
    pool_size: int,
    bound: float,
    codec: Codec | Sequence[Codec] | None = None,
) -> Terms:
    """How to open several servers. Arguments that are meant for one server are refused."""
    if data is not None:
        raise InvalidInput(
            "connect takes either DSNs or the data folder of an embedded server, not both"
        )
    if migrate:
        raise InvalidInput(
            "several servers are migrated one by one, because each is told which shard it is: "
            "headrace migrate --stride 64 --shard K"
        )
    return Terms(namespace, worker, prepare, pool_size, bound, codec=codec)


def open_server(dsn: str, how: Terms) -> Opened:
    """Reach a server, as open_source does, and ask which shard it is."""
    namespace = how.namespace if how.creates else "default"
    source = open_source(dsn, None, None, namespace, prepare=how.prepare, bound=how.bound)
    try:
        with open_session(source.dsn, how.bound) as session:
            found = run(session, shard(), prepare=False)
            return Opened(source, found, run(session, shards.slots(), prepare=False))
    except BaseException:
        source.close()
        raise


async def open_server_soon(dsn: str, how: Terms) -> Opened:
    """The same in a thread. What the thread opens for a caller who is cancelled is closed again."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_server, dsn, how))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_again)
        raise


def _close_again(opening: asyncio.Future[Opened]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, opening.result().source.close)


def name_of(dsn: str) -> str:
    """The name of a server in messages: its address, without passwords."""
    known = conninfo_to_dict(usable(dsn))
    where = f"{known.get('host') or known.get('hostaddr') or 'localhost'}:{known.get('port', 5432)}"
    return f"{where}/{known.get('dbname', '')}"

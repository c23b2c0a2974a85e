"""A node behind a transaction pooler: without wake-ups and prepared statements, and with all its promises."""

import signal
from pathlib import Path
from typing import Any

import pytest

from headrace import Claimed, Context
from tests.database import Database
from tests.faults.crew import completed, crew_of, eventually
from tests.node.nodes import node, running, settled, until
from tests.pooler import pgbouncer
from tests.requirements import requirement

EVENTS = 40


@pytest.mark.anyio
@pytest.mark.parametrize("options", [{"prepare": False}, {}], ids=["said", "noticed"])
@requirement("G10", "G19")
async def test_handlers_of_every_kind_work_behind_a_pooler(
    db: Database, options: dict[str, bool]
) -> None:
    db.sql("create table effects (event bigint)")
    queue = db.queue()
    types = ["awaited", "plain", "awaited effect", "plain effect", "emitting"]
    with pgbouncer(db) as dsn:
        one = node(db, dsn=dsn, **options)
        seen: list[int] = []

        @one.on_event("awaited")
        async def awaited(event: Claimed) -> None:
            seen.append(event.id)

        @one.on_event("plain")
        def plain(event: Claimed) -> None:
            seen.append(event.id)

        @one.on_event("awaited effect")
        async def awaited_effect(event: Claimed, connection: Any) -> None:
            await connection.execute("insert into effects values (%s)", [event.id])

        @one.on_event("plain effect")
        def plain_effect(event: Claimed, connection: Any) -> None:
            connection.execute("insert into effects values (%s)", [event.id])

        @one.on_event("emitting")
        def emitting(event: Claimed, context: Context) -> None:
            context.emit("awaited")

        ids = queue.publish_many([(type, {}) for type in types] * EVENTS)
        async with running(one):
            await until(lambda: queue.stats().completed == 6 * EVENTS)
            await settled(one)
    assert len(seen) == len(set(seen)) == 3 * EVENTS
    effects = db.sql("select event from effects order by 1")
    assert effects == sorted((id,) for n, id in enumerate(ids) if n % 5 in (2, 3))


@requirement("G4", "G19")
def test_a_node_behind_a_pooler_gives_up_what_it_has_when_it_is_killed(
    db: Database, tmp_path: Path
) -> None:
    with (
        pgbouncer(db) as dsn,
        crew_of(db, tmp_path, dsn=dsn, prepare=False, lease=1, idle=0.2) as crew,
    ):
        [doomed] = crew.start_some(1)
        ids = db.queue().publish_many([("sleep", 0.1)] * 20)
        eventually(lambda: doomed.starts)
        doomed.signal(signal.SIGKILL)
        crew.start()
        eventually(lambda: completed(db, ids))
        crew.stop()

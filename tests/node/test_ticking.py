"""Nodes that tick against each other: what is due happens once."""

import asyncio
from typing import Any

import pytest

from headrace import Claimed
from tests.database import Database
from tests.engine.functions_helpers import stop_the_clock
from tests.node.nodes import node, running, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.mark.rest
@requirement("G12", "PG-27", "PG-28")
async def test_three_nodes_that_tick_at_once_fire_each_of_300_instants_once(db: Database) -> None:
    stop_the_clock(db)
    nodes = [node(db, f"node-{n}") for n in range(3)]
    handled: list[str] = []

    for one in nodes:

        @one.every("* * * * * *", name="second")
        async def second(event: Claimed) -> None:
            handled.append(event.details["scheduled_for"])

    async def tick(one: Any) -> None:
        await one.queue.plan_schedules()
        await one.queue.tick()

    async with running(*nodes):
        for fires in range(1, 301):
            db.advance(seconds=1)
            await asyncio.gather(*map(tick, nodes))
            # However far behind they are: a minute late is missed.
            await until(lambda fires=fires: len(handled) > fires - 20)
        await until(lambda: len(handled) >= 300)
        published = await nodes[0].queue.events(types=["schedule.second"])
    assert len(handled) == len(set(handled)) == published.total == 300

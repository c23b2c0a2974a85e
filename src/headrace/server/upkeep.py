"""What a server does besides answering: what time has made due, and the next instants of schedules."""

from __future__ import annotations

import asyncio
import logging
import time

import psycopg
from psycopg_pool import PoolTimeout

from headrace import statements
from headrace.errors import HeadraceError, NamespaceNotFound
from headrace.memory import Ticks
from headrace.server.directory import Directory

INTERVAL = 1.0
PLAN_EVERY = 60.0
AWAY = (psycopg.Error, PoolTimeout, HeadraceError)

logger = logging.getLogger("headrace.server")


async def keep_up(directory: Directory, stopping: asyncio.Event) -> None:
    """Tick once a second, until the server stops. PostgreSQL may be away for a while: said once, and tried again
    until it is back. So is what nobody has thought of: without the upkeep no retry would ever be due."""
    ticks, plan_at, well = Ticks(), 0.0, True
    while not stopping.is_set():
        try:
            if ticks.take_turn():
                await _tick(directory, ticks)
            if time.monotonic() >= plan_at:
                plan_at = time.monotonic() + PLAN_EVERY
                await _plan(directory)
            if not well:
                logger.info("the upkeep goes on")
            well = True
        except Exception as error:
            if well:
                said = str(error).strip().partition("\n")[0]
                unheard_of = None if isinstance(error, AWAY) else error
                logger.warning("the upkeep has to wait: %s", said, exc_info=unheard_of)
            well = False
        await _pause(stopping, INTERVAL)


async def _tick(directory: Directory, ticks: Ticks) -> None:
    more = True
    while more:
        done = await directory.ask(statements.tick(ticks.since), lane="upkeep")
        more = done.more
    ticks.ticked(done.at)


async def _plan(directory: Directory) -> None:
    """A namespace whose schedules cannot be read or planned keeps no other's from firing."""
    for namespace in await directory.ask(statements.namespaces(), lane="upkeep"):
        try:
            await directory.of(namespace.name, "main", lane="upkeep").plan_schedules()
        except NamespaceNotFound:
            continue  # it has just been deleted
        except (psycopg.OperationalError, PoolTimeout):
            raise  # it concerns all of them
        except Exception as error:
            logger.warning("the schedules of %s are not planned: %s", namespace.name, error)


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stopping.wait(), seconds)
    except TimeoutError:
        return

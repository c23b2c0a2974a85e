"""The upkeep of a server: ticks, and the next fires of schedules."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

import psycopg
from psycopg_pool import PoolTimeout

from headrace.driver.patience import wait_until
from headrace.driver.run import take_turns_async
from headrace.engine import time
from headrace.engine.memory import Ticks
from headrace.engine.namespaces import namespaces
from headrace.engine.statement import Turns
from headrace.errors import HeadraceError, NamespaceNotFound
from headrace.server.clients import Directory

INTERVAL = 1.0
PLAN_EVERY = 60.0
AWAY = (psycopg.Error, PoolTimeout, HeadraceError)

logger = logging.getLogger("headrace.server")


async def keep_all_up(directory: Directory, stopping: asyncio.Event) -> None:
    """The upkeep of every database, also of those that are opened later."""
    if not directory.over_shards:
        await keep_up(directory, stopping)
        return
    tasks: dict[int, asyncio.Task[None]] = {}
    while not stopping.is_set():
        for part in directory.parts:
            if id(part) not in tasks:
                tasks[id(part)] = asyncio.create_task(keep_up(part, stopping))
        await wait_until(stopping, INTERVAL)
    await asyncio.gather(*tasks.values())


async def keep_up(directory: Directory, stopping: asyncio.Event) -> None:
    """Tick once a second, until the server stops. While PostgreSQL is away, the upkeep logs it once
    and tries again until it is back. Unexpected errors are treated alike: without the upkeep no
    retry would ever be due."""
    turns = time.keep_up(
        partial(_tick, Ticks()),
        partial(_plan, directory),
        _Trouble(),
        stopping.is_set,
        plan_every=PLAN_EVERY,
        plan_again=PLAN_EVERY,  # a plan reads all namespaces, and may fail because of overload
        every=INTERVAL,
    )
    run, wait = partial(directory.run, lane="upkeep"), partial(wait_until, stopping)
    await take_turns_async(turns, run, wait)


class _Trouble:
    """Logs the start and the end of a trouble, once each. What works at the second try is none."""

    def __init__(self) -> None:
        self._failures = 0

    def failed(self, error: Exception) -> float:
        self._failures += 1
        if self._failures == 2:
            said = str(error).strip().partition("\n")[0]
            unheard_of = None if isinstance(error, AWAY) else error
            logger.warning("the upkeep has to wait: %s", said, exc_info=unheard_of)
        return INTERVAL if self._failures > 1 else 0.0

    def worked(self) -> None:
        if self._failures > 1:
            logger.warning("the upkeep goes on")
        self._failures = 0


def _tick(ticks: Ticks) -> Turns[None]:
    if ticks.take_turn():
        yield from time.tick_all(ticks)


def _plan(directory: Directory) -> Turns[None]:
    """If the schedules of one namespace cannot be read or planned, those of others still fire."""
    for namespace in (yield namespaces()):
        try:
            yield directory.of(namespace.name, "main", lane="upkeep").verbs.plan_schedules()
        except NamespaceNotFound:
            continue  # it has just been deleted
        except (psycopg.OperationalError, PoolTimeout):
            raise  # all namespaces are concerned
        except Exception as error:
            logger.warning("cannot plan the schedules of %s: %s", namespace.name, error)

"""Stops a node: no more claims, a grace time for running handlers, then an interruption."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.node.run.run import Run
from headrace.node.run.underway import CutReason

if TYPE_CHECKING:
    from headrace.node.service import Service

logger = logging.getLogger("headrace.node")

SAVING = 5.0  # seconds of the grace time for saving the queue's state
# Seconds after the grace time: for interrupted handlers to end, for reporting their ends, for
# breaking off calls and closing connections. The rest of a second is for the process to end.
LAST_WORDS, TELLING, CLOSING = 0.2, 0.4, 0.2
LEAVING = 0.1  # seconds for the functions of on_stop if nothing is left of the grace time
NAMED = 10  # handlers in a line of the log


class Stop:
    """The one stop of a service: further callers wait for it too."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def hurry(self) -> None:
        """End the grace time now, even if handlers run."""
        self._hurry.set()

    async def wait(self, grace: float) -> None:
        """Claim no more, hand back events that have not begun, let handlers end for the grace time;
        then interrupt them, and hand their events back. A caller that is cancelled here ends the
        grace time."""
        if self._task is None:
            self._task = self._service.loop.create_task(self._stop(grace))
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            self.hurry()
            raise

    async def _stop(self, grace: float) -> None:
        service, finisher = self._service, self._service.finisher
        service.stop_claiming()
        until = time.monotonic() + grace
        await self._wait_for(self._nothing_under_way(), grace)
        await self._interrupt()
        await self._wait_for(finisher.flush(), until - time.monotonic())
        await wait(finisher.flush(), TELLING)
        finisher.give_up()
        if service.lifespan is not None:
            await self._wait_for(service.lifespan.stop(), max(until - time.monotonic(), LEAVING))
        await self._wait_for(self._save_state(), min(SAVING, until - time.monotonic()))
        await asyncio.gather(
            _end(service.tasks),
            service.connections.hang_up(CLOSING),
            asyncio.to_thread(service.keeper.close, CLOSING),
            return_exceptions=True,
        )
        await service.connections.opened.aclose()

    async def _nothing_under_way(self) -> None:
        """Wait for handlers and claims. A claim must end: its events are handed back."""
        service = self._service
        while tasks := service.claiming | {run.task for run in service.runs.running if run.task}:
            await asyncio.wait(tasks)

    async def _interrupt(self) -> None:
        runs = self._service.runs
        running = list(runs.running)
        if running:
            logger.warning(
                "%d handlers still run after the grace time: the node interrupts them and "
                "hands their events back: %s",
                len(running),
                named(running),
            )
        for run in running:
            if not run.interrupt(CutReason.SHUTDOWN):
                run.give_back()
        await wait(self._nothing_under_way(), LAST_WORDS)
        stubborn = list(runs.running)
        if stubborn:
            logger.warning(
                "%d handlers did not end when they were interrupted, and are left behind: %s",
                len(stubborn),
                named(stubborn),
            )
        for run in stubborn:
            run.give_back()

    async def _save_state(self) -> None:
        """Save the queue's state if the node has ended any attempt, and if the rest of the grace
        time allows."""
        service = self._service
        if service.tally.ended_by and not service.outage.is_on:
            try:
                await service.queue.save_state()
            except Exception as error:
                logger.info("the state of the queue could not be saved: %s", error)

    async def _wait_for(self, what: Any, timeout: float) -> None:  # noqa: ASYNC109
        await wait_or_hurry(what, timeout, self._hurry)


def named(runs: Sequence[Run]) -> str:
    """Handlers, for a line of the log."""
    more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
    return ", ".join(map(str, runs[:NAMED])) + more


async def wait_or_hurry(what: Any, timeout: float, hurry: asyncio.Event) -> None:  # noqa: ASYNC109
    """Wait until it is done, the time is up or there is a hurry."""
    waited = asyncio.ensure_future(what)
    hurried = asyncio.ensure_future(hurry.wait())
    await asyncio.wait(
        {waited, hurried}, timeout=max(timeout, 0), return_when=asyncio.FIRST_COMPLETED
    )
    await _end({waited, hurried})


async def wait(what: Any, timeout: float) -> None:  # noqa: ASYNC109
    """Wait until it is done, or the time is up."""
    with suppress(TimeoutError):
        await asyncio.wait_for(what, timeout)


async def _end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks. A task in the middle of a call first has the server stop the statement; the
    node does not wait for a server that does not reply to that."""
    left = set(tasks)
    for _ in range(2):
        for task in left:
            task.cancel()
        if left:
            done, left = await asyncio.wait(left, timeout=CLOSING / 2)
            await asyncio.gather(*done, return_exceptions=True)

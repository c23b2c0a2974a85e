"""Batches: requests that arrive together become one statement, with an answer for each of them.

A request that arrives while no statement is under way is sent at once, alone. Requests that arrive
while a statement is under way go into the next one together: the busier the server, the larger the
statements.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace
from psycopg import errors

from headrace.engine import finish, publish
from headrace.engine.encoding import batches, details
from headrace.engine.finish import Reported
from headrace.engine.publish import Published, pending, publishing
from headrace.errors import HeadraceError, NotStored, Unavailable, WrongShard
from headrace.model import Event, NewEvent, Verdict
from headrace.server.bulkheads import charge_namespace
from headrace.server.clients import Directory

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")

MOST = 200  # requests in a statement
MOST_BYTES = 4 * 1024 * 1024  # of their bodies
TURNS = 2  # of the event loop, from the arrival of a request to here
BATCHERS = 1000  # that are kept while they are idle
SLOW = (
    0.1  # seconds after which a statement counts as blocked, and the next one does not wait for it
)
# Statements at a time. One that is not slow goes alone: two of half the size would cost more.
UNDER_WAY = 4
# Seconds to search for the blocked request of a batch; then every suspect gets the error.
SEARCH = 5.0

# A transaction that ends with one of these is rolled back, so nothing of it was done.
HELD_UP = (
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.DeadlockDetected,
    errors.SerializationFailure,
)

Run = Callable[[list[Asked]], Awaitable[list[Answered]]]


class _Waiting(NamedTuple, Generic[Asked, Answered]):
    asked: Asked
    size: int
    answer: asyncio.Future[Answered]


class Batcher(Generic[Asked, Answered]):
    """Requests of one kind that can go into one statement."""

    def __init__(self, run: Run[Asked, Answered]) -> None:
        self._run = run
        self._waiting: deque[_Waiting[Asked, Answered]] = deque()
        self._under_way: dict[asyncio.Task[None], float] = {}  # since when
        self._again: asyncio.TimerHandle | None = None
        self._company = 1  # how many went together last time

    @property
    def is_idle(self) -> bool:
        return not self._under_way and not self._waiting

    async def ask(self, asked: Asked, size: int = 0) -> Answered:
        answer: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(asked, size, answer))
        self._send()
        return await answer

    def _send(self) -> None:
        """Send the waiting requests, unless a statement is under way; a slow one does not count."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if not self._waiting or len(self._under_way) >= UNDER_WAY:
            return
        if all(now - began >= SLOW for began in self._under_way.values()):
            task = loop.create_task(self._send_together())
            self._under_way[task] = now
            task.add_done_callback(self._sent)
        elif self._again is None:
            self._again = loop.call_later(SLOW, self._send_again)

    def _send_again(self) -> None:
        self._again = None
        self._send()

    def _sent(self, task: asyncio.Task[None]) -> None:
        del self._under_way[task]
        self._send()

    async def _send_together(self) -> None:
        await self._wait_for_company()
        together = self._take()
        self._company = len(together)
        until = asyncio.get_running_loop().time() + SEARCH
        answers = await isolated([one.asked for one in together], self._run, until)
        for one, answer in zip(together, answers, strict=True):
            if one.answer.cancelled():
                continue
            if isinstance(answer, Exception):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)

    async def _wait_for_company(self) -> None:
        """If several requests went together last time, wait for those that are just being read."""
        seen = 0
        while self._company > 1 and seen < len(self._waiting) < MOST:
            seen = len(self._waiting)
            for _ in range(TURNS):
                await asyncio.sleep(0)

    def _take(self) -> list[_Waiting[Asked, Answered]]:
        taken: list[_Waiting[Asked, Answered]] = []
        size = 0
        while self._waiting and len(taken) < MOST:
            size += self._waiting[0].size
            if taken and size > MOST_BYTES:
                break
            taken.append(self._waiting.popleft())
        return taken


async def isolated(
    asked: list[Asked], run: Run[Asked, Answered], until: float = inf
) -> list[Answered | Exception]:
    """Run all requests together. If one is refused, or blocked by a lock, nothing was done: the
    others are run again without it. Finding the blocked one takes long, and all of them may be
    blocked: after `until`, all remaining ones get the error.

    After any other error the outcome is unknown, so all requests get it and none is repeated.
    """
    try:
        return list(await run(asked)) if asked else []
    except Unavailable as error:
        return [error] * len(asked)
    except (HeadraceError, *HELD_UP) as error:
        if len(asked) == 1:
            return [_alone(error)]
        if isinstance(error, HELD_UP) and asyncio.get_running_loop().time() >= until:
            return [error] * len(asked)
        bad: int | None = getattr(error, "position", None)
        if bad is None:
            half = len(asked) // 2
            first = await isolated(asked[:half], run, until)
            return first + await isolated(asked[half:], run, until)
        others = await isolated(asked[:bad] + asked[bad + 1 :], run, until)
        return [*others[:bad], _alone(error), *others[bad:]]
    except Exception as error:
        return [error] * len(asked)


def _alone(error: Exception) -> Exception:
    """Without its position in the batch: the request does not know of the batch."""
    if hasattr(error, "position"):
        error.position = None
    return error


class Batches:
    """The batchers of a server, one for each kind of request that can share a statement."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._batchers: dict[Hashable, Batcher[Any, Any]] = {}

    async def publish(self, namespace: str, event: NewEvent, size: int) -> Event:
        """Publish one event. Events with an idempotency, unique or debounce key have batches of
        their own: they may have to wait for a publisher of the same key, and the others need
        not."""
        waits = bool(event.idempotency_key or event.unique or event.debounce)
        goes = self._directory.for_event(namespace, event)
        if goes is not None:
            number, part = goes
            key = ("publish", namespace, waits, number)
            batcher = self._batcher(key, lambda: self._publish(namespace, part))
            try:
                published: Event = await batcher.ask(event, size)
                return published
            except (WrongShard, NotStored) as error:  # its home is elsewhere, or others answer
                if not self._directory.over_shards:
                    raise
                if isinstance(error, NotStored):
                    self._directory.failed(number)
        charge_namespace(namespace)
        return await self._directory.publish(namespace, event)

    async def report(self, namespace: str, queue: str, reported: Reported) -> Verdict:
        """End one attempt."""
        part = self._directory.at(reported.result.claimed.id)
        key = ("report", namespace, queue, id(part))
        batcher = self._batcher(key, lambda: self._report(namespace, queue, part))
        verdict: Verdict = await batcher.ask(reported)
        return verdict

    def _batcher(self, key: Hashable, run: Callable[[], Run[Any, Any]]) -> Batcher[Any, Any]:
        known = self._batchers.get(key)
        if known is None:
            if len(self._batchers) >= BATCHERS:
                self._batchers = {k: g for k, g in self._batchers.items() if not g.is_idle}
            known = self._batchers[key] = Batcher(run())
        return known

    def _publish(self, namespace: str, part: Directory) -> Run[NewEvent, Event]:
        async def run(events: list[NewEvent]) -> list[Event]:
            if len(events) == 1:
                statement = publishing(namespace, events[0], details(events[0]))
            else:
                batch, *more = batches(events)
                if more:  # descriptions may be longer than payloads
                    raise HeadraceError("too much for one statement")  # `isolated` halves it
                statement = publish.publish(namespace, batch)
            charge_namespace(namespace)
            done = await part.ask(statement)
            return [_published(namespace, event, place, done) for place, event in enumerate(events)]

        return run

    def _report(self, namespace: str, queue: str, part: Directory) -> Run[Reported, Verdict]:
        async def run(reports: list[Reported]) -> list[Verdict]:
            charge_namespace(namespace)
            return await part.ask(finish.report(namespace, queue, reports), lane="finish")

        return run


def _published(namespace: str, event: NewEvent, place: int, done: Published) -> Event:
    """The event published at a place of the batch. Without a status, the caller has to read it from
    the database: either the event is an earlier one with the same idempotency key, or its time is
    unknown, because the time of the batch is that of its first event, which is an earlier one."""
    repeated = frozenset({0} if place in done.repeated else ())
    one = Published([done.ids[place]], done.created_at, repeated, done.pressure)
    stored = pending(namespace, event, details(event), one)
    return replace(stored, status=None) if 0 in done.repeated else stored

"""Several servers behind one client: opened, recognised, and asked as a route says."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import psycopg

from headrace.driver.borrow import Borrowed, Borrows
from headrace.driver.explain import NoConnection
from headrace.driver.servers import Opened, name_of
from headrace.engine import shard_moves, shard_pages, shards
from headrace.engine.arguments import seconds
from headrace.engine.database import Shard, shard
from headrace.engine.shard_routes import Ask, Plan, Reply, Route, Use, shard_of_id
from headrace.engine.shard_settings import settle
from headrace.engine.shards import Fleet
from headrace.engine.statement import ask as ask_one
from headrace.engine.verbs import Verbs, borrows
from headrace.errors import HeadraceError, NotStored, ShardMismatch, Unavailable
from headrace.model import Duration
from headrace.model.shards import Moved
from headrace.telemetry.redact import redacted

T = TypeVar("T")
Q = TypeVar("Q")

PATIENCE = 5.0  # seconds for which a call waits for a connection to one of several servers
NO_FILES = "queues are exported and imported shard by shard: call this on each client in `shards`"
LOOK_EVERY = 1.0  # seconds between looks for servers that do not answer

logger = logging.getLogger("headrace")


@dataclass
class Member(Generic[Q]):
    """A server that is known to be a shard."""

    name: str
    number: int
    queue: Q
    """A client of this shard alone."""


class Members(Generic[Q]):
    """The shards of a client, and which of them answer."""

    def __init__(self, dsns: Sequence[str]) -> None:
        self.dsns = dict(zip(_distinct(map(name_of, dsns)), dsns, strict=True))
        self.fleet = Fleet(list(self.dsns))
        self._known: dict[int, Member[Q]] = {}
        self.problems: dict[int, ShardMismatch] = {}
        """Shards of which the last connection found another database."""
        self.probes: set[asyncio.Task[None]] = set()
        self._looked_at = 0.0
        self._said: dict[str, str] = {}
        """What was last said of a server that does not fit: each sentence once."""

    @property
    def by_number(self) -> dict[int, Member[Q]]:
        return self._known

    @contextmanager
    def reaching(self) -> Iterator[Callable[[str], AbstractContextManager[None]]]:
        """Wraps an attempt to reach each server: raises if none can be reached, or if one does not
        fit the others."""
        failed: list[Exception] = []

        @contextmanager
        def attempt(name: str) -> Iterator[None]:
            try:
                yield
            except Exception as error:
                if not _is_down(error):
                    raise
                failed.append(error)
                logger.warning("the server %s does not answer: %s", name, redacted(str(error)))

        yield attempt
        if failed and not self.by_number:
            raise failed[0]

    @contextmanager
    def looking(self, name: str) -> Iterator[None]:
        """Wraps a later attempt to reach one server: failures are only logged."""
        try:
            yield
            logger.info("the server %s answers", name)
        except Exception as error:
            said = redacted(str(error))
            if not _is_down(error) and said != self._said.get(name):
                logger.error("the server %s: %s", name, said)
                self._said[name] = said

    def join(self, name: str, opened: Opened, queue: Q) -> None:
        number = opened.shard.number
        self.fleet.homes.learn(number, opened.slots)
        self._known[number] = Member(name, number, queue)
        self.fleet.join(name, opened.shard)

    def queue_of(self, number: int) -> Q:
        known = self.by_number.get(number)
        if known is None:
            raise NotStored(f"{self.fleet.name(number)} is not open yet: nothing was changed")
        return known.queue

    def failed(self, ask: Ask, error: Exception) -> Exception:
        """Note that a shard does not answer; returns the error for the caller."""
        if not isinstance(error, Unavailable):
            return error
        if ask.connection is None and ask.shard not in self.fleet.down:
            logger.warning("%s does not answer: %s", self.fleet.name(ask.shard), error)
            self.fleet.down.add(ask.shard)
        if ask.shard in self.problems:
            return self.problems[ask.shard]
        if isinstance(error, NoConnection):
            return NotStored(f"{self.fleet.name(ask.shard)}: {error}").with_traceback(
                error.__traceback__
            )
        return error

    def is_back(self, number: int) -> None:
        if number in self.fleet.down:
            self.fleet.down.discard(number)
            logger.info("%s answers again", self.fleet.name(number))

    def check(self, name: str, known: Shard, found: Shard) -> None:
        """Refuse a new connection that leads to another shard than before."""
        try:
            shards.check(name, known, found)
        except ShardMismatch as error:
            self.problems[known.number] = error
            raise
        self.problems.pop(known.number, None)
        self.is_back(known.number)

    def due(self) -> list[int]:
        """The shards that do not answer, if it is time to look at them again."""
        now = time.monotonic()
        if not self.fleet.down or now < self._looked_at + LOOK_EVERY:
            return []
        self._looked_at = now
        return [number for number in self.fleet.down if number in self.by_number]


class View(Members[Q]):
    """The shards of another client, for another queue of theirs, by connections of that client."""

    def __init__(self, whole: Members[Q], make: Callable[[Member[Q]], Q | None]) -> None:
        self.dsns, self.fleet = whole.dsns, whole.fleet
        self.problems, self.probes = whole.problems, whole.probes
        self._known = {}
        self._whole, self._make = whole, make

    @property
    def by_number(self) -> dict[int, Member[Q]]:
        for number, one in self._whole.by_number.items():
            if number not in self._known and (made := self._make(one)) is not None:
                self._known[number] = Member(one.name, number, made)
        return self._known

    def due(self) -> list[int]:
        return self._whole.due()


def _distinct(names: Iterator[str] | Any) -> Iterator[str]:
    """The names, the second of two equal ones with a number."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"


def _is_down(error: Exception) -> bool:
    """Whether an error means that a server cannot be reached, and may be later."""
    return isinstance(error, psycopg.OperationalError | Unavailable)


class Sharded:
    """The base of a client of several shards. `make` gives it a method for each verb in the list of
    driver/borrow.py."""

    _members: Members[Any]
    verbs: Verbs

    @property
    def shards(self) -> dict[int, Any]:
        """A client for each shard that answered once, by its number."""
        return {number: one.queue for number, one in sorted(self._members.by_number.items())}

    @property
    def fleet(self) -> Fleet:
        """The shards, the homes of keys, and who answers, as far as this client knows."""
        return self._members.fleet

    def checking(self, number: int) -> Callable[[Shard], None]:
        """Refuses another shard than this one, behind a new connection: raises ShardMismatch."""
        name, known = self._members.by_number[number].name, self._members.fleet.shards[number]
        return lambda found: self._members.check(name, known, found)

    @property
    def missing(self) -> tuple[str, ...]:
        """The servers that do not answer, as far as this client has noticed."""
        fleet = self._members.fleet
        return (*map(fleet.name, sorted(fleet.down)), *fleet.absent)

    @property
    def dsns(self) -> dict[str, str]:
        """The DSNs of the servers, by their names in messages."""
        return self._members.dsns

    @property
    def places(self) -> dict[int, str]:
        """The names of the servers that are known to be shards, by their numbers."""
        return {number: one.name for number, one in sorted(self._members.by_number.items())}

    def holder_of(self, id: int) -> int:
        """The shard of an event."""
        return shard_of_id(self._members.fleet, id)

    def plan(self, verb: Any, route: Route, given: Any, named: Any) -> Plan[Any]:
        """The steps of a verb over the shards."""
        return route(Use(self._members.fleet, self.verbs, verb, given, named))

    def states(self) -> Any:
        """The shards that were named, whether they answer, and how many slots of keys each has; a
        list of ShardState."""
        return self.follow(shard_moves.states(self._members.fleet))

    def log_now(self) -> Any:
        """A mark for `log_since`, to read what happens from now on."""
        return self.follow(shard_pages.log_now(self._members.fleet))

    def move_slots(
        self,
        slots: Collection[int],
        to: int,
        *,
        timeout: Duration | None = None,
        progress: Callable[[Moved], object] | None = None,
        actor: str | None = None,
    ) -> Any:
        """Move key slots to a shard; returns a list of Moved. The shard stores events with these
        keys at once, and delivers them when the previous home has no ready, held, retrying or delayed
        delivery of them left. `timeout`: seconds to wait for that; None: no limit. Call it again to
        continue a move that was interrupted or ran out of time."""
        until = None if timeout is None else seconds(timeout, "timeout")
        who = actor or self.verbs.worker
        return self.follow(shard_moves.move(self._members.fleet, slots, to, who, until, progress))

    def spread_slots(
        self,
        *,
        timeout: Duration | None = None,
        progress: Callable[[Moved], object] | None = None,
        actor: str | None = None,
    ) -> Any:
        """Spread the key slots evenly over the shards of this client: see `move_slots`."""
        until = None if timeout is None else seconds(timeout, "timeout")
        who = actor or self.verbs.worker
        return self.follow(shard_moves.spread(self._members.fleet, who, until, progress))

    def settle(self, *, actor: str | None = None) -> Any:
        """Bring all shards to the namespaces, queues and tokens of shard 0, and divide the bounds of
        limits among them; returns what was done, as sentences. For a shard that was added, and after
        a change that reached only some."""
        return self.follow(settle(self._members.fleet, actor or self.verbs.worker))

    def follow(self, plan: Plan[T]) -> Any:
        raise NotImplementedError

    def run(self, *given: Any, **named: Any) -> Any:
        raise HeadraceError(
            "a single call runs on one shard: use a client of the `shards` of this one"
        )

    take_turns = snapshot = run


def borrow_all(cls: type, *, is_async: bool) -> None:
    """Give a class of several shards a method for every verb."""
    make = _awaited if is_async else _plain
    for name, one in vars(Borrows).items():
        if isinstance(one, Borrowed):
            method = borrows(one.verb)(make(one.verb, one.route))
            method.__module__, method.__qualname__ = cls.__module__, f"{cls.__qualname__}.{name}"
            setattr(cls, name, method)


def _plain(verb: Any, route: Any) -> Callable[..., Any]:
    def call(self: Any, /, *given: Any, **named: Any) -> Any:
        return self.follow(self.plan(verb, route, given, named))

    return call


def _awaited(verb: Any, route: Any) -> Callable[..., Any]:
    async def call(self: Any, /, *given: Any, **named: Any) -> Any:
        return await self.follow(self.plan(verb, route, given, named))

    return call


class PlainShards(Sharded):
    """Over plain clients: one shard is asked after the other."""

    def follow(self, plan: Plan[T]) -> T:
        """Run a plan to its end."""
        self._look()
        try:
            step = next(plan)
            while True:
                if isinstance(step, float):
                    time.sleep(step)
                    step = plan.send([])
                else:
                    step = plan.send([self._ask(ask) for ask in step])
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def _ask(self, ask: Ask) -> Reply:
        members = self._members
        try:
            queue = members.queue_of(ask.shard)
            call = ask.call(queue.verbs)
            value = queue.take_turns(call) if ask.waits else queue.run(call, ask.connection)
        except Exception as error:
            return Reply(ask.shard, None, members.failed(ask, error))
        if ask.connection is None:
            members.is_back(ask.shard)
        return Reply(ask.shard, value)

    def _look(self) -> None:
        for number in self._members.due():
            threading.Thread(target=self._probe, args=[number], daemon=True).start()

    def _probe(self, number: int) -> None:
        with suppress(Exception):  # that it does not answer is known
            self._members.by_number[number].queue.run(ask_one(shard()))
            self._members.is_back(number)


class AsyncShards(Sharded):
    """Over async clients: several shards are asked at once."""

    def follow(self, plan: Plan[T]) -> Any:
        """Run a plan to its end."""
        return self._follow(plan)

    async def _follow(self, plan: Plan[T]) -> T:
        self._look()
        try:
            step = next(plan)
            while True:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                    step = plan.send([])
                elif len(step) == 1:
                    step = plan.send([await self._ask(step[0])])
                else:
                    step = plan.send(await asyncio.gather(*map(self._ask, step)))
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    async def _ask(self, ask: Ask) -> Reply:
        members = self._members
        try:
            queue = members.queue_of(ask.shard)
            call = ask.call(queue.verbs)
            running = queue.take_turns(call) if ask.waits else queue.run(call, ask.connection)
            value = await running
        except Exception as error:
            return Reply(ask.shard, None, members.failed(ask, error))
        if ask.connection is None:
            members.is_back(ask.shard)
        return Reply(ask.shard, value)

    def _look(self) -> None:
        for number in self._members.due():
            task = asyncio.create_task(self._probe(number))
            self._members.probes.add(task)
            task.add_done_callback(self._members.probes.discard)

    async def _probe(self, number: int) -> None:
        with suppress(Exception):  # that it does not answer is known
            await self._members.by_number[number].queue.run(ask_one(shard()))
            self._members.is_back(number)

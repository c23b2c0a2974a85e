"""A node: functions that handle events, and the process that runs them."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headrace import forking
from headrace.arguments import seconds, time_limit
from headrace.async_client import AsyncEventQueue
from headrace.encoding import encode
from headrace.errors import InvalidInput, NotRunning
from headrace.model import Backoff, Dispatch, Duration, Event, Missed, NewEvent, ScheduledTask
from headrace.node.asking import is_async
from headrace.node.context import AsyncContext, running
from headrace.node.handlers import Handlers, Rules, made
from headrace.node.health import HealthPort
from headrace.node.overseer import CUT_OFF, SIGNALS, Overseer
from headrace.node.runners import OnError
from headrace.node.service import DEFAULT_LEASE, Service, Settings
from headrace.node.vitals import Vitals, resting
from headrace.schedules import Schedule
from headrace.sessions import BOUND

Function = TypeVar("Function", bound=Callable[..., Any])

SHORTEST_LEASE, LONGEST_LEASE = 0.1, 7 * 86400.0  # seconds, as the engine has it


class Node:
    """Handles the events of a queue with the functions that are registered with it.

    node_id: a name for people, which stays the same from start to start; one is made up if none is given. What is not a letter or
    digit of ASCII, dot, colon, underscore or hyphen in it becomes a hyphen.
    dsn, data, migrate, prepare: as for `connect`. concurrency: how many handlers run at once, at most.
    connections: how many of those that ask for a connection. lease: for how long an event is its worker's after
    the worker has died (the queue's lease, else 60 seconds); while it lives that is renewed. idle: seconds between two polls when there is nothing to do
    (the queue's processing_interval); a new event wakes the node anyway. grace: seconds that handlers get to end
    when the node stops. on_error: called with every exception of a handler and its event. timeout: seconds that each
    call of the node to PostgreSQL may take, the COMMIT of a handler's transaction too; what a handler asks of its
    connection may take as long as the handler.
    """

    def __init__(
        self,
        node_id: str | None = None,
        *,
        dsn: str | None = None,
        data: str | Path | None = None,
        migrate: bool | None = None,
        prepare: bool = True,
        namespace: str = "default",
        queue: str = "main",
        concurrency: int = 50,
        connections: int = 10,
        lease: Duration | None = None,
        idle: Duration | None = None,
        grace: Duration = 30,
        dispatch: Dispatch = "atomic",
        display_name: str | None = None,
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_error: OnError | None = None,
        timeout: Duration = BOUND,
    ) -> None:
        if dispatch not in ("atomic", "collect"):
            raise InvalidInput(f"dispatch is 'atomic' or 'collect', not {dispatch!r}")
        if on_error is not None and (not callable(on_error) or is_async(on_error)):
            raise InvalidInput("on_error is a plain function of an exception and an event")
        self.settings = Settings(
            node_id=plain_id(node_id or _made_up_id()),
            namespace=namespace,
            queue=queue,
            dsn=dsn,
            data=data,
            migrate=migrate,
            prepare=prepare,
            concurrency=_at_least_one(concurrency, "concurrency"),
            connections=_at_least_one(connections, "connections"),
            lease=None if lease is None else timedelta(seconds=_lease(lease)),
            idle=None if idle is None else _longer_than_nothing(idle, "idle"),
            on_error=on_error,
            dispatch=dispatch,
            display_name=display_name,
            description=description,
            metadata=_json_object(metadata or {}),
            timeout=time_limit(timeout),
        )
        self.grace = seconds(grace, "grace")
        self._handlers = Handlers(share_transaction=dispatch == "atomic")
        self._schedules: list[dict[str, Any]] = []
        self._service: Service | None = None
        self._is_starting = False
        self._is_forked = False
        self._given_id = node_id
        forking.register(self)

    def after_fork(self) -> None:
        """It runs in the parent and not here: its loop, its threads and what it holds are there. It may be started here."""
        self._is_forked = self._service is not None
        self._service = None
        self._is_starting = False
        if self._given_id is None:
            self.settings = replace(self.settings, node_id=plain_id(_made_up_id()))

    def on_event(
        self,
        *types: str,
        tags: Sequence[str] | None = None,
        all_tags: bool = False,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
        rules: Rules | None = None,
        timeout: Duration | None = None,
        concurrency: int | None = None,
    ) -> Callable[[Function], Function]:
        """Have a function handle the events of some types, which may hold asterisks. It takes the `event`, and, by
        these names, a `connection` (then it runs in a transaction, in which its event is completed) and the
        `context`. What it raises makes the event come back by `max_retries` and `backoff`, unless a rule of
        `rules` says otherwise for that exception. May be used while the node runs."""

        return lambda function: self._add(
            function,
            types,
            tags=tags,
            all_tags=all_tags,
            max_retries=max_retries,
            backoff=backoff,
            rules=rules,
            timeout=timeout,
            concurrency=concurrency,
        )

    def on_batch(
        self,
        *types: str,
        size: int = 100,
        tags: Sequence[str] | None = None,
        all_tags: bool = False,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
        rules: Rules | None = None,
        timeout: Duration | None = None,
        concurrency: int | None = None,
    ) -> Callable[[Function], Function]:
        """Have a function handle up to `size` events at once: it gets a list. They end alike, or, if it returns a
        list of outcomes, each in its own way."""

        return lambda function: self._add(
            function,
            types,
            tags=tags,
            all_tags=all_tags,
            max_retries=max_retries,
            backoff=backoff,
            rules=rules,
            timeout=timeout,
            concurrency=concurrency,
            batch=_at_least_one(size, "size"),
        )

    def every(
        self,
        cron: str,
        *,
        name: str | None = None,
        timezone: str = "UTC",
        missed: Missed = "coalesce",
        payload: Any = None,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
        rules: Rules | None = None,
        timeout: Duration | None = None,
    ) -> Callable[[Function], Function]:
        """Have a function run by the clock: a schedule of its name publishes an event of the type
        `schedule.<name>`, once at every instant of the cron expression however many nodes run, and the function
        handles it. Needs the extra `schedules`."""

        Schedule(cron, timezone)  # what is none is refused here

        def register(function: Function) -> Function:
            called = name or getattr(function, "__name__", type(function).__name__)
            event_type = f"schedule.{called}"
            self._add(
                function,
                (event_type,),
                max_retries=max_retries,
                backoff=backoff,
                rules=rules,
                timeout=timeout,
            )
            schedule = {
                "name": called,
                "cron": cron,
                "event_type": event_type,
                "payload": payload,
                "timezone": timezone,
                "missed": missed,
            }
            self._schedules.append(schedule)
            if self._service is not None:
                self._service._call_soon(self._service.schedule_soon, schedule)
            return function

        return register

    def _add(self, function: Function, types: Sequence[str], **options: Any) -> Function:
        self._handlers.add(made(function, types, **options))
        if self._service is not None:
            self._service._call_soon(self._service.registered)
        return function

    @property
    def queue(self) -> AsyncEventQueue:
        """The client of a running node, for everything that is not said with the node itself."""
        return self._running().queue

    async def emit(
        self, type: str | NewEvent = "event", payload: Any = None, **fields: Any
    ) -> Event:
        """Publish an event, with the arguments of `publish`. Within a handler it is known to be caused by the
        event that is handled, and joins the transaction of a handler that asked for its connection."""
        context = running()
        if context is not None and not isinstance(context, AsyncContext):
            raise InvalidInput("a plain function emits by its context: context.emit(…)")
        if context is not None:
            return await context.emit(type, payload, **fields)
        if not isinstance(type, NewEvent):
            fields.setdefault("producer", self.settings.node_id)
        elif type.producer is None:
            type = msgspec.structs.replace(type, producer=self.settings.node_id)
        return await self.queue.publish(type, payload, **fields)

    async def schedule_task(
        self, name: str, cron: str, event_type: str = "event", payload: Any = None, **options: Any
    ) -> ScheduledTask:
        """Publish an event by the clock; as `AsyncEventQueue.schedule_task`."""
        return await self.queue.schedule_task(name, cron, event_type, payload, **options)

    async def start(self) -> None:
        """Connect, register, and handle events from now on, in this event loop."""
        if self._service is not None or self._is_starting:
            raise InvalidInput(f"the node {self.settings.node_id} is running")
        self._is_starting = True
        try:
            self._service = await Service.open(self.settings, self._handlers, self.grace)
        finally:
            self._is_starting = False
        try:
            for schedule in list(self._schedules):
                await self._service.queue.schedule_task(**schedule)
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, grace: Duration | None = None) -> None:
        """Claim no more, hand back what has not begun, wait for running handlers for the grace time, then
        interrupt them and hand their events back too."""
        service = self._service
        if service is None:
            return
        if service.runners.is_handling(asyncio.current_task()):
            raise InvalidInput(
                "a handler cannot wait for its own end: it may create a task that stops its node"
            )
        try:
            await service.stop(self.grace if grace is None else seconds(grace, "grace"))
        finally:
            if self._service is service:
                self._service = None

    def vitals(self) -> Vitals:
        """How the node is, and what it has done since its start. To be asked in its event loop."""
        if self._service is None:
            settings = self.settings
            return resting(settings.node_id, settings.namespace, settings.queue)
        return self._service.vitals()

    async def _prove(self) -> str | None:
        """What is wrong with PostgreSQL; None: it has just committed something."""
        trouble = await self._service.readiness.trouble() if self._service else None
        return None if trouble is None else trouble.sentence

    def run(self, *, health: str | None = None) -> None:
        """Start, and go on until SIGTERM or Ctrl-C; a second one stops at once. `health` is a HOST:PORT on which
        /healthz, /readyz and /metrics are answered meanwhile.

        The process ends when it is told to, whatever its handlers do: what does not end after the grace time is cut off, and
        if it cannot be left behind, so is the process, with all that comes after this call. With SystemExit(4) the node has
        stopped by itself, because too many handlers did not end after their timeouts: start the process again."""
        with (
            Overseer(lambda: self.grace, self._limit, lambda: self._service) as overseer,
            asyncio.Runner(loop_factory=_loop_factory()) as runner,
        ):
            is_exhausted = runner.run(self._run_until(overseer.attend, health))
            overseer.leave(CUT_OFF if is_exhausted else 0)
        if is_exhausted:
            raise SystemExit(CUT_OFF)

    def _limit(self) -> float:
        """Seconds after which a handler that keeps all else from running can finish nothing: its timeout has passed, or its
        lease has run out, since nobody renews it."""
        known = self._service or self.settings
        lease = (known.lease or DEFAULT_LEASE).total_seconds()
        timeouts = [one.timeout or lease for one in list(self._handlers)]
        return min(lease, max(timeouts, default=lease))

    async def run_until_signalled(self, *, health: str | None = None) -> None:
        """What `run` does, in an event loop that is there already, and in a process that is not the node's to end."""
        loop, counts = asyncio.get_running_loop(), itertools.count(1)

        def attend(told: Callable[[int], None]) -> None:
            for number in SIGNALS:
                loop.add_signal_handler(number, lambda: told(next(counts)))

        try:
            await self._run_until(attend, health)
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    async def _run_until(
        self, attend: Callable[[Callable[[int], None]], None], health: str | None
    ) -> bool:
        """Run until signals come, or until only another process helps, which True says."""
        stop = asyncio.Event()

        def told(count: int) -> None:
            if count > 1 and self._service is not None:
                self._service.hurry()
            stop.set()

        attend(told)
        async with AsyncExitStack() as opened:
            if health is not None:
                await opened.enter_async_context(HealthPort(health, self.vitals, prove=self._prove))
            service = (await opened.enter_async_context(self))._running()
            waiting = [asyncio.ensure_future(one.wait()) for one in (stop, service.exhausted)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for one in waiting:
                one.cancel()
            return not stop.is_set()

    async def __aenter__(self) -> Node:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    def _running(self) -> Service:
        if self._service is None and self._is_forked:
            raise NotRunning(
                f"the node {self.settings.node_id} runs in the process that this one was forked from: use connect() "
                "here, or start() a node of this process"
            )
        if self._service is None:
            raise NotRunning(f"the node {self.settings.node_id} is not running: start() it first")
        return self._service


def plain_id(node_id: str) -> str:
    """The id as the registry has it, and as the events say that the node emits: as headrace.node_name makes it plain."""
    if not isinstance(node_id, str):
        raise InvalidInput(f"the id of a node is a string, not {node_id!r:.100}")
    plain = re.sub(r"[^A-Za-z0-9._:]+", "-", node_id).strip("-")[:100].strip("-")
    if not re.search("[A-Za-z0-9]", plain):
        raise InvalidInput(
            f"a node needs an id with a letter or a digit in it (a-z, A-Z, 0-9), unlike {node_id!r:.100}"
        )
    return plain


def _made_up_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


def _longer_than_nothing(duration: Duration, what: str) -> float:
    length = seconds(duration, what)
    if not length > 0:
        raise InvalidInput(f"{what} is longer than nothing")
    return length


def _lease(duration: Duration) -> float:
    length = seconds(duration, "lease")
    if not SHORTEST_LEASE <= length <= LONGEST_LEASE:
        raise InvalidInput("a lease lasts from 0.1 seconds to 7 days")
    return length


def _json_object(metadata: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(metadata, Mapping):
        raise InvalidInput("metadata is an object of JSON")
    encode(dict(metadata), "metadata")
    return dict(metadata)


def _at_least_one(number: int, what: str) -> int:
    if type(number) is not int or number < 1:
        raise InvalidInput(f"{what} is a whole number above 0, not {number!r}")
    return number


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    with suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None

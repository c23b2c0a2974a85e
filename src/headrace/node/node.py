"""A node: functions that handle events, and the process that runs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from headrace.async_client import AsyncEventQueue
from headrace.driver.session_state import BOUND
from headrace.engine import fork
from headrace.engine.arguments import seconds, time_limit
from headrace.errors import InvalidInput, NotRunning
from headrace.model import Dispatch, Duration, Event, NewEvent, ScheduledTask
from headrace.model.codec import Codec, Codecs
from headrace.node.handler.context import AsyncContext
from headrace.node.health.port import HealthPort
from headrace.node.health.vitals import Vitals, resting
from headrace.node.overseer import CUT_OFF, Overseer
from headrace.node.registrations import Registrations
from headrace.node.run.runs import OnError
from headrace.node.service import Service
from headrace.node.settings import (
    DEFAULT_LEASE,
    Settings,
    above_zero,
    at_least_one,
    json_object,
    known_dispatch,
    lease_length,
    made_up_id,
    plain_id,
    plain_on_error,
)
from headrace.node.shards import Services
from headrace.node.start import start
from headrace.telemetry.current import running


class Node(Registrations):
    """Handles the events of a queue with the functions that are registered with it.

    node_id: a name for people, which stays the same from start to start; one is made up if none is
    given. Characters other than letters and digits of ASCII, dot, colon, underscore and hyphen
    become a hyphen.
    dsn, data, migrate, prepare: as for `connect`. Over several shards the node handles the events
    of those that answer, and `concurrency`, `connections` and the handlers' own limits hold for all
    of them together.
    concurrency: the number of handlers that run at once, at most.
    connections: the number of those that ask for a connection.
    lease: how long an event stays with its worker after the worker has died (the queue's lease,
    else 60 seconds). A live node renews it.
    idle: seconds between two polls when there is nothing to do (the queue's processing_interval). A
    new event wakes the node anyway.
    grace: seconds that handlers get to end when the node stops.
    on_error: called with every exception of a handler and its event.
    timeout: seconds that each call of the node to PostgreSQL may take, the COMMIT of a handler's
    transaction too. A handler's own statements may take as long as the handler.
    codec: encodes what the node publishes, and decodes what its handlers get.
    """

    def __init__(
        self,
        node_id: str | None = None,
        *,
        dsn: str | Sequence[str] | None = None,
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
        codec: Codec | Sequence[Codec] | None = None,
    ) -> None:
        self.settings = Settings(
            node_id=plain_id(node_id or made_up_id()),
            namespace=namespace,
            queue=queue,
            dsn=dsn,
            data=data,
            migrate=migrate,
            prepare=prepare,
            concurrency=at_least_one(concurrency, "concurrency"),
            connections=at_least_one(connections, "connections"),
            lease=None if lease is None else lease_length(lease),
            idle=None if idle is None else above_zero(idle, "idle"),
            on_error=plain_on_error(on_error),
            dispatch=known_dispatch(dispatch),
            display_name=display_name,
            description=description,
            metadata=json_object(metadata or {}),
            timeout=time_limit(timeout),
            codec=codec,
        )
        self.grace = seconds(grace, "grace")
        super().__init__(share_transaction=dispatch == "atomic", codecs=Codecs(codec))
        self._service: Service | Services | None = None
        self._is_starting = False
        self._is_forked = False
        self._given_id = node_id
        fork.register(self)

    def after_fork(self) -> None:
        """The node runs in the parent process and not here: its event loop, its threads and its
        leases are there. It may be started here."""
        self._is_forked = self._service is not None
        self._service = None
        self._lifespan.forget()
        self._is_starting = False
        if self._given_id is None:
            self.settings = replace(self.settings, node_id=plain_id(made_up_id()))

    @property
    def queue(self) -> AsyncEventQueue:
        """The client of a running node, for every call that the node itself does not have."""
        if self._service is None and self._lifespan.queue is not None:
            return self._lifespan.queue  # for the functions of on_start
        return self._running().queue

    async def emit(
        self, type: str | NewEvent = "event", payload: Any = None, **fields: Any
    ) -> Event:
        """Publish an event, with the arguments of `publish`. Within a handler, the handled event is
        recorded as its cause, and it joins the transaction of a handler that asked for its
        connection."""
        context = running()
        if context is not None and not isinstance(context, AsyncContext):
            raise InvalidInput("a plain handler must emit through its context: context.emit(…)")
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
        if self._is_running:
            raise InvalidInput(f"the node {self.settings.node_id} is already running")
        self._is_starting = True
        try:
            self._service = await start(self.settings, self._handlers, self._lifespan, self.grace)
        finally:
            self._is_starting = False
        try:
            for schedule in list(self._schedules):
                if isinstance(self._service, Services):  # some of them may not answer
                    self._service.schedule_soon(schedule)
                else:
                    await self._service.queue.schedule_task(**schedule)
        except BaseException:
            await self.stop(0)
            raise

    async def stop(self, grace: Duration | None = None) -> None:
        """Claim no more, hand back events that have not begun, wait for running handlers for the
        grace time, then interrupt them and hand their events back too."""
        service = self._service
        if service is None:
            return
        if service.is_handling(asyncio.current_task()):
            raise InvalidInput(
                "a handler cannot wait for its own end: create a task that stops its node"
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

    async def _prove(self) -> tuple[str | None, dict[str, str]]:
        """The problem with PostgreSQL, None: it has just committed a transaction; and those with
        some of several shards."""
        return await self._service.prove() if self._service else (None, {})

    def run(self, *, health: str | None = None) -> None:
        """Start, and go on until SIGTERM or Ctrl-C; a second signal stops at once. `health` is a
        HOST:PORT that serves /healthz, /readyz and /metrics meanwhile.

        The process ends on its signal, whatever its handlers do. Handlers that have not ended after
        the grace time are cut off. If a handler cannot be left behind the process ends at once, and
        nothing after this call runs. SystemExit(4) says that the node has stopped by itself,
        because too many handlers did not end after their timeouts: start the process again.
        """
        with (
            Overseer(lambda: self.grace, self._limit, lambda: self._service) as overseer,
            asyncio.Runner(loop_factory=_loop_factory()) as runner,
        ):
            is_exhausted = runner.run(self._run_until(overseer.attend, health))
            overseer.leave(CUT_OFF if is_exhausted else 0)
        if is_exhausted:
            raise SystemExit(CUT_OFF)

    def _limit(self) -> float:
        """Seconds after which a handler that keeps all other code from running cannot finish any
        more: its timeout has passed, or its lease has expired without a renewal."""
        known = self._service or self.settings
        lease = (known.lease or DEFAULT_LEASE).total_seconds()
        timeouts = [one.timeout or lease for one in list(self._handlers)]
        return min(lease, max(timeouts, default=lease))

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

    @property
    def _is_running(self) -> bool:
        return self._service is not None or self._is_starting

    def _registered(self) -> None:
        if self._service is not None:
            self._service.call_soon(self._service.registered)

    def _scheduled(self, schedule: dict[str, Any]) -> None:
        if self._service is not None:
            self._service.call_soon(self._service.schedule_soon, schedule)

    def _running(self) -> Service | Services:
        if self._service is None and self._is_forked:
            raise NotRunning(
                f"the node {self.settings.node_id} runs in the process that this one was "
                "forked from: use connect() here, or start() a node in this process"
            )
        if self._service is None:
            raise NotRunning(f"the node {self.settings.node_id} is not running: start() it first")
        return self._service


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    with suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop
    return None


def service_of(node: Node) -> Service:
    """The running service of a node on one database: for the other rooms. Raises NotRunning."""
    service = node._running()
    assert isinstance(service, Service)
    return service

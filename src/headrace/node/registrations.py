"""The decorators of a node: by them it learns its handlers, and what is around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from headrace.engine.cron import Schedule
from headrace.errors import InvalidInput
from headrace.model import Backoff, Duration, Missed
from headrace.model.codec import Codecs
from headrace.node.handler.handler import Rules, made
from headrace.node.handler.layer import LayerFunction, Per, layer
from headrace.node.handler.registry import Handlers
from headrace.node.lifespan import Lifespan
from headrace.node.settings import at_least_one

Function = TypeVar("Function", bound=Callable[..., Any])
Around = TypeVar("Around", bound=LayerFunction)


class Registrations:
    """The part of a node that registers functions. May be used from any thread."""

    def __init__(self, *, share_transaction: bool, codecs: Codecs) -> None:
        self._codecs = codecs
        self._handlers = Handlers(share_transaction=share_transaction)
        self._lifespan = Lifespan(self._handlers)
        self._schedules: list[dict[str, Any]] = []

    @property
    def _is_running(self) -> bool:
        raise NotImplementedError

    def _registered(self) -> None:
        """There are other handlers than before."""
        raise NotImplementedError

    def _scheduled(self, schedule: dict[str, Any]) -> None:
        """There is one more schedule."""
        raise NotImplementedError

    def on_event(
        self,
        *types: str,
        tags: Sequence[str] | None = None,
        all_tags: bool = False,
        max_retries: int | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        rules: Rules | None = None,
        timeout: Duration | None = None,
        concurrency: int | None = None,
    ) -> Callable[[Function], Function]:
        """Have a function handle the events of some types, which may hold asterisks. The function
        takes the `event` and, by these names, a `connection` (then it runs in a transaction, which
        also completes its event), the `context` and resources. If it raises, the event is retried
        by `max_retries`, which is also called `max_attempts`, and `backoff`, unless a rule of
        `rules` says otherwise for that exception. May be used while the node runs."""

        return lambda function: self._add(
            function,
            types,
            tags=tags,
            all_tags=all_tags,
            max_retries=max_retries,
            max_attempts=max_attempts,
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
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        rules: Rules | None = None,
        timeout: Duration | None = None,
        concurrency: int | None = None,
    ) -> Callable[[Function], Function]:
        """Have a function handle up to `size` events at once: it gets a list. They end alike, or,
        if the function returns a list of outcomes, each in its own way."""

        return lambda function: self._add(
            function,
            types,
            tags=tags,
            all_tags=all_tags,
            max_retries=max_retries,
            max_attempts=max_attempts,
            backoff=backoff,
            rules=rules,
            timeout=timeout,
            concurrency=concurrency,
            batch=at_least_one(size, "size"),
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
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        rules: Rules | None = None,
        timeout: Duration | None = None,
    ) -> Callable[[Function], Function]:
        """Have a function run by the clock: a schedule of its name publishes an event of the type
        `schedule.<name>`, once at every instant of the cron expression however many nodes run, and
        the function handles the event. Needs the extra `schedules`."""

        Schedule(cron, timezone)  # a wrong one is refused here

        def register(function: Function) -> Function:
            called = name or getattr(function, "__name__", type(function).__name__)
            event_type = f"schedule.{called}"
            self._add(
                function,
                (event_type,),
                max_retries=max_retries,
                max_attempts=max_attempts,
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
            self._scheduled(schedule)
            return function

        return register

    def around(self, function: Around) -> Around:
        """Have a generator run around every handler of the node: it yields once, and is sent what
        the handler returned; an exception of the handler is raised there. It may ask for the
        `event` (or, where handlers take batches, for `events`, a list), the `handler`'s name, the
        `connection`, the `context` and resources. The first one registered is the outermost. If it
        raises, the attempt fails; if it swallows an exception, the attempt fails nevertheless."""
        self._surround(function)
        return function

    @overload
    def resource(self, function: Around, /) -> Around: ...

    @overload
    def resource(
        self, /, *, name: str | None = None, per: Per = "attempt"
    ) -> Callable[[Around], Around]: ...

    def resource(
        self, function: Any = None, /, *, name: str | None = None, per: Per = "attempt"
    ) -> Any:
        """Have a generator make what handlers, and other resources, ask for by its name: the value
        that it yields. It may ask for what `around` may. It is opened for each attempt of a handler
        that asks for it, and once however often it is asked for; `per="process"`: when the node
        starts. It must be registered before the functions that ask for it."""

        def register(function: Around) -> Around:
            self._surround(function, is_resource=True, name=name, per=per)
            return function

        return register if function is None else register(function)

    def on_start(self, function: Function) -> Function:
        """Have a function run when the node starts, before it claims. If it raises, the start
        fails. It may ask for resources per process."""
        self._lifespan.add(function, at_start=True)
        return function

    def on_stop(self, function: Function) -> Function:
        """Have a function run when the node stops, after its handlers have ended and within the
        grace time; the last one registered is the first. It may ask for resources per process."""
        self._lifespan.add(function, at_start=False)
        return function

    def _surround(self, function: Any, per: Per = "attempt", **options: Any) -> None:
        known = self._handlers.surroundings
        made = layer(function, known.resources, per=per, per_process=known.per_process, **options)
        if made.is_per_process and self._is_running:
            raise InvalidInput(f"{made.title} is per process: register it before the node starts")
        self._handlers.surround(made)
        self._registered()

    def _add(self, function: Function, types: Sequence[str], **options: Any) -> Function:
        resources = self._handlers.surroundings.resources
        codecs = self._codecs
        self._handlers.add(made(function, types, resources=resources, codecs=codecs, **options))
        self._registered()
        return function


def handlers_of(node: Registrations) -> Handlers:
    """The handlers of a node: for the other rooms, while users see a Node."""
    return node._handlers

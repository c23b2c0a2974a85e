"""What is around the handlers of a node, and how a handler is called within it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from headrace.errors import InvalidInput
from headrace.node.handler.handler import Handler, Payloads
from headrace.node.handler.layer import End, Layer
from headrace.node.handler.opener import Opener
from headrace.node.handler.signature import Call, CallWithResources, caller_with_resources
from headrace.telemetry.current import current
from headrace.telemetry.tracing import handled

IN = "In "  # how the note on an error begins that says where it was raised


@dataclass(frozen=True, eq=False)
class Surroundings:
    """The layers of a node, in the order of their registration."""

    layers: tuple[Layer, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    """The resources per process, while the node runs."""

    def plus(self, layer: Layer) -> Surroundings:
        return replace(self, layers=(*self.layers, layer))

    @property
    def resources(self) -> dict[str, Layer]:
        return {one.resource: one for one in self.layers if one.resource is not None}

    @property
    def per_process(self) -> dict[str, Layer]:
        return {name: one for name, one in self.resources.items() if one.is_per_process}

    def within(self, handler: Handler) -> Handler:
        """The handler as it is called: within all that is around it, and with the resources that it
        asks for. The handler itself if that is nothing."""
        layers = self._layers_of(handler)
        if not layers and not handler.asked.resources():
            return handler
        for layer in layers:
            _check(layer, handler)
        names = {name for layer in layers for name in layer.asked.names}
        among = Among(
            handler.name,
            layers,
            self.values,
            caller_with_resources(handler.function, handler.asked, batch=handler.batch > 0),
            None if handler.batch else handler.opener,
            handler.is_async,
        )
        return replace(
            handler,
            call=handled(among.call, handler.name, is_async=handler.is_async),
            wants_connection=handler.wants_connection or "connection" in names,
            wants_context=handler.wants_context or "context" in names,
        )

    def _layers_of(self, handler: Handler) -> tuple[Layer, ...]:
        """What is around all handlers, then the resources of this one, each after those that it
        asks for itself."""
        found: dict[Layer, None] = {}
        resources = self.resources

        def need(names: tuple[str, ...]) -> None:
            for name in names:
                one = resources.get(name)
                if one is not None and not one.is_per_process and one not in found:
                    need(one.asked.names)
                    found[one] = None

        for one in self.layers:
            if one.resource is None:
                need(one.asked.names)
                found[one] = None
        need(handler.asked.names)
        return tuple(found)


def _check(layer: Layer, handler: Handler) -> None:
    """Refuse what cannot be around this handler."""
    names = layer.asked.names
    if handler.batch and "event" in names:
        raise InvalidInput(
            f"{layer.title}, asks for event, and {handler.name} takes batches: ask for events, a "
            "list, which has one event for other handlers"
        )
    if handler.batch and "context" in names:
        raise InvalidInput(
            f"{layer.title}, asks for context, and {handler.name} takes batches, which have none"
        )
    if layer.is_async and not handler.is_async:
        for name in ("connection", "context"):
            if name in names:
                raise InvalidInput(
                    f"{layer.title}, is async and asks for {name}, and {handler.name} is a plain "
                    f"function, whose {name} is a plain one: make them alike"
                )


class Step(NamedTuple):
    """A part of the way through the layers; `work` returns an awaitable if it is async."""

    is_async: bool
    work: Callable[[], Any]


@dataclass(frozen=True, eq=False, slots=True)
class Among:
    """A handler among its layers."""

    name: str
    layers: tuple[Layer, ...]
    per_process: Mapping[str, Any]
    function: CallWithResources
    opener: Opener | None
    """None: the events of a batch are decoded by now."""
    is_async: bool

    @property
    def call(self) -> Call:
        return self._call_async if self.is_async else self._call_plain

    async def _call_async(self, event: Any, connection: Any, context: Any) -> Any:
        """In the event loop, plain layers too: so they share the variables of the handler."""
        way = Way(self, event, connection, context)
        for step in way.steps():
            try:
                done = step.work()
                way.end = End(await done if step.is_async else done)
            except BaseException as error:
                way.end = End(error=error)
        return way.arrive()

    def _call_plain(self, event: Any, connection: Any, context: Any) -> Any:
        """In a thread, but for async layers: one task of the event loop runs those."""
        way = Way(self, event, connection, context)
        with ExitStack() as opened:
            loop_task = None
            for step in way.steps():
                try:
                    if not step.is_async:
                        way.end = End(step.work())
                        continue
                    if loop_task is None:
                        runner: Any = current.get()  # in a thread this is always an Execution
                        loop_task = opened.enter_context(runner.loop_task())
                    way.end = End(loop_task.wait(step.work))
                except BaseException as error:
                    way.end = End(error=error)
        return way.arrive()


class Way:
    """From the outermost layer to the handler, and back. Its caller takes the steps one by one, and
    says in `end` how each has ended."""

    def __init__(self, among: Among, event: Any, connection: Any, context: Any) -> None:
        self._among = among
        event = event if among.opener is None else among.opener(event)
        self._event = event
        self._values = {
            **among.per_process,
            "event": event,
            "events": _claims(event),
            "handler": among.name,
            "connection": connection,
            "context": context,
        }
        self.end = End()

    def steps(self) -> Iterator[Step]:
        visited = []
        for layer in self._among.layers:
            try:
                visit = layer.visit(self._values)
            except BaseException as error:
                self._blame(error, layer)
                break
            yield Step(layer.is_async, visit.enter)
            if self.end.error is not None:
                self._blame(self.end.error, layer)
                break
            visited.append((layer, visit))
            if layer.resource is not None:
                self._values[layer.resource] = self.end.value
        else:
            yield Step(self._among.is_async, self._call)
        for layer, visit in reversed(visited):
            before = self.end
            yield Step(layer.is_async, partial(visit.leave, before))
            if self.end.error is None:
                self.end = before
            else:
                self._blame(self.end.error, layer)

    def _call(self) -> Any:
        values = self._values
        return self._among.function(self._event, values["connection"], values["context"], values)

    def _blame(self, error: BaseException, layer: Layer) -> None:
        self.end = End(error=error)
        with suppress(Exception):
            error.add_note(f"{IN}{layer.title}, for {self._among.name}")

    def arrive(self) -> Any:
        """What the handler has returned, or the error that counts."""
        end, self.end = self.end, End()
        if end.error is None:
            return end.value
        try:
            raise end.error
        finally:
            del end  # which would keep the error, and by it this frame, in memory


def _claims(event: Any) -> list[Any]:
    match event:
        case Payloads():
            return event.claims
        case list():
            return event
    return [event]


def blamed(error: BaseException) -> str | None:
    """The layer that raised an error; None: the handler did."""
    notes = getattr(error, "__notes__", None)
    for note in notes if isinstance(notes, list) else ():
        if isinstance(note, str) and note.startswith(IN):
            return note.removeprefix(IN).partition(", for ")[0]
    return None

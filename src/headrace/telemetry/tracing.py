"""OpenTelemetry, if installed: spans for publishes and handler runs, linked by the event.

An event carries the W3C `traceparent` of its publish as `trace_id`. Until `enable` is called nothing of this costs
anything, and nothing is imported.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from headrace.errors import HeadraceError
from headrace.model import Claimed, NewEvent, Publishable

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanContext, Tracer, TracerProvider

Call: TypeAlias = Callable[[Any, Any, Any], Any]

LINKS = 100  # of one span, to the events of a batch

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

_tracer: Tracer | None = None
_publishing_now: ContextVar[bool] = ContextVar("headrace_publishing", default=False)


def enable(provider: TracerProvider | None = None) -> None:
    """Trace from now on, with this provider or the one that is set for all. Needs the extra `tracing`."""
    global _tracer
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise HeadraceError(
            "tracing needs OpenTelemetry's API: pip install 'headrace[tracing]'"
        ) from error
    _tracer = trace.get_tracer("headrace", tracer_provider=provider)


def disable() -> None:
    global _tracer
    _tracer = None


def is_on() -> bool:
    return _tracer is not None


def is_publishing() -> bool:
    """Whether the caller is in the span of a publish already."""
    return _publishing_now.get()


def is_traceparent(text: str | None) -> bool:
    return text is not None and _TRACEPARENT.fullmatch(text) is not None


def publishing(event: NewEvent, parent: str | None = None) -> AbstractContextManager[NewEvent]:
    """Gives the event as it is to be published: with the current trace, unless it names one itself.
    parent: the traceparent of the request that publishes it, if there is one."""
    if _tracer is not None:
        return _publishing(event, parent)
    if parent is None or event.trace_id is not None:
        return nullcontext(event)
    return nullcontext(msgspec.structs.replace(event, trace_id=parent))


@contextmanager
def _publishing(event: NewEvent, parent: str | None) -> Iterator[NewEvent]:
    with _producing(f"publish {event.type}", parent) as span:
        span.set_attribute("headrace.event.type", event.type)
        if event.trace_id is None:
            event = msgspec.structs.replace(event, trace_id=_traceparent(span))
        yield event


@contextmanager
def publishing_many(
    events: Iterable[Publishable], parent: str | None = None
) -> Iterator[Iterable[Publishable]]:
    """The same for many, in one span."""
    if _tracer is None:
        yield carrying(events, parent)
        return
    with _producing("publish", parent) as span:
        token = _publishing_now.set(True)
        try:
            yield carrying(events, _traceparent(span))
        finally:
            _publishing_now.reset(token)


def carrying(events: Iterable[Publishable], trace: str | None) -> Iterable[Publishable]:
    return events if trace is None else (_carrying(one, trace) for one in events)


def _carrying(event: Publishable, trace: str) -> Publishable:
    match event:
        case NewEvent(trace_id=None):
            return msgspec.structs.replace(event, trace_id=trace)
        case Mapping() if event.get("trace_id") is None:
            return {**event, "trace_id": trace}
        case (str(type), payload):
            return NewEvent(type, payload, trace_id=trace)
    return event


def handled(call: Call, name: str, *, is_async: bool) -> Call:
    """A handler's call, in a span of its own while tracing is on."""
    in_span = _in_span_async if is_async else _in_span

    def traced(event: Any, connection: Any, context: Any) -> Any:
        if _tracer is None:
            return call(event, connection, context)
        return in_span(call, name, event, connection, context)

    return traced


def _in_span(call: Call, name: str, event: Any, connection: Any, context: Any) -> Any:
    with _consuming(name, event):
        return call(event, connection, context)


async def _in_span_async(call: Call, name: str, event: Any, connection: Any, context: Any) -> Any:
    with _consuming(name, event):
        awaited: Awaitable[Any] = call(event, connection, context)
        return await awaited


def _producing(name: str, parent: str | None) -> AbstractContextManager[Span]:
    from opentelemetry.trace import NonRecordingSpan, SpanKind, set_span_in_context

    assert _tracer is not None
    remote = _span_context(parent)
    around = None if remote is None else set_span_in_context(NonRecordingSpan(remote))
    attributes = {"messaging.system": "headrace", "messaging.operation.type": "send"}
    return _tracer.start_as_current_span(
        name, around, kind=SpanKind.PRODUCER, attributes=attributes
    )


def _consuming(name: str, event: Any) -> AbstractContextManager[Span]:
    from opentelemetry.trace import SpanKind

    assert _tracer is not None
    events = [one for one in _several(event) if isinstance(one, Claimed)]
    attributes: dict[str, Any] = {
        "messaging.system": "headrace",
        "messaging.operation.type": "process",
        "headrace.handler": name,
    }
    if len(events) == 1:
        attributes["messaging.message.id"] = str(events[0].id)
        attributes["headrace.event.type"] = events[0].type
        attributes["headrace.attempt"] = events[0].attempt
    elif events:
        attributes["messaging.batch.message_count"] = len(events)
    said = f"process {events[0].type}" if events else "process"
    return _tracer.start_as_current_span(
        said, kind=SpanKind.CONSUMER, attributes=attributes, links=_links(events)
    )


def _several(event: Any) -> Sequence[Any]:
    return event if isinstance(event, list) else [event]


def _links(events: list[Claimed]) -> list[Link]:
    from opentelemetry.trace import Link

    found = (_span_context(event.trace_id) for event in events[:LINKS])
    return [Link(context) for context in found if context is not None]


def _span_context(traceparent: str | None) -> SpanContext | None:
    from opentelemetry.trace import SpanContext, TraceFlags

    parts = _TRACEPARENT.fullmatch(traceparent or "")
    if parts is None:
        return None
    trace, span, flags = (int(part, 16) for part in parts.groups())
    return SpanContext(trace, span, is_remote=True, trace_flags=TraceFlags(flags))


def _traceparent(span: Span) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

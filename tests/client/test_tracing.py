"""Spans for publishing and handling, linked by the event."""

import asyncio
import sys
from collections.abc import Iterator

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import headrace
from headrace import NewEvent
from headrace.telemetry import tracing
from tests.database import Database
from tests.server.running import running

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Spans:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def ended(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.kind is kind]


@pytest.fixture
def spans() -> Iterator[Spans]:
    spans = Spans()
    tracing.enable(spans.provider)
    yield spans
    tracing.disable()
    spans.provider.shutdown()


def traceparent(span: ReadableSpan) -> str:
    context = span.context
    assert context is not None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


UNFINISHED = "select count(*) from headrace.event_queue"


def handle(db: Database) -> None:
    """Let a node with a plain and an async handler work everything off."""
    node = headrace.Node("n1", dsn=db.dsn)

    @node.on_event("plain")
    def plain(event: headrace.Claimed) -> None:
        if event.payload == "fail":
            raise ValueError("no")

    @node.on_event("async")
    async def async_(event: headrace.Claimed) -> None:
        await asyncio.sleep(0)

    async def run() -> None:
        await node.start()
        await asyncio.to_thread(db.wait_for, lambda: db.sql(UNFINISHED) == [(0,)])
        await node.stop()

    asyncio.run(run())


def test_without_it_nothing_is_carried(db: Database) -> None:
    queue = db.queue()
    assert not tracing.is_on()
    queue.publish("a")
    assert queue.poll()[0].trace_id is None


@pytest.mark.one_database("the test tells events apart by their order")
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_publish_has_a_span_that_the_event_carries(db: Database, spans: Spans, kind: str) -> None:
    if kind == "plain":
        db.queue().publish("mail.sent")
        db.queue().publish_many([("one", 1), {"type": "two"}, NewEvent("three")])
    else:

        async def publish() -> None:
            async with db.async_queue() as queue:
                await queue.publish("mail.sent")
                await queue.publish_many([("one", 1), {"type": "two"}, NewEvent("three")])

        asyncio.run(publish())
    one, many = spans.ended(SpanKind.PRODUCER)
    assert (one.name, many.name) == ("publish mail.sent", "publish")
    first, *others = sorted(db.queue().poll(max_events=4), key=lambda claimed: claimed.id)
    assert first.trace_id == traceparent(one)
    assert {other.trace_id for other in others} == {traceparent(many)}


def test_what_names_its_trace_keeps_it(db: Database, spans: Spans) -> None:
    queue = db.queue()
    queue.publish("a", trace_id="own")
    queue.publish_many([NewEvent("b", trace_id="own"), {"type": "c", "trace_id": "own"}])
    assert [claimed.trace_id for claimed in queue.poll(max_events=3)] == ["own"] * 3


def test_a_publish_is_a_part_of_what_it_is_done_in(db: Database, spans: Spans) -> None:
    with spans.provider.get_tracer("mine").start_as_current_span("around") as around:
        db.queue().publish("a")
    [span] = spans.ended(SpanKind.PRODUCER)
    assert span.parent is not None
    assert span.parent.span_id == around.get_span_context().span_id


@pytest.mark.one_database("a node works on one database")
def test_a_handler_runs_in_a_span_that_is_linked_to_the_publish(db: Database, spans: Spans) -> None:
    queue = db.queue()
    ids = [queue.publish(type).id for type in ("plain", "async")]
    queue.publish("plain", "fail", max_retries=0)
    handle(db)
    published = {traceparent(span) for span in spans.ended(SpanKind.PRODUCER)}
    handled = spans.ended(SpanKind.CONSUMER)
    assert sorted(span.name for span in handled) == [
        *("process async", "process plain", "process plain"),
    ]
    linked = {
        f"00-{link.context.trace_id:032x}-{link.context.span_id:016x}-{link.context.trace_flags:02x}"
        for span in handled
        for link in span.links
    }
    assert linked == published
    by_id = {span.attributes["messaging.message.id"]: span for span in handled if span.attributes}
    assert {str(id) for id in ids} < by_id.keys()
    assert by_id[str(ids[0])].status.status_code is StatusCode.UNSET
    [failed] = [span for span in handled if span.status.status_code is StatusCode.ERROR]
    assert "no" in str(failed.events[0].attributes)


@pytest.mark.one_database("a server works on one database")
def test_over_http_the_publish_goes_on_with_the_callers_trace(db: Database, spans: Spans) -> None:
    headers = {"traceparent": PARENT}
    with running(db) as house, httpx.Client(base_url=house.url, headers=headers) as api:
        assert api.post("/events", json={"type": "a"}).status_code == 201
        assert api.post("/events/batch", json={"events": [{"type": "b"}]}).status_code == 201
    published = spans.ended(SpanKind.PRODUCER)
    assert [span.name for span in published] == ["publish a", "publish"]
    for span, claimed in zip(published, db.queue().poll(max_events=2), strict=True):
        assert span.parent is not None
        assert f"{span.parent.span_id:016x}" == "00f067aa0ba902b7"
        assert claimed.trace_id == traceparent(span)
        assert claimed.trace_id.split("-")[1] == "4bf92f3577b34da6a3ce929d0e0e4736"


def test_without_opentelemetry_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(headrace.HeadraceError, match=r"headrace\[tracing\]"):
        tracing.enable()

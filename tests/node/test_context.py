"""What a running handler knows and can do."""

import asyncio
import contextvars
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import AsyncContext, Claimed, Context, InvalidInput, NewEvent
from headrace.node.handler.context import Means, caused_by
from headrace.telemetry.current import current, running
from tests.node.claims import claimed


class Desk:
    """Writes down what contexts do."""

    def __init__(self) -> None:
        self.published: list[tuple[NewEvent, Any, bool]] = []
        self.saved: list[tuple[Claimed, Any, Any]] = []
        self.renewed_at = time.monotonic()
        self.fails = False

    def publish(self, event: NewEvent, *, connection: Any, enforce: bool) -> Any:
        self.published.append((event, connection, enforce))
        return len(self.published)

    async def publish_later(self, event: NewEvent, *, connection: Any, enforce: bool) -> Any:
        return self.publish(event, connection=connection, enforce=enforce)

    def save(self, event: Claimed, progress: Any, connection: Any) -> None:
        if self.fails:
            raise OSError
        self.saved.append((event, progress, connection))

    async def save_later(self, event: Claimed, progress: Any, connection: Any) -> None:
        self.save(event, progress, connection)

    def means(self) -> Means:
        return Means(60, lambda lease: self.renewed_at, self.publish, self.save)

    def async_means(self) -> Means:
        return Means(60, lambda lease: self.renewed_at, self.publish_later, self.save_later)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_what_is_emitted_says_what_caused_it(desk: Desk) -> None:
    context = Context(claimed(id=7), desk.means())
    assert context.emit("order.paid", {"n": 1}, tags=["x"], delay=3) == 1
    ((event, connection, enforce),) = desk.published
    assert event == NewEvent(
        "order.paid", {"n": 1}, tags=["x"], delay=3, correlation_id="7", causation_id="7"
    )
    assert (connection, enforce) == (None, False)


def test_what_is_emitted_says_which_node_it_was(desk: Desk) -> None:
    context = Context(claimed(), replace(desk.means(), producer="node-1"))
    context.emit("a")
    context.emit("a", producer="another")
    assert [event.producer for event, _, _ in desk.published] == ["node-1", "another"]


def test_a_new_event_is_emitted_as_it_is_with_what_caused_it(desk: Desk) -> None:
    context = Context(claimed(id=7), replace(desk.means(), producer="node-1"))
    context.emit(NewEvent("order.paid", {"n": 1}, tags=["x"]), enforce=True)
    context.emit(NewEvent("a", producer="another", correlation_id="c"))
    assert desk.published == [
        (
            NewEvent(
                "order.paid",
                {"n": 1},
                tags=["x"],
                producer="node-1",
                correlation_id="7",
                causation_id="7",
            ),
            None,
            True,
        ),
        (NewEvent("a", producer="another", correlation_id="c", causation_id="7"), None, False),
    ]


@pytest.mark.parametrize("beside", [{"payload": 1}, {"tags": ["x"]}, {"producer": "b"}])
def test_a_new_event_says_all_of_it(desk: Desk, beside: Any) -> None:
    with pytest.raises(InvalidInput, match=f"a NewEvent and {next(iter(beside))}:"):
        Context(claimed(), desk.means()).emit(NewEvent("a"), **beside)
    assert desk.published == []


def test_correlation_and_trace_are_passed_on(desk: Desk) -> None:
    event = claimed(id=7, correlation_id="c", causation_id="b", trace_id="t")
    assert caused_by(event, {}) == {"correlation_id": "c", "causation_id": "7", "trace_id": "t"}
    assert caused_by(event, {"correlation_id": None}) == caused_by(event, {})


def test_ids_that_are_given_stay(desk: Desk) -> None:
    given = {"correlation_id": "1", "causation_id": "2", "trace_id": "3"}
    assert caused_by(claimed(trace_id="t"), given) == given


def test_what_is_no_field_of_an_event_is_refused(desk: Desk) -> None:
    with pytest.raises(TypeError, match="colour"):
        Context(claimed(), desk.means()).emit("a", colour="red")


def test_a_transactional_handler_emits_and_saves_in_its_transaction(desk: Desk) -> None:
    context = Context(claimed(), desk.means(), "its own")
    context.emit("a")
    context.emit("a", connection="another", enforce=True)
    context.save(1)
    assert [call[1:] for call in desk.published] == [("its own", False), ("another", True)]
    assert desk.saved == [(context.event, 1, "its own")]


def test_async_handlers_await_the_same(desk: Desk) -> None:
    async def handler() -> None:
        context = AsyncContext(claimed(id=7), desk.async_means(), "its own")
        assert await context.emit("a") == 1  # type: ignore[comparison-overlap]
        await context.emit(NewEvent("b"))
        await context.save([2])
        assert context.progress == [2]
        assert context.attempt == 1

    asyncio.run(handler())
    assert desk.published == [
        (NewEvent("a", correlation_id="7", causation_id="7"), "its own", False),
        (NewEvent("b", correlation_id="7", causation_id="7"), "its own", False),
    ]
    assert desk.saved == [(claimed(id=7), [2], "its own")]


def test_progress_is_what_was_saved_last(desk: Desk) -> None:
    context = Context(claimed(attempt=2), desk.means(), progress={"page": 3})
    assert context.progress == {"page": 3}
    context.save({"page": 4})
    assert context.progress == {"page": 4}
    desk.fails = True
    with pytest.raises(OSError):  # noqa: PT011
        context.save({"page": 5})
    assert context.progress == {"page": 4}


def test_what_remains_of_the_lease(desk: Desk) -> None:
    context = Context(claimed(), desk.means())
    assert 59 < context.remaining <= 60
    desk.renewed_at -= 50
    assert 9 < context.remaining <= 10
    desk.renewed_at -= 50
    assert context.remaining == 0


def test_a_handler_sees_that_it_should_end(desk: Desk) -> None:
    context = Context(claimed(), desk.means())
    assert (context.cancelled, context.lost) == (False, False)
    context.cancel()
    assert (context.cancelled, context.lost) == (True, False)
    context.cancel(lost=True)
    context.cancel()
    assert (context.cancelled, context.lost) == (True, True)
    assert context.remaining == 0


def test_the_running_context_is_found_through_its_runner(desk: Desk) -> None:
    assert running() is None
    slot, context = SimpleNamespace(context=None), Context(claimed(), desk.means())

    def runner() -> None:
        current.set(slot)
        assert running() is None
        slot.context = context
        assert running() is context
        assert contextvars.copy_context().run(running) is context

    contextvars.copy_context().run(runner)
    assert running() is None

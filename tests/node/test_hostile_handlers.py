"""Handlers that do their worst: each harms its own event alone."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace import Claimed, Discard, Done, Node, Retry
from tests.database import Database
from tests.node.nodes import node, running, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


class Order(msgspec.Struct):
    number: int


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit


class NoName(Exception):
    pass


NoName.__module__ = 7  # type: ignore[assignment]
NoName.__qualname__ = "\0"


def endless() -> None:
    endless()


def group() -> None:
    raise BaseExceptionGroup("all", [ValueError("\ud800"), SystemExit(1), Mute()])


def fail(error: BaseException) -> None:
    raise error


def with_notes() -> None:
    error = ValueError("noted")
    error.__notes__ = ["x" * 10_000_000, None]  # type: ignore[list-item]
    raise error


DEEDS: dict[str, tuple[Callable[[], Any], str]] = {
    "fifty megabytes": (lambda: fail(ValueError("x" * 50_000_000)), "characters …]"),
    "mute": (lambda: fail(Mute()), "Mute: (its __str__ raised SystemExit)"),
    "no name": (lambda: fail(NoName("x")), "\\x00: x"),
    "NUL": (lambda: fail(ValueError("a\0b\ud800")), "ValueError: a\\x00b\\ud800"),
    "exit": (lambda: fail(SystemExit(3)), "SystemExit: 3"),
    "endless": (endless, "RecursionError: maximum recursion depth exceeded"),
    "group": (group, "Sub-exception 2 of 3:\n\nSystemExit: 1"),
    "notes": (with_notes, "ValueError: noted"),
    "stop": (lambda: fail(StopIteration(7)), "StopIteration"),
    "cancel": (lambda: fail(asyncio.CancelledError()), "CancelledError"),
    "generator exit": (lambda: fail(GeneratorExit()), "GeneratorExit"),
    "bad outcome": (lambda: Retry(after=-1), "InvalidInput: Retry(after=…) must be"),
    "bad code": (lambda: Done(10**30), "InvalidInput: a status code is a whole number"),
    "no reason": (lambda: Discard(7), "InvalidInput: a reason must be a string, not int"),  # type: ignore[arg-type]
    "discarded": (lambda: Discard("\0" * 100), "\\x00"),
    "long ago": (lambda: Retry(reason="x" * 1_000_000), "x" * 65_536),
}


def hostile(one: Node, kind: str) -> None:
    if kind == "async":

        @one.on_event("deed.*")
        async def handle(event: Claimed) -> Any:
            return DEEDS[event.payload][0]()

        @one.on_event("order")
        async def typed(event: Order) -> None: ...

    else:

        @one.on_event("deed.*")
        def handle_plainly(event: Claimed) -> Any:
            return DEEDS[event.payload][0]()

        @one.on_event("order")
        def typed_plainly(event: Order) -> None: ...


@requirement("G18", "PG-25")
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_handler_that_does_its_worst_harms_its_own_event_alone(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    # Of one type, so that they are claimed together and their ends are told in the same statements.
    ids = {
        deed: queue.publish("deed.done", deed, max_retries=0).id for deed in DEEDS for _ in range(2)
    }
    fit, unfit = (
        queue.publish("order", {"number": 1}).id,
        queue.publish("order", {"number": "1"}).id,
    )
    one = node(db)
    hostile(one, kind)
    async with running(one):
        await until(lambda: len(queue.dead_letters(limit=100)) == 2 * len(DEEDS) + 1)
        await until(lambda: queue.event(fit).status == "COMPLETED")
        assert one.vitals().trouble is None
    for deed, id in ids.items():
        letter = queue.dead_letter(id)
        assert DEEDS[deed][1] in str(letter.error), deed
        assert letter.reason == ("\\x00" * 100 if deed == "discarded" else "Handler error"), deed
        assert (letter.attempts, letter.crashes) == (1, 0)
    assert queue.dead_letter(unfit).reason == (
        "Payload mismatch: the payload does not match Order: Expected `int`, got `str` - at `$.number`"
    )

"""What a node's log says of failed attempts."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from headrace import Claimed, Discard, Node, Retry
from headrace.telemetry.logs import JsonFormatter, TextFormatter
from tests.database import Database
from tests.node.nodes import node, running, settled, until

pytestmark = pytest.mark.anyio

Said = list[tuple[str, str]]


def broken() -> None:
    raise ValueError("no such order")


def said(caplog: pytest.LogCaptureFixture) -> Said:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "headrace.node" and hasattr(record, "event_id")
    ]


def register(one: Node, kind: str, deed: Callable[[], Any], **options: Any) -> str:
    match kind:
        case "async":

            @one.on_event("a", **options)
            async def handle(event: Claimed) -> Any:
                return deed()

        case "plain":

            @one.on_event("a", **options)
            def handle(event: Claimed) -> Any:
                return deed()

        case "transactional":

            @one.on_event("a", **options)
            async def handle(event: Claimed, connection: Any) -> Any:
                return deed()

        case _:

            @one.on_batch("a", **options)
            def handle(events: list[Claimed]) -> Any:
                return deed()

    return f"{__name__}.register.<locals>.handle"


@pytest.mark.parametrize("kind", ["async", "plain", "transactional", "batch"])
async def test_a_failure_its_retry_and_its_death_are_told(
    db: Database, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    one = node(db)
    name = register(one, kind, broken, max_retries=2, backoff=40)
    id = queue.publish("a").id
    with caplog.at_level(logging.INFO, "headrace"):
        async with running(one):
            await until(lambda: queue.event(id).retry_count == 1)
            await settled(one)
            retry_at = queue.event(id).next_retry_at
            assert retry_at is not None
            db.advance(seconds=41)
            await until(lambda: queue.event(id).status == "FAILED")
            await settled(one)
    at = retry_at.isoformat(timespec="seconds")
    failed = f"{name} failed at event {id} (a, attempt {{}}): ValueError: no such order"
    assert said(caplog) == [
        ("WARNING", failed.format(1)),
        ("INFO", f"event {id} (a) will be retried in 40 s, at {at}: attempt 1 has failed"),
        ("WARNING", failed.format(2)),
        ("ERROR", f"event {id} (a) is dead-lettered after attempt 2: Handler error"),
    ]


async def test_the_traceback_is_in_the_log_once(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    one = node(db)
    register(one, "async", broken, max_retries=1)
    id = queue.publish("a").id
    with caplog.at_level(logging.INFO, "headrace"):
        async with running(one):
            await until(lambda: queue.event(id).status == "FAILED")
            await settled(one)
    text = "\n".join(map(TextFormatter().format, caplog.records))
    assert text.count("Traceback (most recent call last)") == 1
    assert text.count("in broken\n    raise ValueError") == 1
    assert "handler/signature.py" not in text  # nor any other frame that called the handler


async def test_a_monstrous_exception_is_short_in_any_log(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    one = node(db)

    def monster() -> None:
        raise ValueError("\ud800" * 1_000_000)

    register(one, "async", monster, max_retries=1)
    id = queue.publish("a").id
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
        await settled(one)
    [record] = [record for record in caplog.records if record.exc_info]
    for formatter in (logging.Formatter(), TextFormatter(), JsonFormatter()):
        text = formatter.format(record)
        assert "raise ValueError" in text
        assert len(text.encode()) < 20_000


async def test_with_json_logs_it_is_fields(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    queue = db.queue()
    one = node(db)
    name = register(one, "async", broken, max_retries=2, backoff=40)
    id = queue.publish("a").id
    with caplog.at_level(logging.INFO, "headrace"):
        async with running(one):
            await until(lambda: queue.event(id).retry_count == 1)
            await settled(one)
            db.advance(seconds=41)
            await until(lambda: queue.event(id).status == "FAILED")
            await settled(one)
    lines = [
        json.loads(JsonFormatter().format(record))
        for record in caplog.records
        if hasattr(record, "event_id")
    ]
    keys = {"event_id": id, "event_type": "a"}
    failed, retried, _, dead = lines
    assert failed | keys | {"handler": name, "attempt": 1, "level": "warning"} == failed
    assert failed["error"].endswith("ValueError: no such order")
    assert retried | keys | {"outcome": "retried", "attempt": 1, "level": "info"} == retried
    assert retried["retry_at"].startswith("2")
    wanted = {"outcome": "dead_lettered", "reason": "Handler error", "attempt": 2, "level": "error"}
    assert dead | keys | wanted == dead


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        (
            lambda: Retry(after=60, reason="greylisted"),
            [("INFO", "will be retried in 60 s, at {at}: attempt 1 has failed, greylisted")],
        ),
        (
            lambda: Discard("no address"),
            [("ERROR", "is dead-lettered after attempt 1: no address")],
        ),
    ],
)
async def test_what_a_handler_returned_is_told_too(
    db: Database, deed: Any, told: Said, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    one = node(db)
    register(one, "async", deed)
    id = queue.publish("a").id
    with caplog.at_level(logging.INFO, "headrace"):
        async with running(one):
            await until(lambda: queue.event(id).status == "FAILED" or queue.event(id).retry_count)
            await settled(one)
    due = queue.event(id).next_retry_at
    at = "" if due is None else due.isoformat(timespec="seconds")
    assert said(caplog) == [(level, f"event {id} (a) {text.format(at=at)}") for level, text in told]


async def test_a_payload_that_does_not_match_is_told_without_a_traceback(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    one = node(db)

    @one.on_event("a")
    async def handle(event: int) -> None: ...

    id = queue.publish("a", "no number").id
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
        await settled(one)
    (warning, failed), (error, dead) = said(caplog)
    assert (warning, error) == ("WARNING", "ERROR")
    assert "the payload does not match int" in failed
    assert dead.startswith(f"event {id} (a) is dead-lettered after attempt 1: Payload mismatch: ")
    assert all(record.exc_info is None for record in caplog.records)


async def test_what_succeeds_says_nothing(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    queue = db.queue()
    one = node(db)
    register(one, "async", lambda: None)
    queue.publish("a")
    with caplog.at_level(logging.INFO, "headrace"):
        async with running(one):
            await until(lambda: queue.stats().completed == 1)
            await settled(one)
    assert said(caplog) == []

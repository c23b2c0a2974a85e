"""`headrace publish`: from the arguments, from standard input, from lines."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import CommandLine
from tests.database import Database


def lines_in(folder: Path, *lines: Any) -> str:
    path = folder / "lines.jsonl"
    path.write_text(
        "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines)
    )
    return str(path)


def payloads(db: Database) -> list[Any]:
    return [
        one.payload for one in db.queue().events(payload=True, oldest_first=True, limit=100).events
    ]


def test_an_event_is_published_with_everything_that_was_said(
    db: Database, cli: CommandLine
) -> None:
    said = cli(
        *("publish", "order.created", '{"order": 42}', "--tag", "a", "--tag", "b", "--delay", "1h"),
        *("--priority", "2", "--key", "k", "--max-retries", "7", "--title", "An order"),
        *("--correlation-id", "c", "--idempotency-key", "i", "--headers", '{"tenant": "acme"}'),
    )
    [event] = db.queue().events(payload=True).events
    assert said.out == f"Published: event {event.id}\n"
    assert (event.type, event.payload, event.tags) == ("order.created", {"order": 42}, ("a", "b"))
    assert (event.priority, event.key, event.max_retries) == (2, "k", 7)
    assert (event.title, event.correlation_id) == ("An order", "c")
    assert event.headers == {"tenant": "acme"}
    assert event.next_retry_at is not None
    again = cli("publish", "order.created", '{"order": 42}', "--idempotency-key", "i", "--key", "k", "--tag", "a", "--tag", "b", "--json")  # fmt: skip
    assert again.records[0]["id"] == event.id


def test_an_event_is_published_once(db: Database, cli: CommandLine) -> None:
    first = cli("publish", "sync", "--unique", "k", "--json").records[0]["id"]
    assert cli("publish", "sync", "2", "--unique", "k", "--json").records[0]["id"] == first
    settled = ("--debounce", "d", "--settle", "1m", "--at-latest", "1h", "--json")
    one, two = (cli("publish", "edit", *settled).records[0]["id"] for _ in range(2))
    assert db.queue().event(one).superseded_by == two
    shown = cli("show", str(one)).out
    assert "SUPERSEDED" in shown
    assert f"by event {two}" in shown
    for option in ("--unique", "--debounce", "--idempotency-key"):
        refused = cli.tried("publish", "a", "--lines", "-", option, "k")
        assert refused.code == 2
        assert "is for one event" in refused.err


def test_a_payload_is_optional_and_may_come_from_standard_input(
    db: Database, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("publish", "a")
    with Path(lines_in(tmp_path, {"from": "stdin"})).open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        cli("publish", "a", "-")
    assert payloads(db) == [{}, {"from": "stdin"}]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "publish needs a TYPE, or --lines"),
        (["a", "{x"], "{x is not valid JSON"),
        (["a", "1", "--lines", "f"], "leave the JSON out"),
        (["a", "--lines", "f", "--idempotency-key", "x"], "put an idempotency_key in each line"),
        (["a,b"], "comma"),
        (["a", "--headers", "7"], "is not a JSON object"),
        (["a", "--at", "noon"], "is not a valid time"),
        (["a", "--lines", "no-such-file"], "no-such-file: No such file"),
        (["a", '"\\u0000"'], "NUL"),
    ],
)
def test_a_mistake_is_a_sentence(cli: CommandLine, arguments: list[str], sentence: str) -> None:
    tried = cli.tried("publish", *arguments)
    assert tried.code == 2
    assert sentence in tried.err
    assert tried.err.count("\n") == 1


def test_every_line_is_an_event(db: Database, cli: CommandLine, tmp_path: Path) -> None:
    at = "2030-01-01T00:00:00Z"
    lines = lines_in(
        tmp_path,
        {"type": "a", "payload": {"n": 1}, "tags": ["x"], "key": "k"},
        "",
        {"type": "b", "payload": [2], "at": at},
        {"payload": 3},
    )
    said = cli("publish", "--lines", lines, "--tag", "common", "--json")
    assert said.records[0]["published"] == 3
    first, second, third = db.queue().events(payload=True, oldest_first=True).events
    assert (first.type, first.payload, first.tags, first.key) == ("a", {"n": 1}, ("x",), "k")
    assert (second.tags, second.next_retry_at) == (("common",), datetime(2030, 1, 1, tzinfo=UTC))
    assert (third.type, third.payload) == ("event", 3)


def test_with_a_type_every_line_is_a_payload(
    db: Database, cli: CommandLine, tmp_path: Path
) -> None:
    lines = lines_in(tmp_path, {"n": 1}, 2, "[3]")
    assert "Published: 3 events" in cli("publish", "order.created", "--lines", lines).out
    assert payloads(db) == [{"n": 1}, 2, [3]]
    cli("publish", "x", "--lines", lines, "--from-line", "3", "--key", "k")
    assert payloads(db)[3:] == [[3]]


def test_lines_are_published_from_standard_input_in_batches(
    db: Database, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(lines_in(tmp_path, *range(2500))).open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert "Published: 2,500 events in" in cli("publish", "a", "--lines", "-").out
    assert db.queue().stats().ready == 2500


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("{", "not a valid event: "),
        ('{"kind": "a"}', "not a valid event: Object contains unknown field `kind`"),
        ('{"tags": "a"}', "`$.tags`"),
        ('{"type": "a,b"}', "comma"),
        ('{"payload": "\\u0000"}', "NUL"),
        ("\xff", "not a valid event"),
    ],
)
def test_a_wrong_line_is_named_and_what_came_before_is_published_and_said(
    db: Database, cli: CommandLine, tmp_path: Path, wrong: str, why: str
) -> None:
    path = tmp_path / "lines.jsonl"
    good = ['{"type": "a"}'] * 1001
    path.write_bytes("\n".join([*good, wrong, '{"type": "b"}']).encode("latin-1"))
    tried = cli.tried("publish", "--lines", str(path))
    assert tried.code == 2
    assert "line 1,002" in tried.err
    assert why in tried.err
    assert tried.err.count("\n") == 1
    published = db.queue().stats().ready
    assert f"{published:,} events (lines 1 to {published:,}) published; continue with --from-line {published + 1}." in tried.err  # fmt: skip
    assert published in (1000, 1001)
    path.write_bytes("\n".join([*good, '{"type": "mended"}', '{"type": "b"}']).encode())
    cli("publish", "--lines", str(path), "--from-line", str(published + 1))
    assert db.queue().stats().ready == 1003


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(
    db: Database, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.commands.publish_lines.LONGEST", 1000)
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"type": "a"}\n' + b"\0" * 10_000_000)
    tried = cli.tried("publish", "--lines", str(path))
    assert tried.code == 2
    assert "line 2 is not a valid event" in tried.err
    assert "1 event (line 1) published; continue with --from-line 2." in tried.err


def test_a_full_queue_ends_it_and_it_is_said_how_far_it_came(
    db: Database, cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.cli.commands.publish_lines.BATCH", 2)
    db.queue().change_queue("main", max_queue_depth=4)  # a count is trusted for microseconds
    tried = cli.tried("publish", "a", "--lines", lines_in(tmp_path, *range(7)))
    assert tried.code == 1
    assert "4 events (lines 1 to 4) published; continue with --from-line 5." in tried.err


def test_a_conflict_of_idempotency_keys_names_its_line(
    db: Database, cli: CommandLine, tmp_path: Path
) -> None:
    lines = lines_in(
        tmp_path,
        {"type": "a", "payload": 1, "idempotency_key": "x"},
        {"type": "a", "payload": 2, "idempotency_key": "x"},
    )
    tried = cli.tried("publish", "--lines", lines)
    assert tried.code == 1
    assert "line 2: " in tried.err
    assert "nothing was published" in tried.err

"""The command line in a terminal: what is seen on it, questions, bars, and Ctrl-C during everything that takes long."""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.cli.terminal import PATIENCE, Terminal
from tests.cli.test_lists import died
from tests.database import Database

rest = pytest.mark.rest
HEARD = "Stopping after this step"
COMMANDS = (
    "from pg_stat_activity where application_name = 'headrace' and datname = current_database()"
)
COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-7][0-9;]*m")


def commands_at(db: Database) -> list[int]:
    """The backends of commands that run now."""
    return [pid for (pid,) in db.sql(f"select pid {COMMANDS}")]


def wait_until_blocked(db: Database) -> None:
    """Until a command waits for a lock."""
    until(lambda: bool(db.sql(f"select {COMMANDS} and cardinality(pg_blocking_pids(pid)) > 0")))


def publishing(db: Database, lines: Path) -> Terminal:
    return Terminal("publish", "a", "--lines", str(lines), "--dsn", db.dsn)


def until(condition: Callable[[], bool]) -> None:
    """A process takes its time to start."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_a_table_fits_a_narrow_terminal_and_has_colours(db: Database) -> None:
    ids = db.queue(worker="test").publish_many(
        [("a.type.with.a.long.name" * 5, n) for n in range(3)]
    )
    with Terminal("events", "--dsn", db.dsn, columns=44) as terminal:
        assert terminal.end() == 0
        header, *rows = terminal.lines[:4]
    assert header.split()[:3] == ["id", "status", "type"]
    assert [int(row.split()[0]) for row in rows] == ids[::-1]
    assert all("…" in row for row in rows)
    assert COLOUR.search(terminal.raw) is None, "what waits has no colour"


@rest
@pytest.mark.parametrize("no_color", ["", "1"])
def test_colours_are_for_terminals_and_not_with_no_color(db: Database, no_color: str) -> None:
    [id] = died(db, "no luck")
    with Terminal("show", str(id), "--dsn", db.dsn, NO_COLOR=no_color, columns=60) as terminal:
        assert terminal.end() == 0
        assert "no luck" in terminal.text
    assert (COLOUR.search(terminal.raw) is not None) == (no_color == "")


@pytest.mark.parametrize(
    ("answer", "code", "status"),
    [
        ("n\r", 1, "PENDING"),
        pytest.param("y\r", 0, "CANCELLED", marks=rest),
        pytest.param("\x03", 130, "PENDING", marks=rest),
        pytest.param("\x04", 130, "PENDING", marks=rest),
    ],
    ids=["no", "yes", "ctrl-c", "ctrl-d"],
)
def test_what_is_lost_is_asked_for_once(db: Database, answer: str, code: int, status: str) -> None:
    event = db.queue().publish("a")
    with Terminal("cancel", str(event.id), "--dsn", db.dsn) as terminal:
        terminal.wait_for(f"This permanently cancels event {event.id} in default/main. Continue?")
        terminal.press(answer)
        assert terminal.end() == code
        assert ("Nothing was changed." in terminal.text) == (code != 0)
    assert db.queue().event(event.id).status == status


def test_ctrl_c_while_lines_are_published_says_how_to_go_on(db: Database, tmp_path: Path) -> None:
    """Whoever feeds the lines is slow, so it waits for more; what has come is published."""
    fifo = tmp_path / "lines"
    os.mkfifo(fifo)
    with publishing(db, fifo) as terminal, fifo.open("w") as feed:
        feed.write("".join(f'{{"n": {n}}}\n' for n in range(2500)))
        feed.flush()
        terminal.wait_for("2,500 events")
        terminal.interrupt()
        assert terminal.end() == 130
    said = " ".join(terminal.text.split())
    assert (
        "Interrupted: 2,500 events (lines 1 to 2,500) published; continue with --from-line 2501."
        in said
    )
    assert db.queue().stats().ready == 2500


def test_ctrl_c_while_a_batch_is_published_waits_for_it(db: Database, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{n}\n" for n in range(1500)))
    with db.connect(autocommit=False) as locker:
        locker.execute("lock table headrace.events in exclusive mode")
        with publishing(db, lines) as terminal:
            wait_until_blocked(db)
            terminal.interrupt()
            terminal.wait_for(HEARD)
            locker.rollback()
            assert terminal.end() == 130
    assert "1,000 events (lines 1 to 1,000) published; continue with --from-line 1001" in " ".join(terminal.text.split())  # fmt: skip
    assert db.queue().stats().ready == 1000


@rest
def test_a_second_ctrl_c_does_not_wait_and_says_what_is_not_known(
    db: Database, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("1\n2\n")
    with db.connect(autocommit=False) as locker:
        locker.execute("lock table headrace.events in exclusive mode")
        with publishing(db, lines) as terminal:
            wait_until_blocked(db)
            terminal.interrupt()
            terminal.wait_for(HEARD)
            terminal.interrupt()
            assert terminal.end() == 130
        locker.rollback()
    assert "whether lines 1 to 2 were published is not known" in " ".join(terminal.text.split())


@rest
def test_a_lost_database_says_how_far_it_came(db: Database, tmp_path: Path) -> None:
    fifo = tmp_path / "lines"
    os.mkfifo(fifo)
    with publishing(db, fifo) as terminal, fifo.open("w") as feed:
        feed.write("1\n" * 1000)
        feed.flush()
        terminal.wait_for("1,000 events")
        db.sql("select pg_terminate_backend(pid) from unnest(%s::int[]) pid", [commands_at(db)])
        feed.write("1\n" * 1000)
        feed.flush()
        assert terminal.end() == 3
    said = " ".join(terminal.text.split())
    assert "1,000 events (lines 1 to 1,000) published; whether lines 1,001 to 2,000 were" in said


def test_tail_shows_what_happens_and_ctrl_c_says_where_to_go_on(db: Database) -> None:
    with Terminal("tail", "--type", "order.*", "--dsn", db.dsn) as terminal:
        terminal.wait_for("Following default from now on")
        queue = db.queue()
        queue.publish("email.requested")
        order = queue.publish("order.created", {"\x1b": 1})
        terminal.wait_for("EMITTED")
        assert str(order.id) in terminal.text
        assert "email" not in terminal.text
        terminal.interrupt()
        assert terminal.end() == 130
    after = re.search(r"Continue with: --after ([0-9a-f]+-\d+)", terminal.text)
    assert after is not None
    assert queue.log_since(after[1]).entries == []  # a cursor: it was told all there is
    assert int(after[1].partition("-")[2]) >= queue.log(order.id)[-1].id


@rest
def test_tail_goes_on_over_a_lost_connection(db: Database) -> None:
    with Terminal("tail", "--dsn", db.dsn) as terminal:
        terminal.wait_for("Following default from now on")
        following = f"{COMMANDS} and query like '%log_since%'"
        until(lambda: bool(db.sql(f"select {following}")))
        db.sql(f"select pg_terminate_backend(pid) {following}")
        terminal.wait_for("PostgreSQL cannot be reached")
        terminal.wait_for("PostgreSQL is reachable again")
        db.queue().publish("order.created")
        terminal.wait_for("order.created")
        terminal.interrupt()
        assert terminal.end() == 130


def test_ctrl_c_during_a_redrive_ends_it_after_a_step(db: Database) -> None:
    """The step that is under way waits for a lock when Ctrl-C is pressed, and is done when it gets it."""
    ids = died(db, *["no luck"] * 20)
    with db.connect(autocommit=False) as locker:
        locker.execute("lock table headrace.dead_letters in exclusive mode")
        with Terminal("dead", "redrive", "--all", "--rate", "1", "--dsn", db.dsn) as terminal:
            wait_until_blocked(db)
            terminal.interrupt()
            terminal.wait_for(HEARD)
            locker.rollback()
            assert terminal.end() == 130
    said = re.search(r"Interrupted: (\d+) events? redriven; the rest is unchanged", terminal.text)
    assert said is not None, terminal.text
    assert int(said[1]) == len(ids) - db.queue().stats().dead_letters


@rest
def test_a_redrive_that_loses_the_database_says_so(db: Database) -> None:
    died(db, *["no luck"] * 3)
    with db.connect(autocommit=False) as locker:
        locker.execute("lock table headrace.dead_letters in exclusive mode")
        with Terminal("dead", "redrive", "--all", "--dsn", db.dsn) as terminal:
            wait_until_blocked(db)
            db.sql(f"select pg_terminate_backend(pid) {COMMANDS}")
            assert terminal.end() == 3
        locker.rollback()
    assert "the connection was lost" in terminal.text
    assert db.queue().stats().dead_letters == 3


@rest
def test_ctrl_c_during_a_purge_says_what_was_removed(db: Database) -> None:
    db.queue().publish_many([("a", n) for n in range(30)])
    with db.connect(autocommit=False) as locker:
        locker.execute("lock table headrace.ready in exclusive mode")
        with Terminal("queues", "purge", "main", "ready", "--yes", "--dsn", db.dsn) as terminal:
            wait_until_blocked(db)
            terminal.interrupt()
            terminal.wait_for(HEARD)
            locker.rollback()
            assert terminal.end() == 130
    said = re.search(r"Interrupted: (\d+) events? removed", terminal.text)
    assert said is not None, terminal.text
    assert int(said[1]) == 30 - db.queue().stats().ready


@rest
def test_ctrl_c_while_a_queue_is_drained_leaves_it_draining_and_says_so(db: Database) -> None:
    db.queue().publish("a")
    with Terminal("drain", "--wait", "--dsn", db.dsn) as terminal:
        terminal.wait_for("Draining default/main")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "is still draining" in terminal.text
    assert db.queue().queue().state == "draining"


@rest
def test_ctrl_c_during_a_measurement_removes_its_database(db: Database) -> None:
    with Terminal("bench", "--events", "1000000", "--seconds", "100", "--dsn", db.dsn) as terminal:
        terminal.wait_for("Measuring")
        terminal.wait_for(lambda text: re.search(r"\d,\d{3} events", text) is not None)
        terminal.interrupt()
        assert terminal.end() == 130
        assert "the temporary database or namespace is removed" in terminal.text
    left = db.sql("select datname from pg_database where datname like 'headrace_bench%%'", [])
    assert left == []


@rest
def test_ctrl_c_during_a_replay_says_where_to_go_on(db: Database) -> None:
    """Nobody reads what it writes, until Ctrl-C was pressed; the bar is on the terminal all the same."""
    ids = db.queue().publish_many([("a", {"text": "x" * 1000}) for n in range(200)])
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader:
        with os.fdopen(writing, "wb") as writer:
            terminal = Terminal("replay", "--json", "--dsn", db.dsn, stdout=writer)
        with terminal:
            terminal.wait_for(
                lambda text: re.search(r"Reading .* [1-9]\d* events", text) is not None
            )
            terminal.interrupt()
            terminal.wait_for(HEARD)
            read = [json.loads(line)["id"] for line in reader]
            assert terminal.end() == 130
    assert read == ids[: len(read)]
    assert 0 < len(read) < len(ids)
    assert f"{len(read)} events read; continue with --from-checkpoint {read[-1]}." in terminal.text


@rest
def test_ctrl_c_while_a_replay_waits_for_somebody_ends_it(db: Database) -> None:
    with db.connect(autocommit=False) as writer:
        writer.execute("select headrace.publish('default', '{}')")
        db.queue().publish("last")
        with Terminal("replay", "--dsn", db.dsn) as terminal:
            terminal.wait_for("a replay waits: process")
            terminal.interrupt()
            assert terminal.end() == 130
        writer.rollback()
    assert "Interrupted: 0 events read." in terminal.text


@rest
def test_ctrl_c_during_a_migration_changes_nothing(empty_db: Database) -> None:
    with psycopg.connect(empty_db.dsn) as locker:
        locker.execute("create schema headrace")
        with Terminal("migrate", "--dsn", empty_db.dsn) as terminal:
            wait_until_blocked(empty_db)
            terminal.interrupt()
            assert terminal.end() == 130
        locker.rollback()
    assert "Interrupted: nothing was changed." in terminal.text
    assert empty_db.sql("select to_regnamespace('headrace')") == [(None,)]


@rest
def test_many_lines_show_a_bar_with_a_rate(db: Database, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    with lines.open("w") as file:
        for n in range(60_000):
            file.write(json.dumps({"type": "a", "payload": {"n": n}}) + "\n")
    bar = re.compile(r"Publishing .* \d+% 1,000 events  [\d,]+/s")
    with db.connect() as locker:
        locker.execute("begin; lock headrace.events")
        with Terminal("publish", "--lines", str(lines), "--dsn", db.dsn, columns=90) as terminal:
            wait_until_blocked(db)
            # Whoever waits comes first: one batch gets through, and the next one waits.
            locker.execute("rollback; begin; lock headrace.events")
            terminal.wait_for(lambda text: bar.search(text) is not None)
            locker.execute("rollback")
            assert terminal.end() == 0
            assert "Published: 60,000 events in " in terminal.text
            assert "per second)" in terminal.text


@rest
@pytest.mark.parametrize("arguments", [["up"], ["serve", "--open"]], ids=" ".join)
def test_ctrl_c_ends_a_server_in_order(db: Database, arguments: list[str]) -> None:
    with Terminal(*arguments, "--port", "0", "--dsn", db.dsn) as terminal:
        terminal.wait_for("Ctrl-C stops it.")
        terminal.interrupt()
        assert terminal.end() == 0
        assert "Stopped." in terminal.text

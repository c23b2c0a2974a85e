"""Commands of administrators: queues, namespaces, schedules, dead letters, single events."""

from datetime import timedelta

import pytest

from tests.cli.running import CommandLine
from tests.cli.test_lists import died
from tests.database import Database


def test_events_are_cancelled_reset_and_erased(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    first, second, third = queue.publish_many([("a", 1), ("a", 2), ("a", {"secret": 3})])
    assert (
        f"Cancelled: event {first}" in cli("cancel", str(first), "--reason", "twice", "--yes").out
    )
    assert queue.event(first).status == "CANCELLED"
    assert queue.log(first)[-1].error_message == "twice"
    refused = cli.tried("reset", str(first))
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    some = cli.tried("reset", str(first), str(second), "999999")
    assert some.code == 1
    assert f"Ready again: event {second}" in some.out
    assert f"Not event {first}" in some.err
    assert "2 of 3 events failed" in some.err
    cli("erase", str(third), "--yes")
    assert queue.event(third).payload != {"secret": 3}


def test_ended_events_are_run_again(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", n) for n in range(3)])
    queue.complete(queue.poll(max_events=2))
    some = cli.tried("rerun", *map(str, ids), "--reason", "it was wrong")
    assert some.code == 1
    assert some.out == "".join(f"Ready again: event {id}\n" for id in ids[:2])
    assert f"Not event {ids[2]}" in some.err
    assert [entry.action for entry in queue.log(ids[0])][-1] == "RERUN"


@pytest.mark.parametrize(
    "arguments",
    [
        *(
            ["cancel", "1"],
            ["erase", "1"],
            ["queues", "remove", "q"],
            ["queues", "purge", "q", "ready"],
        ),
        *(
            ["dead", "purge", "--all"],
            ["namespaces", "remove", "default"],
            ["schedules", "remove", "s"],
        ),
    ],
    ids=" ".join,
)
def test_without_a_terminal_what_is_lost_needs_a_yes(
    cli: CommandLine, arguments: list[str]
) -> None:
    tried = cli.tried(*arguments)
    assert tried.code == 2
    assert "confirm it with --yes" in tried.err


def test_a_queue_is_made_changed_paused_drained_and_removed(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    cli(
        "queues", "create", "billing", "-t", "order.*", "--max-queue-depth", "9", "--backoff", "30s"
    )
    assert "Already exists" in cli("queues", "create", "billing", "-t", "order.*", "--max-queue-depth", "9", "--backoff", "30s").out  # fmt: skip
    made = queue.queue("billing")
    assert (made.types, made.max_queue_depth, made.backoff["delay"]) == (("order.*",), 9, 30)
    policy = '{"kind": "exponential", "delay": 5, "factor": 3}'
    cli("queues", "set", "billing", "--max-retries", "7", "--default", "max-queue-depth", "--backoff", policy, "--takes-nothing")  # fmt: skip
    changed = queue.queue("billing")
    assert (changed.max_retries, changed.max_queue_depth, changed.takes) == (7, None, False)
    assert changed.backoff["factor"] == 3
    listed = {one["name"]: one for one in cli("queues", "--json").records}
    assert listed["billing"]["processing_interval"] == made.processing_interval.total_seconds()
    assert "off" in cli("queues").out
    cli("queues", "set", "billing", "--order", "oldest")
    assert queue.queue("billing").order == "oldest"
    cli("queues", "set", "billing", "--default", "order")
    assert queue.queue("billing").order == "fair"
    assert cli.tried("queues", "set", "billing", "--order", "newest").code == 2
    cli("queues", "set", "billing", "--lease", "10m")
    assert queue.queue("billing").lease == timedelta(minutes=10)
    cli("queues", "set", "billing", "--default", "lease")
    assert queue.queue("billing").lease is None
    cli("pause", "billing")
    assert queue.queue("billing").state == "paused"
    cli("resume", "billing")
    cli("drain", "billing")
    db.queue().tick()
    assert queue.queue("billing").state in ("draining", "paused")
    cli("queues", "remove", "billing", "--yes")
    assert [one.name for one in queue.queues()] == ["main"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["main"], "no setting to change"),
        (["main", "--default", "colour"], "unknown setting 'colour'"),
        (["main", "--batch-size", "5", "--default", "batch-size"], "both set and restored"),
        (["main", "--metadata", "[1]"], "not a JSON object"),
        (["main", "--backoff", "soon"], "not a valid duration"),
        (["main", "--lease", "8d"], "from 0.1 seconds to 7 days"),
        (["main", "--backoff", '{"kind": "sideways"}'], "fixed, linear or exponential"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    cli: CommandLine, arguments: list[str], sentence: str
) -> None:
    tried = cli.tried("queues", "set", *arguments)
    assert tried.code == 2
    assert sentence in tried.err


def test_a_queue_is_purged(db: Database, cli: CommandLine) -> None:
    db.queue().publish_many([("a", 1), ("b", 2), ("a", 3)])
    assert "Removed: 2 events." in cli("queues", "purge", "main", "ready", "-t", "a", "--yes").out
    assert db.queue().stats().ready == 1


def test_dead_letters_are_redriven_and_purged(db: Database, cli: CommandLine) -> None:
    ids = died(db, "x", "x", "y")
    assert cli.tried("dead", "redrive").code == 2
    assert cli.tried("dead", "redrive", "1", "--all").code == 2
    one = cli("dead", "redrive", str(ids[0]), "999999")
    assert "Redriven: 1 event." in one.out
    assert "1 of the given ids is not a dead letter" in one.err
    assert "Redriven: 2 events." in cli("dead", "redrive", "--all", "--rate", "50").out
    assert db.queue().stats().dead_letters == 0
    died(db, "z")
    assert "Removed: 1 dead letter." in cli("dead", "purge", "--type", "order.*", "--yes").out


def test_a_namespace_is_made_changed_and_removed(db: Database, cli: CommandLine) -> None:
    cli("namespaces", "create", "shop", "--metadata", '{"team": "orders"}')
    cli("namespaces", "set", "shop", "--unhandled", "dead_letter", "--unhandled-after", "10m")
    _, shop = cli("namespaces", "--json").records
    assert (shop["name"], shop["unhandled"], shop["unhandled_after"]) == (
        "shop",
        "dead_letter",
        600,
    )
    assert shop["metadata"] == {"team": "orders"}
    assert "dead-lettered after 10m" in cli("namespaces").out
    db.queue(namespace="shop").publish("a")
    assert cli.tried("namespaces", "remove", "shop", "--yes").code == 1
    cli("namespaces", "remove", "shop", "--with-deliveries", "--yes")
    assert len(cli("namespaces", "--json").records) == 1


def test_a_schedule_is_added_paused_run_and_removed(db: Database, cli: CommandLine) -> None:
    assert "no schedules in default" in cli("schedules").out
    made = cli("schedules", "add", "nightly", "0 2 * * *", "report", '{"a": 1}', "--timezone", "Europe/Berlin", "--headers", '{"b": 2}')  # fmt: skip
    assert "Scheduled: nightly, next " in made.out
    [one] = cli("schedules", "--json").records
    assert (one["event_type"], one["payload"], one["timezone"]) == (
        "report",
        {"a": 1},
        "Europe/Berlin",
    )
    assert one["event"] == {"headers": {"b": 2}}
    cli("schedules", "pause", "nightly")
    assert "paused" in cli("schedules").out
    assert "next " in cli("schedules", "resume", "nightly").out
    assert "Published: event" in cli("schedules", "run", "nightly").out
    assert db.queue().stats().ready == 1
    cli("schedules", "remove", "nightly", "--yes")
    wrong = cli.tried("schedules", "add", "x", "every day")
    assert wrong.code == 2
    assert wrong.err.count("\n") == 1

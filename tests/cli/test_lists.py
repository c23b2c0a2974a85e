"""Commands that list and show: events, dead letters, statistics, nodes, workers."""

import pytest

from tests.cli.running import CommandLine
from tests.database import Database


def died(db: Database, *errors: str) -> list[int]:
    """Dead letters, one for each error."""
    queue = db.queue()
    ids = queue.publish_many(
        [{"type": "order.paid", "payload": {"n": 1}, "max_retries": 0}] * len(errors)
    )
    for claimed, error in zip(queue.poll(max_events=len(errors)), errors, strict=True):
        queue.fail(claimed, error)
    return ids


def test_events_are_listed_the_newest_first_and_filtered(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    first = queue.publish("order.created", {"n": 1}, tags=["urgent"])
    second = queue.publish("email.requested", {"n": 2}, key="k")
    assert [one["id"] for one in cli("events", "--json").records] == [second.id, first.id]
    oldest_first = cli("events", "--json", "--oldest-first").records
    assert [one["id"] for one in oldest_first] == [first.id, second.id]
    for chosen in (["--type", "order.*"], ["--tag", "urgent"], ["--before", str(second.id)]):
        assert [one["id"] for one in cli("events", "--json", *chosen).records] == [first.id]
    [one] = cli("events", "--json", "--payload", "--key", "k").records
    assert one["payload"] == {"n": 2}
    shown = cli("events")
    assert "order.created" in shown.out
    assert "PENDING" in shown.out
    assert "No matching events in default/main" in cli("events", "-s", "failed").out
    assert cli("events", "-s", "FAILED", "--json").out == ""


def test_more_events_than_a_page_holds_are_fetched(db: Database, cli: CommandLine) -> None:
    ids = db.queue().publish_many([("event", n) for n in range(1200)])
    found = [one["id"] for one in cli("events", "--json", "--limit", "1100").records]
    assert found == sorted(ids, reverse=True)[:1100]
    assert "There may be more: use --before" in cli("events", "--limit", "3").err


def test_an_event_is_shown_with_its_whole_story(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    event = queue.publish("order.created", {"order": {"id": 42}}, title="An order", tags=["a", "b"])
    [claimed] = queue.poll(worker="host:1")
    queue.fail(claimed, "In shop.py:\n  line 7\nValueError: too late")
    shown = cli("show", str(event.id)).out
    for words in ("PENDING", "An order", '"id": 42', "EMITTED", "host:1", "next retry", "line 7"):
        assert words in shown
    [record] = cli("show", str(event.id), "--json").records
    assert [entry["action"] for entry in record["log"]] == ["EMITTED", "PICKED", "FAILED"]
    assert record["deliveries"][0]["queue"] == "main"


def test_what_an_event_caused_is_shown_and_found(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    order = queue.publish("order.created", correlation_id="c-1", idempotency_key="i-1")
    mail = queue.publish("email.requested", correlation_id="c-1", causation_id=str(order.id))
    shown = cli("show", str(order.id)).out
    assert "Caused events" in shown
    assert "email.requested" in shown
    assert f"event {order.id}: order.created, PENDING" in cli("show", str(mail.id)).out
    [record] = cli("show", str(order.id), "--json").records
    assert [one["id"] for one in record["causes"]] == [mail.id]
    for word, ids in (("i-1", [order.id]), ("c-1", [mail.id, order.id]), ("nothing", [])):
        assert [one["id"] for one in cli("events", "--find", word, "--json").records] == ids


def test_what_needs_attention_is_said_in_words(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    queue.tick()
    queue.publish("order.created")
    queue.pause()
    assert "paused" in cli("attention").out
    found = cli("attention", "--everywhere", "--json").records
    assert any("paused" in one["sentence"] and one["queue"] == "main" for one in found)


def test_what_a_publisher_wrote_does_not_act_on_the_terminal(
    db: Database, cli: CommandLine
) -> None:
    event = db.queue().publish(
        "event", {"a": "\x9b2J"}, title="[bold]x[/] \x1b[31m\u202e", key="\u200f"
    )
    for said in (cli("show", str(event.id)), cli("events"), cli("events", "--json", "--payload")):
        assert not set("\x1b\x9b\u202e\u200f") & set(said.out)
    assert "[bold]x[/]" in cli("show", str(event.id)).out


def test_dead_letters_are_listed_grouped_and_shown(db: Database, cli: CommandLine) -> None:
    ids = died(db, "no bank", "no bank", "no money")
    assert [one["id"] for one in cli("dead", "--json").records] == ids[::-1]
    assert "no money" in cli("dead").out
    [most, _] = cli("dead", "list", "--groups", "--json").records
    assert (most["letters"], most["message"]) == (2, "no bank")
    assert most["fingerprint"] in cli("dead", "list", "--groups").out
    of_kind = cli("dead", "list", "--fingerprint", most["fingerprint"], "--json").records
    assert [one["id"] for one in of_kind] == ids[1::-1]
    assert "no money" in cli("dead", "show", str(ids[2])).out
    [one] = cli("dead", "show", str(ids[2]), "--json").records
    assert one["payload"] == {"n": 1}
    assert cli.tried("dead", "list", "--groups", "--type", "x").code == 2
    assert "No matching dead letters" in cli("dead", "list", "--type", "other").out


def test_statistics_have_a_row_for_each_queue(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    queue.create_queue("billing", types=["order.*"])
    queue.publish("order.created")
    billing, main = cli("stats", "--json").records
    assert (billing["queue"], billing["ready"], main["published"]) == ("billing", 1, 1)
    assert [one["queue"] for one in cli("stats", "-q", "main", "--json").records] == ["main"]
    assert "billing" in cli("stats", "--period", "1h").out


def test_nodes_and_workers_are_shown(db: Database, cli: CommandLine) -> None:
    assert "No node is registered in default" in cli("nodes").out
    assert "No worker was active in default" in cli("workers").out
    queue = db.queue()
    queue.publish("order.created")
    assert "No live node handles order.created: 1 event waits in main" in cli("nodes").err
    queue.poll(worker="host:1")
    [worker] = cli("workers", "--json").records
    assert (worker["worker_id"], worker["holds"], worker["queue"]) == ("host:1", 1, "main")
    assert "host:1" in cli("workers").out
    db.sql("select headrace.register_node('default', 'api-1', gen_random_uuid())")
    [node] = cli("nodes", "--json").records
    assert (node["node_id"], node["alive"]) == ("api-1", True)
    assert "alive" in cli("nodes").out


def test_who_did_what_is_shown(cli: CommandLine) -> None:
    cli("pause")
    [last, *_] = cli("admin-log", "--json").records
    assert last["action"] == "pause"
    assert "@" in last["actor"]
    assert "pause" in cli("admin-log", "--everywhere").out


@pytest.mark.parametrize(
    "arguments",
    [
        *(["show", "1"], ["dead", "show", "1"], ["cancel", "1", "--yes"], ["reset", "1"]),
        *(["events", "-q", "nope"], ["stats", "-q", "nope"], ["pause", "nope"]),
        *(["events", "-n", "nope"], ["stats", "-n", "nope"], ["publish", "x", "-n", "nope"]),
        *(["tail", "-n", "nope"], ["tail", "-q", "nope"], ["schedules", "run", "nope"]),
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_said_in_a_sentence_and_not_made(
    db: Database, cli: CommandLine, arguments: list[str]
) -> None:
    tried = cli.tried(*arguments)
    assert tried.code == 2
    assert tried.out == ""
    assert tried.err.startswith("headrace: ")
    assert tried.err.count("\n") == 1
    assert [one.name for one in db.queue().namespaces()] == ["default"]


def test_why_an_event_waits_is_said_for_every_queue(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    queue.create_queue("second", types=["order.*"])
    queue.pause("second", actor="ops")
    event = queue.publish("order.created", delay=60)
    said = cli("why", str(event.id)).out
    assert "main    it is delayed until 20" in said
    assert "second  it is delayed until 20" in said
    assert "by ops" in said
    assert "main" not in cli("why", str(event.id), "--queue", "second").out
    found = cli("why", str(event.id), "--json").records
    assert [(one["queue"], one["code"]) for one in found] == [
        ("main", "delayed"),
        ("main", "unhandled"),
        ("second", "delayed"),
        ("second", "queue_paused"),
        ("second", "unhandled"),
    ]
    missing = cli.tried("why", "4711")
    assert missing.code != 0
    assert "there is no event 4711 in the namespace" in missing.err

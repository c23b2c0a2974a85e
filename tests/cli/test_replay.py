"""`headrace replay`: events once more; `checkpoint`: how far a queue has come."""

from pathlib import Path

import pytest

from headrace.cli.commands.replay import Again, Reached
from headrace.cli.terminal.errors import Interrupted
from tests.cli.running import CommandLine
from tests.database import Database

HEADERS = {"tenant": "acme", "tries": 2}


def test_events_are_read_once_more_in_their_order(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    ids = [
        queue.publish(type, {"n": n}).id for n, type in enumerate(("order.a", "email", "order.b"))
    ]
    queue.complete(queue.poll(max_events=3))
    again = cli("replay", "--json").records
    assert [one["id"] for one in again] == ids
    assert again[0]["payload"] == {"n": 0}
    assert [one["id"] for one in cli("replay", "--json", "-t", "order.*").records] == [
        ids[0],
        ids[2],
    ]
    assert [one["id"] for one in cli("replay", "--json", "--since", "1h").records] == ids
    rest = cli("replay", "--json", "--from-checkpoint", str(ids[1]))
    assert [one["id"] for one in rest.records] == [ids[2]]
    assert "1 event." in rest.err
    assert '{"n":2}' in cli("replay").out
    assert cli.tried("replay", "--json", "--lines").code == 2


def test_they_can_be_published_again(db: Database, cli: CommandLine, tmp_path: Path) -> None:
    db.queue().publish(
        "a", {"n": 1}, tags=["x"], key="k", title="One", correlation_id="c", headers=HEADERS
    )
    lines = tmp_path / "lines"
    lines.write_text(cli("replay", "--lines").out)
    cli("namespaces", "create", "copy")
    cli("publish", "--lines", str(lines), "-n", "copy")
    [event] = db.queue(namespace="copy").events(payload=True).events
    assert (event.type, event.payload, event.tags, event.key) == ("a", {"n": 1}, ("x",), "k")
    assert (event.title, event.correlation_id, event.headers) == ("One", "c", HEADERS)


def test_they_are_published_again_at_a_rate(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", {"n": n}) for n in range(5)])
    queue.publish("b", tags=["x"], key="k", priority=1, headers=HEADERS)
    queue.complete(queue.poll(max_events=2))
    cli("namespaces", "create", "copy")
    done = cli("replay", "--type", "a", "--from-checkpoint", str(ids[0]), "--to", "copy", "--rate", "1000")  # fmt: skip
    assert done.out == "Published again: 4 events.\n"
    copies = db.queue(namespace="copy").poll(max_events=10)
    assert [copy.payload["n"] for copy in copies] == [1, 2, 3, 4]
    assert cli("replay", "--type", "b", "--to", "default").out == "Published again: 1 event.\n"
    old, new = db.queue().events(types=["b"], oldest_first=True).events
    assert (new.tags, new.key, new.priority) == (old.tags, old.key, old.priority)
    assert new.headers == old.headers == HEADERS


def test_what_cannot_be_published_again_is_said(db: Database, cli: CommandLine) -> None:
    db.queue().publish("a")
    assert cli.tried("replay", "--rate", "5").code == 2
    assert cli.tried("replay", "--to", "default", "--json").code == 2
    nowhere = cli.tried("replay", "--to", "nowhere")
    assert nowhere.code == 2
    assert "nowhere" in nowhere.err
    assert "0 events published again" in nowhere.err


def test_a_rate_is_kept_and_an_interruption_says_where_to_go_on(db: Database) -> None:
    ids = db.queue().publish_many([("a", n) for n in range(5)])
    target = db.queue()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    again = Again(target, 0.001, Reached(target, None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.cli.commands.replay.time.sleep", sleep)
        with pytest.raises(Interrupted, match=f"3 events published again; continue with --from-checkpoint {ids[2]}"):  # fmt: skip
            again.publish_all(iter(list(db.queue().replay())))
    assert [round(seconds / 1000) for seconds in slept] == [1, 2, 3]


def test_a_checkpoint_says_how_far_a_queue_has_come(db: Database, cli: CommandLine) -> None:
    assert "No checkpoints of default/main" in cli("checkpoints").out
    queue = db.queue()
    done, waiting = queue.publish_many([("a", 1), ("a", 2)])
    queue.complete(queue.poll())
    made = cli("checkpoint")
    assert made.out == f"Checkpoint of default/main: {done}\n"
    assert "1 event after it" in made.err
    [kept] = cli("checkpoints", "--json").records
    assert kept["checkpoint_id"] == str(done)
    assert str(done) in cli("checkpoints").out
    again = cli("replay", "--json", "--from-checkpoint", kept["checkpoint_id"]).records
    assert [one["id"] for one in again] == [waiting]

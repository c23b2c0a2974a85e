"""`headrace tail`: the log as it happens, filtered, resumed."""

from tests.cli.running import CommandLine
from tests.database import Database


def test_the_log_is_read_to_its_end_and_filtered(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    queue.create_queue("billing", types=["order.*"])
    order = queue.publish("order.created", {"n": 1})
    queue.publish("email.requested")
    [claimed] = queue.poll(types=["order.*"], worker="host:1")
    queue.fail(claimed, "no\nluck")
    read = ("tail", "--after", "0", "--no-follow", "--json")
    everything = cli(*read).records
    assert [one["action"] for one in everything] == ["EMITTED", "EMITTED", "PICKED", "FAILED"]
    assert len(cli(*read, "--type", "order.*").records) == 3
    assert [one["event_id"] for one in cli(*read, "-a", "failed").records] == [order.id]
    assert [one["action"] for one in cli(*read, "-q", "billing").records] == ["EMITTED", "EMITTED"]
    rest = cli("tail", "--after", str(everything[1]["id"]), "--no-follow", "--json").records
    assert [one["action"] for one in rest] == ["PICKED", "FAILED"]
    shown = cli("tail", "--after", "0", "--no-follow").out.splitlines()
    assert len(shown) == 4
    for words in ("FAILED", "order.created", "by host:1", "luck"):
        assert words in shown[3]


def test_it_begins_with_what_happens_from_now_on(db: Database, cli: CommandLine) -> None:
    db.queue().publish("before")
    assert cli("tail", "--no-follow").out == ""
    assert cli.tried("tail", "--action", "SLEPT", "--no-follow").code == 2
    assert cli.tried("tail", "--type", "a,b", "--no-follow").code == 2

"""`headrace tail`: the log as it happens, filtered, resumed."""

from tests.cli.running import CommandLine
from tests.database import Database
from tests.engine.functions_helpers import another_life


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


def test_after_a_promotion_it_goes_back_and_says_so(db: Database, cli: CommandLine) -> None:
    queue = db.queue()
    queue.publish("before")
    queue.log_since()
    db.sql("select headrace.save_state('default')")
    queue.publish("told")
    cursor = queue.log_since().cursor
    read = ("tail", "--after", cursor, "--no-follow", "--json")
    assert cli(*read).records == []
    another_life(db)
    queue.publish("new")
    ran = cli(*read)
    assert [one["type"] for one in ran.records] == ["told", "new"]
    assert "may be shown again" in ran.err


def test_a_place_that_the_log_does_not_have_is_refused(db: Database, cli: CommandLine) -> None:
    for beyond, said in (("999999999", "beyond the end"), ("1abc-5", "a copy of this database")):
        tried = cli.tried("tail", "--after", beyond, "--no-follow")
        assert tried.code != 0
        assert said in tried.err
    assert cli.tried("tail", "--after", "x", "--no-follow").code == 2

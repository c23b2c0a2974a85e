"""`headrace shards`: the homes of keys, over all servers that are named."""

from collections.abc import Iterator

import pytest

from headrace.engine.shards import slot_of
from tests.cli.running import CommandLine
from tests.client.shards import Shards
from tests.database import Database, Server


@pytest.fixture
def three(server: Server) -> Iterator[Shards]:
    shards = Shards(server, 3)
    yield shards
    shards.close()


@pytest.fixture
def cli(three: Shards, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(three, capsys, [part for dsn in three.dsn for part in ("--dsn", dsn)])


def test_slots_are_listed_moved_and_spread(cli: CommandLine, three: Shards) -> None:
    listed = cli("shards", "list", "--json").records
    assert [one["slots"] for one in listed] == [342, 341, 341]
    moved = cli("shards", "move", "--slots", "0-2,4", "--to", "2").out
    assert "Moved: 1 slot from shard 0 to shard 2" in moved
    assert "Moved: 2 slots from shard 1 to shard 2" in moved
    assert [one["slots"] for one in cli("shards", "list", "--json").records] == [
        *(341, 339, 344),
    ]
    assert "Moved:" in cli("shards", "spread").out
    assert "Nothing to move" in cli("shards", "spread").out


def test_the_environment_names_the_shards_one_a_line(
    three: Shards, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DSN", "\n".join(three.dsn))
    assert "answers" in CommandLine(three, capsys, [])("shards").out


def test_a_move_that_has_to_wait_says_for_what(cli: CommandLine, three: Shards) -> None:
    with three.queue() as queue:
        queue.publish("a", key="k")
        slot = slot_of("default", "k")
        tried = cli.tried(
            "shards", "move", "--slots", str(slot), "--to", str((slot + 1) % 3), "--timeout", "1s",
        )  # fmt: skip
        assert tried.code == 1
        assert "Not yet over: 1 slot" in tried.out
        assert "1 waiting" in tried.out


def test_one_server_is_not_enough(
    cli: CommandLine, db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "name every shard" in CommandLine(db, capsys).tried("shards", "list").err
    assert "does not name slots" in cli.tried("shards", "move", "--slots", "x", "--to", "1").err


# One of each command that looks, as a user would type it. What they say of one database their own tests check.
LOOKS = (
    "events", "show {id}", "why {id}", "events --find {id}", "dead", "stats", "attention", "nodes", "workers",
    "admin-log", "queues", "queues show main", "schedules", "namespaces", "tokens", "roles", "checkpoints",
    "tail --after 0 --no-follow", "replay",
)  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
def test_every_look_works_over_all_shards(cli: CommandLine, three: Shards, look: str) -> None:
    with three.queue() as queue:
        ids = [queue.publish("seen", n, key=f"k{n}").id for n in range(6)]
    assert len({id % 64 for id in ids}) > 1
    said = cli(*look.format(id=ids[0]).split()).out
    if look.split()[0] in ("events", "tail", "replay") and "find" not in look:
        assert said.count("seen") == 6


def test_what_changes_works_over_all_shards(cli: CommandLine, three: Shards) -> None:
    for line in (
        'publish a {"n":1} --key k',
        "queues create mail --type mail.*",
        "queues set mail --max-retries 7",
        "pause mail",
        "resume mail",
        "namespaces create shop",
        "tokens create ci --scope publish",
        "checkpoint",
        "tokens revoke ci",
        "queues remove mail --yes",
    ):
        cli(*line.split())
    for part in three.parts:
        assert part.sql("select count(*) from headrace.namespaces where name = 'shop'") == [(1,)]
    said = cli("publish", "a", "--json").records
    assert cli("cancel", str(said[0]["id"]), "--yes").code == 0
    refused = cli.tried("events", "--namespace", "misspelt")
    assert "there is no namespace 'misspelt'" in refused.err
    for part in three.parts:
        assert part.sql("select count(*) from headrace.namespaces where name = 'misspelt'") == [
            (0,)
        ]


def test_a_replay_goes_on_where_it_was_on_every_shard(cli: CommandLine, three: Shards) -> None:
    with three.queue() as queue:
        for n in range(6):
            queue.publish("a", n)
        queue.complete(queue.poll(max_events=6))
        place = queue.checkpoint().checkpoint_id
        queue.publish("later")
    assert [one["type"] for one in cli("replay", "--json", "--from-checkpoint", place).records] == [
        "later"
    ]
    assert "Published again: 7 events" in cli("replay", "--to", "default").out
    assert "no checkpoint" in cli.tried("replay", "--from-checkpoint", "x").err


def test_what_works_on_one_database_says_so(cli: CommandLine) -> None:
    for line in ("bench", "state export main --output x"):
        assert "works on one database: name one of them" in cli.tried(*line.split()).err


def test_a_shard_that_does_not_answer_is_named_below_a_list(
    three: Shards, capsys: pytest.CaptureFixture[str]
) -> None:
    dsns = [*three.dsn[:2], "postgresql://127.0.0.1:1/away"]
    cli = CommandLine(three, capsys, [part for dsn in dsns for part in ("--dsn", dsn)])
    assert "No answer" in cli("events").err
    assert "No answer" in cli("shards").err


def test_databases_become_shards_in_the_order_in_which_they_are_named(
    server: Server, empty_db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    second = Database(server, server.create_database())
    where = ["--dsn", empty_db.dsn, "--dsn", second.dsn]
    cli = CommandLine(empty_db, capsys, where)
    cli("migrate", "--stride", "64")
    cli("migrate")
    assert "works on one" not in cli("shards", "spread").out
    assert [one["slots"] for one in cli("shards", "list", "--json").records] == [512, 512]
    assert (
        "--shard is for one database" in cli.tried("migrate", "--stride", "64", "--shard", "1").err
    )
    second.close()
    server.drop_database(second.name)


class TestDoctor:
    def test_shards_that_differ_are_told_and_settled(self, cli: CommandLine, three: Shards) -> None:
        def told() -> dict[str, list[str]]:
            found = cli.tried("doctor", "--json").records
            wrong = [one for one in found if one["about"] == "Shards" and one["state"] != "fine"]
            return {one["check"]: one["says"] for one in wrong}

        assert told() == {}
        with three.queue() as queue:
            queue.create_queue("mail", max_retries=5, limits=[{"scope": "queue", "at_once": 7}])
            queue.create_token("ci", ["publish"])
            queue.create_namespace("shop")
            queue.shards[1].change_queue("mail", max_retries=6)
            queue.shards[1].pause("main")
            queue.shards[2].revoke_token("ci")
            queue.shards[2].delete_namespace("shop")
            queue.shards[2].delete_queue("mail")
        found = told()
        assert set(found) == {"namespaces", "queue_settings", "tokens"}
        assert "mail is missing on" in found["queue_settings"] or "main" in found["queue_settings"]
        said = cli("shards", "settle").out
        assert "shard 2: created the queue default/mail" in said
        assert told() == {}
        assert "Nothing to do" in cli("shards", "settle").out
        with three.queue() as queue:
            shares = [one.queue("mail").limits[0].at_once for one in queue.shards.values()]
            assert queue.queue("mail").limits[0].at_once == sum(shares)

    def test_a_slot_with_two_homes_is_a_problem(self, cli: CommandLine, three: Shards) -> None:
        three.parts[1].sql("update headrace.slots set home = 1 where slot = 0")
        found = cli.tried("doctor", "--json").records
        [homes] = [one for one in found if one["check"] == "homes_of_keys"]
        assert homes["state"] == "problem"
        assert "1 slots of keys have several homes, as slot 0: shards [0, 1]" in homes["says"]

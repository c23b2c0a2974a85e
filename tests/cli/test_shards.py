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

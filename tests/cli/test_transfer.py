"""`headrace state`: a queue as a file."""

import json
from pathlib import Path

from tests.cli.running import CommandLine
from tests.database import Database


def test_a_queue_is_exported_and_imported(db: Database, cli: CommandLine, tmp_path: Path) -> None:
    db.queue().publish_many([("t", {"n": n}) for n in range(3)])
    file = tmp_path / "main.jsonl"
    said = cli("state", "export", "main", "--output", str(file))
    assert (said.out, said.err) == ("", "Exported default/main: 3 events.\n")
    assert list(tmp_path.iterdir()) == [file]
    done = cli("state", "import", str(file), "--as", "elsewhere/copy")
    assert done.out == "Imported elsewhere/copy: 3 ready, 0 delayed, 0 dead letters.\n"
    assert "The queue was created" in done.err
    assert "new ids" in done.err
    assert len(db.queue(namespace="elsewhere", queue="copy").poll(max_events=5)) == 3
    again = cli("state", "import", str(file), "--as", "elsewhere/copy")
    assert "0 ready" in again.out
    assert "ids" not in again.err, "nothing was imported that could have some"
    assert "3 events were in the queue already" in again.err
    assert "3 events were" in cli("state", "import", str(file)).err


def test_a_queue_is_named_with_its_namespace_or_without(db: Database, cli: CommandLine, tmp_path: Path) -> None:  # fmt: skip
    db.queue(namespace="shop").publish("t", {})
    file = str(tmp_path / "main.jsonl")
    assert "shop/main: 1 event" in cli("state", "export", "shop/main", "-o", file).err
    assert "shop/main: 1 event" in cli("state", "export", "main", "-n", "shop", "-o", file).err


def test_a_move_wants_a_paused_queue(db: Database, cli: CommandLine, tmp_path: Path) -> None:
    db.queue().publish("t", {})
    file = tmp_path / "main.jsonl"
    refused = cli.tried("state", "export", "main", "--move", "-o", str(file))
    assert refused.code == 1
    assert "must be paused" in refused.err
    assert list(tmp_path.iterdir()) == []
    cli("pause")
    cli("state", "export", "main", "--move", "-o", str(file))


def test_what_cannot_be_done_is_said_in_a_sentence(
    db: Database, cli: CommandLine, tmp_path: Path
) -> None:
    db.queue().publish("t", {})
    file = tmp_path / "main.jsonl"
    cli("state", "export", "main", "-o", str(file))
    file.write_bytes(file.read_bytes()[:-40])
    cut = cli.tried("state", "import", str(file), "--as", "new/queue")
    assert cut.code == 2
    assert "cut off or was changed" in cut.err
    assert [one.name for one in db.queue().namespaces()] == ["default"]
    assert cli.tried("state", "import", str(tmp_path / "nothing")).code == 2
    assert cli.tried("state", "import", str(file), "--as", "queue").code == 2
    assert cli.tried("state", "export", "nothing", "-o", str(file)).code == 2
    assert cli.tried("state", "export", "main", "-o", str(tmp_path / "no" / "file")).code == 1


def test_settings_are_given_by_the_names_that_the_state_has_for_them(
    db: Database, cli: CommandLine
) -> None:
    config = {
        **{"maxQueueDepth": 10000, "batchSize": 100, "processingInterval": 1000},
        **{"persistenceThreshold": 500, "highWatermark": 8000},
    }
    cli("queues", "create", "main-queue", "--config", json.dumps(config))
    assert db.queue(queue="main-queue").state()["config"] == config
    cli("queues", "set", "main-queue", "--config", '{"batchSize": null, "highWatermark": 7}')
    changed = {**config, "batchSize": None, "highWatermark": 7}
    assert db.queue(queue="main-queue").state()["config"] == changed
    twice = cli.tried("queues", "set", "main-queue", "--batch-size", "1", "--config", '{"batchSize": 1}')  # fmt: skip
    assert twice.code == 2
    assert "the same setting" in twice.err

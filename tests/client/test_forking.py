"""Processes that are forked after connecting: each has connections of its own, and the parent's are left alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.embedded.postmaster import announces_ready
from tests.database import Database
from tests.folders import short_folder
from tests.requirements import requirement

pytestmark = pytest.mark.one_database("how a client reaches one server")

PATIENCE = 60.0
ROOT = Path(__file__).parents[2]


def published(how: str, source: str) -> list[tuple[int, str]]:
    program = [sys.executable, "-W", "ignore", "-m", "tests.client.forking", how, source]
    done = subprocess.run(
        program, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return [(id, payload) for id, payload in json.loads(done.stdout.splitlines()[-1])]


@requirement("G1")
@pytest.mark.parametrize(
    "how",
    [
        "process",
        "pool",
        "executor",
        "threads",
        "together",
        "grandchild",
        "leaving",
        "awaited",
        "locked",
    ],
)
def test_forked_publishers_and_their_parent_are_told_the_truth(db: Database, how: str) -> None:
    told = published(how, db.dsn)
    stored = db.sql("select e.id, e.payload #>> '{}' from headrace.events e where type = 'a'")
    assert sorted(told) == sorted(stored)
    assert len({payload for _, payload in told}) == len(told)


def test_a_node_does_not_run_in_a_forked_child(db: Database) -> None:
    [(_, said)] = published("node", db.dsn)
    by_context, by_node, by_connection = json.loads(said)
    assert "this process was forked from it" in by_context
    assert "runs in the process that this one was forked from" in by_node
    assert by_connection == "the connection is closed"
    assert db.sql("select n from effects") == [(2,)]


def test_an_embedded_server_stays_for_a_forked_child() -> None:
    with short_folder() as folder:
        told = published("embedded", str(folder / "data"))
        assert [payload for _, payload in told] == ["child-0", "child after-0"]
        assert not announces_ready(folder / "data" / "pg"), "the child was its last user"

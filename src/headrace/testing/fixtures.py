"""The fixtures of the pytest plugin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client import EventQueue, connect
from headrace.testing.database import Database, database
from headrace.testing.world import World, enter, leave


@pytest.fixture(scope="session")
def headrace_database() -> Iterator[Database]:
    """A database with Headrace for the whole test run; its `dsn` is the address."""
    with database() as made:
        yield made


@pytest.fixture
def headrace_namespace() -> str:
    """The namespace of `headrace_queue`; override this fixture to use another."""
    return "default"


@pytest.fixture
def headrace_dsn(headrace_database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of the database, empty at the start of the test; `headrace.connect()` uses it."""
    monkeypatch.setenv("HEADRACE_DSN", headrace_database.dsn)
    yield headrace_database.dsn
    headrace_database.empty()


@pytest.fixture
def headrace_queue(
    headrace_dsn: str, headrace_database: Database, headrace_namespace: str
) -> Iterator[EventQueue]:
    """A queue in the empty database; `drain`, `advance` and `assert_published` use it too."""
    with connect(headrace_dsn, namespace=headrace_namespace) as queue:
        world = World(headrace_database, headrace_namespace, queue)
        enter(world)
        yield queue
        leave(world)

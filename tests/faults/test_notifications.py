"""PostgreSQL's queue of notifications: whoever may connect can fill it, and publishing goes on."""

from collections.abc import Iterator

import psycopg
import pytest

from headrace.embedded import EmbeddedPostgres
from headrace.install.migrate import migrate
from tests.database import Server
from tests.folders import short_folder
from tests.requirements import requirement


@pytest.fixture
def cramped(server: Server) -> Iterator[str]:
    """A server of its own, whose queue of notifications is small."""
    if server.version < 17:
        pytest.skip("the queue of notifications is of one size before PostgreSQL 17")
    settings = {"fsync": "off", "max_notify_queue_pages": "64"}
    with short_folder() as folder, EmbeddedPostgres(folder / "data", settings=settings) as postgres:
        yield postgres.dsn


def notify_for_ever(outsider: psycopg.Connection) -> None:
    while True:
        outsider.execute(
            "select pg_notify('anything', repeat('x', 7000) || n) from generate_series(1, 9) n"
        )


@requirement("G19")
def test_publishing_works_though_an_outsider_has_filled_the_queue_of_notifications(
    cramped: str,
) -> None:
    with psycopg.connect(cramped, autocommit=True) as sleeper, psycopg.connect(cramped) as idle:
        migrate(sleeper)
        idle.execute("listen anything")
        idle.commit()
        idle.execute("select 1")  # and reads nothing before its transaction ends
        with (
            psycopg.connect(cramped, autocommit=True) as outsider,
            pytest.raises(psycopg.Error, match="too many notifications"),
        ):
            notify_for_ever(outsider)
        sleeper.execute("select headrace.fall_asleep('default')")
        with psycopg.connect(cramped, autocommit=True) as publisher:
            publisher.execute("select headrace.publish('default', '{}')")
            publisher.execute("select headrace.publish_one('default', 'event', '{}')")

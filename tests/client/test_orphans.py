"""A DSN of several hosts, one of which is an orphan: it says that it takes writes, and no commit of it ever ends."""

from collections.abc import Iterator

import pytest
from psycopg.conninfo import conninfo_to_dict

import headrace
from headrace import OutcomeUnknown
from headrace.driver import hosts
from tests.folders import short_folder
from tests.laboratory.house import eventually
from tests.laboratory.pair import Pair
from tests.requirements import requirement

PUBLISHED = "select from headrace.events where id = %s"
TIMEOUT = 2.0


@pytest.fixture(autouse=True)
def nothing_is_known_of_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "_since", {})


@pytest.fixture
def pair() -> Iterator[Pair]:
    with short_folder() as folder:
        pair = Pair(folder, synchronous=True)
        try:
            yield pair
        finally:
            pair.close()


def make_an_orphan(pair: Pair) -> None:
    """Of the first, which is the first of the DSN too."""
    pair.second.sql("select pg_promote()")
    eventually(lambda: pair.second.sql("select not pg_is_in_recovery()")[0][0])
    eventually(lambda: not pair.first.sql("select from pg_stat_replication"))


@requirement("G20")
def test_a_client_leaves_an_orphan_after_one_call(pair: Pair) -> None:
    with headrace.connect(pair.dsn, migrate=False, timeout=TIMEOUT) as queue:
        queue.publish("t")
        make_an_orphan(pair)
        with pytest.raises(OutcomeUnknown):
            queue.publish("t")
        event = queue.publish("t")
    assert pair.second.sql(PUBLISHED, event.id)


@requirement("G20")
@pytest.mark.anyio
async def test_a_client_for_asyncio_leaves_an_orphan_after_one_call(pair: Pair) -> None:
    async with await headrace.connect_async(pair.dsn, migrate=False, timeout=TIMEOUT) as queue:
        await queue.publish("t")
        make_an_orphan(pair)
        with pytest.raises(OutcomeUnknown):
            await queue.publish("t")
        event = await queue.publish("t")
    assert pair.second.sql(PUBLISHED, event.id)


@pytest.mark.parametrize(
    ("dsn", "avoided", "host", "port"),
    [
        ("host=a,b,c port=1,2,3", ("a", "1"), "b,c,a", "2,3,1"),
        ("host=a,b,c port=5432", ("b", "5432"), "a,c,b", "5432"),
        ("host=a,b", ("a", "5432"), "b,a", None),
        ("host=a,b port=1,2", ("a", "2"), "a,b", "1,2"),
        ("host=a port=1", ("a", "1"), "a", "1"),
    ],
)
def test_the_host_that_is_avoided_is_tried_last(
    dsn: str, avoided: tuple[str, str], host: str, port: str | None
) -> None:
    hosts.avoid(*avoided)
    found = conninfo_to_dict(hosts.ordered(dsn))
    assert (found["host"], found.get("port")) == (host, port)


def test_a_host_is_tried_in_its_turn_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts.avoid("a", "1")
    monkeypatch.setattr(hosts, "AVOIDED", 0.0)
    assert hosts.ordered("host=a,b port=1,2") == "host=a,b port=1,2"


def test_only_connections_that_were_there_before_are_given_up() -> None:
    hosts.avoid("a", "1")
    since = hosts._since["a", "1"]
    assert hosts.was_left("a", "1", since - 1)
    assert not hosts.was_left("a", "1", since + 1)
    assert not hosts.was_left("b", "1", since - 1)

"""Behind a million finished events, every request that the dashboard makes is answered at once."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Request, expect

from tests.browser.visitor import Visitor
from tests.browser.world import World, make
from tests.database import Database, Server
from tests.server.running import Running, running

FINISHED = 1_000_000
AT_ONCE = 0.2  # seconds for 95 of a hundred answers
TIMES, ROUNDS = 40, 2

# As a year of work would have left them, but for their time: 20 types, of which one is rare, tags, chains.
EVENTS = """
insert into headrace.events (id, created_at, route, namespace, version, priority, type, tags, payload, details)
select %(first)s + g, %(now)s, headrace._route(t.type, array['eu']), %(namespace)s, 1, 5, t.type, '{eu}', '{"n": 1}',
       case when g %% 10 = 0 then jsonb_build_object('correlation_id', (%(first)s + g / 100)::text, 'causation_id', (%(first)s + g / 10)::text) end
from generate_series(0, %(count)s - 1) g
cross join lateral (select case when g %% 100000 = 7 then 'rare' else 'kind.' || g %% 20 end as type) t
"""
ROUTES = """
insert into headrace.routes (namespace, route, type, tags, created_at)
select %(namespace)s, headrace._route(type, array['eu']), type, '{eu}', %(now)s
from (select 'kind.' || n as type from generate_series(0, 19) n union all select 'rare') t
"""
ENDS = """
insert into headrace.outcomes (id, at, picked_at, bucket, lease, namespace, queue, action, worker, events, attempts, positions, ms)
select nextval('headrace.ids'), %(now)s, %(now)s, (%(first)s + g) >> 10, nextval('headrace.ids'), %(namespace)s, %(queue)s, 'COMPLETED',
       'w:' || min(g) %% 50, array_agg(%(first)s + g order by g), array_agg(1), '{0}', array_agg(5)
from generate_series(0, %(count)s - 1) g
group by (%(first)s + g) >> 10, g / 100
"""


def finish_many(db: Database, namespace: str, count: int) -> None:
    [(space, queue, first, now)] = db.sql(
        "select q.namespace, q.id, nextval('headrace.ids') + 1, headrace._now() - interval '10 minutes'"
        " from headrace.queues q where q.space = %s and q.name = 'main'",
        [namespace],
    )
    values = {"namespace": space, "queue": queue, "first": first, "now": now, "count": count}
    db.sql("select setval('headrace.ids', %(first)s + %(count)s + 1)", values)
    for statement in (ROUTES, EVENTS, ENDS):
        db.sql(statement, values)
    db.sql("vacuum analyze")


@pytest.fixture(scope="module")
def house(server: Server) -> Iterator[Running]:
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    with running(database) as started:
        yield started
    database.close()
    server.drop_database(database.name)


@pytest.fixture(scope="module")
def world(house: Running) -> World:
    house.db.sql("select headrace.create_namespace('old')")
    finish_many(house.db, "old", FINISHED)
    return make(house.db, "old")


PLACES = (
    *(f"overview?range={range}" for range in ("15m", "1h", "6h", "24h", "7d")),
    *("events", "events?status=COMPLETED", "events?status=PENDING,PROCESSING"),
    *("events?status=FAILED,COMPLETED_WITH_ERRORS", "events?status=CANCELLED", "events?tags=eu"),
    *("events?types=kind.3", "events?types=rare", "events?types=kind.*&status=COMPLETED"),
    *("events?within=15m", "events?within=7d&status=COMPLETED", "events?key=customer-7"),
    *("events?q=kind", "events?q=rare", "events?q={world.cause}", "events?q=nothing"),
    *("events?before={world.cause}", "events?after=1000", "events/{world.dead[0]}"),
    *("queues", "queues/main", "dead", "workers", "schedules"),
)


def asked_for(visitor: Visitor, world: World) -> set[str]:
    """The addresses that the page asks, in all views and with all filters."""
    asked: set[str] = set()

    def note(request: Request) -> None:
        path = urlsplit(request.url).path
        if not path.startswith("/dashboard/") and path not in ("/", "/events/stream"):
            asked.add(request.url)

    visitor.page.on("request", note)
    for place in PLACES:
        path, _, query = place.format(world=world).partition("?")
        visitor.open(f"{path}?{query}&namespace=old")
        expect(visitor.page.locator("#heading")).to_be_visible()
        expect(visitor.page.locator(".skeleton")).to_have_count(0)
    return asked


def p95(ask: Callable[[], Any]) -> float:
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        ask()
        took.append(time.perf_counter() - began)
    return statistics.quantiles(took, n=20)[-1]


@pytest.mark.long
@pytest.mark.matrix  # it takes a minute, and measures what is beside it, too
@pytest.mark.timeout(900)
def test_every_request_is_answered_at_once_behind_a_million_finished_events(
    visitors: Callable[..., Visitor], house: Running, world: World
) -> None:
    asked = asked_for(visitors(), world)
    assert len(asked) > 30
    slow: dict[str, float] = {}
    with httpx.Client(timeout=60) as client:
        for address in sorted(asked):
            assert client.get(address).status_code == 200, address
            # The best of some rounds: somebody else may be busy on this machine, and never for all of them.
            best = min(p95(lambda: client.get(address)) for _ in range(ROUNDS))  # noqa: B023
            print(f"{best * 1000:7.1f} ms  {address.removeprefix(house.url)}")
            if best > AT_ONCE:
                slow[address.removeprefix(house.url)] = best
    assert slow == {}

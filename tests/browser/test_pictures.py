"""The pictures of README and docs: taken of a shop on a busy afternoon. `make pictures` writes them to docs/pictures/."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visitor import PHONE, Visitor
from tests.browser.world import TRACEBACK, register
from tests.server.running import Running

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = {"width": 1360, "height": 850}
COUNTER = {"width": 1360, "height": 1000}

# An hour with its waves, a rush, and ten minutes in which the bank did not answer: by five seconds.
LIFE = """
create function headrace_test.bump(x float8) returns float8 language sql as 'select 1 / (1 + power(x, 4))';
create function headrace_test.live_through_an_afternoon(space text) returns void language plpgsql as $$
declare
    its constant headrace.queues := (select q from headrace.queues q where q.space = live_through_an_afternoon.space and q.name = 'main');
    t constant timestamptz := date_bin('5 seconds', headrace.now(), 'epoch');
begin
    create temp table life as
    select t - n * interval '5 seconds' as at, w.wave, w.trouble, w.rush,
           greatest(0, 240 * w.wave + 900 * w.rush + 15 * sin(n * 2.3))::int as published
    from generate_series(1, 780) n
    cross join lateral (
        select 1 + 0.35 * sin(n / 41.0) + 0.12 * sin(n / 7.0) as wave,
               case when n between 90 and 210 then sin((n - 90) / 120.0 * pi()) else 0 end as trouble,
               headrace_test.bump((n - 420) / 9.0) as rush
    ) w;
    insert into headrace.moments (queue, at, published, completed, failed, retried, dead)
    select its.id, l.at, l.published, (l.published * (1 - 0.1 * l.trouble) + 500 * headrace_test.bump((extract(epoch from t - l.at) / 5 - 405) / 16.0) - 480 * l.rush)::int,
           (2 + 34 * l.trouble)::int, (2 + 30 * l.trouble)::int, (5 * l.trouble)::int
    from life l
    on conflict do nothing;
    insert into headrace.samplings (step, at, reached)
    select distinct s, date_bin(make_interval(secs => s), l.at, 'epoch'), 0 from life l cross join unnest('{5,20}'::int[]) s
    on conflict do nothing;
    insert into headrace.history (queue, step, at, depth, oldest_age, waits, runs)
    select its.id, s, date_bin(make_interval(secs => s), l.at, 'epoch') as at, max((40 * l.wave + 1800 * l.rush + 500 * l.trouble)::int),
           max(2 * l.wave + 30 * l.rush + 12 * l.trouble),
           headrace_test.spread(avg(18 + 14 * l.rush + 6 * l.trouble)::float8), headrace_test.spread(avg(16 + 5 * l.trouble)::float8)
    from life l cross join unnest('{5,20}'::int[]) s
    group by s, date_bin(make_interval(secs => s), l.at, 'epoch')
    on conflict do nothing;
end $$;
create function headrace_test.spread(middle float8) returns int[] language sql as $$
    select array_agg((1000 * headrace_test.bump((b - middle) / 3.2) + 60 * headrace_test.bump((b - middle - 7) / 2.5))::int order by b) from generate_series(1, 50) b
$$;
"""


@pytest.fixture(scope="module")
def shop(house: Running) -> int:
    """A shop on a busy afternoon; the event whose story is worth a picture."""
    db = house.db
    db.sql(LIFE)
    queue = db.queue(namespace="shop", worker="till-2:812")
    queue.create_queue("mail", types=["mail.*"])
    queue.create_queue("audit")
    for n in (1, 2, 3):
        handles = ["order.*", "payment.*"] if n < 3 else ["mail.*", "report.*"]
        register(db, "shop", f"till-{n}", f"till-{n}:81{n}", handles, display_name=f"Till {n}")
    queue.schedule_task("nightly-report", "0 2 * * *", "report.due", timezone="Europe/Berlin")
    queue.schedule_task("stock-count", "*/15 * * * *", "stock.count")
    story = trouble(queue)
    for n in range(40):
        order = queue.publish(
            "order.created", {"order": 4100 + n}, tags=["eu", "card"], title=f"Order {4100 + n}"
        )
        [claimed] = queue.poll(types=["order.created"], max_events=1)
        queue.complete(claimed, execution_time_ms=20 + n)
        queue.publish(
            "payment.captured",
            {"order": 4100 + n},
            causation_id=str(order.id),
            correlation_id=str(order.id),
        )
    db.sql("select headrace_test.live_through_an_afternoon('shop')")
    db.sql("select headrace.tick()")
    return story


def trouble(queue: Any) -> int:
    """Payments that fail, some for good; the first was caused by an order, and has caused a mail."""
    order = queue.publish("order.created", {"order": 4099}, title="Order 4099", tags=["eu"])
    lineage = {"correlation_id": str(order.id)}
    payload = {"order": 4099, "amount": {"value": "129.90", "currency": "EUR"}, "method": "card"}
    story = queue.publish(
        "payment.capture",
        payload,
        title="Capture 129.90 EUR",
        tags=["eu", "card"],
        max_retries=3,
        causation_id=str(order.id),
        **lineage,
    )
    queue.publish("mail.receipt", {"order": 4099}, causation_id=str(story.id), **lineage)
    errors = ("TimeoutError: the bank did not answer in 10 s", TRACEBACK, TRACEBACK)
    for ms, error in zip((10_004, 412, 388), errors, strict=True):
        fail(queue, "payment.capture", error, ms)
    for n in range(12):
        queue.publish("payment.capture", {"order": 4000 + n}, max_retries=1)
        fail(queue, "payment.capture", TRACEBACK, 400 + n)
    for n in range(3):
        queue.publish("mail.receipt", {"order": 4000 + n}, max_retries=1)
        fail(queue, "mail.receipt", f"ValueError: order {4000 + n} has no address", 9)
    return int(story.id)


def fail(queue: Any, type: str, error: str, ms: int) -> None:
    [claimed] = queue.poll(types=[type], max_events=1)
    queue.fail(claimed, error=error, execution_time_ms=ms, retry_in=0)


PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "overview": ("overview?range=1h", {"viewport": COUNTER}),
    "overview-dark": ("overview?range=1h", {"viewport": COUNTER, "color_scheme": "dark"}),
    "event": ("events/{story}?", {"viewport": SIZE}),
    "events": ("events?", {"viewport": SIZE}),
    "dead-letters": ("dead?", {"viewport": SIZE}),
    "queues": ("queues?", {"viewport": {"width": 1360, "height": 560}}),
    "phone": ("overview?range=1h", {"viewport": PHONE, "device_scale_factor": 2}),
}


@pytest.mark.rest
@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_taken(
    visitors: Callable[..., Visitor], house: Running, shop: int, name: str
) -> None:
    place, options = PICTURES[name]
    visitor = visitors(**options)
    visitor.open(f"{place.format(story=shop)}&namespace=shop")
    expect(visitor.page.locator("#heading")).to_be_visible()
    expect(visitor.page.locator(".skeleton")).to_have_count(0)
    expect(visitor.page.locator(".live")).to_contain_text("Live")
    visitor.page.mouse.move(0, 0)
    picture = visitor.page.screenshot()
    assert 10_000 < len(picture) < 600_000
    if os.environ.get("HEADRACE_WRITE_PICTURES"):
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.png").write_bytes(picture)

"""The pictures of README and docs: taken of a shop on a busy afternoon. `make pictures` writes them to docs/pictures/."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visitor import PHONE, Visitor
from tests.browser.world import TRACEBACK, register
from tests.database import Database
from tests.server.running import Running

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = {"width": 1360, "height": 850}
TALL = {"width": 1360, "height": 1160}

# An hour with its waves, a rush, and ten minutes in which the bank did not answer: by five seconds.
LIFE = """
create function headrace_test.bump(x float8) returns float8 language sql as 'select 1 / (1 + power(x, 4))';
create function headrace_test.live_through_an_afternoon(space text) returns void language plpgsql as $$
declare
    its constant headrace.queues := (select q from headrace.queues q where q.space = live_through_an_afternoon.space and q.name = 'main');
    t constant timestamptz := date_bin('5 seconds', headrace._now(), 'epoch');
begin
    delete from headrace.moments m where m.queue = its.id;
    delete from headrace.history h where h.queue = its.id;
    create temp table life as
    select n, t - n * interval '5 seconds' as at, w.wave, w.trouble, w.rush,
           greatest(0, 240 * w.wave + 900 * w.rush + 15 * sin(n * 2.3))::int as published
    from generate_series(1, 780) n
    cross join lateral (
        select 1 + 0.35 * sin(n / 41.0) + 0.12 * sin(n / 7.0) as wave,
               case when n between 90 and 210 then sin((n - 90) / 120.0 * pi()) else 0 end as trouble,
               headrace_test.bump((n - 420) / 9.0) as rush
    ) w;
    insert into headrace.moments (queue, at, published, completed, failed, retried, dead)
    select its.id, l.at, l.published, (l.published * (1 - 0.1 * l.trouble) + 500 * headrace_test.bump((extract(epoch from t - l.at) / 5 - 405) / 16.0) - 480 * l.rush)::int,
           (2 + 34 * l.trouble)::int, (2 + 30 * l.trouble)::int, (l.trouble > 0.1 and l.n % 8 = 0)::int
    from life l;
    insert into headrace.stats (minute, namespace, queue, published, completed, failed, retried, abandoned, dead, attempts, timed, ms)
    select date_trunc('minute', m.at), its.namespace, its.id, sum(m.published), sum(m.completed), sum(m.failed), sum(m.retried), 0, sum(m.dead),
           sum(m.completed + m.failed), 0, 0
    from headrace.moments m where m.queue = its.id group by 1
    on conflict (queue, minute) do update set completed = excluded.completed, attempts = excluded.attempts;
    insert into headrace.samplings (step, at, reached)
    select distinct s, date_bin(make_interval(secs => s), l.at, 'epoch'), 0 from life l cross join unnest('{5,20}'::int[]) s
    on conflict do nothing;
    insert into headrace.history (queue, step, at, depth, oldest_age, waits, runs)
    select its.id, s, date_bin(make_interval(secs => s), l.at, 'epoch') as at, max((6 * l.wave + 1800 * l.rush + 500 * l.trouble)::int),
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
    db.sql("select setval('headrace.ids', 48210)")
    db.advance(minutes=-17)  # and from there it goes on to now
    queue = db.queue(namespace="shop", worker="till-2:812")
    queue.create_queue("mail", types=["mail.*"])
    queue.create_queue("audit")
    story = trouble(db, queue)
    for name in ("main", "mail", "audit"):
        finish(db.queue(namespace="shop", queue=name, worker="till-2:812"))
    db.sql("update headrace_test.clock set shift = '0'")
    db.sql("select headrace_test.live_through_an_afternoon('shop')")
    for n in (1, 2, 3):  # heard of just now
        handles = ["order.*", "payment.*"] if n < 3 else ["mail.*", "report.*", "stock.*"]
        register(db, "shop", f"till-{n}", f"till-{n}:81{n}", handles, display_name=f"Till {n}")
    queue.schedule_task("nightly-report", "0 2 * * *", "report.due", timezone="Europe/Berlin")
    queue.schedule_task("stock-count", "*/15 * * * *", "stock.count")
    db.sql("select headrace.tick()")
    return story


def trouble(db: Database, queue: Any) -> int:
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
        db.advance(seconds=0.8)
        fail(db, queue, "payment.capture", error, ms)
        db.advance(minutes=2)
    for n in range(12):
        queue.publish("payment.capture", {"order": 4000 + n}, max_retries=1)
        fail(db, queue, "payment.capture", TRACEBACK, 400 + n)
    for n in range(3):
        queue.publish("mail.receipt", {"order": 4000 + n}, max_retries=1)
        fail(db, queue, "mail.receipt", f"ValueError: order {4000 + n} has no address", 9)
        db.advance(minutes=1)
    return int(story.id)


def fail(db: Database, queue: Any, type: str, error: str, ms: int) -> None:
    [claimed] = queue.poll(types=[type], max_events=1)
    db.advance(seconds=ms / 1000)
    queue.fail(claimed, error=error, execution_time_ms=ms, retry_in=0)


PICTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "overview": ("overview?range=1h", {"viewport": TALL}),
    "overview-dark": ("overview?range=1h", {"viewport": TALL, "color_scheme": "dark"}),
    "event": ("events/{story}?", {"viewport": SIZE}),
    "events": ("events?", {"viewport": SIZE}),
    "dead-letters": ("dead?", {"viewport": SIZE}),
    "phone": ("overview?range=1h", {"viewport": PHONE, "device_scale_factor": 2}),
}


def finish(queue: Any) -> None:
    """What is left, in time."""
    while claims := queue.poll(max_events=100):
        for claimed in claims:
            queue.complete(claimed, execution_time_ms=20 + claimed.id % 30)


def keep_busy(house: Running) -> None:
    """Have something happen while somebody looks: in each of the kinds there are."""
    queue = house.db.queue(namespace="shop", worker="till-1:811")
    audit = house.db.queue(namespace="shop", queue="audit", worker="till-3:813")
    for n in range(4210, 4217):
        order = queue.publish("order.created", {"order": n}, title=f"Order {n}", tags=["eu", "web"])
        lineage = {"causation_id": str(order.id), "correlation_id": str(order.id)}
        tags, title = ["eu", "card"], f"Capture {n}.90 EUR"
        queue.publish("payment.capture", {"order": n}, title=title, tags=tags, **lineage)
        finish(audit)
        for claimed in queue.poll(max_events=2, lease=3600):
            if n < 4216 or claimed.type == "order.created":
                queue.complete(claimed, execution_time_ms=18 + 7 * claimed.id % 40)
    queue.publish("order.remind", {"order": 4199}, title="Order 4199", tags=["eu"], delay=3600)
    finish(audit)


def set_the_scene(house: Running, visitor: Visitor, name: str) -> None:
    page = visitor.page
    if name.startswith("overview"):
        keep_busy(house)
        expect(page.locator(".ticker li")).to_have_count(12)
    elif name == "dead-letters":
        page.locator(".unfold").first.click()
        page.locator(".letter summary").first.click()
        expect(page.locator(".letter pre.json").first).to_be_visible()
    page.mouse.move(0, 0)


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
    set_the_scene(house, visitor, name)
    picture = visitor.page.screenshot()
    assert 10_000 < len(picture) < 600_000
    if os.environ.get("HEADRACE_WRITE_PICTURES"):
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.png").write_bytes(picture)

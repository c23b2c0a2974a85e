"""Every view shows what there is, in any browser's own words, and the browser complains of nothing."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visitor import DESKTOP, PHONE, Visitor
from tests.browser.world import World
from tests.server.running import Running

REST = pytest.mark.rest


def test_every_view_shows_what_there_is(visitor: Visitor, world: World) -> None:
    space = f"namespace={world.namespace}"
    page = visitor.open(f"overview?{space}", "Overview").page
    expect(page.locator(".figures")).to_contain_text(re.compile(r"Dead letters\s*5"))
    expect(page.locator(".charts svg").first).to_be_visible()
    expect(page.locator(".shards")).to_have_count(0)  # there is one database
    visitor.sees(
        re.compile("The queue main has 5 new dead letters in the last hour, 4 with the same error")
    )

    visitor.open(f"events?{space}", "Events")
    expect(visitor.row("order.paid")).to_contain_text("completed")
    expect(visitor.row("order.remind")).to_contain_text("delayed")
    expect(visitor.row("order.pack")).to_contain_text("processing")

    visitor.open(f"events/{world.dead[0]}?{space}", "order.charge")
    visitor.sees("ConnectionError: the gateway does not answer")
    page.get_by_text("Traceback", exact=True).click()
    visitor.sees(re.compile('File "billing.py", line 41'))
    expect(page.locator(".json")).to_contain_text('"order": 0')

    expect(page.locator(".reasons")).to_have_count(0)  # it has ended

    visitor.open(f"events/{world.delayed}?{space}", "order.remind")
    expect(page.get_by_role("list", name="What it waits for")).to_contain_text(
        "it is delayed until"
    )

    visitor.open(f"events/{world.caused}?{space}", "mail.send")
    expect(page.locator(".family")).to_contain_text("Caused by")
    page.locator(".family").get_by_role("link", name=re.compile("order.created")).click()
    visitor.sees_heading("order.created")
    visitor.sees("The seventh")
    expect(page.locator(".family")).to_contain_text("Caused 1 event")

    visitor.open(f"queues?{space}", "Queues")
    expect(visitor.row("mail")).to_contain_text("active")
    visitor.row("mail").get_by_role("link", name="mail", exact=True).click()
    visitor.sees_heading("mail")
    visitor.sees("3, then a dead letter")

    visitor.open(f"dead?{space}", "Dead letters")
    page.get_by_role("button", name=re.compile("ConnectionError")).first.click()
    expect(page.locator(".letter")).to_have_count(4)

    visitor.open(f"workers?{space}", "Workers")
    expect(visitor.row("till-1").first).to_contain_text("alive")

    visitor.open(f"schedules?{space}", "Schedules")
    expect(visitor.row("nightly")).to_contain_text("Europe/Berlin")


@REST
@pytest.mark.parametrize(
    ("place", "heading", "says"),
    [
        ("overview", "Overview", "No activity yet"),
        ("events", "Events", "No events yet"),
        ("events?status=FAILED", "Events", "No matches"),
        ("events/999999999", "Event", "Event not found"),
        ("queues", "Queues", "Only one queue so far"),
        ("queues/nothing", "nothing", "Queue not found"),
        ("dead", "Dead letters", "No dead letters"),
        ("workers", "Workers", "No nodes yet"),
        ("schedules", "Schedules", "No schedules yet"),
        ("nowhere", "Overview", "No activity yet"),
    ],
)
def test_where_there_is_nothing_it_says_what_to_do(
    visitor: Visitor, house: Running, place: str, heading: str, says: str
) -> None:
    path, _, query = place.partition("?")
    visitor.open(f"{path}?{query}&namespace={house.new_namespace()}", heading)
    visitor.sees(says)
    if place in ("events/999999999", "queues/nothing"):
        assert any("404" in said for said in visitor.complaints)
        visitor.forgive("404")


@REST
def test_what_is_published_is_seen_without_asking(visitor: Visitor, world: World) -> None:
    visitor.open(f"events?namespace={world.namespace}", "Events")
    expect(visitor.page.locator(".live")).to_contain_text("Live")
    visitor.page.mouse.move(0, 0)  # it stands still under the pointer
    world.queue.publish("order.late", {})
    expect(visitor.row("order.late")).to_be_visible()
    visitor.open(f"overview?namespace={world.namespace}", "Overview")
    expect(visitor.page.locator(".live")).to_contain_text("Live")
    visitor.page.get_by_role("button", name="All", exact=True).click()
    world.queue.publish("order.ticked", {})
    expect(visitor.page.locator(".ticker")).to_contain_text("order.ticked")


@REST
def test_filters_and_search_are_in_the_address(visitor: Visitor, world: World) -> None:
    page = visitor.open(f"events?namespace={world.namespace}", "Events").page
    page.get_by_role("button", name="Failed", exact=True).click()
    expect(visitor.row("order.charge")).to_have_count(4)
    expect(visitor.row("order.paid")).to_have_count(0)
    expect(page).to_have_url(re.compile("status=FAILED"))
    page.reload()
    expect(visitor.row("order.charge")).to_have_count(4)
    page.get_by_role("button", name="Clear", exact=True).click()
    page.get_by_label("Tags").fill("card")
    expect(visitor.row("order.paid")).to_have_count(1)
    expect(visitor.row("order.charge")).to_have_count(0)
    expect(page).to_have_url(re.compile("tags=card"))
    page.get_by_role("button", name="Clear", exact=True).click()
    for sought, found in (
        (str(world.delayed), "order.remind"),
        (str(world.cause), "mail.send"),
        ("order.shi", "order.ship"),
    ):
        page.locator("#search").fill(sought)
        expect(page).to_have_url(re.compile(f"q={sought}"))
        expect(visitor.row(found)).to_have_count(1)
        expect(visitor.row("order.charge")).to_have_count(0)


@REST
def test_a_list_is_paged_through_and_back(visitor: Visitor, house: Running) -> None:
    space = house.new_namespace()
    house.db.queue(namespace=space).publish_many([{"type": f"t{n:03}"} for n in range(120)])
    page = visitor.open(f"events?namespace={space}", "Events").page
    expect(visitor.row("t119")).to_be_visible()
    visitor.press("Older")
    expect(visitor.row("t069")).to_be_visible()
    visitor.press("Older")
    expect(visitor.row("t000")).to_be_visible()
    page.go_back()
    expect(visitor.row("t069")).to_be_visible()
    visitor.press("Newer")
    expect(visitor.row("t119")).to_be_visible()


@REST
def test_the_namespace_is_chosen_at_the_top(visitor: Visitor, world: World) -> None:
    page = visitor.open("events", "Events").page
    page.get_by_label("Namespace").select_option(world.namespace)
    expect(visitor.row("order.paid")).to_be_visible()
    expect(page).to_have_url(re.compile(f"namespace={world.namespace}"))


@REST
def test_who_comes_to_a_namespace_that_is_not_there_is_told_which_are(
    visitor: Visitor, world: World
) -> None:
    page = visitor.open("events?namespace=nowhere", "Namespace not found").page
    visitor.sees("Namespace ‘nowhere’ does not exist")
    visitor.sees("Not live")
    expect(page.get_by_text("Connecting …")).to_have_count(0)
    page.get_by_role("link", name=world.namespace, exact=True).click()
    visitor.sees_heading("Events")
    expect(visitor.row("order.paid")).to_be_visible()
    visitor.sees("Live")


@REST
def test_what_needs_attention_leads_to_where_it_is(visitor: Visitor, world: World) -> None:
    world.queue.pause()
    page = visitor.open(f"overview?namespace={world.namespace}", "Overview").page
    page.get_by_role("link", name=re.compile("View: .* was paused")).click()
    visitor.sees_heading("main")
    page.go_back()
    page.get_by_role("link", name=re.compile("View: .* dead letters")).click()
    visitor.sees_heading("Dead letters")
    expect(page.locator(".letter")).to_have_count(4)


@REST
@pytest.mark.parametrize("viewport", [PHONE, {"width": 768, "height": 1024}, DESKTOP])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_view_is_wider_than_its_window(
    visitors: Callable[..., Visitor], world: World, viewport: Any, colours: str
) -> None:
    visitor = visitors(viewport=viewport, color_scheme=colours)
    visitor.open(f"overview?namespace={world.namespace}", "Overview")
    brightness = visitor.page.evaluate(BRIGHTNESS)
    assert (brightness < 100) == (colours == "dark"), brightness
    for place in PLACES:
        visitor.open(f"{place.format(world=world)}?namespace={world.namespace}")
        expect(visitor.page.locator("#heading")).to_be_visible()
        expect(visitor.page.locator(".skeleton")).to_have_count(0)
        visitor.has_nothing_to_scroll_sideways()


BRIGHTNESS = r"Math.max(...getComputedStyle(document.documentElement).backgroundColor.match(/\d+/g).slice(0, 3))"
PLACES = (
    *("overview", "events", "events/{world.dead[0]}", "queues", "queues/mail"),
    *("dead", "workers", "schedules"),
)


@REST
def test_what_is_far_back_is_looked_for_stretch_by_stretch(
    visitor: Visitor, house: Running
) -> None:
    space = house.new_namespace()
    queue = house.db.queue(namespace=space)
    rare = queue.publish("rare").id
    house.db.sql("select setval('headrace.ids', nextval('headrace.ids') + 120000)")
    queue.publish("common")
    page = visitor.open(f"events?types=rare&namespace={space}", "Events").page
    visitor.sees(re.compile("No matches yet. Searched back to event"))
    visitor.press("Search older")
    expect(visitor.row(str(rare))).to_be_visible()
    expect(page).to_have_url(re.compile("before="))
    visitor.press("Newest")
    visitor.sees(re.compile("No matches yet"))

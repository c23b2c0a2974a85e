"""Everybody can use it: checks that a machine can make, and paths without a pointer."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.test_views import PLACES
from tests.browser.visitor import DESKTOP, PHONE, Visitor
from tests.browser.world import World
from tests.server.running import Running

REST = pytest.mark.rest


def findings(visitor: Visitor) -> list[str]:
    """What a machine finds wrong and says is serious, with where it is."""
    result: Any = Axe().run(visitor.page)
    return [
        f"{one['id']} ({one['impact']}): {node['target']} {node.get('failureSummary', '')}"
        for one in result.response["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def checked(visitor: Visitor, world: World, place: str) -> list[str]:
    visitor.open(f"{place.format(world=world)}?namespace={world.namespace}")
    expect(visitor.page.locator("#heading")).to_be_visible()
    expect(visitor.page.locator(".skeleton")).to_have_count(0)
    return [f"{place}: {one}" for one in findings(visitor)]


@REST
def test_the_machine_finds_what_is_wrong(visitor: Visitor, world: World) -> None:
    assert checked(visitor, world, "queues") == []
    visitor.page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert ["button-name" in one for one in findings(visitor)] == [True]


def test_an_event_has_nothing_serious_against_it(visitor: Visitor, world: World) -> None:
    assert checked(visitor, world, "events/{world.dead[0]}") == []


@REST
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_view_has_anything_serious_against_it(
    visitors: Callable[..., Visitor], world: World, viewport: Any, colours: str
) -> None:
    visitor = visitors(viewport=viewport, color_scheme=colours)
    found = [one for place in PLACES for one in checked(visitor, world, place)]
    visitor.open(f"queues/main?namespace={world.namespace}", "main")
    visitor.press("Edit")
    expect(visitor.page.locator("#dialog")).to_be_visible()
    assert found + findings(visitor) == []


@REST
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_empty_views_have_nothing_serious_against_them(
    visitors: Callable[..., Visitor], house: Running, colours: str
) -> None:
    visitor = visitors(color_scheme=colours)
    space, found = house.new_namespace(), []
    for place in ("overview", "events", "queues", "dead", "workers", "schedules"):
        visitor.open(f"{place}?namespace={space}")
        expect(visitor.page.locator(".skeleton")).to_have_count(0)
        found += findings(visitor)
    assert found == []


def focused(visitor: Visitor) -> str:
    return str(visitor.page.evaluate("document.activeElement.textContent.trim()"))


def test_one_goes_everywhere_by_keyboard(visitor: Visitor, world: World) -> None:
    page = visitor.open(f"overview?namespace={world.namespace}", "Overview").page
    for keys, heading in (
        ("ge", "Events"),
        ("gq", "Queues"),
        ("gd", "Dead letters"),
        ("gw", "Workers"),
        ("gs", "Schedules"),
        ("go", "Overview"),
    ):
        page.keyboard.type(keys)  # at once: the second key is awaited for a moment only
        visitor.sees_heading(heading)
        expect(page.locator("#heading")).to_be_focused()
    visitor.type("?")
    expect(page.locator("#dialog")).to_contain_text("Search events")
    visitor.type("Escape")
    expect(page.locator("#dialog")).to_be_hidden()
    visitor.type("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("order.pai")
    expect(visitor.row("order.paid")).to_have_count(1)
    expect(visitor.row("order.charge")).to_have_count(0)
    visitor.type("Escape j Enter")
    visitor.sees_heading("order.paid")
    expect(page.locator("#heading")).to_be_focused()


@REST
def test_a_list_is_walked_by_j_and_k(visitor: Visitor, world: World) -> None:
    visitor.open(f"events?namespace={world.namespace}", "Events")
    expect(visitor.row("order.count")).to_be_visible()
    walked = []
    for key in ("j", "j", "k", "k", "k"):
        visitor.type(key)
        walked.append(focused(visitor))
    first, second, *back = walked
    assert first != second
    assert back == [first, first, first]


@REST
def test_something_is_done_by_keyboard_alone(visitor: Visitor, world: World) -> None:
    page = visitor.open(f"queues?namespace={world.namespace}", "Queues").page
    button = page.get_by_role("button", name="Pause mail", exact=True)
    expect(button).to_be_visible()
    for _ in range(60):
        visitor.type("Tab")
        if page.evaluate("document.activeElement.ariaLabel") == "Pause mail":
            break
    expect(button).to_be_focused()
    ring = "(e => e.outlineStyle !== 'none' || e.boxShadow !== 'none')(getComputedStyle(document.activeElement))"
    assert page.evaluate(ring), "one does not see where one is"
    visitor.type("Enter")
    expect(page.locator("#dialog")).to_be_visible()
    visitor.type("Escape")
    expect(page.locator("#dialog")).to_be_hidden()
    assert world.db.sql(STATE, [world.namespace]) == [("active",)]
    expect(button).to_be_focused()  # and one is where one was
    visitor.type("Enter")
    expect(page.locator("#dialog").get_by_role("button", name="Pause", exact=True)).to_be_focused()
    visitor.type("Enter")
    visitor.sees_toast("mail is paused.")
    assert world.db.sql(STATE, [world.namespace]) == [("paused",)]


STATE = "select state from headrace.queues where space = %s and name = 'mail'"


@REST
def test_the_first_tab_leads_past_the_navigation(visitor: Visitor, world: World) -> None:
    page = visitor.open(f"events?namespace={world.namespace}", "Events").page
    visitor.type("Tab")
    assert focused(visitor) == "Skip to content"
    visitor.type("Enter")
    expect(page.locator("#main")).to_be_focused()


@REST
def test_colours_are_chosen_and_kept(visitor: Visitor) -> None:
    page = visitor.open("queues", "Queues").page
    colours = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(colours)
    for name in ("system", "light"):
        page.get_by_role("button", name=re.compile(f"Theme: {name}")).click()
    expect(page.get_by_role("button", name=re.compile("Theme: dark"))).to_be_visible()
    dark = page.evaluate(colours)
    assert light != dark
    page.reload()
    visitor.sees_heading("Queues")
    assert page.evaluate(colours) == dark

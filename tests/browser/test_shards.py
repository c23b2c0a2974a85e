"""Over several shards the dashboard says which shard has an event, and a shard that is down is seen at a glance."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.visitor import PHONE, Visitor
from tests.client.shards import Shards, down, key_on
from tests.database import Server
from tests.server.running import Running, running
from tests.server.test_shards import several

DARK = {"color_scheme": "dark"}


@pytest.fixture(scope="module")
def shards(server: Server) -> Iterator[Shards]:
    made = Shards(server, 3)
    yield made
    made.close()


@pytest.fixture(scope="module")
def house(shards: Shards) -> Iterator[Running]:
    """One server over three shards, in the place of the one over a database."""
    with running(several(shards)) as started:
        yield started


def test_an_event_is_listed_with_its_shard(house: Running, visitor: Visitor) -> None:
    with house.client() as api:
        for number in range(3):
            event = {"type": f"order.on-{number}", "key": key_on(number)}
            assert api.post("/events", json=event).json()["id"] % 64 == number
    visitor.open("events", "Events")
    expect(visitor.page.get_by_role("alert")).to_have_count(0)
    table = visitor.page.get_by_role("table", name="Events")
    expect(table.get_by_role("columnheader", name="Shard", exact=True)).to_be_visible()
    for number in range(3):
        cells = visitor.row(f"order.on-{number}").get_by_role("cell")
        expect(cells.nth(2)).to_have_text(str(number))


def overlap(one: Locator, other: Locator) -> bool:
    a, b = one.bounding_box(), other.bounding_box()
    assert a is not None
    assert b is not None
    beside = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
    return not (beside or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"])


@pytest.mark.parametrize("options", [{}, DARK, {"viewport": PHONE}], ids=["wide", "dark", "phone"])
def test_a_shard_that_is_down_is_seen_at_a_glance(
    visitors: Callable[..., Visitor], shards: Shards, options: dict[str, object]
) -> None:
    visitor = visitors(**options)
    visitor.open("overview", "Overview")
    card = visitor.page.locator(".shards")
    rows = card.get_by_role("row")
    expect(card.get_by_role("heading")).to_have_text("Shards")
    expect(rows).to_have_count(4)
    expect(card.locator(".badge.good")).to_have_count(3)
    with down(shards.parts[1]):
        expect(card.get_by_role("heading")).to_have_text("Shards (1 without an answer)")
        lost = rows.filter(has_text="no answer")
        expect(lost).to_have_count(1)
        name, state = lost.get_by_role("cell").first, card.locator(".badge.bad")
        expect(name.locator("b")).to_have_text("1")
        expect(state).to_be_in_viewport()
        expect(visitor.page.locator(".well")).to_have_count(0)
        visitor.has_nothing_to_scroll_sideways()
        assert not overlap(name, state)
        visitor.open("events", "Events")
        visitor.sees("The list is without the events of shard 1: no answer.")
        visitor.has_nothing_to_scroll_sideways()
        visitor.open("overview", "Overview")
    expect(card.get_by_role("heading")).to_have_text("Shards")
    expect(card.locator(".badge.good")).to_have_count(3)
    visitor.sees("All is well: no problems found.")

"""Whatever somebody has said is shown as he said it, and never run or taken for markup."""

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.visitor import Visitor
from tests.browser.world import register
from tests.server.running import Running

NASTY = """<img src=x onerror="hacked=1"><script>hacked=1</script>"><svg onload=hacked=1>'{{1+1}}${hacked=1}&lt;b&gt;"""


def nasty(field: str) -> str:
    """A text for a field, which tells where it has been seen."""
    return f"{field} {NASTY}"


def named(field: str) -> str:
    """A name, which may be shorter, and without a slash."""
    return nasty(field).replace("/", "|")[:100].strip()


class Hostile:
    """A namespace in which everything that can be said is hostile."""

    def __init__(self, house: Running) -> None:
        db = house.db
        self.name = named("namespace")
        queue = db.queue(namespace=self.name, worker=nasty("worker"))
        queue.create_queue(named("queue"), metadata={nasty("key"): nasty("metadata")})
        said = {
            "title": nasty("title"),
            "description": nasty("description"),
            "version": nasty("version")[:100],
            "source": {nasty("source key"): nasty("source")},
            "correlation_id": nasty("correlation")[:200],
            "causation_id": nasty("causation")[:200],
            "trace_id": nasty("trace")[:200],
            "producer": nasty("producer")[:200],
        }
        payload = {nasty("payload key"): nasty("payload")}
        event = queue.publish(
            nasty("type")[:200],
            payload,
            tags=[nasty("tag").replace(",", ".")[:100]],
            key=nasty("ordering")[:200],
            max_retries=1,
            **said,
        )
        [claimed] = queue.poll(max_events=1)
        queue.fail(claimed, error=f'Traceback\n  File "a"\n{nasty("error")}\nmore {NASTY}')
        self.dead = event.id
        queue.schedule_task(named("schedule"), "0 2 * * *", nasty("scheduled type")[:200])
        register(
            db,
            self.name,
            nasty("node"),
            nasty("worker of node"),
            [nasty("handles")],
            display_name=nasty("display name"),
            description=nasty("node description"),
            metadata={nasty("node key"): nasty("node metadata")},
        )
        queue.publish(nasty("waiting type")[:200])
        queue.pause(actor=nasty("actor")[:200])
        db.sql("select headrace.tick()")


@pytest.fixture(scope="module")
def hostile(house: Running) -> Hostile:
    return Hostile(house)


PLACES: dict[str, tuple[str, ...]] = {
    "overview": ("actor", "error"),
    "events": ("type", "title", "tag"),
    "events/{hostile.dead}": (
        *("type", "title", "description", "tag", "payload", "payload key", "error", "worker"),
        *("ordering", "correlation", "causation", "version", "trace", "source", "producer"),
    ),
    "queues": ("queue",),
    "dead": ("error", "type"),
    "workers": ("display name", "worker of node", "handles", "node description"),
    "schedules": ("schedule", "scheduled type"),
}


def harmless(visitor: Visitor) -> None:
    page = visitor.page
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("img, #app script, iframe, object, embed, base").count() == 0
    assert (
        page.evaluate("[...document.querySelectorAll('*')].some(e => e.hasAttribute('onerror'))")
        is False
    )


def seen(visitor: Visitor, hostile: Any, place: str, fields: tuple[str, ...]) -> None:
    visitor.page.goto("about:blank")
    address = place.format(hostile=hostile)
    query = visitor.page.evaluate(
        "name => new URLSearchParams({namespace: name}) + ''", hostile.name
    )
    visitor.open(f"{address}?{query}")
    expect(visitor.page.locator("#heading")).to_be_visible()
    expect(visitor.page.locator(".skeleton")).to_have_count(0)
    for field in fields:
        shown = re.compile(re.escape(f"{field} {NASTY[:18]}"))
        expect(visitor.page.locator("main").filter(has_text=shown)).to_have_count(1)
    harmless(visitor)


def test_what_was_said_of_an_event_is_text(visitor: Visitor, hostile: Hostile) -> None:
    seen(visitor, hostile, "events/{hostile.dead}", PLACES["events/{hostile.dead}"])


@pytest.mark.rest
@pytest.mark.parametrize("place", [place for place in PLACES if "{" not in place])
def test_what_anybody_said_is_text(visitor: Visitor, hostile: Hostile, place: str) -> None:
    seen(visitor, hostile, place, PLACES[place])


@pytest.mark.rest
def test_dialogs_toasts_and_refusals_are_text_too(visitor: Visitor, hostile: Hostile) -> None:
    seen(visitor, hostile, "queues", ("queue",))
    page = visitor.page
    page.get_by_role("link", name=re.compile("^queue <img")).click()
    visitor.sees_heading(re.compile("^queue <img"))
    visitor.sees(re.compile(re.escape('"key <img')))
    page.get_by_role("button", name=re.compile("^Pause")).click()
    expect(page.locator("#dialog")).to_contain_text("<script>")
    harmless(visitor)
    visitor.answers("Pause")
    visitor.sees_toast(re.compile("queue <img.* is paused"))
    harmless(visitor)
    seen(visitor, hostile, "dead", ("error",))
    page.get_by_role("button", name=re.compile("error <img")).first.click()
    page.locator(".letter summary").click()
    visitor.sees(re.compile("payload key <img"))
    harmless(visitor)


@pytest.mark.rest
def test_what_happens_is_text_too(visitor: Visitor, hostile: Hostile, house: Running) -> None:
    seen(visitor, hostile, "overview", ())
    expect(visitor.page.locator(".live")).to_contain_text("Live")
    visitor.page.get_by_role("button", name="All", exact=True).click()
    house.db.queue(namespace=hostile.name).publish(nasty("ticked")[:200])
    expect(visitor.page.locator(".ticker")).to_contain_text("ticked <img")
    harmless(visitor)


@pytest.mark.rest
@pytest.mark.parametrize(
    "place",
    [
        "events?q=<script>hacked=1</script>",
        "events?status=<script>hacked=1</script>",
        "events/<img src=x onerror=hacked=1>",
        "queues/<img src=x onerror=hacked=1>",
        "dead?group=<img src=x onerror=hacked=1>",
        "overview?range=<img src=x onerror=hacked=1>",
        "overview?queue=javascript:hacked=1",
        "%E0%A4%A?namespace=%00",
        "constructor",
        "events/%2e%2e%2fqueues",
    ],
)
def test_what_an_address_says_is_text_too(visitor: Visitor, place: str) -> None:
    visitor.open(place)
    expect(visitor.page.locator("#heading")).to_be_visible()
    expect(visitor.page.locator(".skeleton")).to_have_count(0)
    harmless(visitor)
    visitor.forgive("Failed to load")

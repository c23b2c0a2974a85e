"""What one can do: it asks once where it has consequences, says which, and it is done."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from headrace import Limit
from tests.browser.visitor import Visitor
from tests.browser.world import World
from tests.database import Database
from tests.server.running import running

REST = pytest.mark.rest


def at(world: World, place: str, **params: str) -> str:
    query = "&".join(f"{name}={value}" for name, value in params.items())
    return f"{place}?namespace={world.namespace}&{query}"


def logged(world: World, id: int) -> list[str]:
    return [entry.action for entry in world.queue.log(id)]


def test_a_queue_is_paused_and_resumed(visitor: Visitor, world: World) -> None:
    visitor.open(at(world, "queues"), "Queues")
    visitor.press("Pause main")
    expect(visitor.page.locator("#dialog")).to_contain_text("Workers get no events from it until")
    visitor.answers("Pause")
    visitor.sees_toast("main is paused.")
    expect(visitor.row("main")).to_contain_text("paused")
    assert world.queue.queue().state == "paused"
    visitor.press("Resume main")
    expect(visitor.row("main")).to_contain_text("active")
    assert world.queue.queue().state == "active"


def test_a_dead_letter_is_tried_again_and_the_page_says_what_became_of_it(
    visitor: Visitor, world: World
) -> None:
    page = visitor.open(at(world, "dead"), "Dead letters").page
    expect(page.locator(".live")).to_contain_text("Live")
    page.get_by_role("button", name=re.compile("ConnectionError")).first.click()
    page.get_by_label(f"Select order.charge {world.dead[0]}").check()
    visitor.press("Redrive 1 selected")
    visitor.answers("Redrive", reason="the gateway is back")
    visitor.sees_toast("1 dead letter redriven.")
    expect(page.locator(".fate")).to_contain_text(re.compile(r"waiting\s*1"))
    expect(page.locator(".letter")).to_have_count(3)
    [claimed] = world.queue.poll(types=["order.charge"])
    assert claimed.id == world.dead[0]
    expect(page.locator(".fate")).to_contain_text(re.compile(r"in progress\s*1"))
    world.queue.complete(claimed)
    expect(page.locator(".fate")).to_contain_text(re.compile(r"completed\s*1"))


@REST
def test_all_dead_letters_are_tried_again_at_a_rate(visitor: Visitor, world: World) -> None:
    page = visitor.open(at(world, "dead"), "Dead letters").page
    visitor.press("Redrive all")
    expect(page.locator("#dialog")).to_contain_text("Redrive all 5 dead letters?")
    page.locator("#field-rate").fill("-1")
    visitor.press("Redrive", page.locator("#dialog"))
    expect(page.locator("#dialog")).to_contain_text("The rate limit must be above 0")
    visitor.answers("Redrive", rate="0.001")
    visitor.sees_toast("5 dead letters redriven.")
    visitor.sees("No dead letters")
    stats = world.queue.stats()
    assert (stats.dead_letters, stats.delayed) == (0, 1 + 4)  # one at once, the others later


@REST
def test_one_kind_of_error_is_tried_again(visitor: Visitor, world: World) -> None:
    page = visitor.open(at(world, "dead"), "Dead letters").page
    page.get_by_role("button", name=re.compile("^Redrive 4 dead letters: ConnectionError")).click()
    visitor.answers("Redrive")
    visitor.sees_toast("4 dead letters redriven.")
    expect(page.locator(".group")).to_have_count(1)
    assert [letter.id for letter in world.queue.dead_letters()] == [world.dead[4]]


@REST
def test_who_dies_again_is_told_so(visitor: Visitor, world: World) -> None:
    page = visitor.open(at(world, "dead"), "Dead letters").page
    expect(page.locator(".live")).to_contain_text("Live")
    visitor.press("Redrive all")
    visitor.answers("Redrive")
    expect(page.locator(".fate")).to_contain_text(re.compile(r"waiting\s*5"))
    for claimed in world.queue.poll(types=["order.charge", "order.ship"], max_events=5):
        world.queue.fail(claimed, error="still not")
    expect(page.locator(".fate")).to_contain_text(re.compile(r"dead again\s*5"))
    visitor.press("Dismiss")
    expect(page.locator(".fate")).to_have_count(0)


@REST
def test_a_dead_letter_is_retried_from_its_story(visitor: Visitor, world: World) -> None:
    page = visitor.open(at(world, f"events/{world.dead[4]}"), "order.ship").page
    expect(page.locator(".timeline")).to_contain_text("dead letter")
    visitor.press("Retry")
    visitor.answers("Retry", reason="an address was found")
    visitor.sees_toast("The event is ready again.")
    expect(page.locator(".timeline")).to_contain_text("waiting for a worker")
    assert "REDRIVEN" in logged(world, world.dead[4])


@REST
def test_what_somebody_works_on_is_reset(visitor: Visitor, world: World) -> None:
    page = visitor.open(at(world, f"events/{world.processing}"), "order.pack").page
    visitor.press("Reset")
    expect(page.locator("#dialog")).to_contain_text("till-1:4711 holds it and loses its claim")
    visitor.answers("Reset", reason="it hangs")
    visitor.sees_toast("The event is ready.")
    expect(page.locator(".heading")).to_contain_text("pending")
    assert "RESET" in logged(world, world.processing)


@REST
def test_a_delay_is_cut_short(visitor: Visitor, world: World) -> None:
    page = visitor.open(at(world, f"events/{world.delayed}"), "order.remind").page
    expect(page.locator(".timeline")).to_contain_text("next attempt")
    visitor.press("Reset")
    visitor.answers("Reset")
    expect(page.locator(".timeline")).to_contain_text("waiting for a worker")
    assert world.queue.event(world.delayed).next_retry_at is None


@REST
def test_an_event_is_cancelled_for_good(visitor: Visitor, world: World) -> None:
    page = visitor.open(at(world, f"events/{world.waiting}"), "order.count").page
    visitor.press("Cancel")
    expect(page.locator("#dialog")).to_contain_text("This cannot be undone.")
    visitor.answers("Cancel event", reason="nobody counts any more")
    expect(page.locator(".heading")).to_contain_text("cancelled")
    for action in ("Retry", "Reset", "Cancel"):
        expect(page.get_by_role("button", name=action, exact=True)).to_have_count(0)
    assert world.queue.event(world.waiting).status == "CANCELLED"
    assert world.queue.log(world.waiting)[-1].error_message == "nobody counts any more"


@REST
@pytest.mark.parametrize("no", ["Keep event", "Escape", "beside"])
def test_who_says_no_changes_nothing(visitor: Visitor, world: World, no: str) -> None:
    page = visitor.open(at(world, f"events/{world.waiting}"), "order.count").page
    visitor.press("Cancel")
    dialog = page.locator("#dialog")
    expect(dialog).to_be_visible()
    match no:
        case "Escape":
            page.keyboard.press("Escape")
        case "beside":
            page.mouse.click(5, 5)
        case _:
            visitor.press(no)
    expect(dialog).to_be_hidden()
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_focused()
    assert world.queue.event(world.waiting).status == "PENDING"


@REST
def test_a_queue_is_drained(visitor: Visitor, world: World) -> None:
    visitor.open(at(world, "queues/mail"), "mail")
    visitor.press("Drain mail")
    expect(visitor.page.locator("#dialog")).to_contain_text("then it is paused")
    visitor.answers("Drain")
    visitor.sees_toast("mail is draining.")
    visitor.press("Resume mail")
    visitor.sees_toast("mail is active again.")


@REST
def test_the_settings_of_a_queue_are_changed(visitor: Visitor, world: World) -> None:
    page = visitor.open(at(world, "queues/mail"), "mail").page
    visitor.press("Edit")
    page.locator("#field-backoff").fill("soon")
    visitor.press("Save", page.locator("#dialog"))
    expect(page.locator("#dialog")).to_contain_text("Backoff is not valid JSON.")
    visitor.answers(
        "Save", backoff="", types="mail.*, letter.*", max_retries="7", max_queue_depth="500"
    )
    visitor.sees_toast("Saved.")
    visitor.sees("1 of 500")
    queue = world.queue.queue("mail")
    assert queue.types == ("letter.*", "mail.*")
    assert (queue.max_retries, queue.max_queue_depth) == (7, 500)


def test_limits_are_set_and_who_waits_for_them_is_shown(visitor: Visitor, world: World) -> None:
    for n in range(3):
        world.queue.publish("mail.welcome", n, tags=["tenant:big"])
    page = visitor.open(at(world, "queues/mail"), "mail").page
    visitor.press("Edit")
    limits = '[{"scope": "tag", "prefix": "tenant:", "at_once": 1}]'
    visitor.answers("Save", limits=limits, fair_by='{"tag": "tenant:"}', aging="600")
    visitor.sees_toast("Saved.")
    queue = world.queue.queue("mail")
    assert queue.limits == (Limit("tag", prefix="tenant:", at_once=1),)
    assert (queue.fair_by, queue.aging) == ({"tag": "tenant:"}, timedelta(minutes=10))
    visitor.sees("Nothing waits for a limit")
    mail = world.db.queue(namespace=world.namespace, queue="mail")
    [claimed] = mail.poll(max_events=5, tags=["tenant:big"])
    full = page.get_by_role("table", name="Limits").get_by_role("row").nth(1)
    for cell in ("tag tenant:big", "1 of 1", "2 since"):
        expect(full).to_contain_text(cell)
    waiting = next(
        event for event in mail.events(types=["mail.welcome"]).events if event.id != claimed.id
    )
    visitor.open(at(world, f"events/{waiting.id}", queue="mail"), "mail.welcome")
    visitor.sees(
        f"the limit of tag 'tenant:big' is full: 1 of 1 are in progress: event {claimed.id}"
    )
    visitor.open(at(world, "queues/mail"), "mail")
    visitor.press("Edit")
    visitor.answers("Save", limits='[{"scope": "queue", "at_once": 0}]')
    visitor.sees_toast("at_once of a limit is a whole number from 1 to 1000000")
    visitor.forgive("400")
    assert world.queue.queue("mail").limits == queue.limits


@REST
def test_what_the_server_refuses_is_said(visitor: Visitor, world: World) -> None:
    page = visitor.open(at(world, "queues/mail"), "mail").page
    visitor.press("Edit")
    visitor.answers("Save", backoff='{"kind": "whenever"}')
    visitor.sees_toast("backoff")
    expect(page.locator(".toast.bad")).to_be_visible()
    visitor.forgive("400")


@REST
def test_a_schedule_is_run_paused_and_resumed(visitor: Visitor, world: World) -> None:
    visitor.open(at(world, "schedules"), "Schedules")
    visitor.press("Run nightly now")
    visitor.answers("Run now")
    visitor.sees_toast(re.compile("Published as event [0-9]+"))
    assert world.queue.events(types=["report.due"]).total == 1
    visitor.press("Pause nightly")
    visitor.answers("Pause")
    expect(visitor.row("nightly")).to_contain_text("when resumed")
    visitor.press("Resume nightly")
    expect(visitor.row("nightly")).to_contain_text("active")
    [task] = world.queue.schedules()
    assert task.active
    assert task.next_fires[0] > datetime.now(UTC)


@REST
def test_a_payload_is_copied_and_its_long_numbers_are_exact(visitor: Visitor, world: World) -> None:
    number = 12345678901234567890
    id = world.queue.publish("order.long", {"number": number}).id
    page = visitor.open(at(world, f"events/{id}"), "order.long").page
    expect(page.locator(".json")).to_contain_text(str(number))
    visitor.press("Copy payload")
    visitor.sees_toast("Copied.")
    assert str(number) in page.evaluate("navigator.clipboard.readText()")


@REST
def test_who_may_only_read_is_offered_nothing_else(
    visitors: Callable[..., Visitor], db: Database
) -> None:
    queue = db.queue()
    id = queue.publish("order.created").id
    token = queue.create_token("looker", ["read"])
    with running(db) as house:
        visitor = visitors(url=house.url)
        visitor.page.goto(house.url)
        visitor.page.locator("#token").fill(token)
        visitor.page.keyboard.press("Enter")
        visitor.sees_heading("Overview")
        for place in ("queues", f"events/{id}", "schedules", "dead", "queues/main"):
            visitor.open(place)
            expect(visitor.page.locator("#heading")).to_be_visible()
            expect(visitor.page.locator(".skeleton")).to_have_count(0)
            offered = visitor.page.locator("main button:not([aria-label^=Copy])")
            expect(offered).to_have_count(0)
        visitor.forgive("401")


@REST
def test_a_list_stands_still_while_somebody_is_in_it(visitor: Visitor, world: World) -> None:
    page = visitor.open(at(world, "events"), "Events").page
    expect(visitor.row("order.paid")).to_be_visible()
    page.mouse.move(0, 0)
    expect(page.locator(".count")).to_contain_text("live")
    for key in "jj":
        page.keyboard.press(key)
    expect(page.locator(".count")).to_contain_text("paused while you use the list")
    world.queue.publish("order.late")
    page.evaluate("document.activeElement.blur()")
    expect(visitor.row("order.late")).to_be_visible()


@REST
def test_what_was_asked_for_before_is_not_shown_for_what_is_refused(
    visitor: Visitor, world: World
) -> None:
    visitor.open(at(world, "events"), "Events")
    expect(visitor.row("order.paid")).to_be_visible()
    visitor.open(at(world, "events", status="WRONG"), "Events")
    expect(visitor.row("order.paid")).to_have_count(0)
    visitor.forgive("400")

"""Tokens are asked for, kept for the tab, and good for what they are good for; and a server that is away comes back."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.visitor import Visitor
from tests.database import Database
from tests.server.running import Running, running

REST = pytest.mark.rest


@pytest.fixture
def locked(db: Database) -> Iterator[Running]:
    """A server that asks for tokens."""
    db.queue(namespace="shop").publish("order.paid", {"order": 1})
    db.queue().create_token("nobody", ["publish"])
    with running(db) as started:
        yield started


def enter(visitor: Visitor, token: str) -> None:
    visitor.page.locator("#token").fill(token)
    visitor.press("Sign in")


@REST
def test_a_token_is_asked_for_and_kept_for_the_tab(
    visitors: Callable[..., Visitor], locked: Running
) -> None:
    token = locked.db.queue().create_token("anna", ["admin"])
    visitor = visitors(locked.url)
    page = visitor.open("events?namespace=shop").page
    expect(page.locator("#token")).to_be_focused()
    enter(visitor, "hr_wrong")
    visitor.sees("The token is unknown, revoked or expired: use another one.")
    enter(visitor, token)
    expect(visitor.row("order.paid")).to_be_visible()
    assert token not in page.url
    assert page.context.cookies() == []
    page.reload()
    expect(visitor.row("order.paid")).to_be_visible()
    stranger = visitors(locked.url)  # another tab
    stranger.open("events?namespace=shop")
    expect(stranger.page.locator("#token")).to_be_visible()
    visitor.press("Sign out")
    expect(page.locator("#token")).to_be_visible()
    page.reload()
    expect(page.locator("#token")).to_be_visible()
    visitor.forgive("401")
    stranger.forgive("401")


@REST
def test_who_may_only_read_is_offered_nothing_else(
    visitors: Callable[..., Visitor], locked: Running
) -> None:
    token = locked.db.queue().create_token("guest", ["read"], namespaces=["shop"])
    visitor = visitors(locked.url)
    page = visitor.open("queues").page
    enter(visitor, token)
    visitor.sees_heading("Queues")
    expect(visitor.row("main")).to_be_visible()  # of the namespace that he may see
    expect(page.get_by_label("Namespace")).to_have_value("shop")
    expect(page.get_by_role("button", name="Pause main")).to_have_count(0)
    visitor.forgive("401")


@REST
def test_a_token_that_is_no_good_for_looking_is_told_so(
    visitors: Callable[..., Visitor], locked: Running
) -> None:
    token = locked.db.queue().create_token("till", ["publish"])
    visitor = visitors(locked.url)
    visitor.open("overview")
    enter(visitor, token)
    visitor.sees("The token till lacks the scope read: use another token.")
    visitor.forgive("401")


@REST
def test_who_loses_his_token_is_asked_again(
    visitors: Callable[..., Visitor], locked: Running
) -> None:
    queue = locked.db.queue()
    visitor = visitors(locked.url)
    page = visitor.open("events?namespace=shop").page
    enter(visitor, queue.create_token("anna", ["admin"]))
    expect(visitor.row("order.paid")).to_be_visible()
    queue.revoke_token("anna")
    expect(page.locator("#token")).to_be_visible()
    enter(visitor, queue.create_token("otto", ["admin"]))
    expect(visitor.row("order.paid")).to_be_visible()  # where he was
    visitor.forgive("401")


@REST
def test_while_the_server_is_away_it_says_so_and_goes_on_by_itself(
    visitors: Callable[..., Visitor], house: Running
) -> None:
    space = house.new_namespace()
    queue = house.db.queue(namespace=space)
    queue.publish("order.paid")
    visitor = visitors()
    page = visitor.open(f"events?namespace={space}", "Events").page
    expect(visitor.row("order.paid")).to_be_visible()
    page.context.set_offline(True)
    expect(page.locator(".banner")).to_contain_text("The server does not answer.")
    expect(visitor.row("order.paid")).to_be_visible()  # what was last known
    queue.publish("order.shipped")
    page.context.set_offline(False)
    expect(page.locator(".banner")).to_have_count(0)
    expect(visitor.row("order.shipped")).to_be_visible()
    visitor.forgive("ERR_INTERNET")

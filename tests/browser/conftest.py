"""A browser for all tests, a server with something to look at, and visitors who may complain of nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser.visitor import Visitor, launch
from tests.browser.world import World, make
from tests.database import Database, Server
from tests.server.running import Running, running


# No longer than for these: while it is there, its thread has a running event loop.
@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    playwright, browser = launch()
    yield browser
    browser.close()
    playwright.stop()


@pytest.fixture(scope="module")
def house(server: Server) -> Iterator[Running]:
    """A server for all tests of a module; each has a namespace of its own there."""
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    with running(database) as started:
        yield started
    database.close()
    server.drop_database(database.name)


@pytest.fixture
def world(house: Running) -> World:
    return make(house.db, house.new_namespace())


@pytest.fixture
def visitors(browser: Any, house: Running) -> Iterator[Callable[..., Visitor]]:
    """Makes visitors; what a browser complained of is a failure in the end."""
    made: list[Visitor] = []

    def visitor(url: str | None = None, **options: Any) -> Visitor:
        made.append(Visitor(browser, url or house.url, **options))
        return made[-1]

    yield visitor
    for one in made:
        one.close()
    for one in made:
        one.is_content()


@pytest.fixture
def visitor(visitors: Callable[..., Visitor]) -> Visitor:
    return visitors()

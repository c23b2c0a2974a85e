"""What is around handlers: `around` and resources, for every kind of handler."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest

from headrace import Claimed, Context, Discard, Node, Retry
from tests.database import Database
from tests.node.nodes import node, running, settled, until

pytestmark = pytest.mark.anyio

INSERT = "insert into effects values (%s)"
HANDLERS = (
    "async",
    "plain",
    "async transactional",
    "plain transactional",
    "async batch",
    "plain batch",
)
handlers = pytest.mark.parametrize("handler", HANDLERS)
layers = pytest.mark.parametrize("layer", ["async", "plain"])


class Order(msgspec.Struct):
    number: int


def register(  # noqa: C901
    one: Node, kind: str, deed: Callable[[Any], Any], **options: Any
) -> None:
    """A handler of a kind, which asks for the resource `tool` and calls `deed` with it."""
    match kind:
        case "async":

            @one.on_event("a", **options)
            async def handle(event: Claimed, tool: Any) -> Any:
                return deed(tool)

        case "plain":

            @one.on_event("a", **options)
            def handle_plainly(event: Claimed, tool: Any) -> Any:
                return deed(tool)

        case "async transactional":

            @one.on_event("a", **options)
            async def write(event: Claimed, connection: Any, tool: Any) -> Any:
                await connection.execute(INSERT, [event.id])
                return deed(tool)

        case "plain transactional":

            @one.on_event("a", **options)
            def write_plainly(event: Claimed, connection: Any, tool: Any) -> Any:
                connection.execute(INSERT, [event.id])
                return deed(tool)

        case "async batch":

            @one.on_batch("a", **options)
            async def handle_all(events: list[Order], tool: Any) -> Any:
                return deed(tool)

        case "plain batch":

            @one.on_batch("a", **options)
            def handle_all_plainly(events: list[Order], tool: Any) -> Any:
                return deed(tool)


def surround(one: Node, kind: str, story: list[Any]) -> None:
    """An `around` and a resource of a kind, which tell what they see."""
    if kind == "async":

        @one.around
        async def outer(events: list[Claimed], handler: str) -> AsyncIterator[None]:
            story.append(("before", [one.id for one in events], handler.rpartition(".")[2]))
            try:
                story.append(("after", (yield)))
            except BaseException as error:
                story.append(("after", error))
                raise

        @one.resource
        async def tool() -> AsyncIterator[str]:
            story.append("opened")
            await asyncio.sleep(0)
            try:
                yield "hammer"
            finally:
                story.append("closed")

    else:

        @one.around
        def outer_plain(events: list[Claimed], handler: str) -> Iterator[None]:
            story.append(("before", [one.id for one in events], handler.rpartition(".")[2]))
            try:
                story.append(("after", (yield)))
            except BaseException as error:
                story.append(("after", error))
                raise

        @one.resource(name="tool")
        def hammer() -> Iterator[str]:
            story.append("opened")
            try:
                yield "hammer"
            finally:
                story.append("closed")


@pytest.fixture
def db(db: Database) -> Database:
    db.sql("create table effects (event bigint)")
    return db


@handlers
@layers
async def test_every_handler_runs_within_its_layers(db: Database, handler: str, layer: str) -> None:
    queue = db.queue()
    one, story = node(db), list[Any]()
    surround(one, layer, story)
    register(one, handler, lambda tool: story.append(tool))
    id = queue.publish("a", {"number": 1}).id
    async with running(one):
        await until(lambda: queue.stats().completed == 1)
        await settled(one)
    [(before, ids, name), *rest] = story
    assert (before, ids) == ("before", [id])
    assert name in {
        "handle",
        "handle_plainly",
        "write",
        "write_plainly",
        "handle_all",
        "handle_all_plainly",
    }
    assert rest == ["opened", "hammer", "closed", ("after", None)]
    assert db.sql("select count(*) from effects") == [(int("transactional" in handler),)]


@handlers
@layers
async def test_layers_see_the_exception_and_the_attempt_fails(
    db: Database, handler: str, layer: str
) -> None:
    queue = db.queue()
    one, story = node(db), list[Any]()
    surround(one, layer, story)
    boom = ValueError("boom")

    def fail(tool: Any) -> None:
        raise boom

    register(one, handler, fail, max_retries=1)
    id = queue.publish("a", {"number": 1}).id
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert story[1:] == ["opened", "closed", ("after", boom)]
    error = queue.dead_letter(id).error or ""
    assert error.count("ValueError: boom") == 1  # and none that was raised while handling it
    assert "In " not in error  # it is the handler's own
    assert db.sql("select * from effects") == []


@layers
@pytest.mark.parametrize("handler", ["async", "plain"])
@pytest.mark.parametrize("outcome", [Retry(after=60), Discard("never")])
async def test_a_layer_is_sent_what_the_handler_returned(
    db: Database, handler: str, layer: str, outcome: Any
) -> None:
    queue = db.queue()
    one, story = node(db), list[Any]()
    surround(one, layer, story)
    register(one, handler, lambda tool: outcome)
    id = queue.publish("a", max_retries=1).id
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert story[-1] == ("after", outcome)


@layers
@pytest.mark.parametrize("handler", ["async", "plain"])
async def test_a_layer_that_swallows_an_exception_does_not_complete_the_event(
    db: Database, handler: str, layer: str
) -> None:
    queue = db.queue()
    one = node(db)
    outermost: list[str] = []

    @one.around
    def sees(event: Claimed) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            outermost.append(str(error))

    if layer == "async":

        @one.resource
        async def tool() -> AsyncIterator[int]:
            with contextlib.suppress(ValueError):
                yield 1

    else:

        @one.resource(name="tool")
        def plain_tool() -> Iterator[int]:
            with contextlib.suppress(ValueError):
                yield 1

    def fail(tool: int) -> None:
        raise ValueError("mine")

    register(one, handler, fail, max_retries=1)
    id = queue.publish("a").id
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert (queue.dead_letter(id).error or "").endswith("ValueError: mine")
    assert outermost == ["mine"]


@handlers
@layers
@pytest.mark.parametrize("when", ["opened", "closed", "never yields", "yields twice"])
async def test_a_resource_that_fails_fails_the_attempt_and_is_named(
    db: Database, handler: str, layer: str, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    one, called = node(db), list[Any]()

    def life() -> Iterator[int]:
        if when == "opened":
            raise LookupError("no tool")
        if when != "never yields":
            yield 1
        if when == "yields twice":
            yield 2
        if when == "closed":
            raise LookupError("no tool")

    async def async_life() -> AsyncIterator[int]:
        for value in life():
            yield value

    one.resource(name="tool")(async_life if layer == "async" else life)  # type: ignore[type-var]
    register(one, handler, called.append, max_retries=1)
    id = queue.publish("a", {"number": 1}).id
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert called == ([1] if when in ("closed", "yields twice") else [])
    error = queue.dead_letter(id).error or ""
    name = f"{__name__}.test_a_resource_that_fails_fails_the_attempt_and_is_named.<locals>"
    title = f"In the resource tool ({name}.{'async_' * (layer == 'async')}life), for {__name__}"
    assert title in error
    assert {
        "opened": "LookupError: no tool",
        "closed": "LookupError: no tool",
        "never yields": "it must yield exactly once, and has not yielded",
        "yields twice": "it must yield exactly once, and has yielded again",
    }[when] in error
    [line] = [one.getMessage() for one in caplog.records if "failed at event" in one.getMessage()]
    assert f"in the resource tool ({name}" in line
    assert db.sql("select * from effects") == []


@handlers
async def test_the_rules_of_a_handler_are_for_its_resources_too(db: Database, handler: str) -> None:
    queue = db.queue()
    one = node(db)

    @one.resource
    def tool() -> Iterator[int]:
        raise LookupError("no tool")
        yield 1

    register(one, handler, lambda tool: None, rules={LookupError: Discard("no tools today")})
    id = queue.publish("a", {"number": 1}).id
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert queue.dead_letter(id).reason == "no tools today"


@pytest.mark.parametrize("handler", ["async", "plain", "plain transactional"])
@pytest.mark.parametrize("when", ["opened", "closed"])
async def test_the_timeout_of_a_handler_covers_an_async_resource(
    db: Database, handler: str, when: str
) -> None:
    queue = db.queue()
    one, story = node(db), list[str]()

    @one.resource
    async def tool() -> AsyncIterator[int]:
        try:
            if when == "opened":
                await asyncio.sleep(60)
            yield 1
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            story.append("cancelled")
            raise

    register(one, handler, lambda tool: story.append("called"), timeout=0.2, max_retries=1)
    id = queue.publish("a").id
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert story == ["called"] * (when == "closed") + ["cancelled"]
    assert "not done after 0.2 seconds" in (queue.dead_letter(id).error or "")
    assert db.sql("select * from effects") == []


async def test_a_plain_resource_that_does_not_end_is_abandoned_as_its_handler_is(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    one, let_go = node(db), threading.Event()

    @one.resource
    def tool() -> Iterator[int]:
        let_go.wait(60)
        yield 1

    register(one, "plain", lambda tool: None, timeout=0.1, max_retries=1)
    id = queue.publish("a").id
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
        let_go.set()
        await until(lambda: "ended" in caplog.text or not one._running().abandoned)
    assert "is abandoned" in caplog.text


@handlers
async def test_what_is_asked_for_twice_is_opened_once(db: Database, handler: str) -> None:
    queue = db.queue()
    one, story = node(db), list[Any]()

    @one.resource
    def base() -> Iterator[object]:
        story.append("base")
        yield object()

    @one.resource
    async def left(base: object) -> AsyncIterator[object]:
        story.append("left")
        yield base

    @one.resource
    def right(base: object) -> Iterator[object]:
        story.append("right")
        yield base

    @one.resource
    def tool(left: object, right: object, base: object) -> Iterator[bool]:
        yield left is right is base

    register(one, handler, story.append)
    queue.publish("a", {"number": 1})
    queue.publish("a", {"number": 2})
    async with running(one):
        await until(lambda: queue.stats().completed == 2)
    attempts = 1 if "batch" in handler else 2
    assert story.count(True) == attempts
    assert [story.count(name) for name in ("base", "left", "right")] == [attempts] * 3


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_resource_may_ask_for_the_connection_and_writes_in_the_transaction(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    one = node(db)
    if kind == "async":

        @one.resource
        async def writer(connection: Any, event: Claimed) -> AsyncIterator[Any]:
            yield connection
            await connection.execute(INSERT, [event.id])  # as a session that is flushed

        @one.on_event("good", "bad", max_retries=1)
        async def handle(event: Claimed, writer: Any) -> None:
            await writer.execute(INSERT, [-event.id])
            if event.type == "bad":
                raise ValueError

    else:

        @one.resource(name="writer")
        def plain_writer(connection: Any, event: Claimed) -> Iterator[Any]:
            yield connection
            connection.execute(INSERT, [event.id])

        @one.on_event("good", "bad", max_retries=1)
        def handle_plainly(event: Claimed, writer: Any) -> None:
            writer.execute(INSERT, [-event.id])
            if event.type == "bad":
                raise ValueError

    good, bad = queue.publish("good").id, queue.publish("bad").id
    async with running(one):
        await until(lambda: queue.event(bad).status == "FAILED")
        await until(lambda: queue.event(good).status == "COMPLETED")
    assert db.sql("select event from effects order by 1") == [(-good,), (good,)]
    assert queue.event(good).attempts == 1


async def test_an_around_that_asks_for_the_connection_sets_up_every_transaction(
    db: Database,
) -> None:
    queue = db.queue()
    one, seen = node(db), list[str]()

    @one.on_event("a")
    async def handle(event: Claimed, connection: Any) -> None:
        found = await (await connection.execute("select current_setting('app.tenant')")).fetchone()
        seen.append(found[0])

    @one.around
    async def tenant(event: Claimed, connection: Any) -> AsyncIterator[None]:
        await connection.execute("select set_config('app.tenant', %s, true)", [event.payload])
        yield

    queue.publish_many([("a", "acme"), ("a", "globex")])
    async with running(one):
        await until(lambda: queue.stats().completed == 2)
    assert sorted(seen) == ["acme", "globex"]


VARIABLE: ContextVar[str] = ContextVar("variable", default="unset")


@pytest.mark.parametrize("handler", ["async", "plain", "plain transactional"])
@layers
async def test_context_variables_reach_the_handler_and_do_not_outlive_the_attempt(
    db: Database, handler: str, layer: str
) -> None:
    queue = db.queue()
    one, seen = node(db, concurrency=1), list[str]()

    async def around_async(event: Claimed) -> AsyncIterator[None]:
        seen.append(VARIABLE.get())
        token = VARIABLE.set(f"of {event.payload}")
        yield
        seen.append(VARIABLE.get())
        VARIABLE.reset(token)

    def around(event: Claimed) -> Iterator[None]:
        seen.append(VARIABLE.get())
        token = VARIABLE.set(f"of {event.payload}")
        yield
        seen.append(VARIABLE.get())
        VARIABLE.reset(token)

    one.around(around_async) if layer == "async" else one.around(around)

    @one.resource
    def tool() -> Iterator[str]:
        yield VARIABLE.get()

    def deed(tool: str) -> None:
        seen.append(tool)
        seen.append(VARIABLE.get())
        VARIABLE.set(f"{VARIABLE.get()}!")

    register(one, handler, deed)
    queue.publish_many([("a", "x"), ("a", "y")])
    async with running(one):
        await until(lambda: queue.stats().completed == 2)
    assert seen == [
        *("unset", "of x", "of x", "of x!"),
        *("unset", "of y", "of y", "of y!"),
    ]


@pytest.mark.parametrize("handler", ["async", "plain", "plain batch"])
async def test_an_async_layer_is_entered_and_left_by_one_task(db: Database, handler: str) -> None:
    queue = db.queue()
    one, ended = node(db), list[str]()

    @one.resource
    async def tool() -> AsyncIterator[Any]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            yield group
        ended.append("left")

    register(one, handler, lambda tool: None)
    id = queue.publish("a", {"number": 1}).id
    async with running(one):
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert ended == ["left"]


async def test_layers_nest_in_the_order_of_their_registration_whenever_handlers_come(
    db: Database,
) -> None:
    queue = db.queue()
    one, story = node(db), list[str]()

    @one.on_event("a")
    def handle(event: Claimed) -> None:
        story.append("handled")

    def around(name: str) -> None:
        @one.around
        @contextlib.contextmanager
        def layer(event: Claimed) -> Iterator[None]:
            story.append(f"before {name}")
            try:
                yield
            finally:
                story.append(f"after {name}")

        del layer

    around("first")

    @one.around
    @contextlib.asynccontextmanager
    async def second(event: Claimed) -> AsyncIterator[None]:
        story.append("before second")
        yield
        story.append("after second")

    queue.publish("a")
    async with running(one):
        await until(lambda: queue.stats().completed == 1)
        around("third")  # while the node runs
        queue.publish("a")
        await until(lambda: queue.stats().completed == 2)
    two = ["before first", "before second", "handled", "after second", "after first"]
    three = [
        *("before first", "before second", "before third", "handled"),
        *("after third", "after second", "after first"),
    ]
    assert story == two + three


class Client:
    """As HTTP clients are: it is entered, and has a method `send`."""

    entered = left = 0

    def send(self, request: Any) -> None: ...

    def __enter__(self) -> "Client":
        self.entered += 1
        return self

    def __exit__(self, *error: object) -> None:
        self.left += 1


async def test_a_class_of_context_managers_is_a_resource(db: Database) -> None:
    queue = db.queue()
    one, seen = node(db), list[Any]()
    one.resource(name="tool")(Client)
    register(one, "plain", seen.append)
    queue.publish("a")
    async with running(one):
        await until(lambda: queue.stats().completed == 1)
        await settled(one)
    [client] = seen
    assert (type(client), client.entered, client.left) == (Client, 1, 1)


async def test_handlers_of_one_event_each_have_their_own_resources(db: Database) -> None:
    queue = db.queue()
    one, story = node(db, dispatch="collect"), list[str]()

    @one.resource
    async def tool(handler: str) -> AsyncIterator[str]:
        story.append(f"opened for {handler.rpartition('.')[2]}")
        yield "tool"

    @one.on_event("a")
    async def first(event: Claimed, tool: str) -> None:
        story.append("first")

    @one.on_event("a")
    def second(event: Claimed, tool: str) -> None:
        story.append("second")

    @one.on_event("a")
    def third(event: Claimed, tool: str, connection: Any) -> None:
        story.append("third")

    queue.publish("a")
    async with running(one):
        await until(lambda: queue.stats().completed == 1)
    names = ("first", "second", "third")
    assert story == [line for name in names for line in (f"opened for {name}", name)]


async def test_a_node_that_stops_lets_a_resource_close(db: Database) -> None:
    queue = db.queue()
    one, story = node(db, grace=0.1), list[str]()

    @one.resource
    async def tool() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            story.append("closed")

    @one.on_event("a")
    async def handle(event: Claimed, tool: int) -> None:
        story.append("begun")
        await asyncio.sleep(60)

    id = queue.publish("a").id
    async with running(one):
        await until(lambda: story == ["begun"])
    assert story == ["begun", "closed"]
    assert queue.event(id).status == "PENDING"


async def test_a_plain_handler_may_use_its_context_within_async_layers(db: Database) -> None:
    queue = db.queue()
    one = node(db)

    @one.around
    async def around(event: Claimed) -> AsyncIterator[None]:
        await one.emit("before")
        yield

    @one.on_event("a")
    def handle(event: Claimed, context: Context) -> None:
        context.emit("during")
        assert context.attempt == 1

    id = queue.publish("a").id
    async with running(one):
        await until(lambda: queue.stats().completed == 1)
    stored = [queue.event(one) for (one,) in db.sql("select id from headrace.events")]
    causes = {event.type: event.causation_id for event in stored}
    assert causes == {"a": None, "before": str(id), "during": str(id)}


async def test_an_async_handler_that_a_thread_waits_for_may_emit(db: Database) -> None:
    queue = db.queue()
    one = node(db)

    @one.on_event("a")
    def handle(event: Claimed, connection: Any) -> None:
        connection.execute(INSERT, [event.id])

    @one.on_event("a", max_retries=1)
    async def tell(event: Claimed) -> None:
        await one.emit("b")

    id = queue.publish("a").id
    async with running(one):
        await until(lambda: queue.stats().completed == 1)
    assert queue.event(id).attempts == 1
    assert db.sql("select count(*) from effects") == [(1,)]

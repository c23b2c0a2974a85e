"""What cannot be around handlers is refused where it is written."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from headrace import Claimed, InvalidInput, Node
from headrace.node.registrations import handlers_of


def gives() -> Iterator[int]:
    yield 1


def returns() -> int:
    return 1


async def awaited() -> int:
    return 1


def wants(session: int) -> Iterator[int]:
    yield session


def wants_itself(tool: int) -> Iterator[int]:
    yield tool


def of_connection(connection: Any) -> Iterator[int]:
    yield 1


class Manager:
    def __enter__(self) -> int:
        return 1

    def __exit__(self, *error: object) -> None: ...


class AsyncManager:
    async def __aenter__(self) -> int:
        return 1

    async def __aexit__(self, *error: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "problem"),
    [
        (returns, {}, r"must be a generator that yields once, or a context manager, and .*returns"),
        (awaited, {}, r"must be a generator that yields once, or a context manager, and .*awaited"),
        (int, {}, r"must be a generator .*, and builtins.int is not"),
        (7, {}, r"must be a generator .*, and 7 is not"),
        (gives, {"name": "event"}, r"cannot be named event: the node gives event by itself"),
        (gives, {"name": "handler"}, r"cannot be named handler"),
        (gives, {"name": "two words"}, r"a name that a parameter can have, not 'two words'"),
        (gives, {"per": "day"}, r"a resource is per 'attempt' or per 'process', not 'day'"),
        (gives, {"name": "known"}, r"the node has a resource known already"),
        (wants, {}, r"a resource may take .*; tests.node.test_layers.wants asks for session; "
                    r"the resources so far: known"),
        (wants_itself, {"name": "tool"}, r"wants_itself asks for tool"),
        (
            of_connection,
            {"per": "process"},
            r"a resource per process may take no arguments of the node; .* asks for connection",
        ),
    ],
)  # fmt: skip
def test_a_resource_that_cannot_work_is_refused(
    function: Any, options: dict[str, Any], problem: str
) -> None:
    one = Node()
    one.resource(name="known")(gives)
    with pytest.raises(InvalidInput, match=problem):
        one.resource(**options)(function) if options else one.resource(function)


def test_resources_cannot_ask_for_each_other_in_a_circle() -> None:
    one = Node()

    def first(second: int) -> Iterator[int]:
        yield second

    with pytest.raises(
        InvalidInput,
        match=r"asks for second; a resource must be registered before the functions that ask for it",
    ):
        one.resource(first)


def test_a_resource_per_process_cannot_ask_for_one_per_attempt() -> None:
    one = Node()
    one.resource(name="session")(gives)
    with pytest.raises(InvalidInput, match=r"asks for session"):
        one.resource(name="tool", per="process")(wants)


def test_a_handler_that_asks_for_an_unknown_resource_is_refused() -> None:
    one = Node()
    with pytest.raises(InvalidInput, match=r"asks for session; a resource must be registered bef"):

        @one.on_event("a")
        def handle(event: Claimed, session: int) -> None: ...

    one.resource(name="session")(gives)
    with pytest.raises(InvalidInput, match=r"asks for sesion; the resources so far: session"):

        @one.on_event("a")
        def handle_more(event: Claimed, sesion: int) -> None: ...

    assert len(handlers_of(one)) == 0


def around_event(event: Claimed) -> Iterator[None]:
    yield


def around_context(context: Any) -> Iterator[None]:
    yield


async def async_of_connection(connection: Any) -> AsyncIterator[None]:
    yield


async def async_of_context(context: Any) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("around", "batch", "problem"),
    [
        (around_event, True, r"around_event, which is around handlers, asks for event, and "
                             r".*handle takes batches: ask for events"),
        (around_context, True, r"asks for context, and .*handle takes batches, which have none"),
        (async_of_connection, False, r"is async and asks for connection, and .*handle is a plain "
                                     r"function, whose connection is a plain one: make them alike"),
        (async_of_context, False, r"is async and asks for context, and .*handle is a plain"),
    ],
)  # fmt: skip
def test_what_cannot_be_around_a_handler_is_refused_whichever_comes_first(
    around: Any, batch: bool, problem: str, is_first: bool
) -> None:
    one = Node()

    def handle() -> None: ...

    register: Callable[..., Any] = one.on_batch("a") if batch else one.on_event("a")
    pair: list[Callable[[], Any]] = [lambda: one.around(around), lambda: register(handle)]
    first, second = pair if is_first else pair[::-1]
    first()
    with pytest.raises(InvalidInput, match=problem):
        second()
    # It is as if the second had never been there.
    one.on_event("other")(awaited) if is_first else one.around(around_none)


def around_none() -> Iterator[None]:
    yield


def test_a_resource_that_asks_for_the_connection_makes_its_handler_transactional() -> None:
    one = Node()

    @one.resource
    def session(connection: Any) -> Iterator[Any]:
        yield connection

    @one.resource
    def repository(session: Any) -> Iterator[Any]:
        yield session

    @one.on_event("a")
    async def handle(event: Claimed, repository: Any) -> None: ...

    @one.on_event("b")
    def plain(event: Claimed) -> None: ...

    assert [one.wants_connection for one in handlers_of(one)] == [True, False]
    with pytest.raises(InvalidInput, match="both ask for its one connection, one as an async"):

        @one.on_event("a")
        def other(event: Claimed, session: Any) -> None: ...


def test_a_handler_without_layers_is_called_as_it_was() -> None:
    one = Node()

    @one.resource
    def session() -> Iterator[Any]:
        yield 1

    @one.on_event("a")
    async def handle(event: Claimed) -> None: ...

    [handler] = handlers_of(one)
    [bare] = one._handlers._bare
    assert handler is bare


def test_context_managers_and_their_classes_are_resources() -> None:
    one = Node()
    assert (
        one.resource(
            Manager,
        )
        is Manager
    )
    one.resource(name="second")(contextlib.contextmanager(gives))
    one.resource(name="third")(AsyncManager)
    kinds = {name: it.is_async for name, it in one._handlers.surroundings.resources.items()}
    assert kinds == {"Manager": False, "second": False, "third": True}

"""Functions around handlers: what `around` registers, and resources.

Each is a generator that yields once: what it does before the yield comes before the handler, the
rest after it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from headrace.errors import InvalidInput
from headrace.node.handler.signature import (
    LAYER,
    OWN,
    Parameters,
    by_position,
    check_names,
    code_of,
    name_of,
    parameters_of,
)

LayerFunction: TypeAlias = Callable[
    ...,
    Iterator[Any]
    | AsyncIterator[Any]
    | AbstractContextManager[Any]
    | AbstractAsyncContextManager[Any],
]
Per: TypeAlias = Literal["attempt", "process"]

ONCE = "it must yield exactly once"


class End(NamedTuple):
    """How a part of an attempt has ended: with a value, or with an error."""

    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Layer:
    """A function around handlers; `layer` makes one."""

    function: LayerFunction
    resource: str | None
    """The name by which others ask for what it yields; None: it is around all handlers."""
    is_per_process: bool
    is_async: bool
    asked: Parameters

    @property
    def title(self) -> str:
        name = name_of(self.function)
        return (
            f"{name}, which is around handlers"
            if self.resource is None
            else (f"the resource {self.resource} ({name})")
        )

    def visit(self, values: dict[str, Any]) -> PlainVisit | AsyncVisit:
        """For one attempt, or one process, with the arguments that there are for it."""
        positional, named = self.asked.of(values)
        opened = self.function(*positional, **named)
        return AsyncVisit(opened) if self.is_async else PlainVisit(opened)


class PlainVisit:
    """The one pass through a plain layer."""

    def __init__(self, opened: Any) -> None:
        self._generator = opened if isinstance(opened, Generator) else _managed(opened)

    def enter(self) -> Any:
        try:
            return next(self._generator)
        except StopIteration:
            raise RuntimeError(f"{ONCE}, and has not yielded") from None

    def leave(self, end: End) -> None:
        """Tell it how the part within has ended. An error that it lets through, or swallows, stays
        what it is: a layer sees how an attempt has ended, and does not decide about it."""
        try:
            if end.error is None:
                self._generator.send(end.value)
            else:
                self._generator.throw(end.error)
        except StopIteration:
            return
        except BaseException as error:
            if _is_let_through(error, end.error):
                return
            raise
        self._generator.close()
        raise RuntimeError(f"{ONCE}, and has yielded again")


class AsyncVisit:
    """The one pass through an async layer."""

    def __init__(self, opened: Any) -> None:
        is_generator = isinstance(opened, AsyncGenerator)
        self._generator = opened if is_generator else _managed_async(opened)

    async def enter(self) -> Any:
        try:
            return await anext(self._generator)
        except StopAsyncIteration:
            raise RuntimeError(f"{ONCE}, and has not yielded") from None

    async def leave(self, end: End) -> None:
        """As PlainVisit.leave."""
        try:
            if end.error is None:
                await self._generator.asend(end.value)
            else:
                await self._generator.athrow(end.error)
        except StopAsyncIteration:
            return
        except BaseException as error:
            if _is_let_through(error, end.error):
                return
            raise
        await self._generator.aclose()
        raise RuntimeError(f"{ONCE}, and has yielded again")


def _is_let_through(error: BaseException, thrown: BaseException | None) -> bool:
    """A generator lets no StopIteration through: Python puts a RuntimeError in its place."""
    return thrown is not None and (
        error is thrown or (type(error) is RuntimeError and error.__cause__ is thrown)
    )


def _managed(manager: Any) -> Generator[Any, Any, None]:
    with manager as value:
        yield value


async def _managed_async(manager: Any) -> AsyncGenerator[Any, Any]:
    async with manager as value:
        yield value


def layer(
    function: Any,
    resources: Collection[str],
    *,
    name: str | None = None,
    is_resource: bool = False,
    per: Per = "attempt",
    per_process: Collection[str] = (),
) -> Layer:
    """A layer, or InvalidInput that says what is wrong with it. `per_process` are those of the
    resources that are."""
    what = "a resource" if is_resource else "a function around handlers"
    if per not in ("attempt", "process"):
        raise InvalidInput(f"a resource is per 'attempt' or per 'process', not {per!r:.100}")
    is_async = _kind_of(function, what)
    called = (name or name_of(function).rpartition(".")[2]) if is_resource else None
    if called is not None and not called.isidentifier():
        raise InvalidInput(
            f"a resource needs a name that a parameter can have, not {called!r:.100}"
        )
    if called in OWN:
        raise InvalidInput(
            f"a resource cannot be named {called}: the node gives {called} by itself"
        )
    if called in resources:
        raise InvalidInput(f"the node has a resource {called} already")
    is_per_process = per == "process"
    asked = layer_asks(
        f"{what} per process" if is_per_process else what,
        function,
        () if is_per_process else LAYER,
        per_process if is_per_process else resources,
    )
    return Layer(function, called, is_per_process, is_async, asked)


def layer_asks(
    what: str, function: Any, known: tuple[str, ...], resources: Collection[str]
) -> Parameters:
    """The arguments that a function around handlers, or one of `on_start`, asks for."""
    try:
        parameters = parameters_of(function)
    except ValueError:  # a class written in C, which has no signature
        return Parameters(())
    check_names(what, function, parameters, known, resources)
    asked = [one for one in parameters if one.name in known or one.name in resources]
    return Parameters(tuple(one.name for one in asked), by_position(asked))


def _kind_of(function: Any, what: str) -> bool:
    """Whether it is async; InvalidInput if it is neither a generator nor a context manager."""
    if isinstance(function, type):
        for is_async, enter in ((False, "__enter__"), (True, "__aenter__")):
            if hasattr(function, enter):
                return is_async
    elif callable(function):
        code = inspect.unwrap(code_of(function))
        if inspect.isgeneratorfunction(code):
            return False
        if inspect.isasyncgenfunction(code):
            return True
    raise InvalidInput(
        f"{what} must be a generator that yields once, or a context manager, and "
        f"{_said(function)} is not"
    )


def _said(function: Any) -> str:
    with suppress(Exception):
        return name_of(function) if callable(function) else f"{function!r:.200}"
    return "it"

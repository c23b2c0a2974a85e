"""The arguments that a handler's function asks for by the names of its parameters, and calling it
with just those."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, ForwardRef, NamedTuple, TypeAlias, get_args

from headrace.errors import InvalidInput
from headrace.node.handler.payload import Reader, reader

Call: TypeAlias = Callable[[Any, Any, Any], Any]
"""Of an event, a connection and a context."""

SINGLE = ("event", "connection", "context")
BATCH = ("events", "connection")

_KINDS = inspect.Parameter
_EMPTY = inspect.Parameter.empty


class Parameters(NamedTuple):
    """The arguments that a function is called with."""

    names: tuple[str, ...]
    by_position: frozenset[str] = frozenset()
    """Those of them that have no name for a caller."""
    reads: Reader | None = None


def name_of(function: Callable[..., Any]) -> str:
    """module.qualname, for people and for the log."""
    named = inspect.unwrap(_bare(function))
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}.{named.__qualname__}"


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(_code(function))


def check_kind(function: Callable[..., Any]) -> None:
    """Refuse what is called like a function and is none."""
    if not callable(function) or isinstance(function, type):
        raise InvalidInput(f"a handler must be a function, and {function!r:.200} is not")
    code = _code(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise InvalidInput(f"a handler must return once, and {name_of(function)} is a generator")


def asked_of(function: Callable[..., Any], *, batch: bool) -> Parameters:
    """The arguments that a function asks for; of parameters with defaults, those that we have."""
    known = BATCH if batch else SINGLE
    try:
        parameters = _parameters(function)
    except ValueError:  # a function written in C, which has no signature
        return Parameters(known[:1], frozenset(known))
    _check_names(function, parameters, known)
    asked = [parameter for parameter in parameters if parameter.name in known]
    if not asked and any(parameter.kind is _KINDS.VAR_POSITIONAL for parameter in parameters):
        return Parameters(known[:1], frozenset(known))
    return Parameters(
        tuple(parameter.name for parameter in asked),
        frozenset(one.name for one in asked if one.kind is _KINDS.POSITIONAL_ONLY),
        next((_reader(function, one, batch) for one in asked if one.name == known[0]), None),
    )


def caller(function: Callable[..., Any], asked: Parameters, *, batch: bool) -> Call:
    """Calls the function with the arguments that it asks for. Made once: a handler is called a
    hundred thousand times a second."""
    names = ", ".join(_passed(name, asked, batch) for name in asked.names)
    source = f"lambda event, connection, context: function({names})"
    made = compile(source, __file__, "eval")  # of this file, so that a traceback leaves it out
    return eval(made, {"function": function, "reads": asked.reads})  # type: ignore[no-any-return]


def _passed(name: str, asked: Parameters, batch: bool) -> str:
    value = "event" if name in (SINGLE[0], BATCH[0]) else name
    if value == "event" and asked.reads and not batch:
        value = "reads(event.payload)"
    return value if name in asked.by_position else f"{name}={value}"


def _check_names(
    function: Callable[..., Any], parameters: list[inspect.Parameter], known: tuple[str, ...]
) -> None:
    for parameter in parameters:
        optional = parameter.default is not _EMPTY or parameter.kind in (
            _KINDS.VAR_POSITIONAL,
            _KINDS.VAR_KEYWORD,
        )
        if parameter.name not in known and not optional:
            *others, last = known
            hint = "; register a method bound to its object" if parameter.name == "self" else ""
            raise InvalidInput(
                f"a handler may take {', '.join(others)} and {last}; "
                f"{name_of(function)} asks for {parameter.name}{hint}"
            )


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        signature = inspect.signature(function, annotation_format=Format.FORWARDREF)
    else:
        signature = inspect.signature(function)
    given = function.keywords if isinstance(function, functools.partial) else {}
    return [one for name, one in signature.parameters.items() if name not in given]


def _reader(
    function: Callable[..., Any], parameter: inspect.Parameter, batch: bool
) -> Reader | None:
    annotation = parameter.annotation
    if isinstance(annotation, str | ForwardRef):
        annotation = _resolved(function, parameter.name, annotation)
    if batch:
        annotation = _member(annotation)
    try:
        return reader(annotation)
    except InvalidInput as error:
        raise InvalidInput(f"{name_of(function)} cannot be a handler: {error}") from error


def _member(annotation: Any) -> Any:
    """Of a list of events, what one of them is."""
    match get_args(annotation):
        case (member,):
            return member
    return _EMPTY


def _resolved(function: Callable[..., Any], name: str, annotation: str | ForwardRef) -> Any:
    text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
    trouble = None
    for names in _scopes(_code(function)):
        try:
            return eval(text, *names)
        except Exception as error:
            trouble = trouble or error
    if text.split(".")[-1].rstrip("]") == "Claimed":  # imported for the type checker alone
        return _EMPTY
    raise InvalidInput(
        f"{name_of(function)} asks for its {name} as {text}, which cannot be resolved there: "
        f"{trouble}"
    )


def _scopes(code: Any) -> Iterator[tuple[dict[str, Any], Mapping[str, Any]]]:
    """The scopes in which the names in an annotation may be known: the module, or a function
    around, if that is running."""
    inner = inspect.unwrap(code)
    yield getattr(inner, "__globals__", {}), {}
    file = inner.__code__.co_filename if hasattr(inner, "__code__") else None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == file:
            yield frame.f_globals, frame.f_locals
        frame = frame.f_back


def _bare(function: Callable[..., Any]) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _code(function: Callable[..., Any]) -> Any:
    """The function that runs, under partials, methods and objects that can be called."""
    bare = _bare(function)
    if not inspect.isroutine(bare):
        bare = bare.__call__
    return getattr(bare, "__func__", bare)

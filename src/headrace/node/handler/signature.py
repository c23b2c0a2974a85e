"""The arguments that a handler's function asks for by the names of its parameters, and calling it
with just those."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, ForwardRef, NamedTuple, TypeAlias, get_args

from headrace.errors import InvalidInput
from headrace.node.handler.opener import Opener
from headrace.node.handler.payload import Reader, reader

Call: TypeAlias = Callable[[Any, Any, Any], Any]
"""Of an event, a connection and a context."""
CallWithResources: TypeAlias = Callable[[Any, Any, Any, Mapping[str, Any]], Any]

SINGLE = ("event", "connection", "context")
BATCH = ("events", "connection")
LAYER = ("event", "events", "handler", "connection", "context")
OWN = frozenset({*SINGLE, *BATCH, *LAYER})
"""Names that stand for one thing each, in whatever asks for them."""

_KINDS = inspect.Parameter
_EMPTY = inspect.Parameter.empty


class Parameters(NamedTuple):
    """The arguments that a function is called with."""

    names: tuple[str, ...]
    by_position: frozenset[str] = frozenset()
    """Those of them that have no name for a caller."""
    reads: Reader | None = None

    def of(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, by position and by name."""
        return (
            [values[name] for name in self.names if name in self.by_position],
            {name: values[name] for name in self.names if name not in self.by_position},
        )

    def resources(self) -> tuple[str, ...]:
        """Those that the node does not have by itself."""
        return tuple(name for name in self.names if name not in OWN)


def name_of(function: Callable[..., Any]) -> str:
    """module.qualname, for people and for the log."""
    named = inspect.unwrap(_bare(function))
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}.{named.__qualname__}"


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(code_of(function))


def check_kind(function: Callable[..., Any]) -> None:
    """Refuse what is called like a function and is none."""
    if not callable(function) or isinstance(function, type):
        raise InvalidInput(f"a handler must be a function, and {function!r:.200} is not")
    code = code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise InvalidInput(f"a handler must return once, and {name_of(function)} is a generator")


def asked_of(
    function: Callable[..., Any], *, batch: bool, resources: Collection[str] = ()
) -> Parameters:
    """The arguments that a handler asks for; of parameters with defaults, those that we have."""
    known = BATCH if batch else SINGLE
    try:
        parameters = parameters_of(function)
    except ValueError:  # a function written in C, which has no signature
        return Parameters(known[:1], frozenset(known))
    check_names("a handler", function, parameters, known, resources)
    asked = [one for one in parameters if one.name in known or one.name in resources]
    if not asked and any(parameter.kind is _KINDS.VAR_POSITIONAL for parameter in parameters):
        return Parameters(known[:1], frozenset(known))
    return Parameters(
        tuple(parameter.name for parameter in asked),
        by_position(asked),
        next((_reader(function, one, batch) for one in asked if one.name == known[0]), None),
    )


def caller(function: Callable[..., Any], asked: Parameters, opener: Opener, *, batch: bool) -> Call:
    """Calls the function with the arguments that it asks for. Made once: a handler is called a
    hundred thousand times a second."""
    event = "event"
    if not batch and opener.is_always_needed:
        event = "opener(event)"
    elif not batch:  # a call would cost more than the look
        event = "(event if event.raw_details is None else opener(event))"
    parameters = "event, connection, context"
    return _compiled(parameters, function, asked, batch, event, opener)  # type: ignore[no-any-return]


def caller_with_resources(
    function: Callable[..., Any], asked: Parameters, *, batch: bool
) -> CallWithResources:
    """As `caller`, for a function that is called among layers, with an event that is decoded."""
    parameters = "event, connection, context, resources"
    return _compiled(parameters, function, asked, batch)  # type: ignore[no-any-return]


def _compiled(
    parameters: str,
    function: Callable[..., Any],
    asked: Parameters,
    batch: bool,
    event: str = "event",
    opener: Opener | None = None,
) -> Any:
    names = ", ".join(_passed(name, asked, batch, event) for name in asked.names)
    source = f"lambda {parameters}: function({names})"
    made = compile(source, __file__, "eval")  # of this file, so that a traceback leaves it out
    return eval(made, {"function": function, "reads": asked.reads, "opener": opener})


def _passed(name: str, asked: Parameters, batch: bool, event: str) -> str:
    value = name
    if name in (SINGLE[0], BATCH[0]):
        value = f"reads({event}.payload)" if asked.reads and not batch else event
    if name not in OWN:
        value = f"resources[{name!r}]"
    return value if name in asked.by_position else f"{name}={value}"


def by_position(parameters: Sequence[inspect.Parameter]) -> frozenset[str]:
    return frozenset(one.name for one in parameters if one.kind is _KINDS.POSITIONAL_ONLY)


def check_names(
    what: str,
    function: Callable[..., Any],
    parameters: Sequence[inspect.Parameter],
    known: Sequence[str],
    resources: Collection[str],
) -> None:
    """Refuse a function that asks for an argument that there is not."""
    for parameter in parameters:
        optional = parameter.default is not _EMPTY or parameter.kind in (
            _KINDS.VAR_POSITIONAL,
            _KINDS.VAR_KEYWORD,
        )
        name = parameter.name
        if not (name in known or name in resources or optional):
            may = " and ".join(filter(None, [", ".join(known[:-1]), *known[-1:]]))
            may = f"may take {may or 'no arguments of the node'}"
            if name == "self":
                hint = "; register a method bound to its object"
            elif resources:
                hint = f"; the resources so far: {', '.join(sorted(resources))}"
            else:
                hint = "; a resource must be registered before the functions that ask for it"
            raise InvalidInput(f"{what} {may}; {name_of(function)} asks for {name}{hint}")


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
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
    for names in _scopes(code_of(function)):
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


def code_of(function: Callable[..., Any]) -> Any:
    """The function that runs, under partials, methods and objects that can be called."""
    bare = _bare(function)
    if not inspect.isroutine(bare):
        bare = bare.__call__
    return getattr(bare, "__func__", bare)

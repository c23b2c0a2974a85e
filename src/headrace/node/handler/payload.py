"""Payloads as the types that handlers ask for by annotation."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeAlias, get_args

import msgspec

from headrace.errors import InvalidInput
from headrace.model import Claimed, Event
from headrace.model.failure_text import shortened, storable

Reader: TypeAlias = Callable[[Any], Any]

REASON = 1_000  # characters
PROBLEMS = 5  # of a model that the error names

_AS_CLAIMED = (inspect.Parameter.empty, Any, object, Claimed)


class PayloadMismatch(Exception):
    """A payload that is not of the type its handler asks for, and never will be."""

    what = "Payload mismatch"
    """How the reason of its dead letter begins."""

    def __init__(self, reason: str) -> None:
        super().__init__(shortened(storable(reason), REASON))


def reader(annotation: Any) -> Reader | None:
    """A function that converts a payload to the type of an annotation: a msgspec struct, dataclass,
    TypedDict, pydantic model or any other that msgspec can convert to. None: the annotation asks
    for the claimed event itself."""
    if annotation in _AS_CLAIMED:
        return None
    if {Claimed, Event}.intersection(filter(_is_type, (annotation, *get_args(annotation)))):
        raise InvalidInput(
            "an event comes as headrace.Claimed: annotate it so, or with a type for its payload"
        )
    if _is_of_pydantic(annotation) or any(map(_is_of_pydantic, get_args(annotation))):
        return _by_pydantic(annotation)
    return _by_msgspec(annotation)


def _is_type(kind: Any) -> bool:
    return isinstance(kind, type)


def _is_of_pydantic(kind: Any) -> bool:
    return _is_type(kind) and hasattr(kind, "__pydantic_validator__")


def _by_msgspec(annotation: Any) -> Reader:
    _check(annotation)
    convert = msgspec.convert
    name = _name(annotation)

    def read(payload: Any) -> Any:
        try:
            return convert(payload, annotation, str_keys=True, dec_hook=_model)
        except msgspec.ValidationError as error:
            raise PayloadMismatch(f"the payload does not match {name}: {error}") from None

    return read


def _check(annotation: Any) -> None:
    try:
        info = msgspec.inspect.type_info(annotation)
    except Exception as error:
        raise InvalidInput(f"no payload can be read as {_name(annotation)}: {error}") from error
    if isinstance(info, msgspec.inspect.CustomType):
        raise InvalidInput(
            f"no payload can be read as {_name(annotation)}: it is neither a msgspec struct, "
            "a dataclass, a TypedDict nor a pydantic model"
        )


def _model(kind: type, value: Any) -> Any:
    """Convert a value for which msgspec asks us: a pydantic model within a struct. Its errors are
    ValueErrors, to which msgspec adds the place."""
    if _is_of_pydantic(kind):
        return kind.model_validate(value)  # type: ignore[attr-defined]
    raise TypeError(f"no value can be read as {_name(kind)}")


def _by_pydantic(annotation: Any) -> Reader:
    pydantic = sys.modules["pydantic"]  # a program that has such a model has imported pydantic
    validate = pydantic.TypeAdapter(annotation).validate_python
    name, refusal = _name(annotation), pydantic.ValidationError

    def read(payload: Any) -> Any:
        try:
            return validate(payload)
        except refusal as error:
            raise PayloadMismatch(
                f"the payload does not match {name}: {_problems(error)}"
            ) from None

    return read


def _problems(error: Any) -> str:
    """The problems in msgspec's words; without the values, which may be long, or secret."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        f"{problem['msg']} - at `{'.'.join(['$', *map(str, problem['loc'])])}`"
        for problem in problems[:PROBLEMS]
    ]
    return "; ".join(told)


def _name(annotation: Any) -> str:
    return str(annotation.__name__ if _is_type(annotation) else annotation)

"""Small types of the API, and how a record of the model becomes JSON."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.engine.arguments import MAX_ID, MAX_INT

T = TypeVar("T")

Absent: TypeAlias = UnsetType
"""The key is left out: the value is unknown. A value that is known to be nothing is null."""
Maybe: TypeAlias = UnsetType | None
"""In a body of changes: leave the key out to keep the value; null restores the default."""

Attempt: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_INT)]
Code: TypeAlias = Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
Id: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_ID)]
Lease: TypeAlias = Annotated[float, Meta(ge=0.1, le=7 * 24 * 3600)]
"""Seconds."""
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=100)]
Object: TypeAlias = dict[str, Any]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_INT)]
Tags: TypeAlias = str | list[str]
"""A string with commas, or a list."""
WorkerId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
Words: TypeAlias = list[str]
Filter: TypeAlias = Annotated[Words, Meta(min_length=1, max_length=1000)]


@lru_cache(1024)
def moment(at: datetime) -> str:
    """To the second, in UTC."""
    return at.astimezone(UTC).isoformat(timespec="seconds")[:-6] + "Z"


def precise_moment(at: datetime) -> str:
    """To the millisecond, in UTC: for charts."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def moment_or_none(at: datetime | None) -> str | None:
    return None if at is None else moment(at)


def known(value: Any) -> Any:
    """None becomes absent."""
    return UNSET if value is None else value


def tag_list(tags: Tags | None) -> list[str] | None:
    """None for no tags. The engine refuses an empty tag, and a comma in a tag of a list."""
    if not tags:
        return None
    return [tag.strip(" ") for tag in (tags.split(",") if isinstance(tags, str) else tags)]


def tag_string(tags: tuple[str, ...]) -> str:
    return ",".join(tags)


OF_SHARDS = {"missing"}  # what a client of several shards tells; a server works on one database


def shape_of(record: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The base of a body with the fields of a record, all of them required, in the types that JSON
    has: a field is declared and described once, in the model. The body adds or replaces fields."""
    hints = get_type_hints(record, include_extras=True)
    fields = [
        (name, _json_type(hints[name]))
        for name in record.__struct_fields__
        if name not in OF_SHARDS
    ]
    return msgspec.defstruct(
        f"{record.__name__}Shape", fields, frozen=True, kw_only=True, namespace={"RECORD": record}
    )


def _json_type(kind: Any) -> Any:
    if kind in _JSON_TYPES:
        return _JSON_TYPES[kind]
    given = tuple(map(_json_type, get_args(kind)))
    if get_origin(kind) in (Union, UnionType):
        return Union[given]  # noqa: UP007
    return list[given[0]] if get_origin(kind) is tuple else kind  # type: ignore[valid-type]


_JSON_TYPES = {datetime: str, timedelta: float}


def told(
    kind: type[T],
    record: msgspec.Struct,
    write: Callable[[datetime], str] = moment,
    /,
    **instead: Any,
) -> T:
    """A record in the shape of a body: its fields by their names, but for those given instead."""
    names: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
    fields = {name: plain(getattr(record, name), write) for name in names if name not in instead}
    return kind(**fields, **instead)


def plain(value: Any, write: Callable[[datetime], str] = moment) -> Any:
    match value:
        case datetime():
            return write(value)
        case timedelta():
            return value / timedelta(seconds=1)
        case tuple():
            return [plain(one, write) for one in value]
    return value

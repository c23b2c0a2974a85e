"""New events as JSON: what could not be read back by everybody is refused before it is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from headrace.arguments import moment, seconds, strings
from headrace.errors import InvalidInput, InvalidPayload, PayloadTooLarge
from headrace.model import NewEvent, Publishable

MAX_PAYLOAD = 1024 * 1024
BATCH_EVENTS = 1_000
BATCH_BYTES = 8 * 1024 * 1024  # a jsonb document has a limit, and a server's memory too

_DETAILS = NewEvent.__struct_fields__[2:]  # all but type and payload
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def _as_plain(value: object) -> Any:
    """What msgspec does not know: pydantic's models, without importing pydantic."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError
    return dump(mode="json")


_encode = msgspec.json.Encoder(enc_hook=_as_plain).encode
# Reads over a document without building anything: is it one JSON value, with nothing after it?
_skim = msgspec.json.Decoder(msgspec.Raw).decode


class Batch(NamedTuple):
    """Events for one statement; `first` is the place of the first of them among all."""

    document: str
    first: int | None


def single(event: NewEvent) -> Batch:
    return Batch(_event(event).decode(), None)


def batches(events: Iterable[Publishable]) -> Iterator[Batch]:
    """Cut events into batches, encoding each batch when it is asked for."""
    heads: dict[str, bytes] = {}
    parts: list[bytes] = []
    first = place = size = 0
    for place, event in enumerate(events):
        try:
            part = _plain_event(heads, *event) if type(event) is tuple else _event(event)
        except InvalidInput as error:
            error.position = place
            raise
        if len(parts) == BATCH_EVENTS or (size + len(part) > BATCH_BYTES and parts):
            yield Batch(_document(parts), first)
            parts, first, size = [], place, 0
        parts.append(part)
        size += len(part)
    if parts:
        yield Batch(_document(parts), first)


def encode_payload(payload: Any) -> bytes:
    """The payload as JSON; None is an empty object.

    JSON that is already encoded may be given as msgspec.Raw. It must be one value; the rest is the
    engine's to judge.
    """
    encoded = encode(payload if payload is not None else {}, "the payload", InvalidPayload)
    if len(encoded) > MAX_PAYLOAD and not isinstance(payload, msgspec.Raw):
        raise PayloadTooLarge("the payload is larger than 1 MiB")
    return encoded


def encode(value: Any, what: str, refusal: type[InvalidInput] = InvalidInput) -> bytes:
    try:
        encoded = _encode(value)
        # A msgspec.Raw anywhere in it was copied unread, and must not break out of its place.
        _skim(encoded)
    except RecursionError as error:
        raise refusal(f"{what} is nested too deep, or contains itself") from error
    except UnicodeEncodeError as error:
        raise refusal(f"{what} has a lone surrogate, which is not a character") from error
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise refusal(f"{what} cannot be written as JSON: {error}") from error
    if b"\\" in encoded and _NUL.search(encoded):
        raise refusal(f"{what} has a NUL character, which PostgreSQL cannot store")
    # msgspec writes null for a float that is no number.
    if b"null" in encoded and not _is_finite(value):
        raise refusal(f"{what} has a number that is not finite (NaN or Infinity)")
    return encoded


def _document(parts: list[bytes]) -> str:
    return b"".join((b"[", b",".join(parts), b"]")).decode()


def _plain_event(heads: dict[str, bytes], *event: Any) -> bytes:
    if len(event) != 2:
        raise InvalidInput("an event as a tuple is (type, payload)")
    type, payload = event
    head = heads.get(type)
    if head is None:
        head = heads[type] = b'{"type":%b,"payload":' % encode(type, "the type of an event")
    return b"%b%b}" % (head, encode_payload(payload))


def _event(given: Publishable) -> bytes:
    event = given if isinstance(given, NewEvent) else _new_event(given)
    head = b'{"type":%b,"payload":%b' % (
        encode(event.type, "the type of an event"),
        encode_payload(event.payload),
    )
    details = {name: value for name in _DETAILS if (value := getattr(event, name)) is not None}
    if "tags" in details:
        details["tags"] = strings(event.tags, "tags")
    if event.delay is not None:
        details["delay"] = seconds(event.delay, "delay")
    if event.at is not None:
        details["at"] = moment(event.at, "at")
    tail = encode(details, "what describes an event")[1:]
    return b"%b,%b" % (head, tail) if details else head + tail


def _new_event(given: Any) -> NewEvent:
    if not isinstance(given, Mapping):
        raise InvalidInput("an event is a NewEvent, a mapping of its fields, or (type, payload)")
    try:
        return NewEvent(**given)
    except TypeError as error:
        raise InvalidInput(f"not an event: {error}") from error


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return all(map(_is_finite, _parts(value)))


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    for fields in ("__struct_fields__", "__dataclass_fields__"):
        if hasattr(value, fields):
            return [getattr(value, name, None) for name in getattr(value, fields)]
    if hasattr(value, "__attrs_attrs__"):
        return [getattr(value, field.name, None) for field in value.__attrs_attrs__]
    return [_as_plain(value)] if hasattr(value, "model_dump") else ()

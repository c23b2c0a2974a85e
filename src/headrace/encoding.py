"""New events as JSON: what could not be read back by everybody is refused before it is sent."""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, islice, starmap
from operator import eq
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict, astuple

from headrace.arguments import moment, seconds, strings
from headrace.backoff import policy
from headrace.errors import InvalidInput, InvalidPayload, PayloadTooLarge
from headrace.model import NewEvent, Publishable

MAX_PAYLOAD = 8 * 1024 * 1024  # whatever is configured; mostly it is 1 MiB, as PostgreSQL will say
MAX_DOCUMENT = 1024 * 1024
FIRST_EVENTS = 128  # soon encoded, so that PostgreSQL has something to do
BATCH_EVENTS = 1_000
TYPES = 1_000  # that are remembered
MAX_TYPE = 200  # characters; a longer one is refused by the engine
BATCH_BYTES = 8 * 1024 * 1024  # a jsonb document has a limit, and a server's memory too

_DETAILS = NewEvent.__struct_fields__[2:]  # after type and payload
_NO_DETAILS = (None,) * len(_DETAILS)
_PLAIN: dict[str, Callable[[Any, str], Any]] = {
    "tags": strings,
    "delay": seconds,
    "at": moment,
    "backoff": policy,
}
_PLAIN_TYPES = frozenset({str, int, float, list})  # a list is one of tags, which are strings
_NO_FLOATS = frozenset({str, int, bool, type(None)})
_LEAVES = _NO_FLOATS | {float}  # have no parts
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def new_event(type: str | NewEvent, *rest: Any) -> NewEvent:
    """The event that the arguments of `publish` describe, or the one that stands in the place of its type."""
    if not isinstance(type, NewEvent):
        return NewEvent(type, *rest)
    _refuse("publish", zip(NewEvent.__struct_fields__[1:], rest, strict=True))
    return type


def fields_of(type: str | NewEvent, payload: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """What the arguments of `emit` say of an event, by name."""
    if not isinstance(type, NewEvent):
        return {"type": type, "payload": payload, **fields}
    _refuse("emit", {"payload": payload, **fields}.items())
    return asdict(type)


def _refuse(caller: str, beside: Iterable[tuple[str, Any]]) -> None:
    """A NewEvent has all of it: nothing may be said beside it."""
    if names := [name for name, value in beside if value is not None]:
        raise InvalidInput(
            f"{caller} got a NewEvent and, beside it, {', '.join(names)}: say all of it in the NewEvent"
        )


def _as_plain(value: object) -> Any:
    """What msgspec does not know: pydantic's models, without importing pydantic."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"there is no JSON for {type(value).__name__}")
    return dump(mode="json")


_encode = msgspec.json.Encoder(enc_hook=_as_plain).encode
# How msgspec ends a datetime with an offset, and how a string may end that holds one.
_OFFSET = re.compile(rb'T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"')
# What is equal to what it was before it was encoded has lost nothing. To compare is quicker than to look for what may get lost.
_decode = msgspec.json.decode
# Reads over a document without building anything: is it one JSON value, with nothing after it?
_skim = msgspec.json.Decoder(msgspec.Raw).decode


class Batch(NamedTuple):
    """Events for one statement; `first` is the place of the first of them among all."""

    document: str
    first: int | None
    order: Sequence[int] | None = None
    """Which of them stands where in the document; None: as they were given."""
    type: str | None = None
    """The type of all of them, if they have nothing else but payloads: then the document is an array of these."""

    def position(self, place: int) -> int | None:
        """Where the event with a place in the document, from 0, was among all."""
        if self.first is None:
            return None
        return self.first + (place if self.order is None else self.order[place])


def plain_payload(event: NewEvent) -> str | None:
    """The payload of an event that has nothing but that and a type; None: there is more to it."""
    if astuple(event)[2:] != _NO_DETAILS or type(event.type) is not str:
        return None
    _type(event.type)
    return encode_payload(event.payload).decode()


def single(event: NewEvent) -> Batch:
    header, payload = _header(event), encode_payload(event.payload)
    # A list of one payload takes the engine half the time, but an idempotency key is for one event.
    form = b'{%b,"payloads":[%b]}' if event.idempotency_key is None else b'{%b,"payload":%b}'
    return Batch((form % (header, payload)).decode(), None)


def beginning(events: Iterable[Publishable]) -> tuple[list[Batch], Iterator[Batch] | None]:
    """The first few events as batches, and the rest, if there is one: a batch of it is encoded when it is asked for.
    Each is larger than the one before, and takes about as long as PostgreSQL takes for that. But of several types each
    is as large as can be: so there may be enough of a type for the engine to keep them together."""
    remaining = iter(events)
    few = list(islice(remaining, FIRST_EVENTS))
    size = 3 * FIRST_EVENTS
    if _are_mixed(few):
        few += islice(remaining, BATCH_EVENTS - FIRST_EVENTS)
        size = BATCH_EVENTS
    following = list(islice(remaining, 1))
    rest = batches(chain(following, remaining), len(few), size)
    return list(batches(few)), rest if following else None


def _are_mixed(events: Sequence[Publishable]) -> bool:
    types = [event[0] for event in events if type(event) is tuple and event]
    return bool(types) and types.count(types[0]) < len(types)


def batches(
    events: Iterable[Publishable], first: int = 0, size: int = BATCH_EVENTS
) -> Iterator[Batch]:
    """Cut events into batches, encoding each batch when it is asked for. `first` is the place of the first event, `size` that
    of the first batch."""
    remaining = iter(events)
    while chunk := list(islice(remaining, size)):
        batch = _glance(chunk, first)
        if batch is not None:
            yield batch
        else:
            yield from _look_closely(chunk, first)
        first += len(chunk)
        size = min(3 * size, BATCH_EVENTS)


def _glance(events: Sequence[Any], first: int) -> Batch | None:
    """A batch of (type, payload) in which there is nothing to look at closely.

    Which is the common case, and the checks are dearer than the encoding: here they are made once
    for the whole batch. Events of one type go together, which the engine likes: there is no order between
    types.
    """
    if set(map(type, events)) != {tuple}:
        return None
    try:
        given = [{} if payload is None else payload for _, payload in events]
        payloads = list(map(_encode, given))
        is_plain = all(map(eq, map(_decode, payloads), given))
        if not is_plain:
            deque(map(_skim, payloads), maxlen=0)
        document, order, kind = _together([kind for kind, _ in events], payloads)
    except Exception:
        return None
    if len(document) > MAX_DOCUMENT or b"\\u0000" in document:
        return None
    if not is_plain and not all(map(_is_exact, given, payloads)):
        return None
    try:
        return Batch(document.decode(), first, order, kind)
    except UnicodeDecodeError:
        return None


def _together(
    kinds: list[str], payloads: list[bytes]
) -> tuple[bytes, Sequence[int] | None, str | None]:
    """The document for these, the order in it, and their type if they are all of one."""
    if not all(issubclass(one, str) for one in set(map(type, kinds))):
        raise InvalidInput("the type of an event is a string")  # which is said by who looks closely
    if len(set(kinds)) == 1:
        _type(kinds[0])
        return b"[%b]" % b",".join(payloads), None, kinds[0]
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, kind in enumerate(kinds):
        places[kind].append(place)
    runs = [(_type(kind), [payloads[n] for n in its]) for kind, its in places.items()]
    return _document(runs), list(chain.from_iterable(places.values())), None


def _look_closely(events: Sequence[Publishable], first: int) -> Iterator[Batch]:
    runs: list[tuple[bytes, list[bytes]]] = []
    events_in_runs = size = 0
    for place, given in enumerate(events, first):
        try:
            event = given if isinstance(given, NewEvent) else _new_event(given)
            header, payload = _header(event), encode_payload(event.payload)
        except InvalidInput as error:
            error.position = place
            raise
        if runs and size + len(header) + len(payload) > BATCH_BYTES:
            yield Batch(_document(runs).decode(), place - events_in_runs)
            runs, events_in_runs, size = [], 0, 0
        if runs and runs[-1][0] == header and event.idempotency_key is None:
            runs[-1][1].append(payload)
        else:
            runs.append((header, [payload]))
            size += len(header)
        events_in_runs += 1
        size += len(payload)
    yield Batch(_document(runs).decode(), first + len(events) - events_in_runs)


def _document(runs: Iterable[tuple[bytes, list[bytes]]]) -> bytes:
    return b"[%b]" % b",".join(starmap(_event, runs))


def _event(header: bytes, payloads: list[bytes]) -> bytes:
    """An event, or several that have all but their payloads in common."""
    if len(payloads) == 1:
        return b'{%b,"payload":%b}' % (header, payloads[0])
    return b'{%b,"payloads":[%b]}' % (header, b",".join(payloads))


def header(event: NewEvent) -> str:
    """The JSON of everything but the payload."""
    return f"{{{_header(event).decode()}}}"


def _header(event: NewEvent) -> bytes:
    """The JSON of everything but the payload, without its braces."""
    if not isinstance(event.type, str):
        raise InvalidInput("the type of an event is a string")
    details = {
        name: value
        for name, value in zip(_DETAILS, astuple(event)[2:], strict=True)
        if value is not None
    }
    kind = _type(event.type)
    return b"%b,%b" % (kind, _fields(details)) if details else kind


def _type(type: str) -> bytes:
    return _known_type(type) if len(type) <= MAX_TYPE else _known_type.__wrapped__(type)


@lru_cache(TYPES)
def _known_type(type: str) -> bytes:
    return b'"type":%b' % encode(type, "the type of an event")


def encode_payload(payload: Any) -> bytes:
    """The payload as JSON; None is an empty object.

    JSON that is already encoded may be given as msgspec.Raw. It must be one value; the rest is the
    engine's to judge.
    """
    encoded = encode(payload if payload is not None else {}, "the payload", InvalidPayload)
    if len(encoded) > MAX_PAYLOAD and not isinstance(payload, msgspec.Raw):
        raise PayloadTooLarge("the payload is larger than 8 MiB, which none may be")
    return encoded


def encode(value: Any, what: str, refusal: type[InvalidInput] = InvalidInput) -> bytes:
    try:
        encoded = _encode(value)
        is_plain = _is_plain(value, encoded)
        if not is_plain and _OFFSET.search(encoded) and not _keeps_times(value):
            return encode(_in_utc(value), what, refusal)
        # A msgspec.Raw anywhere in it was copied unread, and must not break out of its place.
        _skim(encoded)
        if not encoded.isascii():
            encoded.decode()
    except RecursionError as error:
        raise refusal(f"{what} is nested too deep, or contains itself") from error
    except UnicodeDecodeError as error:
        raise refusal(f"{what} is not UTF-8") from error
    except UnicodeEncodeError as error:
        raise refusal(f"{what} has a lone surrogate, which is not a character") from error
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise refusal(f"{what} cannot be written as JSON: {error}") from error
    if b"\\" in encoded and _NUL.search(encoded):
        raise refusal(f"{what} has a NUL character, which PostgreSQL cannot store")
    if not is_plain:
        _refuse_losses(value, encoded, what, refusal)
    return encoded


def _refuse_losses(value: Any, encoded: bytes, what: str, refusal: type[InvalidInput]) -> None:
    # msgspec writes null for a float that is no number.
    if b"null" in encoded and not _is_finite(value):
        raise refusal(f"{what} has a number that is not finite (NaN or Infinity)")
    if b"{" in encoded and _is_ambiguous(value):
        raise refusal(
            f"{what} has two keys that are the same in JSON, as 1 and '1' are: "
            "give one of them another name, or one of the two values would be lost"
        )


def _fields(details: dict[str, Any]) -> bytes:
    for name, plain in _PLAIN.items():
        if name in details:
            details[name] = plain(details[name], name)
    if _PLAIN_TYPES.issuperset(map(type, details.values())):
        return encode(details, "what describes an event")[1:-1]
    # One by one: raw JSON among them must not become fields of its own.
    return b",".join(
        b'"%b":%b' % (name.encode(), encode(value, f"{name} of an event"))
        for name, value in details.items()
    )


def _new_event(given: Any) -> NewEvent:
    try:
        match given:
            case Mapping():
                return NewEvent(**given)
            case (type, payload) if isinstance(given, tuple):
                return NewEvent(type, payload)
    except TypeError as error:
        raise InvalidInput(f"not an event: {error}") from error
    raise InvalidInput("an event is a NewEvent, a mapping of its fields, or (type, payload)")


def _is_finite(value: Any) -> bool:
    if type(value) in _NO_FLOATS:
        return True
    if isinstance(value, float):
        return math.isfinite(value)
    return all(map(_is_finite, _parts(value)))


def _is_plain(value: Any, encoded: bytes) -> bool:
    """Whether its JSON gives the same value: most do, and nothing needs to be looked for in them."""
    try:
        return bool(_decode(encoded) == value)
    except Exception:  # of somebody's __eq__, or of JSON that only the engine can judge
        return False


def _is_exact(value: Any, encoded: bytes) -> bool:
    """Whether nothing of a value is lost in its JSON."""
    return not (
        (b"null" in encoded and not _is_finite(value))
        or (b"{" in encoded and _is_ambiguous(value))
        or (_OFFSET.search(encoded) and not _keeps_times(value))
    )


def _is_ambiguous(value: Any) -> bool:
    """Whether two keys of an object, here or further in, are equal in JSON."""
    kind = type(value)
    if kind is dict or isinstance(value, dict):
        try:
            "".join(value)
        except TypeError:
            if len({_encode({key: None}) for key in value}) < len(value):
                return True
        parts = value.values()
    else:
        parts = value if kind is list else _parts(value)
    return any(type(part) not in _LEAVES and _is_ambiguous(part) for part in parts)


def _keeps_times(value: Any) -> bool:
    """Whether no datetime in it has an offset with seconds, which msgspec cuts, as some zones had before they agreed
    on a time."""
    if isinstance(value, datetime):
        offset = value.utcoffset()
        return offset is None or not (offset.seconds % 60 or offset.microseconds)
    parts = chain(value, value.values()) if isinstance(value, dict) else _parts(value)
    return all(_keeps_times(part) for part in parts if type(part) not in _LEAVES)


def _in_utc(value: Any) -> Any:
    """The same in plain types, with its times in UTC."""
    return _converted(msgspec.to_builtins(value, builtin_types=(datetime,), enc_hook=_as_builtin))


def _converted(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value
    if isinstance(value, dict):
        return {_converted(key): _converted(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(map(_converted, value))
    return value


def _as_builtin(value: object) -> Any:
    return _decode(value) if isinstance(value, msgspec.Raw) else _as_plain(value)


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

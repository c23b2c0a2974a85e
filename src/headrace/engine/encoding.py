"""New events as JSON: a value that some reader could not read back is refused before it is sent."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice, starmap
from operator import eq
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict, astuple

from headrace.engine.arguments import moment, most_attempts, seconds, strings
from headrace.engine.backoff import policy
from headrace.engine.json_values import decode, encode, encode_quickly, is_exact, skim
from headrace.errors import InvalidInput, InvalidPayload, PayloadTooLarge
from headrace.model import NewEvent, Publishable

MAX_PAYLOAD = (
    8 * 1024 * 1024
)  # regardless of the setting; PostgreSQL enforces that, 1 MiB by default
MAX_DOCUMENT = 1024 * 1024
FIRST_EVENTS = 128  # quickly encoded, so that PostgreSQL starts early
BATCH_EVENTS = 1_000
TYPES = 1_000  # that are remembered
MAX_TYPE = 200  # characters; the engine refuses a longer one
BATCH_BYTES = 8 * 1024 * 1024  # a jsonb document has a limit, and a server's memory too

_DETAILS = NewEvent.__struct_fields__[2:]  # after type and payload
_NO_DETAILS = (None,) * len(_DETAILS)
_PLAIN: dict[str, Callable[[Any, str], Any]] = {
    "tags": strings,
    "delay": seconds,
    "at": moment,
    "settle": seconds,
    "at_latest": seconds,
    "backoff": policy,
}
_PLAIN_TYPES = frozenset({str, int, float, list})  # a list is one of tags, which are strings


def new_event(described: NewEvent) -> NewEvent:
    """The event of the arguments of `publish`, or the NewEvent given in place of a type."""
    event: str | NewEvent = described.type
    if not isinstance(event, NewEvent):
        return described
    _refuse("publish", list(asdict(described).items())[1:])
    return event


def fields_of(type: str | NewEvent, payload: Any, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of an event by name, from the arguments of `emit`."""
    if not isinstance(type, NewEvent):
        return {"type": type, "payload": payload, **fields}
    _refuse("emit", {"payload": payload, **fields}.items())
    return asdict(type)


def _refuse(caller: str, beside: Iterable[tuple[str, Any]]) -> None:
    """A NewEvent has all fields: no other argument may be given beside it."""
    if names := [name for name, value in beside if value is not None]:
        raise InvalidInput(
            f"{caller} got a NewEvent and {', '.join(names)}: set all fields in the NewEvent"
        )


class Batch(NamedTuple):
    """Events for one statement; `first` is the position of the first of them among all."""

    document: str
    first: int | None
    order: Sequence[int] | None = None
    """The positions of the events in the document; None: as they were given."""
    type: str | None = None
    """The type of all events, if they have only payloads: the document is an array of these."""

    def position(self, place: int) -> int | None:
        """The position among all events of an event of the document, from 0."""
        if self.first is None:
            return None
        return self.first + (place if self.order is None else self.order[place])


def details(event: NewEvent) -> dict[str, Any]:
    """The fields that an event has besides its type and payload, by name."""
    given = astuple(event)[2:]
    if given == _NO_DETAILS:
        return {}
    said = {name: one for name, one in zip(_DETAILS, given, strict=True) if one is not None}
    if "max_attempts" in said:
        most = most_attempts(said.get("max_retries"), said.pop("max_attempts"))
        said["max_retries"] = most
    return said


class Encoded(NamedTuple):
    """An event as JSON."""

    header: bytes
    """Everything but the payload, without the braces."""
    payload: bytes
    type: str | None
    """Of an event that has nothing but a type and a payload."""
    is_for_one: bool
    """It has a field that several events in a group cannot share."""


def encoded(event: NewEvent, given: dict[str, Any]) -> Encoded:
    """An event, and its details."""
    header, payload = _header(event, given), encode_payload(event.payload)
    plain = event.type if not given and type(event.type) is str else None
    return Encoded(header, payload, plain, bool(given) and _is_for_one(event))


def single(event: Encoded) -> Batch:
    """One event that is not plain."""
    # A list of one payload takes the engine half the time, but an idempotency key is for one event.
    form = b'{%b,"payload":%b}' if event.is_for_one else b'{%b,"payloads":[%b]}'
    return Batch((form % (event.header, event.payload)).decode(), None)


def together(events: Sequence[Encoded]) -> Batch:
    """Events of several publishers. Those that differ in their payloads only are put together."""
    runs: defaultdict[Any, list[int]] = defaultdict(list)
    for place, event in enumerate(events):
        runs[place if event.is_for_one else event.header].append(place)
    payloads = [[events[place].payload for place in places] for places in runs.values()]
    kind = events[0].type
    if len(runs) == 1 and kind is not None:
        return Batch((b"[%b]" % b",".join(payloads[0])).decode(), 0, None, kind)
    headers = [events[places[0]].header for places in runs.values()]
    document = _document(zip(headers, payloads, strict=True)).decode()
    return Batch(document, 0, list(chain.from_iterable(runs.values())))


def _is_for_one(event: NewEvent) -> bool:
    """Whether it has a field that several events in a group cannot share."""
    keys = (event.idempotency_key, event.unique, event.debounce)
    return any(key is not None for key in keys)


def beginning(events: Iterable[Publishable]) -> tuple[list[Batch], Iterator[Batch] | None]:
    """The first few events as batches, and the rest, if there is one, whose batches are encoded on
    demand. Each batch is larger than the one before, and its encoding takes about as long as
    PostgreSQL takes for the one before. Batches of several types are as large as possible, so that
    the engine finds enough events of a type to store them together."""
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
    """Cut events into batches, encoded on demand. `first` is the position of the first event,
    `size` the size of the first batch."""
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
    """A batch of (type, payload) that needs no close look; None: it does.

    This is the common case, and the checks cost more than the encoding: here they are made once
    for the whole batch. Events of one type are put together, which the engine stores faster: there
    is no order between types.
    """
    if set(map(type, events)) != {tuple}:
        return None
    try:
        given = [{} if payload is None else payload for _, payload in events]
        payloads = list(map(encode_quickly, given))
        is_plain = all(map(eq, map(decode, payloads), given))
        if not is_plain:
            deque(map(skim, payloads), maxlen=0)
        document, order, kind = _together([kind for kind, _ in events], payloads)
    except Exception:
        return None
    if len(document) > MAX_DOCUMENT or b"\\u0000" in document:
        return None
    if not is_plain and not all(map(is_exact, given, payloads)):
        return None
    try:
        return Batch(document.decode(), first, order, kind)
    except UnicodeDecodeError:
        return None


def _together(
    kinds: list[str], payloads: list[bytes]
) -> tuple[bytes, Sequence[int] | None, str | None]:
    """The document of these events, their order in it, and their type if it is the same."""
    if not all(issubclass(one, str) for one in set(map(type, kinds))):
        raise InvalidInput(
            "the type of an event must be a string"
        )  # _look_closely reports it with the position
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
            header, payload = _header(event, details(event)), encode_payload(event.payload)
        except InvalidInput as error:
            error.position = place
            raise
        if runs and size + len(header) + len(payload) > BATCH_BYTES:
            yield Batch(_document(runs).decode(), place - events_in_runs)
            runs, events_in_runs, size = [], 0, 0
        if runs and runs[-1][0] == header and not _is_for_one(event):
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
    """An event, or several that differ in their payloads only."""
    if len(payloads) == 1:
        return b'{%b,"payload":%b}' % (header, payloads[0])
    return b'{%b,"payloads":[%b]}' % (header, b",".join(payloads))


def header(event: NewEvent) -> str:
    """The JSON of everything but the payload."""
    return f"{{{_header(event, details(event)).decode()}}}"


def _header(event: NewEvent, given: dict[str, Any]) -> bytes:
    """The JSON of everything but the payload, without its braces."""
    if not isinstance(event.type, str):
        raise InvalidInput("the type of an event must be a string")
    kind = _type(event.type)
    return b"%b,%b" % (kind, _fields(given)) if given else kind


def _type(type: str) -> bytes:
    return _known_type(type) if len(type) <= MAX_TYPE else _known_type.__wrapped__(type)


@lru_cache(TYPES)
def _known_type(type: str) -> bytes:
    return b'"type":%b' % encode(type, "the type of an event")


def encode_payload(payload: Any) -> bytes:
    """The payload as JSON; None is an empty object.

    Encoded JSON may be given as msgspec.Raw. It must be one value; the engine checks the rest.
    """
    encoded = encode(payload if payload is not None else {}, "the payload", InvalidPayload)
    if len(encoded) > MAX_PAYLOAD and not isinstance(payload, msgspec.Raw):
        raise PayloadTooLarge("the payload is larger than 8 MiB, the absolute limit")
    return encoded


def _fields(details: dict[str, Any]) -> bytes:
    for name, plain in _PLAIN.items():
        if name in details:
            details = {**details, name: plain(details[name], name)}
    if _PLAIN_TYPES.issuperset(map(type, details.values())):
        return encode(details, "a field of an event")[1:-1]
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
    raise InvalidInput("an event must be a NewEvent, a mapping of its fields, or (type, payload)")

"""Payloads that are stored in another form: encrypted, compressed, or of an earlier version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.errors import InvalidInput, InvalidPayload
from headrace.model.events import NewEvent, Publishable
from headrace.model.work import Claimed

HEADER = "headrace-codec"
"""The header of an event that names the codec of its payload."""

_MARK = f'"{HEADER}"'.encode()

Encode: TypeAlias = Callable[[Any], Any]
Decode: TypeAlias = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Codec:
    """A pair of functions: `encode(payload)` gives the JSON value to store, `decode(stored, event)`
    the payload again. The name is stored with each event. A codec without a name only decodes: it
    is given every payload, after the codec that the event names, and may go by `event.version`."""

    name: str | None = None
    encode: Encode | None = None
    decode: Decode | None = None

    def __post_init__(self) -> None:
        if self.decode is None or not callable(self.decode):
            raise InvalidInput("a codec needs a function decode(stored, event)")
        if self.name is None:
            if self.encode is not None:
                raise InvalidInput(
                    "a codec that encodes needs a name, which is stored with what it has encoded"
                )
        elif not isinstance(self.name, str) or not 1 <= len(self.name) <= 200:
            raise InvalidInput(
                f"the name of a codec has 1 to 200 characters, not {self.name!r:.100}"
            )


class Codecs:
    """Those of a client or a node: the first that encodes is used for what is published, each for
    what names it."""

    def __init__(self, given: Codec | Sequence[Codec] | None = None) -> None:
        codecs: list[Any] = list(given) if isinstance(given, list | tuple) else [given]
        if given is None:
            codecs = []
        for one in codecs:
            if not isinstance(one, Codec):
                raise InvalidInput(f"codec must be a Codec or a list of them, not {one!r:.100}")
        named = [one for one in codecs if one.name is not None]
        self._writer = next((one for one in named if one.encode is not None), None)
        self._named = {one.name: one.decode for one in named}
        self._nameless = [one.decode for one in codecs if one.name is None]
        if len(self._named) < len(named):
            raise InvalidInput("each codec needs a name of its own")

    def __bool__(self) -> bool:
        return bool(self._named or self._nameless)

    def encoded(self, event: NewEvent) -> NewEvent:
        """The event as it is stored. One that names a codec is encoded already."""
        if self._writer is None or self._writer.encode is None:
            return event
        headers = event.headers or {}
        if not isinstance(headers, Mapping) or HEADER in headers:  # the engine refuses the former
            return event
        payload = {} if event.payload is None else event.payload
        fields = {name: getattr(event, name) for name in NewEvent.__struct_fields__}
        stored = self._writer.encode(payload)
        return NewEvent(
            **fields | {"payload": stored, "headers": {**headers, HEADER: self._writer.name}}
        )

    def encoded_all(self, events: Iterable[Publishable]) -> Iterable[Publishable]:
        return events if self._writer is None else map(self._encoded_any, events)

    def _encoded_any(self, event: Publishable) -> Publishable:
        match event:
            case NewEvent():
                return self.encoded(event)
            case Mapping():
                with suppress(TypeError):  # an unknown field: publishing says which, and where
                    return self.encoded(NewEvent(**event))
            case (type, payload) if isinstance(event, tuple):
                return self.encoded(NewEvent(type, payload))
        return event

    def payload(self, event: Any) -> Any:
        """The payload of a stored event as it was published. InvalidPayload: the codec that it
        names is none of these."""
        payload, name = event.payload, codec_of(event)
        if name is not None:
            decode = self._named.get(name)
            if decode is None:
                raise InvalidPayload(f"the payload is encoded by {name}, and no such codec is here")
            payload = _decoded(decode, payload, event, name)
        for decode in self._nameless:
            payload = _decoded(decode, payload, event, None)
        return payload

    def opened(self, claimed: Claimed) -> Claimed:
        """A claim with its payload decoded."""
        if not self and (claimed.raw_details is None or _MARK not in claimed.raw_details):
            return claimed
        payload = self.payload(claimed)
        if payload is claimed.payload:
            return claimed
        fields = {name: getattr(claimed, name) for name in Claimed.__struct_fields__}
        return Claimed(**fields | {"payload": payload})


NO_CODECS = Codecs()


def codec_of(event: Any) -> str | None:
    """The name of the codec that has encoded an event's payload; None: the payload is plain."""
    name = (event.headers or {}).get(HEADER)
    return None if name is None else str(name)


def _decoded(decode: Decode | None, stored: Any, event: Any, name: str | None) -> Any:
    assert decode is not None
    try:
        return decode(stored, event)
    except Exception as error:
        which = "the codec without a name" if name is None else f"the codec {name}"
        error.add_note(f"In {which}, of event {event.id}")
        raise

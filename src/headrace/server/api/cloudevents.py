"""CloudEvents 1.0 in structured mode: each is published once, however often it is sent."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from headrace.model import NewEvent
from headrace.server.api.values import tag_list
from headrace.server.http.refusal import Refusal
from headrace.server.http.request import decode

ONE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"

MAX_KEY = 200  # characters of an idempotency key
# Extension attributes that have a field in Headrace; the source of the event keeps all others.
_EXTENSIONS = {
    "partitionkey": "key",
    "correlationid": "correlation_id",
    "causationid": "causation_id",
    "traceparent": "trace_id",
}


def read_one(raw: bytes, idempotency_key: str | None) -> NewEvent:
    return _event(decode(raw, dict[str, msgspec.Raw]), idempotency_key)


def read_batch(raw: bytes) -> list[NewEvent]:
    return [_event(one, None) for one in decode(raw, list[dict[str, msgspec.Raw]])]


def _event(attributes: dict[str, msgspec.Raw], idempotency_key: str | None) -> NewEvent:
    """`id` and `source` identify a CloudEvent, so together they are its idempotency key."""
    data, encoded = attributes.pop("data", None), attributes.pop("data_base64", None)
    known = {name: _text(name, value) for name, value in attributes.items()}
    if known.pop("specversion", None) != "1.0":
        raise _refusal("specversion must be 1.0")
    for needed in ("id", "source", "type"):
        if not known.get(needed):
            raise _refusal(f"{needed} is missing")
    if data is not None and encoded is not None:
        raise _refusal("it has both data and data_base64")
    named: dict[str, Any] = {
        ours: known.pop(theirs) for theirs, ours in _EXTENSIONS.items() if theirs in known
    }
    type, tags = known.pop("type"), tag_list(known.pop("tags", None))
    return NewEvent(
        type,
        _payload(data, encoded),
        tags,
        idempotency_key=idempotency_key or _key(known["source"], known["id"]),
        title=known.get("subject"),
        source=_source(known),
        **named,
    )


def _source(known: dict[str, str]) -> dict[str, str]:
    others = {name: value for name, value in known.items() if name not in ("id", "source")}
    return {"type": "external", "id": known["source"], "event_id": known["id"], **others}


def _payload(data: msgspec.Raw | None, encoded: msgspec.Raw | None) -> msgspec.Raw:
    if encoded is not None:
        return msgspec.Raw(
            b'{"data_base64":%b}' % msgspec.json.encode(_text("data_base64", encoded))
        )
    return msgspec.Raw(b"null" if data is None else bytes(data))


def _text(name: str, raw: msgspec.Raw) -> str:
    """The value of an attribute: a string, a number or a boolean."""
    try:  # other values are not decoded, however long they are
        value: str | int | bool = msgspec.json.decode(raw, type=str | int | bool)
    except msgspec.ValidationError:
        raise _refusal(f"{name[:40]} must be a string, an integer or a boolean") from None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _key(source: str, id: str) -> str:
    key = f"{source} {id}"
    return key if len(key) <= MAX_KEY else hashlib.sha256(key.encode()).hexdigest()


def _refusal(why: str) -> Refusal:
    return Refusal(400, "invalid_cloudevent", f"The body is not a valid CloudEvent: {why}.")

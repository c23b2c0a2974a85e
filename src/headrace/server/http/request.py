"""Decodes requests: queries and bodies, within limits."""

from __future__ import annotations

import re
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from headrace.server.http.delivery import DELIVERY, ReplyDelivery
from headrace.server.http.operation import Operation, Query
from headrace.server.http.refusal import Refusal

MAX_PARAMETERS = 50

_NULL = re.compile("null", re.IGNORECASE)
_NO_TIME = re.compile(r"null|[-+\d.e_]+", re.IGNORECASE)
_CLOSE = {"Connection": "close"}  # the server does not wait for the rest of the request


class QuickRequest(Request):
    """A request with fast access to its headers."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope, receive, send)
        self._headers = _Headers(scope=scope)


class _Headers(Headers):
    """Headers in a dict, where Starlette searches a list; of two with one name the first counts."""

    def __init__(self, *, scope: Scope) -> None:
        super().__init__(raw=scope["headers"])
        self._known: dict[bytes, bytes] = dict(reversed(scope["headers"]))

    def __getitem__(self, key: str) -> str:
        return self._known[key.encode("latin-1")].decode("latin-1")

    def get(self, key: str, default: Any = None) -> Any:
        value = self._known.get(key.encode("latin-1"))
        return default if value is None else value.decode("latin-1")


def read_query(request: Request, kind: type[Query]) -> Any:
    """The parameters of a request. An unknown one is refused: it was meant to have an effect."""
    raw: bytes = request.scope["query_string"]
    if not raw:
        return _convert({}, kind)
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except UnicodeDecodeError:
        raise Refusal(
            400, "invalid_query", "The query is not percent-encoded UTF-8: encode it."
        ) from None
    except ValueError:
        raise Refusal(
            400,
            "invalid_query",
            f"The query has more than {MAX_PARAMETERS} parameters: send fewer.",
        ) from None
    given: dict[str, Any] = dict(pairs)
    if len(given) < len(pairs):
        raise Refusal(
            400, "invalid_query", "The query has a parameter twice: write a list with commas."
        )
    for name, misread in _misread(kind).items():
        if misread.fullmatch(given.get(name, "")):
            meant = (
                "write a time like 2025-12-24T10:30:00Z"
                if misread is _NO_TIME
                else "leave it out, or give a value"
            )
            raise Refusal(
                400,
                "invalid_query",
                f"The value {given[name][:40]} of the parameter {name} is not valid: {meant}.",
            )
    for name in given.keys() & _lists(kind):
        given[name] = [part.strip(" ") for part in given[name].split(",")]
    return _convert(given, kind)


@lru_cache
def _lists(kind: type[Query]) -> frozenset[str]:
    hints = get_type_hints(kind)
    return frozenset(
        name
        for name, hint in hints.items()
        if tuple in (get_origin(hint), *map(get_origin, getattr(hint, "__args__", ())))
    )


@lru_cache
def _misread(kind: type[Query]) -> dict[str, re.Pattern[str]]:
    """Values that msgspec would convert against the intent: null to None, a number to a time."""
    kinds = {name: {hint, *get_args(hint)} for name, hint in get_type_hints(kind).items()}
    return {
        name: _NO_TIME if datetime in its else _NULL
        for name, its in kinds.items()
        if str not in its
    }


def _convert(given: dict[str, Any], kind: type[Query]) -> Any:
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        said = f"The query is not valid: {error}.{_possible(kind, str(error))}"
        raise Refusal(400, "invalid_query", said) from None


def _possible(kind: type[Query], error: str) -> str:
    """The values that are allowed where another one was given."""
    field = re.search(r"^Invalid enum value .* at `\$\.(\w+)", error)
    hints = [get_type_hints(kind)[field[1]]] if field else []
    for hint in hints:  # which grows
        if get_origin(hint) is Literal:
            return f" Use one of {', '.join(get_args(hint))}."
        hints += get_args(hint)
    return ""


async def read_body(request: Request, operation: Operation, limit: int, most: int) -> Any:
    """The body: decoded if it is application/json, else as it came. `most`: events in a batch."""
    raw = await _receive(request, limit)
    if not raw:  # it was lost on its way, or forgotten
        raise Refusal(400, "invalid_body", "The request has no body: send at least {}.")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in operation.media_types:
        raise Refusal(
            415,
            "unsupported_media_type",
            f"The content type is not supported: use {' or '.join(operation.media_types)}.",
        )
    if operation.is_batch:
        is_ours = media_type == "application/json"
        _refuse_too_many(raw, _CountedBatch if is_ours else list[_Counted], most)
    kind = operation.reads or operation.body
    return decode(raw, kind) if media_type == "application/json" else raw


class _Counted(msgspec.Struct):
    """An event that is counted and not decoded."""

    def __post_init__(self) -> None:
        left = _left.get()
        left[0] -= 1
        if left[0] < 0:
            raise _TooMany


class _CountedBatch(msgspec.Struct):
    events: list[_Counted]


class _TooMany(Exception):
    """Stops the decoder."""


_left: ContextVar[list[int]] = ContextVar("left")
_SHORTEST = 3  # bytes of an event in a batch: {},


def _refuse_too_many(raw: bytes, kind: Any, most: int) -> None:
    """Counts the events before any is decoded: an event of three bytes takes several hundred then.
    A body that cannot be counted is refused here, too: the number of its events is unknown."""
    if len(raw) <= most * _SHORTEST:
        return
    _left.set([most])
    try:
        decode(raw, kind)
    except _TooMany:
        raise Refusal(
            413,
            "too_many_events",
            f"The request has more than {most:,} events: send several requests.",
            limit=most,
        ) from None


async def refuse_body(request: Request, operation: Operation) -> None:
    """For operations without a body: one that is not empty was meant to have an effect."""
    if request.headers.get("content-length", "0") == "0" and not request.headers.get(
        "transfer-encoding"
    ):
        return
    if (await _receive(request, operation.body_limit)).strip() in (b"", b"{}"):
        return
    known = ", ".join(operation.query.__struct_fields__)
    said = f"send parameters in the query instead: {known}" if known else "send none"
    raise Refusal(400, "invalid_body", f"This operation takes no body: {said}.")


def decode(raw: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise Refusal(400, "invalid_body", f"The body is not valid: {error}.") from None
    except msgspec.DecodeError as error:
        raise Refusal(400, "invalid_json", f"The body is not valid JSON: {error}.") from None
    except UnicodeDecodeError:
        raise Refusal(400, "invalid_json", "The body is not UTF-8: encode it.") from None
    except RecursionError:
        raise Refusal(
            400, "invalid_json", "The body is nested too deeply: send a flatter one."
        ) from None


async def _receive(request: Request, limit: int) -> bytes:
    """Receives the body up to its limit; the connection sees to one that comes too slowly."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced[:20]) > limit:
        raise _too_large(limit)
    delivery: ReplyDelivery | None = request.scope.get(DELIVERY)
    whole = None if delivery is None else delivery.body()
    if whole is not None:
        if len(whole) > limit:
            raise _too_large(limit)
        return whole
    message = await request.receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        chunks, size = [body], len(body)
        while message.get("more_body", False) and size <= limit:
            message = await request.receive()
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
        body = b"".join(chunks)
    if message["type"] == "http.disconnect":
        raise Refusal(
            400,
            "disconnected",
            "The body is incomplete: the connection was closed early.",
            headers=_CLOSE,
        )
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> Refusal:
    return Refusal(
        413,
        "body_too_large",
        f"The body has more than {limit:,} bytes: store large data elsewhere, and publish its URL.",
        headers=_CLOSE,
        limit=limit,
    )

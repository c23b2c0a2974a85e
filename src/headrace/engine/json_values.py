"""Values as JSON. A value that could not be read back unchanged is refused before it is sent."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import msgspec

from headrace.errors import InvalidInput

_NO_FLOATS = frozenset({str, int, bool, type(None)})
_LEAVES = _NO_FLOATS | {float}  # have no parts
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def _as_plain(value: object) -> Any:
    """Encodes types unknown to msgspec: pydantic models, without importing pydantic."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} cannot be encoded")
    return dump(mode="json")


encode_quickly = msgspec.json.Encoder(enc_hook=_as_plain).encode
# How msgspec writes the end of a datetime with an offset; a string may end so too.
_OFFSET = re.compile(rb'T\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"')
# A value that equals its decoded JSON has lost nothing. Comparing is faster than searching for
# losses.
decode = msgspec.json.decode
# Scans a document without building anything: is it one JSON value, with nothing after it?
skim = msgspec.json.Decoder(msgspec.Raw).decode


def encode(value: Any, what: str, refusal: type[InvalidInput] = InvalidInput) -> bytes:
    try:
        encoded = encode_quickly(value)
        is_plain = _is_plain(value, encoded)
        if not is_plain and _OFFSET.search(encoded) and not _keeps_times(value):
            return encode(_in_utc(value), what, refusal)
        # A msgspec.Raw within the value was copied unread, and must not break out of its place.
        skim(encoded)
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
    # msgspec writes null for NaN and Infinity.
    if b"null" in encoded and not _is_finite(value):
        raise refusal(f"{what} has a number that is not finite (NaN or Infinity)")
    if b"{" in encoded and _is_ambiguous(value):
        raise refusal(
            f"{what} has two keys that are the same in JSON, as 1 and '1' are: "
            "rename one of them, or one of the two values would be lost"
        )


def _is_finite(value: Any) -> bool:
    if type(value) in _NO_FLOATS:
        return True
    if isinstance(value, float):
        return math.isfinite(value)
    return all(map(_is_finite, _parts(value)))


def _is_plain(value: Any, encoded: bytes) -> bool:
    """Whether its JSON decodes to the same value: most do, and need no search for losses."""
    try:
        return bool(decode(encoded) == value)
    except Exception:  # of a custom __eq__, or of JSON that only the engine can check
        return False


def is_exact(value: Any, encoded: bytes) -> bool:
    """Whether the JSON of a value loses nothing of it."""
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
            if len({encode_quickly({key: None}) for key in value}) < len(value):
                return True
        parts = value.values()
    else:
        parts = value if kind is list else _parts(value)
    return any(type(part) not in _LEAVES and _is_ambiguous(part) for part in parts)


def _keeps_times(value: Any) -> bool:
    """Whether no datetime in it has an offset with seconds, which msgspec cuts; some zones had such
    offsets before they adopted a standard time."""
    if isinstance(value, datetime):
        offset = value.utcoffset()
        return offset is None or not (offset.seconds % 60 or offset.microseconds)
    parts = chain(value, value.values()) if isinstance(value, dict) else _parts(value)
    return all(_keeps_times(part) for part in parts if type(part) not in _LEAVES)


def _in_utc(value: Any) -> Any:
    """The value in plain types, with its times in UTC."""
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
    return decode(value) if isinstance(value, msgspec.Raw) else _as_plain(value)


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

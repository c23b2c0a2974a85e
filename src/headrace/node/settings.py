"""The settings of a node, and what is accepted for them."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace.engine.arguments import seconds
from headrace.engine.json_values import encode
from headrace.errors import InvalidInput
from headrace.model import Dispatch, Duration
from headrace.model.codec import Codec
from headrace.node.handler.signature import is_async
from headrace.node.run.runs import OnError

DEFAULT_LEASE = timedelta(seconds=60)
SHORTEST_LEASE, LONGEST_LEASE = 0.1, 7 * 86400.0  # seconds, as the engine has it


@dataclass(frozen=True)
class Settings:
    """How a node runs; see Node."""

    node_id: str
    namespace: str
    queue: str
    dsn: str | Sequence[str] | None
    """Several: shards."""
    data: Path | str | None
    migrate: bool | None
    prepare: bool
    concurrency: int
    connections: int
    lease: timedelta | None
    """None: the queue's."""
    idle: float | None
    """Seconds; None: the queue's processing_interval."""
    on_error: OnError | None
    dispatch: Dispatch
    display_name: str | None
    description: str | None
    metadata: dict[str, Any]
    timeout: float
    codec: Codec | Sequence[Codec] | None = None


def plain_id(node_id: str) -> str:
    """The id as the registry stores it, and as events name the node that emits them: the result of
    the engine's `headrace._node_name`."""
    if not isinstance(node_id, str):
        raise InvalidInput(f"the id of a node must be a string, not {node_id!r:.100}")
    plain = re.sub(r"[^A-Za-z0-9._:]+", "-", node_id).strip("-")[:100].strip("-")
    if not re.search("[A-Za-z0-9]", plain):
        raise InvalidInput(
            "the id of a node must contain a letter or a digit (a-z, A-Z, 0-9), and "
            f"{node_id!r:.100} has none"
        )
    return plain


def made_up_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


def above_zero(duration: Duration, what: str) -> float:
    length = seconds(duration, what)
    if not length > 0:
        raise InvalidInput(f"{what} must be longer than 0 seconds")
    return length


def lease_length(duration: Duration) -> timedelta:
    length = seconds(duration, "lease")
    if not SHORTEST_LEASE <= length <= LONGEST_LEASE:
        raise InvalidInput("a lease must last from 0.1 seconds to 7 days")
    return timedelta(seconds=length)


def json_object(metadata: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(metadata, Mapping):
        raise InvalidInput("metadata must be a JSON object: a mapping of strings to JSON values")
    encode(dict(metadata), "metadata")
    return dict(metadata)


def at_least_one(number: int, what: str) -> int:
    if type(number) is not int or number < 1:
        raise InvalidInput(f"{what} must be a whole number above 0, not {number!r}")
    return number


def known_dispatch(dispatch: Dispatch) -> Dispatch:
    if dispatch not in ("atomic", "collect"):
        raise InvalidInput(f"dispatch must be 'atomic' or 'collect', not {dispatch!r}")
    return dispatch


def plain_on_error(on_error: OnError | None) -> OnError | None:
    if on_error is not None and (not callable(on_error) or is_async(on_error)):
        raise InvalidInput("on_error must be a plain function of an exception and an event")
    return on_error

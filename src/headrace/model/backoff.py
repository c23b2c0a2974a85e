"""How long to wait before a retry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from headrace.model.times import Duration


class Fixed(msgspec.Struct, frozen=True):
    """Try again after the same delay every time. `jitter` adds up to this part of it, at random; it never takes
    away, here and in the others."""

    delay: Duration = 300
    jitter: float = 0


class Linear(msgspec.Struct, frozen=True):
    """Try again after `first`, and `step` more each time (as much as `first`, unless it is given), up to `longest`."""

    first: Duration = 60
    step: Duration | None = None
    longest: Duration = 86_400
    jitter: float = 0


class Exponential(msgspec.Struct, frozen=True):
    """Try again after `first`, then `factor` times as long each time, up to `longest`; and up to a tenth more, so that what
    failed together is not tried again together."""

    first: Duration = 5
    factor: float = 2
    longest: Duration = 3_600
    jitter: float = 0.1


Backoff: TypeAlias = Fixed | Linear | Exponential | Duration | Mapping[str, Any]
"""When to try again what has failed. A number of seconds is a fixed delay; a mapping is what the engine knows a policy by
(docs/sql.md), and what is told of a policy."""

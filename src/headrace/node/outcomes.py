"""What a handler may return, to say how its attempt has ended. An exception means: it failed."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headrace.model import Duration


class Done(msgspec.Struct, frozen=True):
    """It ended well, which is what returning nothing says too."""

    status_code: int | None = None
    """For the log."""


class Retry(msgspec.Struct, frozen=True):
    """It failed, and that counts; it is tried again after this time, or when the policy says."""

    after: Duration | None = None
    reason: str = ""
    """For the log."""


class Discard(msgspec.Struct, frozen=True):
    """It can never succeed: it is dead-lettered at once with this reason, for a person to look at."""

    reason: str


Outcome: TypeAlias = Done | Retry | Discard

"""All verbs together, and how a client borrows one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec, TypeVar

from headrace.engine.access import AccessVerbs
from headrace.engine.claim import ClaimVerbs
from headrace.engine.dead_letters import DeadLetterVerbs
from headrace.engine.finish import FinishVerbs
from headrace.engine.leases import LeaseVerbs
from headrace.engine.namespaces import NamespaceVerbs
from headrace.engine.nodes import NodeVerbs
from headrace.engine.observe import ObserveVerbs
from headrace.engine.publish import PublishVerbs
from headrace.engine.queues import QueueVerbs
from headrace.engine.schedules import ScheduleVerbs
from headrace.engine.shards import SlotVerbs
from headrace.engine.state import StateVerbs
from headrace.engine.tokens import TokenVerbs
from headrace.engine.transfer import TransferVerbs

P = ParamSpec("P")
R = TypeVar("R")


class Verbs(
    PublishVerbs,
    ClaimVerbs,
    FinishVerbs,
    LeaseVerbs,
    DeadLetterVerbs,
    QueueVerbs,
    NamespaceVerbs,
    ScheduleVerbs,
    NodeVerbs,
    StateVerbs,
    TransferVerbs,
    ObserveVerbs,
    TokenVerbs,
    AccessVerbs,
    SlotVerbs,
):
    """All verbs of a client, on one queue: each verb gives a call, which a runner runs."""


def borrows(
    verb: Callable[Concatenate[Any, P], Any], returned: Any = None
) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """Makes a client's method look like the verb that it runs: its name, its words, its signature.
    The method returns what the call of the verb returns, or else the type that is given."""

    def dress(method: Callable[..., R]) -> Callable[Concatenate[Any, P], R]:
        signature = signature_of(verb)
        kind = signature.return_annotation.partition("[")[2][:-1]  # of Steps[…]
        if returned is not None:
            kind = method.__annotations__["return"]  # which the verb's module need not know
        method.__name__, method.__doc__ = verb.__name__, verb.__doc__
        method.__annotations__ = {**verb.__annotations__, "return": returned or kind}
        method.__wrapped__ = verb  # type: ignore[attr-defined]  # in whose module the types are known
        method.__signature__ = signature.replace(return_annotation=kind)  # type: ignore[attr-defined]
        return method

    return dress


@lru_cache(None)
def signature_of(verb: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(verb)

"""Limits as tests set them, and what they read of them."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from psycopg.types.json import Jsonb

from tests.engine.functions_helpers import Engine

PER_TENANT = {"scope": "tag", "prefix": "tenant:", "at_once": 2}


def change(engine: Engine, queue: str = "main", **settings: Any) -> None:
    engine.call("change_queue", namespace="default", queue=queue, settings=Jsonb(settings))


def limit(engine: Engine, *limits: dict[str, Any], queue: str = "main") -> None:
    change(engine, queue, limits=list(limits))


def of(tenant: str, many: int = 1, **fields: Any) -> list[dict[str, Any]]:
    """Events of a tenant."""
    return [{"tags": [f"tenant:{tenant}"], **fields} for _ in range(many)]


def tenants(claims: Iterable[Any]) -> Counter[str]:
    return Counter(claim.tags[0].removeprefix("tenant:") for claim in claims)


def state_of(engine: Engine, name: str = "", queue: str = "main") -> Any:
    """What `limits` tells of a group; None: nothing."""
    rows = engine.call("limits", namespace="default", queue=queue)
    return next((row for row in rows if row.name == name), None)


def taken(engine: Engine, name: str = "") -> int:
    """How many of a group are in progress, as its limit counts."""
    state = state_of(engine, name)
    return 0 if state is None else state.in_progress

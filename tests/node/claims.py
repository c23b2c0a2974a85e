"""Claims that no database knows of."""

import json
from datetime import UTC, datetime
from typing import Any

from headrace import Claimed

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def claimed(
    type: str = "order.created",
    payload: Any = None,
    *,
    id: int = 7,
    attempt: int = 1,
    tags: tuple[str, ...] = (),
    **details: Any,
) -> Claimed:
    raw = json.dumps(details).encode() if details else None
    return Claimed(id, attempt, 70, False, type, tags, payload, 5, 0, 0, 3, NOW, b"\0" * 8, raw)

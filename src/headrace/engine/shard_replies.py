"""How the replies of several shards become one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from heapq import merge as merge_sorted
from typing import Any

from msgspec.structs import asdict, replace

from headrace.engine.shard_routes import Gathered
from headrace.engine.shards import Cursor
from headrace.model import (
    Checkpoint,
    DeadLetterGroup,
    History,
    Limit,
    LimitedGroup,
    LowWater,
    Point,
    Queue,
    QueueState,
    Stats,
    Tick,
)
from headrace.model.shards import Merged

LEVELS = ("critical", "warning", "notice")


def anyone(found: Gathered) -> bool:
    return any(found.all)


def total(found: Gathered) -> int:
    return sum(found.all)


def together(found: Gathered) -> dict[Any, Any]:
    return {key: value for part in found.all for key, value in part.items()}


def listed(found: Gathered, items: Iterable[Any]) -> Merged[Any]:
    return Merged(items, found.missing)


def by_name(field: str) -> Callable[[Gathered], Merged[Any]]:
    """One of each name: they are the same everywhere."""

    def merge(found: Gathered) -> Merged[Any]:
        by = {getattr(one, field): one for part in reversed(found.all) for one in part}
        return listed(found, [by[name] for name in sorted(by)])

    return merge


def one_queue(found: Gathered) -> Queue:
    first: Queue = found.first
    filling = next((one.filling for one in found.all if one.filling), None)
    depth = sum(one.depth for one in found.all)
    return replace(first, depth=depth, filling=filling, limits=whole_limits(found.all))


def whole_limits(parts: list[Queue]) -> tuple[Limit, ...] | None:
    """The limits of a queue: their bounds are divided among the shards, but for those of keys."""
    by: dict[Any, list[Limit]] = {}
    for part in parts:
        for limit in part.limits or ():
            by.setdefault((limit.scope, limit.match, limit.prefix, limit.per), []).append(limit)
    return tuple(replace(same[0], **_bounds(same)) for same in by.values()) or None


def _bounds(same: list[Any]) -> dict[str, int]:
    add = max if same[0].scope == "key" else sum
    told = {name: [getattr(one, name) for one in same] for name in ("at_once", "rate", "burst")}
    return {name: add(n or 0 for n in all) for name, all in told.items() if all[0] is not None}


def queues(found: Gathered) -> Merged[Queue]:
    by = _grouped(found, lambda queue: queue.name)
    merged = [one_queue(Gathered(dict(enumerate(same)))) for same in by.values()]
    return listed(found, sorted(merged, key=lambda queue: queue.name))


def limits(found: Gathered) -> Merged[LimitedGroup]:
    """The groups of all shards. Bounds are divided among them, so they are added again."""
    by = _grouped(found, lambda group: (group.scope, group.name))
    return listed(found, [_limited(same) for _, same in sorted(by.items())])


def _limited(same: list[LimitedGroup]) -> LimitedGroup:
    return replace(
        same[0],
        **{
            name: sum(getattr(group, name) for group in same)
            for name in ("in_progress", "room", "waiting")
            if getattr(same[0], name) is not None
        },
        **_bounds(same),
        next_at=_earliest(group.next_at for group in same),
        waiting_since=_earliest(group.waiting_since for group in same),
    )


def _grouped(found: Gathered, key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for part in found.all:
        for one in part:
            groups[key(one)].append(one)
    return groups


def _earliest(times: Iterable[datetime | None]) -> datetime | None:
    return min((time for time in times if time is not None), default=None)


def _latest(times: Iterable[datetime | None]) -> datetime | None:
    return max((time for time in times if time is not None), default=None)


def _sums(parts: list[Any], *names: str) -> dict[str, int]:
    return {name: sum(getattr(part, name) for part in parts) for name in names}


_COUNTS = (
    *("ready", "delayed", "processing", "claimed_ahead", "dead_letters", "published"),
    *("completed", "failed", "abandoned", "dead_lettered", "attempts"),
)


def stats(found: Gathered) -> Stats:
    parts: list[Stats] = found.all
    timed = [part for part in parts if part.average_ms is not None and part.attempts]
    attempts = sum(part.attempts for part in timed)
    spent = sum((part.average_ms or 0.0) * part.attempts for part in timed)
    return replace(
        parts[0],
        **_sums(parts, *_COUNTS),
        oldest_ready_at=_earliest(part.oldest_ready_at for part in parts),
        average_ms=spent / attempts if attempts else None,
        is_exact=all(part.is_exact for part in parts),
        missing=found.missing,
    )


def history(found: Gathered) -> History:
    """Counts are added. Of latencies and ages the worst shard's is told: percentiles of several
    cannot be added."""
    points: dict[datetime, list[Point]] = defaultdict(list)
    for part in found.all:
        for point in part.points:
            points[point.at].append(point)
    merged = [_point(same) for _, same in sorted(points.items())]
    return History(max(part.step for part in found.all), merged, missing=found.missing)


def _point(same: list[Point]) -> Point:
    values = [asdict(point) for point in same]
    worst: dict[str, Any] = {
        name: max((value[name] for value in values if value[name] is not None), default=None)
        for name in values[0]
    }
    depths = [point.depth for point in same if point.depth is not None]
    counts = _sums(same, "published", "completed", "failed", "retried", "dead")
    return Point(**{**worst, **counts, "depth": sum(depths) if depths else None})


def ticks(found: Gathered) -> Tick:
    parts: list[Tick] = found.all
    return replace(
        parts[0],
        **_sums(parts, "due", "expired", "fired"),
        kept_up=any(part.kept_up for part in parts),
        more=any(part.more for part in parts),
    )


def workers(found: Gathered) -> Merged[Any]:
    return listed(found, [_worker(same) for same in _grouped(found, _worker_id).values()])


def _worker_id(worker: Any) -> str:
    id: str = worker.worker_id
    return id


def _worker(same: list[Any]) -> Any:
    return replace(
        same[0],
        **_sums(same, "holds", "completed", "failed", "released", "abandoned"),
        oldest_claim_at=_earliest(one.oldest_claim_at for one in same),
        lease_expires_at=_earliest(one.lease_expires_at for one in same),
        last_seen_at=_latest(one.last_seen_at for one in same),
    )


def unhandled(found: Gathered) -> Merged[Any]:
    groups = _grouped(found, lambda one: (one.queue, one.type))
    return listed(
        found,
        [
            replace(
                same[0],
                deliveries=sum(one.deliveries for one in same),
                oldest_at=min(one.oldest_at for one in same),
                since=_earliest(one.since for one in same),
            )
            for same in groups.values()
        ],
    )


def findings(found: Gathered) -> Merged[Any]:
    """What several shards say in the same words is said once, since when it was first so."""
    same = _grouped(
        found, lambda one: (one.level, one.code, one.namespace, one.queue, one.sentence)
    )
    every = [replace(ones[0], since=_earliest(one.since for one in ones)) for ones in same.values()]
    return listed(found, sorted(every, key=lambda one: LEVELS.index(one.level)))


def letter_groups(found: Gathered) -> Merged[DeadLetterGroup]:
    groups = _grouped(found, lambda group: group.fingerprint).values()
    merged = [_letter_group(same) for same in groups]
    return listed(found, sorted(merged, key=lambda group: -group.letters))


def _letter_group(same: list[DeadLetterGroup]) -> DeadLetterGroup:
    last = max(same, key=lambda group: group.last_died_at)
    rest = [group for group in same if group is not last]
    return replace(
        last,
        types=tuple(sorted({type for group in same for type in group.types})),
        letters=sum(group.letters for group in same),
        first_died_at=min(group.first_died_at for group in same),
        sample_ids=(*last.sample_ids, *(id for group in rest for id in group.sample_ids))[:3],
    )


def newest(field: str, limit: int) -> Callable[[Gathered], Merged[Any]]:
    def merge(found: Gathered) -> Merged[Any]:
        every = merge_sorted(*found.all, key=lambda one: getattr(one, field), reverse=True)
        return listed(found, list(every)[:limit])

    return merge


def _places(found: Gathered, name: str) -> str | None:
    """How far each shard has come, as one cursor; None: none has finished anything."""
    places = {shard: getattr(one, name) for shard, one in found.values.items()}
    if not any(places.values()):
        return None
    return str(Cursor({shard: place or "0" for shard, place in places.items()}))


def low_water(found: Gathered) -> LowWater:
    parts: list[LowWater] = found.all
    return replace(
        parts[0],
        checkpoint_id=_places(found, "checkpoint_id"),
        **_sums(parts, "event_count", "lag"),
        lag_is_exact=all(part.lag_is_exact for part in parts),
        oldest_at=_earliest(part.oldest_at for part in parts),
        reason=next((part.reason for part in parts if part.reason), None),
        missing=found.missing,
    )


def checkpoint(found: Gathered) -> Checkpoint:
    parts: list[Checkpoint] = found.all
    return replace(
        parts[0],
        id=str(Cursor({shard: one.id for shard, one in found.values.items()})),
        checkpoint_id=_places(found, "checkpoint_id"),
        **_sums(parts, "event_count", "lag"),
        created_at=max(part.created_at for part in parts),
        lag_is_exact=all(part.lag_is_exact for part in parts),
        oldest_at=_earliest(part.oldest_at for part in parts),
        reason=next((part.reason for part in parts if part.reason), None),
    )


def checkpoints(found: Gathered) -> Gathered:
    """Those of one shard each: they say of which."""
    return Gathered(
        {
            shard: [
                replace(
                    one, checkpoint_id=one.checkpoint_id and str(Cursor({shard: one.checkpoint_id}))
                )
                for one in part
            ]
            for shard, part in found.values.items()
        },
        found.missing,
    )


def state(found: Gathered, limit: int) -> QueueState:
    parts: list[QueueState] = found.all
    metrics = [part["queueMetrics"] for part in parts]
    processed = sum(one["totalProcessed"] for one in metrics)
    spent = sum(one["avgProcessingTimeMs"] * one["totalProcessed"] for one in metrics)
    places = {shard: part["checkpointId"] for shard, part in found.values.items()}
    events = [event for part in parts for event in part["events"]]
    document = {
        **parts[0],
        "events": sorted(events, key=lambda event: int(event["eventId"]))[:limit],
        "checkpointId": str(Cursor({shard: place or "0" for shard, place in places.items()}))
        if any(places.values())
        else None,
        "queueMetrics": {
            "totalProcessed": processed,
            "totalErrors": sum(one["totalErrors"] for one in metrics),
            "avgProcessingTimeMs": round(spent / processed, 1) if processed else 0,
        },
        "updated_at": max(part["updated_at"] for part in parts),
    }
    exact = all(part.total_is_exact for part in parts)
    return QueueState(document, sum(part.total for part in parts), exact, found.missing)

"""What needs somebody's attention: what the engine finds, and how it is said."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """Something that somebody should look at."""

    code: str
    """Which kind it is: this does not change."""
    level: Literal["critical", "warning", "notice"]
    """critical: something does not work; warning: it soon may not; notice: somebody should know."""
    namespace: str | None
    """None: it is about the whole installation."""
    queue: str | None
    """None: it is about no queue in particular."""
    about: Mapping[str, Any]
    """Numbers and names that belong to it."""
    since: datetime | None
    """When it began, where that is known."""

    @property
    def sentence(self) -> str:
        return _SENTENCES[self.code](self.about, f"The queue {self.queue}")


def duration(seconds: float) -> str:
    """In the unit in which people would say it."""
    units = (("day", 86400), ("hour", 3600), ("minute", 60))
    for unit, length in units:
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}s"
    return f"{seconds:.0f} seconds"


def number(count: int, noun: str, most: int | None = None) -> str:
    """So many of something; at `most`, where nobody counted on."""
    said = f"{count:,} {noun}{'' if count == 1 else 's'}"
    return f"{said} or more" if count == most else said


def _wait(count: int) -> str:
    return f"{number(count, 'event', 10_000)} {'waits' if count == 1 else 'wait'}"


def _upkeep_stopped(about: Mapping[str, Any], queue: str) -> str:
    return (
        "Nobody does the upkeep: delays, retries, schedules and leases that ran out wait until a node, a server or "
        "`tick` does."
    )


def _upkeep_behind(about: Mapping[str, Any], queue: str) -> str:
    late = [
        number(about["expired"], "lease", 10) + " that ran out" if about["expired"] else "",
        number(about["due"], "delay", 10) + " that ended" if about["due"] else "",
    ]
    waits = [f"{' and '.join(filter(None, late))}, for a minute or longer"] if any(late) else []
    if "overdue_seconds" in about:
        waits.append(f"what is done every hour is overdue by {duration(about['overdue_seconds'])}")
    return f"The upkeep is behind: {'; '.join(waits)}."


def _upkeep_failing(about: Mapping[str, Any], queue: str) -> str:
    return f"A part of the upkeep fails and is tried again every minute: {about['problem'][:300]}."


def _default_partition(about: Mapping[str, Any], queue: str) -> str:
    return (
        f"Rows of {', '.join(about['tables'])} lie outside their months, which makes retention wait: is a clock wrong, "
        "or did the upkeep not run?"
    )


_COST_OF_LOCKS = {
    "sleepers": "idle workers find work by polling, and publishers notify in vain",
    "instances": "a dead node's claims are taken over when their leases end, and not at once",
    "upkeep": "a part of the upkeep waits until its transaction ends",
}


def lock_in_the_way(about: Mapping[str, Any], queue: str = "") -> str:
    """The session that holds the lock, and what that costs. It concerns all queues."""
    return (
        f"Process {about['pid']} (role {about['role']}, application {about['application'] or 'without a name'}) is in the way "
        f"with a lock: {_COST_OF_LOCKS[about['purpose']]}."
    )


def _waiting_long(about: Mapping[str, Any], queue: str) -> str:
    oldest = duration(about["oldest_seconds"])
    return f"{queue} is late: {_wait(about['waiting'])}, the oldest for {oldest}."


def _unhandled(about: Mapping[str, Any], queue: str) -> str:
    waits = duration(about["oldest_seconds"])
    return f"{queue} has events of type {about['type']}, for {waits}, that no live node handles."


def _queue_full(about: Mapping[str, Any], queue: str) -> str:
    return f"{queue} is full: {about['depth']:,} wait, and publishing is refused from {about['limit']:,} on."


def _above_watermark(about: Mapping[str, Any], queue: str) -> str:
    return f"{queue} is above its watermark: {about['depth']:,} wait, of {about['limit']:,}."


def _paused(about: Mapping[str, Any], queue: str) -> str:
    by = f" by {about['actor']}" if "actor" in about else ""
    return f"{queue} was paused{by}, and {_wait(about['waiting'])} in it."


def _draining(about: Mapping[str, Any], queue: str) -> str:
    return f"{queue} is being drained: it refuses new events, and {_wait(about['waiting'])} in it."


def _failing(about: Mapping[str, Any], queue: str) -> str:
    share = round(100 * about["failures"] / about["attempts"])
    attempts = number(about["attempts"], "attempt")
    return f"{queue} fails: {share}% of {attempts} in the last five minutes."


def _dead_letters(about: Mapping[str, Any], queue: str) -> str:
    letters = number(about["letters"], "new dead letter", 1000)
    alike = f", {about['alike']:,} of one kind" if about["alike"] < about["letters"] else ""
    return f"{queue} has {letters} in the last hour{alike}: {about['error'][:200]}"


def _released_often(about: Mapping[str, Any], queue: str) -> str:
    return (
        f"{queue} has event {about['event']} of type {about['type']}, which was released {about['times']:,} times in a row: its handler "
        "does not end it. Is it cancelled each time?"
    )


def _orphaned(about: Mapping[str, Any], queue: str) -> str:
    deliveries = number(about["deliveries"], "event")
    return f"{queue} has {deliveries} in work for five minutes or longer, by {', '.join(about['workers'])}."


def _node_lost(about: Mapping[str, Any], queue: str) -> str:
    deliveries = number(about["deliveries"], "event")
    return f"The node {about['node_id']} has gone silent with {deliveries} in work; others get them when its leases end."


def _schedule_late(about: Mapping[str, Any], queue: str) -> str:
    return f"The schedule {about['name']} has not fired, though it was due."


def _schedule_unplanned(about: Mapping[str, Any], queue: str) -> str:
    return f"Nobody works out when the schedule {about['name']} fires next: no node and no server runs."


_SENTENCES = {
    "upkeep_stopped": _upkeep_stopped,
    "upkeep_behind": _upkeep_behind,
    "upkeep_failing": _upkeep_failing,
    "default_partition": _default_partition,
    "lock_in_the_way": lock_in_the_way,
    "waiting_long": _waiting_long,
    "unhandled": _unhandled,
    "queue_full": _queue_full,
    "above_watermark": _above_watermark,
    "paused": _paused,
    "draining": _draining,
    "failing": _failing,
    "dead_letters": _dead_letters,
    "released_often": _released_often,
    "orphaned": _orphaned,
    "node_lost": _node_lost,
    "schedule_late": _schedule_late,
    "schedule_unplanned": _schedule_unplanned,
}

"""Problems that need attention: the engine finds them, and a sentence describes each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from headrace.model.duration import duration_text


class Finding(msgspec.Struct, frozen=True):
    """A problem that needs attention."""

    code: str
    """The kind of problem: a stable name."""
    level: Literal["critical", "warning", "notice"]
    """critical: something does not work; warning: it may soon fail; notice: good to know."""
    namespace: str | None
    """None: the problem concerns the whole installation."""
    queue: str | None
    """None: the problem concerns no particular queue."""
    about: Mapping[str, Any]
    """The numbers and names of the problem."""
    since: datetime | None
    """When it began, if that is known."""

    @property
    def sentence(self) -> str:
        return _SENTENCES[self.code](self.about, f"The queue {self.queue}")


def number(count: int, noun: str, most: int | None = None) -> str:
    """A count with its noun; at `most` the engine stopped counting."""
    said = f"{count:,} {noun}{'' if count == 1 else 's'}"
    return f"{said} or more" if count == most else said


def _wait(count: int) -> str:
    return f"{number(count, 'event', 10_000)} {'waits' if count == 1 else 'wait'}"


def _upkeep_stopped(about: Mapping[str, Any], queue: str) -> str:
    return (
        "The upkeep does not run: delays, retries, schedules and expired leases wait until a node, a "
        "server or `tick` runs it."
    )


def _upkeep_behind(about: Mapping[str, Any], queue: str) -> str:
    late = [
        number(about["expired"], "expired lease", 10) if about["expired"] else "",
        number(about["due"], "ended delay", 10) if about["due"] else "",
    ]
    waits = [f"{' and '.join(filter(None, late))} for a minute or longer"] if any(late) else []
    if "overdue_seconds" in about:
        waits.append(f"the hourly upkeep is overdue by {duration_text(about['overdue_seconds'])}")
    return f"The upkeep is behind: {'; '.join(waits)}."


def _upkeep_failing(about: Mapping[str, Any], queue: str) -> str:
    return f"A part of the upkeep fails and is retried every minute: {about['problem'][:300]}."


def _default_partition(about: Mapping[str, Any], queue: str) -> str:
    return (
        f"Rows of {', '.join(about['tables'])} are outside their monthly partitions, and retention "
        "waits for them: is a clock wrong, or did the upkeep not run?"
    )


_COST_OF_LOCKS = {
    "sleepers": "idle workers find work by polling, and publishers notify in vain",
    "instances": "the claims of a dead node are recovered when their leases end, not at once",
    "upkeep": "a part of the upkeep waits until the transaction ends",
}


def lock_in_the_way(about: Mapping[str, Any], queue: str = "") -> str:
    """The session that holds the lock, and the effect. It concerns all queues."""
    return (
        f"Process {about['pid']} (role {about['role']}, application "
        f"{about['application'] or 'without a name'}) holds a lock that Headrace needs: "
        f"{_COST_OF_LOCKS[about['purpose']]}."
    )


def _waiting_long(about: Mapping[str, Any], queue: str) -> str:
    oldest = duration_text(about["oldest_seconds"])
    return f"{queue} is late: {_wait(about['waiting'])}, the oldest for {oldest}."


def _limit_reached(about: Mapping[str, Any], queue: str) -> str:
    group = f"{about['scope']} {about['name']}".strip() if about["name"] else "queue"
    bounds = [f"{about['at_once']:,} at once"] if "at_once" in about else []
    if "rate" in about:
        bounds.append(f"{about['rate']:,} per {duration_text(about['per'])}")
    oldest = duration_text(about["oldest_seconds"])
    return (
        f"{queue}: {_wait(about['waiting'])} for the limit of the {group} "
        f"({', '.join(bounds)}), the oldest for {oldest}."
    )


def _unhandled(about: Mapping[str, Any], queue: str) -> str:
    waits = duration_text(about["oldest_seconds"])
    return f"{queue} has events of type {about['type']} that no live node handles, for {waits}."


def _queue_full(about: Mapping[str, Any], queue: str) -> str:
    return f"{queue} is full: {about['depth']:,} events wait, and its maximum depth is {about['limit']:,}."


def _above_watermark(about: Mapping[str, Any], queue: str) -> str:
    return f"{queue} is above its high watermark of {about['limit']:,}: {about['depth']:,} events wait."


def _paused(about: Mapping[str, Any], queue: str) -> str:
    by = f" by {about['actor']}" if "actor" in about else ""
    return f"{queue} was paused{by}, and {_wait(about['waiting'])} in it."


def _draining(about: Mapping[str, Any], queue: str) -> str:
    return f"{queue} is draining: it refuses new events, and {_wait(about['waiting'])} in it."


def _failing(about: Mapping[str, Any], queue: str) -> str:
    share = round(100 * about["failures"] / about["attempts"])
    attempts = number(about["attempts"], "attempt")
    return f"{queue}: {share}% of {attempts} failed in the last five minutes."


def _dead_letters(about: Mapping[str, Any], queue: str) -> str:
    letters = number(about["letters"], "new dead letter", 1000)
    alike = f", {about['alike']:,} with the same error" if about["alike"] < about["letters"] else ""
    return f"{queue} has {letters} in the last hour{alike}: {about['error'][:200]}"


def _released_often(about: Mapping[str, Any], queue: str) -> str:
    return (
        f"{queue}: event {about['event']} of type {about['type']} was released {about['times']:,} "
        "times in a row. Is its handler cancelled each time?"
    )


def _orphaned(about: Mapping[str, Any], queue: str) -> str:
    deliveries = number(about["deliveries"], "event")
    return (
        f"{queue} has {deliveries} in progress for five minutes or longer, with workers that are "
        "not live nodes: "
        f"{', '.join(about['workers'])}."
    )


def _node_lost(about: Mapping[str, Any], queue: str) -> str:
    deliveries = number(about["deliveries"], "event")
    return (
        f"The node {about['node_id']} has stopped sending heartbeats with {deliveries} in progress; "
        "other nodes get them when the leases end."
    )


def _schedule_late(about: Mapping[str, Any], queue: str) -> str:
    return f"The schedule {about['name']} is due and has not fired."


def _schedule_unplanned(about: Mapping[str, Any], queue: str) -> str:
    return f"The schedule {about['name']} is not planned further: no node and no server is running."


_SENTENCES = {
    "upkeep_stopped": _upkeep_stopped,
    "upkeep_behind": _upkeep_behind,
    "upkeep_failing": _upkeep_failing,
    "default_partition": _default_partition,
    "lock_in_the_way": lock_in_the_way,
    "waiting_long": _waiting_long,
    "limit_reached": _limit_reached,
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

"""Queues: made, changed, looked at, paused; and whether there is room in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from headrace.engine.arguments import interval, moment, most_attempts, seconds, strings
from headrace.engine.backoff import policy
from headrace.engine.caller import Caller
from headrace.engine.json_values import encode
from headrace.engine.statement import Row, Statement, Steps, Turns, ask, done, timed
from headrace.model import Backoff, Duration, Limit, LimitedGroup, Order, Queue, instant, told
from headrace.model.pauses import Pauses

# Between the questions of a caller that waits for capacity, in seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0

# The columns that are not read as they are.
_READ = {
    "backoff": "backoff::pg_catalog.text",
    "order": '"order"',
    "limits": "limits::pg_catalog.text",
    "fair_by": "fair_by::pg_catalog.text",
    "metadata": "metadata::pg_catalog.text",
    "created_at": "pg_catalog.timestamptz_send(created_at)",
}
_QUEUE = (
    f"select {', '.join(_READ.get(name, name) for name in Queue.__struct_fields__)} from headrace."
)


def queue(namespace: str, name: str) -> Statement[Queue]:
    return Statement(_QUEUE + "queue(%s, %s)", (namespace, name), lambda rows: _queue(rows[0]))


def queues(namespace: str) -> Statement[list[Queue]]:
    return Statement(_QUEUE + "queues(%s)", (namespace,), lambda rows: list(map(_queue, rows)))


def _queue(row: Row) -> Queue:
    values = dict(zip(Queue.__struct_fields__, row, strict=True))
    values |= {name: values[name] and tuple(values[name]) for name in ("types", "tags")}
    values |= {name: told(values[name]) for name in ("backoff", "metadata")}
    values["processing_interval"] = timedelta(milliseconds=values["processing_interval"])
    for name in ("lease", "aging"):
        values[name] = None if values[name] is None else timedelta(seconds=values[name])
    if values["limits"] is not None:
        values["limits"] = msgspec.json.decode(values["limits"], type=tuple[Limit, ...])
    values["fair_by"] = values["fair_by"] and told(values["fair_by"])
    values["created_at"] = instant(values["created_at"])
    return Queue(**values)


class NewQueue(NamedTuple):
    """The arguments of create_queue, in the engine's order."""

    name: str
    types: list[str] | None
    tags: list[str] | None
    all_tags: bool
    settings: dict[str, Any]
    since: str | None
    after: int | None
    actor: str


def create_queue(namespace: str, queue: NewQueue) -> Statement[bool]:
    name, types, tags, all_tags, settings, since, after, actor = queue
    return Statement(
        "select headrace.create_queue(%s, %s, %s::pg_catalog.text[], %s::pg_catalog.text[], %s::boolean, %s::pg_catalog.jsonb, "
        "%s::pg_catalog.timestamptz, %s::bigint, %s)",
        (namespace, name, types, tags, all_tags, _settings(settings), since, after, actor),
        lambda rows: rows[0][0],
    )


def change_queue(
    namespace: str, name: str, settings: dict[str, Any], actor: str
) -> Statement[None]:
    return done(
        "headrace.change_queue(%s, %s, %s::pg_catalog.jsonb, %s)",
        namespace,
        name,
        _settings(settings),
        actor,
    )


def delete_queue(namespace: str, name: str, with_deliveries: bool, actor: str) -> Statement[None]:
    return done(
        "headrace.delete_queue(%s, %s, %s::boolean, %s)", namespace, name, with_deliveries, actor
    )


def _settings(given: dict[str, Any]) -> str:
    if given.get("processing_interval") is not None:
        exact = seconds(given["processing_interval"], "processing_interval") * 1000
        given = {**given, "processing_interval": round(exact)}
    for name in ("lease", "aging"):
        if given.get(name) is not None:
            given = {**given, name: seconds(given[name], name)}
    if isinstance(given.get("limits"), list | tuple):
        given = {**given, "limits": msgspec.to_builtins(given["limits"])}
    if given.get("backoff") is not None:
        given = {**given, "backoff": policy(given["backoff"])}
    return encode(given, "a setting of a queue").decode()


def pause(namespace: str, name: str, actor: str) -> Statement[None]:
    return done("headrace.pause(%s, %s, %s)", namespace, name, actor)


def resume(namespace: str, name: str, actor: str) -> Statement[None]:
    return done("headrace.resume(%s, %s, %s)", namespace, name, actor)


def drain(namespace: str, name: str, actor: str) -> Statement[None]:
    return done("headrace.drain(%s, %s, %s)", namespace, name, actor)


def has_capacity(namespace: str, type: str | None, tags: list[str] | None) -> Statement[bool]:
    return Statement(
        "select headrace.has_capacity(%s, %s, %s::pg_catalog.text[])",
        (namespace, type, tags),
        lambda rows: rows[0][0],
    )


def limits(namespace: str, name: str) -> Statement[list[LimitedGroup]]:
    return Statement(
        "select scope, name, at_once, in_progress, rate, per, burst, room, "
        "pg_catalog.timestamptz_send(next_at), waiting, "
        "pg_catalog.timestamptz_send(waiting_since) from headrace.limits(%s, %s)",
        (namespace, name),
        lambda rows: [LimitedGroup(*timed(row, 8, 10)) for row in rows],
    )


class QueueVerbs(Caller):
    """Verbs about queues."""

    def create_queue(
        self,
        name: str,
        *,
        types: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        all_tags: bool = False,
        since: datetime | None = None,
        after: int | None = None,
        max_retries: int | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        max_queue_depth: int | None = None,
        high_watermark: int | None = None,
        batch_size: int | None = None,
        processing_interval: Duration | None = None,
        persistence_threshold: int | None = None,
        require_lease_token: bool | None = None,
        order: Order | None = None,
        lease: Duration | None = None,
        limits: Sequence[Limit | Mapping[str, Any]] | None = None,
        fair_by: Mapping[str, str] | None = None,
        aging: Duration | None = None,
        max_snoozes: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        actor: str | None = None,
    ) -> Steps[bool]:
        """Make a queue in this namespace that gets every event it takes, beside all other queues;
        returns whether it is new. A type may hold asterisks; any of the tags is enough unless
        `all_tags`. The queue begins now, or with the events published `since` a time or `after` an
        event (0: with the oldest that is kept). `config` has settings by the names of the state
        document. QueueExists: there is a queue of this name that takes something else."""
        settings = {
            "max_retries": most_attempts(max_retries, max_attempts),
            "backoff": backoff,
            "max_queue_depth": max_queue_depth,
            "high_watermark": high_watermark,
            "batch_size": batch_size,
            "processing_interval": processing_interval,
            "persistence_threshold": persistence_threshold,
            "require_lease_token": require_lease_token,
            "order": order,
            "lease": lease,
            "limits": limits,
            "fair_by": fair_by,
            "aging": aging,
            "max_snoozes": max_snoozes,
            "metadata": metadata,
            **(config or {}),
        }
        queue = NewQueue(
            name,
            strings(types, "types"),
            strings(tags, "tags"),
            all_tags,
            {name: value for name, value in settings.items() if value is not None},
            None if since is None else moment(since, "since"),
            after,
            actor or self.worker,
        )
        return (yield from ask(create_queue(self.namespace, queue)))

    def change_queue(self, name: str, *, actor: str | None = None, **settings: Any) -> Steps[None]:
        """Change the settings of a queue that are named; None brings a default back: types, tags,
        all_tags, takes (False switches it off) and those of `create_queue`, also by the names of
        the state document."""
        who = actor or self.worker
        if "max_attempts" in settings:
            most = settings.pop("max_attempts")
            settings["max_retries"] = most_attempts(settings.get("max_retries"), most)
        return (yield from ask(change_queue(self.namespace, name, settings, who)))

    def delete_queue(
        self, name: str, *, with_deliveries: bool = False, actor: str | None = None
    ) -> Steps[None]:
        """Delete a queue; `main` is not deleted but switched off, by `change_queue(takes=False)`.
        QueueNotEmpty: the queue has deliveries or dead letters; `with_deliveries` they are
        cancelled with it, and the log says so."""
        who = actor or self.worker
        return ask(delete_queue(self.namespace, name, with_deliveries, who))

    def queue(self, name: str | None = None) -> Steps[Queue]:
        """One queue of this namespace: this one, unless another is named."""
        return ask(queue(self.namespace, self.queue_name if name is None else name))

    def queues(self) -> Steps[list[Queue]]:
        """The queues of this namespace, by name."""
        return ask(queues(self.namespace))

    def limits(self, name: str | None = None) -> Steps[list[LimitedGroup]]:
        """The groups of this queue, or the one that is named, that have a limit and something in
        progress or waiting for it: full ones first."""
        return ask(limits(self.namespace, name or self.queue_name))

    def pause(self, name: str | None = None, *, actor: str | None = None) -> Steps[None]:
        """Pause this queue, or the one that is named: it still takes events, and no worker gets any
        of them."""
        who = actor or self.worker
        return ask(pause(self.namespace, name or self.queue_name, who))

    def resume(self, name: str | None = None, *, actor: str | None = None) -> Steps[None]:
        """Make this queue, or the one that is named, active again, after `pause` or `drain`."""
        who = actor or self.worker
        return ask(resume(self.namespace, name or self.queue_name, who))

    def drain(self, name: str | None = None, *, actor: str | None = None) -> Steps[None]:
        """Let this queue, or the one that is named, take no new events (QueueDraining), hand out
        those that are there, and then be paused."""
        who = actor or self.worker
        return ask(drain(self.namespace, name or self.queue_name, who))

    def wait_for_capacity(
        self,
        type: str | None = None,
        *,
        tags: Sequence[str] | None = None,
        timeout: Duration = 60,
    ) -> Turns[bool]:
        """Wait until every queue that takes such events (without a type: every queue of the
        namespace) is below its high watermark and its limit. False: it did not happen in time.
        Holds no connection of a pool meanwhile. QueueDraining: there is nothing to wait for."""
        for pause in self.pauses(timeout):
            if (yield has_capacity(self.namespace, type, strings(tags, "tags"))):
                return True
            yield pause
        return False

    def pauses(self, timeout: Duration) -> Iterator[float]:
        """How long to wait after each of the questions that fit into a time; after the last there
        is no wait."""
        now = self.memory.clock
        until = now() + interval(timeout, "timeout").total_seconds()
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE)
        while (left := until - now()) > 0:
            yield min(pauses.next(), left)
        yield 0.0

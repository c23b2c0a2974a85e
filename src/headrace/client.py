"""The client for plain Python; async_client.py has the same methods, awaited."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias, TypeVar, overload

from psycopg_pool import ConnectionPool

from headrace import tracing, transfer
from headrace.arguments import time_limit
from headrace.attention import Finding
from headrace.calls import Calls, Finalized, Steps, event_filter
from headrace.encoding import new_event
from headrace.errors import InvalidInput
from headrace.model import (
    AdminAction,
    AnyClaim,
    Backoff,
    BoundRole,
    Checkpoint,
    Claimed,
    DeadLetter,
    DeadLetterGroup,
    Dispatch,
    Duration,
    Event,
    EventPage,
    Extended,
    Failed,
    History,
    Ids,
    Imported,
    LogEntry,
    LogPage,
    LowWater,
    Missed,
    Namespace,
    NewEvent,
    NodeInfo,
    Order,
    Publishables,
    Queue,
    QueueState,
    Recovery,
    Released,
    Result,
    ScheduledTask,
    Scope,
    Stats,
    Status,
    Tick,
    Token,
    UnhandledType,
    Verdict,
    Worker,
)
from headrace.opening import SETTLE, open_source
from headrace.pools import Sessions
from headrace.replaying import Replay
from headrace.running import Run, committing, drive, is_alone, joining
from headrace.sessions import BOUND, Session
from headrace.statements import Page
from headrace.stories import Story
from headrace.transfer import File

T = TypeVar("T")
Connection: TypeAlias = Any
"""psycopg's Connection, SQLAlchemy's or a Session of it, or Django's."""
Pool: TypeAlias = ConnectionPool[Any]


def connect(
    dsn: str | None = None,
    *,
    namespace: str = "default",
    queue: str = "main",
    data: str | Path | None = None,
    migrate: bool | None = None,
    prepare: bool = True,
    pool_size: int = 4,
    worker: str | None = None,
    timeout: Duration = BOUND,
) -> EventQueue:
    """Open a queue: in the database that is named, or else in a private PostgreSQL.

    A database is named by `dsn`, HEADRACE_DSN or DATABASE_URL, in this order. Without one, a server
    is started from installed binaries, in the folder `data`, HEADRACE_DATA or `.headrace`, and stopped
    after its last user. There the schema is made at once, in a database of yours only with
    `migrate=True`. A namespace that is not there is created. `prepare=False` is for a transaction
    pooler in between, which is noticed otherwise: then no prepared statements are used. `worker` is a name for people to
    read. A forked child has connections of its own.
    `timeout`: seconds that each call may take, from waiting for a connection to the end of its commit; then it raises
    NotStored or OutcomeUnknown. What is published together, or changed step by step, may take so long for each step.
    """
    bound = time_limit(timeout)
    with ExitStack() as opened:
        source = open_source(dsn, data, migrate, namespace, prepare=prepare, bound=bound)
        opened.callback(source.close)
        prepare = source.prepare
        options = {"autocommit": True, "prepare_threshold": 0 if prepare else None}
        pool = Sessions(
            source.dsn,
            join=source.join,
            bound=bound,
            kwargs=options,
            configure=_settle if prepare else None,
            min_size=1,
            max_size=pool_size,
            name="headrace",
            open=False,
        )
        opened.enter_context(pool)
        pool.wait(bound)  # who ends at once must not leave a connection half made
        made = EventQueue(pool, namespace=namespace, queue=queue, worker=worker, prepare=prepare)
        made._owned = opened.pop_all()
        return made


def _settle(session: Session) -> None:
    session.command(SETTLE)


class EventQueue:
    """A queue in a namespace, over a pool or over a connection of the caller's.

    Over a pool, every call is a transaction of its own, committed when it returns, and the client may
    be used by many threads. Over a connection, a call takes part in whatever transaction that is in; it
    may be psycopg's or another library's (docs/transactions.md), as may be those given as `connection`.
    """

    def __init__(
        self,
        pool_or_connection: Pool | Connection,
        *,
        namespace: str = "default",
        queue: str = "main",
        worker: str | None = None,
        prepare: bool = True,
    ) -> None:
        self._source = pool_or_connection
        self._prepare = prepare
        self._calls = Calls(namespace, queue, worker)
        self._owned = ExitStack()

    def publish(
        self,
        type: str | NewEvent = "event",
        payload: Any = None,
        *,
        tags: Sequence[str] | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        key: str | None = None,
        idempotency_key: str | None = None,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
        title: str | None = None,
        description: str | None = None,
        version: str | None = None,
        source: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        causation_id: str | None = None,
        trace_id: str | None = None,
        producer: str | None = None,
        headers: Mapping[str, Any] | None = None,
        enforce: bool = False,
        connection: Connection | None = None,
    ) -> Event:
        """Store an event and queue it. It is committed when this returns, or, with `connection`, exists
        when and only when that connection's transaction commits. QueueFull, QueueDraining: nothing was
        published; in a transaction of yours a full queue refuses nothing and only sets `pressure`, unless you
        `enforce` it. A NewEvent may stand in the place of the type; it has all the rest, so `enforce` and
        `connection` are the only arguments beside it."""
        event = new_event(
            type,
            payload,
            tags,
            delay,
            at,
            priority,
            key,
            idempotency_key,
            max_retries,
            backoff,
            title,
            description,
            version,
            source,
            correlation_id,
            causation_id,
            trace_id,
            producer,
            headers,
        )
        enforced = enforce or self._is_alone(connection)
        if tracing.is_on():
            with tracing.publishing(event) as traced:
                return self._run(self._calls.publish(traced, enforced), connection)
        return self._run(self._calls.publish(event, enforced), connection)

    def publish_many(
        self,
        events: Publishables,
        *,
        enforce: bool = False,
        connection: Connection | None = None,
    ) -> Ids:
        """Publish all of them or none, and give their ids in the same order, and the `pressure`. An event is a
        NewEvent, a mapping of the arguments of `publish`, or a tuple (type, payload)."""
        enforced = enforce or self._is_alone(connection)
        if tracing.is_on() and not tracing.is_publishing():
            with tracing.publishing_many(events) as traced:
                return self._run(self._calls.publish_many(traced, enforced), connection)
        return self._run(self._calls.publish_many(events, enforced), connection)

    def poll(
        self,
        *,
        types: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        all_tags: bool = False,
        max_events: int = 1,
        lease: Duration | None = None,
        each: bool = False,
        suspects: bool = True,
        worker: str | None = None,
        dispatch: Dispatch = "atomic",
    ) -> list[Claimed]:
        """Claim up to `max_events` for the length of a lease (else the queue's, else 60 seconds), the most urgent first, of each type the oldest.
        What is more urgent than all that was seen lately may wait for a second. A type may hold asterisks; any of the tags will do unless `all_tags`. With `each` they are held one by one, to
        be finished inside transactions. `dispatch`: as a node's; under "collect" an event that uses up its attempts, or kills its
        workers, ends as COMPLETED_WITH_ERRORS. Never waits; nothing there is an empty list."""
        return self._run(
            self._calls.poll(
                types,
                tags,
                all_tags,
                max_events,
                lease,
                each,
                suspects,
                worker,
                dispatch,
                ticking=self._is_alone(),
            )
        )

    def poll_one(
        self,
        *,
        types: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        all_tags: bool = False,
        lease: Duration | None = None,
        each: bool = False,
        suspects: bool = True,
        worker: str | None = None,
        dispatch: Dispatch = "atomic",
    ) -> Claimed | None:
        """Claim the next event, as `poll` does; None: there is nothing."""
        claimed = self.poll(
            types=types,
            tags=tags,
            all_tags=all_tags,
            lease=lease,
            each=each,
            suspects=suspects,
            worker=worker,
            dispatch=dispatch,
        )
        return claimed[0] if claimed else None

    def complete(
        self,
        claimed: AnyClaim | Sequence[AnyClaim],
        *,
        execution_time_ms: int | None = None,
        status_code: int | None = None,
        connection: Connection | None = None,
    ) -> None:
        """End one attempt well, or many. Repeating it changes nothing. LeaseLost: the claim is no longer the
        current one; FinishConflict: it has ended otherwise. Of many, the others are completed all the same."""
        return self._run(self._calls.complete(claimed, execution_time_ms, status_code), connection)

    def fail(
        self,
        claimed: AnyClaim,
        error: str | BaseException = "",
        *,
        retry_in: Duration | None = None,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
        reason: str | None = None,
        execution_time_ms: int | None = None,
        status_code: int | None = None,
        connection: Connection | None = None,
    ) -> Verdict:
        """End an attempt badly: it comes back by its retry policy, and is dead-lettered when that is used up,
        or at once if a `reason` is given. The verdict says when it will be tried again."""
        failed = Failed(
            claimed,
            error,
            execution_time_ms,
            status_code,
            retry_in,
            max_retries,
            backoff,
            reason,
        )
        return self._run(self._calls.finish_one(failed), connection)

    def release(self, claimed: AnyClaim, *, connection: Connection | None = None) -> Verdict:
        """Hand an event back unfinished: it is ready again at once, and nothing is charged."""
        return self._run(self._calls.finish_one(Released(claimed)), connection)

    def finalize(
        self,
        claimed_or_id: AnyClaim | int,
        errors: Iterable[str | BaseException] | bool = (),
        *,
        success: bool | None = None,
        errorResults: Iterable[str | BaseException] = (),  # as document 000 calls it
        execution_time_ms: int | None = None,
        status_code: int | None = None,
        connection: Connection | None = None,
    ) -> Verdict:
        """End an event for good, whatever its retry policy: COMPLETED, with errors COMPLETED_WITH_ERRORS, or
        by `success` COMPLETED or FAILED; True or False in the place of the errors is the success. `errorResults` is
        another name for `errors`. A bare id means this client's claim of that event.
        An event that is already finalized stays as it is: the verdict says what is stored, and a bare id gets it
        whoever finalized the event. LeaseLost: the event is not finalized, and this client does not hold it; or the
        claim is no longer the current one."""
        return self._run(
            self._calls.finalize(
                claimed_or_id,
                Finalized.of(errors, success, errorResults),
                execution_time_ms,
                status_code,
            ),
            connection,
        )

    def finish(
        self, results: Sequence[Result], *, connection: Connection | None = None
    ) -> list[Verdict]:
        """End many attempts, each in its own way, in one statement; the verdicts are in the same order. What
        was lost is told and not raised."""
        return self._run(self._calls.finish(results), connection)

    @overload
    def extend(self, claimed: AnyClaim, lease: Duration | None = None) -> Extended: ...
    @overload
    def extend(
        self, claimed: Sequence[AnyClaim], lease: Duration | None = None
    ) -> list[Extended]: ...
    def extend(
        self, claimed: AnyClaim | Sequence[AnyClaim], lease: Duration | None = None
    ) -> Extended | list[Extended]:
        """Heartbeat: make the leases last from now on, for `lease`, else for as long as they were claimed for. One
        that is lost raises LeaseLost; of many, each has its state. All that was claimed together and lives in one lease is extended together."""
        return self._run(self._calls.extend(claimed, lease))

    def resolve(self, claimed: AnyClaim) -> str | None:
        """After a COMMIT whose reply was lost: the action that ended this held attempt, or None: it has not
        ended. Waits for a commit that is under way."""
        return self._run(self._calls.resolve(claimed))

    def save_progress(
        self, claimed: AnyClaim, progress: Any, *, connection: Connection | None = None
    ) -> None:
        """Keep a JSON value of at most 64 KiB for the next attempt of a delivery, instead of what was kept
        before. LeaseLost: the claim is no longer the current one, and nothing was kept."""
        return self._run(self._calls.save_progress(claimed, progress), connection)

    def progress(self, ids: Iterable[int]) -> dict[int, Any]:
        """What attempts of these events have saved for the next one, by id; those of which nothing is kept are
        left out. It is kept until the delivery has ended, and with its dead letter."""
        return self._run(self._calls.progress(ids))

    def cancel(self, id: int, *, reason: str = "", actor: str | None = None) -> Event:
        """End an event's delivery in this queue for good, whether it waits or is in work: whoever works on it
        loses the lease. `reason` and `actor` (this client's worker) are kept in the log. AlreadyEnded: it has
        ended otherwise; Busy: somebody is finishing it right now."""
        return self._run(self._calls.cancel(id, reason, actor))

    def reset(self, id: int, *, reason: str = "", actor: str | None = None) -> Event:
        """Make an event's delivery ready now: whoever works on it loses the lease, a delay is cut short, a
        dead letter is redriven. AlreadyEnded: it is completed or cancelled; Busy: somebody is finishing it."""
        return self._run(self._calls.reset(id, reason, actor))

    def redrive(
        self,
        ids: Iterable[int] | None = None,
        *,
        types: Sequence[str] | None = None,
        fingerprint: str | None = None,
        rate: float | None = None,
        reason: str = "",
        actor: str | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Make dead letters of this queue deliveries again, the longest dead first, and tell how many: all of
        them, or those that are named, by id, by type, or by the `fingerprint` of an error (see
        `dead_letter_groups`). With a `rate`, so many a second. It is done in steps, each committed on its own,
        and `progress` is called after each with how many there were so far."""
        return self._run(
            self._calls.redrive(ids, types, fingerprint, rate, reason, actor, progress)
        )

    def purge(
        self,
        what: Literal["ready", "delayed", "dead_letters"],
        ids: Iterable[int] | None = None,
        *,
        types: Sequence[str] | None = None,
        fingerprint: str | None = None,
        reason: str = "",
        actor: str | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Remove what waits in this queue, or its dead letters, and tell how many: all that are there now, or
        those of some types, or dead letters by ids or `fingerprint`. What waits is cancelled; what is in work stays. In
        steps, as `redrive`."""
        return self._run(self._calls.purge(what, ids, types, fingerprint, reason, actor, progress))

    def erase(self, id: int, *, reason: str = "", actor: str | None = None) -> None:
        """Erase what an event says, for good: its payload, what describes it, the texts of its errors, its dead
        letters; the trail stays. What is not finished is cancelled first, in all queues. Busy: somebody is
        finishing it right now, and nothing was erased."""
        return self._run(self._calls.erase(id, reason, actor))

    def namespaces(self) -> list[Namespace]:
        """The namespaces of this database, by name."""
        return self._run(self._calls.namespaces())

    def create_namespace(
        self,
        name: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        actor: str | None = None,
    ) -> bool:
        """Make a namespace with its queue `main`; False: it was there. `connect` does it for its own."""
        return self._run(self._calls.create_namespace(name, metadata, actor))

    def change_namespace(self, name: str, *, actor: str | None = None, **settings: Any) -> None:
        """Change the settings of a namespace that are named, None brings a default back: unhandled ("keep", or
        "dead_letter"), unhandled_after (a duration) and metadata."""
        return self._run(self._calls.change_namespace(name, settings, actor))

    def delete_namespace(
        self, name: str, *, with_deliveries: bool = False, actor: str | None = None
    ) -> None:
        """Delete a namespace with its queues, its events and its log. NamespaceNotEmpty: it has deliveries or dead
        letters; `with_deliveries` they are lost with it."""
        return self._run(self._calls.delete_namespace(name, with_deliveries, actor))

    def event(self, id: int, *, deliveries: bool = False) -> Event:
        """One event, and where its delivery in this queue stands; with `deliveries`, in every queue it
        was delivered to."""
        return self._run(self._calls.event(id, deliveries))

    def events(
        self,
        *,
        status: Status | Sequence[Status] | None = None,
        types: Sequence[str] | None = None,
        tags: Sequence[str] | None = None,
        all_tags: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        key: str | None = None,
        orphaned: bool = False,
        orphan_after: Duration = 30,
        limit: int = 20,
        offset: int = 0,
        after: int | None = None,
        before: int | None = None,
        oldest_first: bool = False,
        payload: bool = False,
        look_at: int | None = None,
    ) -> EventPage:
        """The events of this queue that a filter selects, the newest first. A type may hold asterisks; any of
        the tags will do unless `all_tags`; created from `since` to before `until`; `key` is that of ordering. `orphaned`
        ones have been in work for `orphan_after` without another entry in the log. `before` and `after` take
        an id to page on from, which costs less than an offset. Payloads come on request. What ended long ago is looked for
        event by event: `look_at` looks at a stretch of so many ids only, and the page says in `searched_to` where to go on."""
        filter = event_filter(
            status, types, tags, all_tags, since, until, key, orphaned, orphan_after
        )
        page = Page(limit, offset, after, before, oldest_first, payload)
        return self._run(self._calls.events(filter, page, look_at))

    def log(self, id: int) -> list[LogEntry]:
        """What happened to an event, in order, in all its queues; nothing for one that is not there."""
        return self._run(self._calls.log(id))

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
        backoff: Backoff | None = None,
        max_queue_depth: int | None = None,
        high_watermark: int | None = None,
        batch_size: int | None = None,
        processing_interval: Duration | None = None,
        persistence_threshold: int | None = None,
        require_lease_token: bool | None = None,
        order: Order | None = None,
        lease: Duration | None = None,
        metadata: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        actor: str | None = None,
    ) -> bool:
        """Make a queue in this namespace that gets every event it takes, beside all other queues; whether it is
        new. A type may hold asterisks; any of the tags will do unless `all_tags`. It begins now, or with
        what was published `since` a time or `after` an event (0: with the first that is kept). `config` has settings by
        the names of the state document. QueueExists: there is one that takes something else."""
        settings = {
            "max_retries": max_retries,
            "backoff": backoff,
            "max_queue_depth": max_queue_depth,
            "high_watermark": high_watermark,
            "batch_size": batch_size,
            "processing_interval": processing_interval,
            "persistence_threshold": persistence_threshold,
            "require_lease_token": require_lease_token,
            "order": order,
            "lease": lease,
            "metadata": metadata,
            **(config or {}),
        }
        return self._run(
            self._calls.create_queue(name, types, tags, all_tags, since, after, settings, actor)
        )

    def change_queue(self, name: str, *, actor: str | None = None, **settings: Any) -> None:
        """Change the settings of a queue that are named, None brings a default back: types, tags, all_tags,
        takes (False switches it off) and those of `create_queue`, also by the names that the state document has for them."""
        return self._run(self._calls.change_queue(name, settings, actor))

    def delete_queue(
        self, name: str, *, with_deliveries: bool = False, actor: str | None = None
    ) -> None:
        """Delete a queue; `main` is not deleted but switched off, by `change_queue(takes=False)`. QueueNotEmpty:
        it has deliveries or dead letters; `with_deliveries` they are cancelled with it, and the log says so."""
        return self._run(self._calls.delete_queue(name, with_deliveries, actor))

    def queue(self, name: str | None = None) -> Queue:
        """One queue of this namespace: this one, unless another is named."""
        return self._run(self._calls.queue_named(name))

    def queues(self) -> list[Queue]:
        """The queues of this namespace, by name."""
        return self._run(self._calls.queues())

    def pause(self, name: str | None = None, *, actor: str | None = None) -> None:
        """Pause this queue, or the one that is named: events are still published into it, and nobody gets any of
        them."""
        return self._run(self._calls.pause(name, actor))

    def resume(self, name: str | None = None, *, actor: str | None = None) -> None:
        """Make this queue, or the one that is named, active again, after `pause` or `drain`."""
        return self._run(self._calls.resume(name, actor))

    def drain(self, name: str | None = None, *, actor: str | None = None) -> None:
        """Have this queue, or the one that is named, take nothing new (QueueDraining), work off what is there, and
        then be paused."""
        return self._run(self._calls.drain(name, actor))

    def wait_for_capacity(
        self,
        type: str | None = None,
        *,
        tags: Sequence[str] | None = None,
        timeout: Duration = 60,
    ) -> bool:
        """Wait until every queue that takes such events (without a type: every queue of the namespace) is
        below its high watermark and its limit. False: it did not happen in time. Holds no connection of a pool
        meanwhile. QueueDraining: there is nothing to wait for."""
        for pause in self._calls.pauses(timeout):
            if self._run(self._calls.has_capacity(type, tags)):
                return True
            time.sleep(pause)
        return False

    def log_since(
        self,
        after: int | str = 0,
        *,
        limit: int = 100,
        actions: Sequence[str] | None = None,
        mark: str | None = None,
    ) -> LogPage:
        """The log of the whole namespace after an entry, in order, as a stream that skips nothing: what may
        still commit in between is waited for. Go on with the page's own `cursor` and `mark`.

        after: the cursor of a page that was told, or the number of an entry. A cursor knows when a standby was promoted or a
        backup restored since: then entries are told again, and the page says so, rather than that any is skipped."""
        return self._run(self._calls.log_since(after, limit, actions, mark))

    def dead_letters(
        self,
        *,
        types: Sequence[str] | None = None,
        fingerprint: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 20,
        before: int | None = None,
        payload: bool = False,
    ) -> list[DeadLetter]:
        """The dead letters of this queue, the newest event first; of some types, of one kind of error, or
        died from `since` to before `until`. Page on with `before`, an id. Payloads come on request."""
        return self._run(
            self._calls.dead_letters(types, fingerprint, since, until, limit, before, payload)
        )

    def dead_letter(self, id: int) -> DeadLetter:
        """One dead letter, with its payload, why it died and what it came from."""
        return self._run(self._calls.dead_letter(id))

    def dead_letter_groups(self, *, limit: int = 100) -> list[DeadLetterGroup]:
        """The dead letters of this queue by kind of error, the most frequent kind first."""
        return self._run(self._calls.dead_letter_groups(limit))

    def workers(self, period: Duration = 300) -> list[Worker]:
        """Who has claims in this queue or ended attempts in the last `period`, and what they did. Nobody
        registers: it is what leases and log say."""
        return self._run(self._calls.workers(period))

    def nodes(self) -> list[NodeInfo]:
        """The nodes of this namespace that have registered, by id, and whether they are alive."""
        return self._run(self._calls.nodes())

    def unhandled_types(self) -> list[UnhandledType]:
        """The types of which deliveries wait in a queue of this namespace while no live node handles them."""
        return self._run(self._calls.unhandled_types())

    def schedule_task(
        self,
        name: str,
        cron: str,
        event_type: str = "event",
        payload: Any = None,
        *,
        timezone: str = "UTC",
        missed: Missed = "coalesce",
        tags: Sequence[str] | None = None,
        priority: int | None = None,
        key: str | None = None,
        max_retries: int | None = None,
        backoff: Backoff | None = None,
        title: str | None = None,
        description: str | None = None,
        version: str | None = None,
        source: Mapping[str, str] | None = None,
        headers: Mapping[str, Any] | None = None,
        actor: str | None = None,
    ) -> ScheduledTask:
        """Publish an event by the clock: once at every instant of a cron expression of five fields, or six with seconds
        first. A schedule of this name is changed; one that says the same is left as it is, and a paused one stays
        paused, so every process may call this when it starts. Needs the extra `schedules`."""
        event = NewEvent(
            event_type,
            payload,
            tags=tags,
            priority=priority,
            key=key,
            max_retries=max_retries,
            backoff=backoff,
            title=title,
            description=description,
            version=version,
            source=source,
            headers=headers,
        )
        return self._run(self._calls.schedule_task(name, cron, event, timezone, missed, actor))

    def schedules(self) -> list[ScheduledTask]:
        """The schedules of this namespace, by name, with their next fires."""
        return self._run(self._calls.schedules())

    def pause_schedule(self, name: str, *, actor: str | None = None) -> None:
        """Fire no more, until `resume_schedule`; what would have been fired meanwhile is not missed."""
        return self._run(self._calls.pause_schedule(name, actor))

    def resume_schedule(self, name: str, *, actor: str | None = None) -> ScheduledTask:
        """Fire again, from now on."""
        return self._run(self._calls.resume_schedule(name, actor))

    def run_schedule(self, name: str, *, actor: str | None = None) -> Event:
        """Publish the event of a schedule now, also of a paused one; its fires stay as they are."""
        return self._run(self._calls.run_schedule(name, actor))

    def remove_schedule(self, name: str, *, actor: str | None = None) -> None:
        """Remove a schedule; what it has fired stays."""
        return self._run(self._calls.remove_schedule(name, actor))

    def plan_schedules(self) -> int:
        """Work out the next instants of the schedules of this namespace that have few left, and store them for
        any tick to fire; how many schedules those were. Nodes call it by themselves. Needs the extra `schedules`."""
        return self._run(self._calls.plan_schedules())

    def admin_log(
        self, *, everywhere: bool = False, limit: int = 100, before: int | None = None
    ) -> list[AdminAction]:
        """What was done on purpose in this namespace, or `everywhere`, and by whom: the newest first. Page on with
        `before`, an id."""
        return self._run(self._calls.admin_log(everywhere, limit, before))

    def create_token(
        self,
        name: str,
        scopes: Sequence[Scope],
        *,
        namespaces: Sequence[str] | None = None,
        expires_at: datetime | None = None,
        actor: str | None = None,
    ) -> str:
        """Make a token of the HTTP API that may do these things, in these namespaces or in all, and give it: this
        is the only time that anybody sees it, for it is stored hashed."""
        return self._run(self._calls.create_token(name, scopes, namespaces, expires_at, actor))

    def bind_role(self, role: str, namespaces: Sequence[str], *, actor: str | None = None) -> None:
        """Bind a role of the database to namespaces: in others it can do and see nothing, whatever it is granted."""
        return self._run(self._calls.bind_role(role, namespaces, actor))

    def unbind_role(self, role: str, *, actor: str | None = None) -> bool:
        """Let a role work in every namespace again. False: it was not bound."""
        return self._run(self._calls.unbind_role(role, actor))

    def bound_roles(self) -> list[BoundRole]:
        """The roles that are bound to namespaces, by name."""
        return self._run(self._calls.bound_roles())

    def tokens(self) -> list[Token]:
        """The tokens of the HTTP API, by name, the revoked ones too."""
        return self._run(self._calls.tokens())

    def revoke_token(self, name: str, *, actor: str | None = None) -> None:
        """Revoke a token: within seconds no server takes it any more, and its name is free again."""
        return self._run(self._calls.revoke_token(name, actor))

    def stats(self, period: Duration = 300) -> Stats:
        """What stands where in this queue, and what happened in the last `period`."""
        return self._run(self._calls.stats(period))

    def history(self, period: Duration = 3600) -> History:
        """How this queue fared in the last `period`, a week at most, step by step: a chart of it."""
        return self._run(self._calls.history(period))

    def attention(self, *, everywhere: bool = False) -> list[Finding]:
        """What needs somebody's attention now in this namespace, or everywhere, what is worst first; each finding has a
        `sentence`."""
        return self._run(self._calls.attention(everywhere))

    def story(self, id: int) -> Story:
        """All there is to know about an event: its attempts with their errors, where it stands in every queue, what caused it
        and what it caused. Raises EventNotFound."""
        return self._run(self._calls.story(id))

    def find_events(self, word: str, *, limit: int = 20, payload: bool = False) -> list[Event]:
        """The events that a word may mean, the newest first: the one with this id or idempotency key, those with this
        correlation id."""
        return self._run(self._calls.find_events(word, limit, payload))

    def state(self, *, limit: int = 100, after: int = 0) -> QueueState:
        """The state of this queue, as a document: its unfinished events with their payloads, the oldest first and at most
        `limit` of those after an id; its checkpoint, metrics, settings and status. `total` says how many there are."""
        return self._run(self._calls.state(limit, after))

    def save_state(self) -> None:
        """Save the state of this queue now. It is saved from time to time anyway, and when a node stops."""
        return self._run(self._calls.save_state())

    def low_water(self) -> LowWater:
        """How far this queue has come, and why no further."""
        return self._run(self._calls.low_water())

    def checkpoint(self) -> Checkpoint:
        """Save the state of this queue and how far it has come: everything at or below the checkpoint is finished, and
        nothing can be committed below it any more."""
        return self._run(self._calls.checkpoint())

    def checkpoints(self, *, limit: int = 100, before: datetime | None = None) -> list[Checkpoint]:
        """How far this queue had come at which time, the newest first: those that were asked for, and those that
        were taken from time to time."""
        return self._run(self._calls.checkpoints(limit, before))

    def recoveries(self, *, limit: int = 100) -> list[Recovery]:
        """What nodes took over in this queue from earlier starts of themselves that had died, the newest first."""
        return self._run(self._calls.recoveries(limit))

    def replay(
        self,
        *,
        from_checkpoint: Checkpoint | int | str | None = None,
        since: datetime | None = None,
        types: Sequence[str] | None = None,
    ) -> Iterator[Event]:
        """The events that this queue takes, once more and in the order of their ids, whatever became of them: those
        after a checkpoint, or published since a time; else all that are kept. It ends with the last one that
        was there when it began, and skips none: while a transaction is open that may still commit one before
        that, it waits."""
        return self._replayed(Replay(from_checkpoint, since, types))

    def export_state(self, *, move: bool = False, actor: str | None = None) -> Iterator[bytes]:
        """This queue as a file: its settings, and all its events with their payloads, wherever they stand, dead letters too. Gives
        the lines of it, as they are read; they are of one moment, and `import_state` makes a queue of them. Nothing is changed,
        unless it is to `move`: then the queue must be paused or draining, is paused, and who has claimed something of it
        can no longer finish that. QueueNotPaused: it is active."""
        return self._exported(move, actor)

    def import_state(
        self,
        file: File,
        *,
        progress: Callable[[int], object] | None = None,
        actor: str | None = None,
    ) -> Imported:
        """Import what `export_state` gave, of this database or another, into this queue, and into no other; it is made if it is not
        there, and its namespace. All of it or nothing; what this queue had before is left as it is. `file` is a path, an open file, or its lines.
        `progress` is told how many events were sent so far. InvalidInput: it is cut off or was changed."""
        with transfer.opened(file) as contents:
            return self._run(self._calls.import_state(contents, progress, actor))

    def tick(self, *, upkeep: bool = False) -> Tick:
        """Do what time has made due, everywhere; a client that polls does it by itself. `upkeep` also does
        the hourly part at once."""
        return self._run(self._calls.tick(upkeep))

    def close(self) -> None:
        """Close what `connect` has opened; a pool or a connection of the caller's stays open."""
        self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._calls.namespace}/{self._calls.queue}>"

    def _replayed(self, replay: Replay) -> Iterator[Event]:
        is_done = False
        while not is_done:
            page = self._run(self._calls.replay(replay))
            yield from page.events
            is_done = page.done
            if replay.pause:
                time.sleep(replay.pause)

    def _exported(self, move: bool, actor: str | None) -> Iterator[bytes]:
        if move:
            self._fence(actor)
        export = self._calls.export(move)
        with self._snapshot() as run:
            while not export.is_over:
                yield export.line(run(export.step()))

    def _fence(self, actor: str | None) -> None:
        if not self._is_alone():
            raise InvalidInput("a queue is moved in transactions of its own, not in yours")
        fence = transfer.Fence()
        while fence.pause:
            self._run(self._calls.fence(fence, actor))
            time.sleep(fence.pause)

    @contextmanager
    def _snapshot(self) -> Iterator[Run]:
        """Runs statements in one transaction that sees one moment: in the caller's, if this client is over a connection that
        is in one."""
        with ExitStack() as stack:
            if isinstance(self._source, Sessions):
                connection: Any = self._source.getconn()
                stack.callback(self._source.putconn, connection)
            elif isinstance(self._source, ConnectionPool):
                connection = stack.enter_context(self._source.connection())
            else:
                connection = self._source
            if isinstance(self._source, ConnectionPool) or is_alone(connection):
                stack.enter_context(connection.transaction())
                connection.execute(transfer.SNAPSHOT, prepare=False)
            yield joining(connection, prepare=self._prepare)

    def _run(self, steps: Steps[T], connection: Connection | None = None) -> T:
        try:
            first = next(steps)  # what is refused without asking needs no connection
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        if connection is not None or not isinstance(self._source, ConnectionPool):
            joined = self._source if connection is None else connection
            return drive(joining(joined, prepare=self._prepare), steps, first)
        if not isinstance(self._source, Sessions):
            with self._source.connection() as pooled:
                return drive(committing(pooled, prepare=self._prepare), steps, first)
        session = self._source.getconn()
        try:
            return drive(joining(session, prepare=self._prepare), steps, first)
        finally:
            self._source.putconn(session)

    def _is_alone(self, connection: Connection | None = None) -> bool:
        used = self._source if connection is None else connection
        return isinstance(used, ConnectionPool) or is_alone(used)

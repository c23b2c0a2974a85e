"""What each call of a client does, step by step, without doing any of the I/O.

A call is a generator: it yields statements, is sent their replies (or thrown their errors) and
returns what the caller gets. The two clients differ in how they run a statement and in nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import secrets
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from headrace import cursors, forking, schedules, statements
from headrace.arguments import error_text, interval, is_id, moment, seconds, strings
from headrace.attention import Finding
from headrace.backoff import policy
from headrace.encoding import Batch, beginning, encode_payload, header, plain_payload, single
from headrace.errors import EventNotFound, FinishConflict, InvalidInput, LeaseLost
from headrace.memory import Hints, Memory
from headrace.model import (
    AdminAction,
    AnyClaim,
    BoundRole,
    Checkpoint,
    Claim,
    Claimed,
    Completed,
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
    Namespace,
    NewEvent,
    NodeInfo,
    Publishables,
    Queue,
    QueueState,
    Recovery,
    ReplayPage,
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
from headrace.replaying import Replay
from headrace.statements import (
    Filter,
    Letters,
    NewQueue,
    NewTask,
    NewToken,
    Page,
    Poll,
    Polled,
    Published,
    Statement,
    Step,
    Together,
    Unplanned,
)
from headrace.stories import Story, attempts
from headrace.transfer import Contents, Export, Fence

T = TypeVar("T")
Steps: TypeAlias = Generator[Statement[Any] | Together, Any, T]

# Between the questions of somebody who waits for capacity, in seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 1.0

TOKEN_PREFIX = "hr_"  # so that whoever finds one knows what it is

STEP = 1000  # ids that are named in one statement
REPLAYED = 500  # events that are read again by one statement
OVERLAP = timedelta(hours=1)  # for which a call that publishes may last, at most
TICK_ROUNDS = 20  # at most, before a poll: whoever has more due than that is helped by others

logger = logging.getLogger("headrace")


def ask(statement: Statement[T]) -> Steps[T]:
    reply: T = yield statement
    return reply


def publishing(namespace: str, event: NewEvent, enforce: bool = True) -> Statement[Published]:
    """The shortest way to publish one event."""
    payload = plain_payload(event)
    if payload is None:
        return statements.publish(namespace, single(event), enforce)
    return statements.publish_one(namespace, event.type, payload, enforce)


class Finalized(NamedTuple):
    """How an event ends for good: with which errors, or by its success."""

    errors: list[str | BaseException]
    success: bool | None

    @classmethod
    def of(
        cls,
        errors: Iterable[str | BaseException] | bool,
        success: bool | None,
        error_results: Iterable[str | BaseException],
    ) -> Finalized:
        """As the arguments of `finalize` say it."""
        if isinstance(errors, bool):
            if success is not None:
                raise InvalidInput("finalize got success twice, by its place and by its name")
            success = errors
        given = [] if isinstance(errors, bool) else _errors(errors)
        results = _errors(error_results)
        if given and results:
            raise InvalidInput("errors and errorResults are two names for the same: give one")
        if success is not None and not isinstance(success, bool):
            raise InvalidInput("success is True or False, or None, if the errors say it")
        if success and (given or results):
            raise InvalidInput(
                "finalize got errors, and success: an event that has succeeded has no errors"
            )
        return cls(given or results, success)

    def result(self, claim: AnyClaim, ms: int | None, code: int | None) -> Result:
        if not self.errors if self.success is None else self.success:
            return Completed(claim, ms, code)
        error = "\n".join(map(error_text, self.errors))
        status: Literal["FAILED", "COMPLETED_WITH_ERRORS"] = (
            "COMPLETED_WITH_ERRORS" if self.success is None else "FAILED"
        )
        return Failed(claim, error, ms, code, reason="Handler error", status=status)


def _errors(given: Iterable[str | BaseException]) -> list[str | BaseException]:
    if isinstance(given, str | BaseException):
        return [given]
    if not isinstance(given, Iterable):
        raise InvalidInput(
            f"errors is a list of strings or exceptions, or True or False, the success; not {given!r:.100}"
        )
    return list(given)


def _is_end(verdict: Verdict) -> bool:
    """Whether the delivery has ended, and not just this attempt at it."""
    ends = ("COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED")
    return verdict.action in ends and verdict.retry_at is None


class Calls:
    """The calls on one queue, and the memory they share."""

    def __init__(self, namespace: str, queue: str, worker: str | None) -> None:
        self.namespace = namespace
        self.queue = queue
        self._given_name = worker
        self.worker = worker or f"{socket.gethostname()}:{os.getpid()}"
        self.memory = Memory()
        forking.register(self)

    def after_fork(self) -> None:
        self.worker = self._given_name or f"{socket.gethostname()}:{os.getpid()}"
        self.memory.claims.after_fork()

    def publish(self, event: NewEvent, enforce: bool) -> Steps[Event]:
        published: Published = yield publishing(self.namespace, event, enforce)
        return pending(self.namespace, event, published)

    def publish_many(self, events: Publishables, enforce: bool) -> Steps[Ids]:
        few, rest = beginning(events)
        if not few:  # nothing, into a namespace that must be there all the same
            yield statements.publish(self.namespace, Batch("[]", None), enforce=enforce)
            return Ids()
        publish = partial(statements.publish, self.namespace, enforce=enforce)
        if rest is None and len(few) == 1:
            published = yield from ask(publish(few[0]))
            return Ids(published.ids, published.pressure)
        replies: list[Published] = yield Together(map(publish, chain(few, rest or ())))
        return Ids(
            (id for published in replies for id in published.ids),
            any(published.pressure for published in replies),
        )

    def poll(
        self,
        types: Sequence[str] | None,
        tags: Sequence[str] | None,
        all_tags: bool,
        max_events: int,
        lease: Duration | None,
        each: bool,
        suspects: bool,
        worker: str | None,
        dispatch: Dispatch,
        *,
        ticking: bool,
    ) -> Steps[list[Claimed]]:
        poll = Poll(
            strings(types, "types"),
            strings(tags, "tags"),
            all_tags,
            worker or self.worker,
            max_events,
            None if lease is None else interval(lease, "lease"),
            each,
            suspects,
            dispatch=dispatch,
        )
        if ticking:
            yield from self.catch_up()
        claimed = yield from self.claim(poll)
        self.memory.claims.opened(claimed, _lasts(poll, claimed))
        return claimed

    def claim(self, poll: Poll) -> Steps[list[Claimed]]:
        """Poll, for one who keeps account of his claims himself, and ticks himself."""
        polled = yield from self._poll(poll)
        while polled.unreadable:
            yield from self._bury(polled.unreadable)
            if polled.claimed:
                break
            polled = yield from self._poll(poll)
        return polled.claimed

    def _poll(self, poll: Poll) -> Steps[Polled]:
        hints = self.memory.hints(poll.types, poll.tags, poll.all_tags)
        try:
            return (yield from self._poll_with(hints, poll))
        except Exception:
            hints.text = None  # whatever it was, the next poll begins anew
            raise

    def _poll_with(self, hints: Hints, poll: Poll) -> Steps[Polled]:
        now = self.memory.clock
        started = now()
        if not hints.is_sweep_due(started):
            polled = yield from ask(self._statement(poll, hints.text, sweep=False))
            hints.polled(now() - started)
            if polled.found or not hints.is_sweep_worthwhile(now()):
                hints.text = polled.hints or hints.text
                return polled
        started = now()
        polled = yield from ask(self._statement(poll, hints.text, sweep=True))
        hints.swept(now(), now() - started, found=polled.found)
        hints.text = polled.hints or hints.text
        return polled

    def _statement(self, poll: Poll, hints: str | None, *, sweep: bool) -> Statement[Polled]:
        return statements.poll(self.namespace, self.queue, poll, hints, sweep)

    def catch_up(self) -> Steps[None]:
        """Tick, if it is a second since the last one. Whatever goes wrong with it, somebody else's tick will do, and
        poll must go on."""
        ticks = self.memory.ticks
        if not ticks.take_turn():
            return
        try:
            for _ in range(TICK_ROUNDS):
                done = yield from ask(statements.tick(ticks.since))
                if not done.more:
                    ticks.ticked(done.at)
                    return
        except Exception as error:
            if not ticks.is_failing:
                logger.warning("ticks fail: %s", error)
            ticks.is_failing = True

    def _bury(self, unreadable: list[Failed]) -> Steps[None]:
        """Dead-letter what cannot be read; when that fails, its lease runs out and it comes again."""
        ids = [one.claimed.id for one in unreadable]
        try:
            yield statements.finish(self.namespace, self.queue, unreadable)
            logger.error("dead-lettered events with unreadable payloads: %s", ids)
        except Exception as error:
            logger.warning(
                "could not dead-letter events with unreadable payloads %s: %s", ids, error
            )

    def finish(self, results: Sequence[Result]) -> Steps[list[Verdict]]:
        if not results:
            return []
        verdicts = yield from ask(statements.finish(self.namespace, self.queue, results))
        self.memory.claims.ended([result.claimed for result in results])
        return verdicts

    def complete(
        self, claimed: AnyClaim | Sequence[AnyClaim], ms: int | None, code: int | None
    ) -> Steps[None]:
        claims = _several(claimed)
        is_one = len(claims) == 1 and claims[0].held
        if is_one and (yield from self._complete_held(claims[0], ms, code)):
            return
        lease = self.memory.claims.whole(claims)
        if lease is not None and (yield from self._complete_lease(lease, claims, ms, code)):
            return
        if claims:
            completed = statements.complete(self.namespace, self.queue, claims, ms, code)
            verdicts = yield from ask(completed)
            self.memory.claims.ended(claims)
            _check_finished(claims, verdicts)

    def _complete_held(self, claim: AnyClaim, ms: int | None, code: int | None) -> Steps[bool]:
        statement = statements.complete_held(self.namespace, self.queue, claim, ms, code)
        completed: bool = statement is not None and (yield statement)
        if completed:
            self.memory.claims.ended([claim])
        return completed

    def _complete_lease(
        self, lease: int, claims: Sequence[AnyClaim], ms: int | None, code: int | None
    ) -> Steps[bool]:
        size, token = len(claims), claims[0].lease_token
        completed = yield from ask(
            statements.complete_lease(self.namespace, self.queue, lease, size, ms, code, token)
        )
        if completed:
            self.memory.claims.ended_whole(lease)
        return completed

    def finish_one(self, result: Result) -> Steps[Verdict]:
        """Finish, and raise if it was not theirs to finish."""
        verdicts = yield from self.finish([result])
        _check_finished([result.claimed], verdicts)
        return verdicts[0]

    def finalize(
        self,
        claimed_or_id: AnyClaim | int,
        how: Finalized,
        ms: int | None,
        code: int | None,
    ) -> Steps[Verdict]:
        if not isinstance(claimed_or_id, Claimed | Claim):
            return (yield from self._finalize_by_id(claimed_or_id, how, ms, code))
        verdict = yield from self._finalize(claimed_or_id, how, ms, code)
        if verdict.verdict == "repeated" and verdict.retry_at is not None:
            verdict = replace(verdict, verdict="conflict")  # it has failed, and comes again
        elif verdict.verdict == "conflict" and _is_end(verdict):
            verdict = replace(verdict, verdict="repeated")
        _check_finished([claimed_or_id], [verdict])
        return verdict

    def _finalize_by_id(
        self, id: int, how: Finalized, ms: int | None, code: int | None
    ) -> Steps[Verdict]:
        claim = self.memory.claims.of(id)
        if claim is not None:
            verdict = yield from self._finalize(claim, how, ms, code)
            if verdict.verdict == "counted":
                return verdict
        stored: Verdict | None = None
        if is_id(id):
            stored = yield from ask(statements.finalized(self.namespace, self.queue, id))
        if stored is None:
            raise LeaseLost(
                f"event {id} is not finalized, and this client does not hold it; nothing was changed",
                (id,),
            )
        return stored

    def _finalize(
        self, claim: AnyClaim, how: Finalized, ms: int | None, code: int | None
    ) -> Steps[Verdict]:
        [verdict] = yield from self.finish([how.result(claim, ms, code)])
        return verdict

    def extend(
        self, claimed: AnyClaim | Sequence[AnyClaim], lease: Duration | None
    ) -> Steps[Extended | list[Extended]]:
        claims = _several(claimed)
        leases = {
            one.lease: one.lease_token
            for one in claims
            if one.lease is not None and is_id(one.lease) and statements.is_token(one.lease_token)
        }
        states: dict[int, Extended] = {}
        if leases:
            states = yield from ask(statements.extend(self.namespace, self.queue, leases, lease))
            held = [one for one, extended in states.items() if extended.state == "held"]
            by = None if lease is None else interval(lease, "lease").total_seconds()
            self.memory.claims.extended(held, by)
        extended = [states.get(one.lease or 0, Extended("lost")) for one in claims]
        if isinstance(claimed, Sequence):
            return extended
        if extended[0].state == "lost":
            raise LeaseLost(
                f"the lease on event {claimed.id} is lost: it ran out and was taken away",
                (claimed.id,),
            )
        return extended[0]

    def resolve(self, claimed: AnyClaim) -> Steps[str | None]:
        if not is_id(claimed.id):
            return None
        return (
            yield from ask(
                statements.resolve(self.namespace, self.queue, claimed.id, claimed.attempt)
            )
        )

    def save_progress(self, claimed: AnyClaim, progress: Any) -> Steps[None]:
        try:
            if is_id(claimed.id) and statements.is_token(claimed.lease_token):
                yield statements.save_progress(self.namespace, self.queue, claimed, progress)
                return
        except LeaseLost:
            pass  # which does not know whose
        _check_finished([claimed], [Verdict("lost")])

    def progress(self, ids: Iterable[int]) -> Steps[dict[int, Any]]:
        possible = [id for id in ids if is_id(id)]
        if not possible:
            return {}
        return (yield from ask(statements.progress(self.namespace, self.queue, possible)))

    def cancel(self, id: int, reason: str, actor: str | None) -> Steps[Event]:
        self._must_be_id(id)
        yield statements.cancel(self.namespace, self.queue, id, reason, actor or self.worker)
        return (yield from self.event(id))

    def reset(self, id: int, reason: str, actor: str | None) -> Steps[Event]:
        self._must_be_id(id)
        yield statements.reset(self.namespace, self.queue, id, reason, actor or self.worker)
        return (yield from self.event(id))

    def redrive(
        self,
        ids: Iterable[int] | None,
        types: Sequence[str] | None,
        fingerprint: str | None,
        rate: float | None,
        reason: str,
        actor: str | None,
        progress: Callable[[int], object] | None,
    ) -> Steps[int]:
        asked = (strings(types, "types"), fingerprint, rate, reason, actor or self.worker)
        return self._in_steps(
            ids,
            lambda chunk, last: statements.redrive(self.namespace, self.queue, chunk, *asked, last),
            progress,
        )

    def purge(
        self,
        what: str,
        ids: Iterable[int] | None,
        types: Sequence[str] | None,
        fingerprint: str | None,
        reason: str,
        actor: str | None,
        progress: Callable[[int], object] | None,
    ) -> Steps[int]:
        asked = (strings(types, "types"), fingerprint, reason, actor or self.worker)
        return self._in_steps(
            ids,
            lambda chunk, last: statements.purge(
                self.namespace, self.queue, what, chunk, *asked, last
            ),
            progress,
        )

    def _in_steps(
        self,
        ids: Iterable[int] | None,
        step: Callable[[Sequence[int] | None, Step | None], Statement[Step]],
        progress: Callable[[int], object] | None,
    ) -> Steps[int]:
        """Go on until there is no more, and give how many there were."""
        last = None
        for chunk in [None] if ids is None else _chunks([id for id in ids if is_id(id)]):
            more = True
            while more:
                last = yield from ask(replace(step(chunk, last), has_its_own_time=True))
                more = last.more
                if progress:
                    progress(last.done)
        return last.done if last else 0

    def erase(self, id: int, reason: str, actor: str | None) -> Steps[None]:
        self._must_be_id(id)
        yield statements.erase(self.namespace, id, reason, actor or self.worker)

    def namespaces(self) -> Steps[list[Namespace]]:
        return ask(statements.namespaces())

    def create_namespace(
        self, name: str, metadata: Mapping[str, Any] | None, actor: str | None
    ) -> Steps[bool]:
        return ask(statements.create_namespace(name, metadata, actor or self.worker))

    def change_namespace(
        self, name: str, settings: dict[str, Any], actor: str | None
    ) -> Steps[None]:
        after = settings.get("unhandled_after")
        if after is not None:
            settings = settings | {"unhandled_after": seconds(after, "unhandled_after")}
        return (yield from ask(statements.change_namespace(name, settings, actor or self.worker)))

    def delete_namespace(self, name: str, with_deliveries: bool, actor: str | None) -> Steps[None]:
        return ask(statements.delete_namespace(name, with_deliveries, actor or self.worker))

    def _must_be_id(self, id: int) -> None:
        if not is_id(id):
            raise EventNotFound(f"there is no event {id} in the namespace {self.namespace!r}")

    def event(self, id: int, deliveries: bool = False) -> Steps[Event]:
        self._must_be_id(id)
        event = yield from ask(statements.event(self.namespace, self.queue, id))
        if not deliveries:
            return event
        found = yield from ask(statements.deliveries(self.namespace, id))
        return msgspec.structs.replace(event, deliveries=found)

    def events(self, filter: Filter, page: Page, look_at: int | None) -> Steps[EventPage]:
        if look_at is not None:
            return (yield from self._look(filter, page, look_at))
        events = yield from ask(statements.events(self.namespace, self.queue, filter, page))
        paging_on = page.after is not None or page.before is not None
        if len(events) < page.limit and (events or not page.offset) and not paging_on:
            return EventPage(events, page.offset + len(events))
        count = yield from ask(statements.count_events(self.namespace, self.queue, filter))
        return EventPage(events, count.total, count.is_exact)

    def _look(self, filter: Filter, page: Page, look_at: int) -> Steps[EventPage]:
        """At a stretch of ids only, whatever is beyond it."""
        if look_at < 1:
            raise InvalidInput("look_at is a number from 1 on")
        end = (yield from ask(statements.log_end())) >> 10
        if end <= look_at:  # which is all there is
            return (yield from self.events(filter, page, None))
        low, high = page.after or 0, page.before if page.before is not None else end + 1
        stretch = (low, min(high, low + look_at + 1))
        if not page.oldest_first:
            stretch = (max(low, high - look_at - 1), high)
        some = page._replace(after=stretch[0], before=stretch[1])
        events = yield from ask(statements.events(self.namespace, self.queue, filter, some))
        is_all = len(events) < page.limit and (
            stretch == (low, high) or (yield from self._is_older(filter, page, stretch[0]))
        )
        total = page.offset + len(events)
        if is_all or len(events) == page.limit:
            return EventPage(events, total, is_all)
        reached = stretch[1] - 1 if page.oldest_first else stretch[0] + 1
        return EventPage(events, total, False, reached)

    def _is_older(self, filter: Filter, page: Page, low: int) -> Steps[bool]:
        """Whether all that is left, up to an id, is older than what is looked for: ids are drawn in the order of time, but
        for those of calls that overlap."""
        if filter.since is None or page.oldest_first:
            return False
        every = filter._replace(
            statuses=None, types=None, tags=None, since=None, until=None, key=None
        )
        first = page._replace(limit=1, offset=0, after=low, before=None, oldest_first=True)
        found = yield from ask(statements.events(self.namespace, self.queue, every, first))
        return bool(found) and found[0].created_at + OVERLAP < datetime.fromisoformat(filter.since)

    def log(self, id: int) -> Steps[list[LogEntry]]:
        if not is_id(id):
            return []
        return (yield from ask(statements.event_log(self.namespace, id)))

    def log_since(
        self, after: int | str, limit: int, actions: Sequence[str] | None, mark: str | None
    ) -> Steps[LogPage]:
        wanted = strings(actions, "actions")
        after, cursor = cursors.read(after)
        mark = mark or cursor
        page = yield from ask(statements.log_since(self.namespace, after, limit, wanted, mark))
        if mark == cursor and not page.entries:
            # Somebody was writing, so nothing was final yet; by now most of them are done.
            page = yield from ask(
                statements.log_since(self.namespace, after, limit, wanted, page.mark)
            )
        return page

    def dead_letters(
        self,
        types: Sequence[str] | None,
        fingerprint: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        before: int | None,
        payload: bool,
    ) -> Steps[list[DeadLetter]]:
        letters = Letters(
            strings(types, "types"),
            fingerprint,
            None if since is None else moment(since, "since"),
            None if until is None else moment(until, "until"),
            limit,
            before,
            payload,
        )
        return ask(statements.dead_letters(self.namespace, self.queue, letters))

    def dead_letter(self, id: int) -> Steps[DeadLetter]:
        self._must_be_id(id)
        return (yield from ask(statements.dead_letter(self.namespace, self.queue, id)))

    def dead_letter_groups(self, limit: int) -> Steps[list[DeadLetterGroup]]:
        return ask(statements.dead_letter_groups(self.namespace, self.queue, limit))

    def workers(self, period: Duration) -> Steps[list[Worker]]:
        return ask(statements.workers(self.namespace, self.queue, period))

    def nodes(self) -> Steps[list[NodeInfo]]:
        return ask(statements.nodes(self.namespace))

    def unhandled_types(self) -> Steps[list[UnhandledType]]:
        return ask(statements.unhandled_types(self.namespace))

    def schedule_task(
        self,
        name: str,
        cron: str,
        event: NewEvent,
        timezone: str,
        missed: str,
        actor: str | None,
    ) -> Steps[ScheduledTask]:
        schedules.Schedule(cron, timezone)  # what is none is refused before it is sent
        payload = encode_payload(event.payload).decode()
        said = (name, cron, event.type, payload, timezone, missed, header(event))
        task = NewTask(*said, actor or self.worker)
        made = yield from ask(statements.schedule_task(self.namespace, task))
        return (yield from self._plan(made))

    def _plan(self, unplanned: Unplanned) -> Steps[ScheduledTask]:
        task = unplanned.task
        known = unplanned.planned_until
        coming = [fire for fire in task.next_fires if unplanned.at < fire <= known]
        if not task.active or len(coming) >= schedules.FEWEST:
            return task
        fires = schedules.plan(unplanned)
        yield statements.plan_task(self.namespace, task.task_id, unplanned.version, fires)
        return msgspec.structs.replace(task, next_fires=(*task.next_fires, *fires))

    def plan_schedules(self) -> Steps[int]:
        """One that cannot be planned is warned of, and keeps nobody else from firing."""
        planned = 0
        for unplanned in (yield from ask(statements.tasks_to_plan(self.namespace))):
            task = unplanned.task
            try:
                fires = schedules.plan(unplanned)
            except InvalidInput as error:
                logger.warning("the schedule %s will not fire: %s", task.name, error)
                continue
            yield statements.plan_task(self.namespace, task.task_id, unplanned.version, fires)
            planned += 1
        return planned

    def schedules(self) -> Steps[list[ScheduledTask]]:
        return ask(statements.schedules(self.namespace))

    def pause_schedule(self, name: str, actor: str | None) -> Steps[None]:
        return ask(statements.pause_schedule(self.namespace, name, actor or self.worker))

    def resume_schedule(self, name: str, actor: str | None) -> Steps[ScheduledTask]:
        who = actor or self.worker
        resumed = yield from ask(statements.resume_schedule(self.namespace, name, who))
        return (yield from self._plan(resumed))

    def run_schedule(self, name: str, actor: str | None) -> Steps[Event]:
        who = actor or self.worker
        id = yield from ask(statements.run_schedule(self.namespace, name, who))
        return (yield from self.event(id))

    def remove_schedule(self, name: str, actor: str | None) -> Steps[None]:
        return ask(statements.remove_schedule(self.namespace, name, actor or self.worker))

    def admin_log(
        self, everywhere: bool, limit: int, before: int | None
    ) -> Steps[list[AdminAction]]:
        return ask(statements.admin_log(None if everywhere else self.namespace, limit, before))

    def create_token(
        self,
        name: str,
        scopes: Sequence[Scope],
        namespaces: Sequence[str] | None,
        expires_at: datetime | None,
        actor: str | None,
    ) -> Steps[str]:
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        new = NewToken(
            name,
            token_digest(token),
            strings(scopes, "scopes") or [],
            strings(namespaces, "namespaces"),
            None if expires_at is None else moment(expires_at, "expires_at"),
            actor or self.worker,
        )
        yield statements.create_token(new)
        return token

    def bind_role(self, role: str, namespaces: Sequence[str], actor: str | None) -> Steps[None]:
        if isinstance(namespaces, str):
            raise InvalidInput("a role is bound to a list of namespaces")
        return ask(statements.bind_role(role, list(namespaces), actor or self.worker))

    def unbind_role(self, role: str, actor: str | None) -> Steps[bool]:
        return ask(statements.unbind_role(role, actor or self.worker))

    def bound_roles(self) -> Steps[list[BoundRole]]:
        return ask(statements.bound_roles())

    def tokens(self) -> Steps[list[Token]]:
        return ask(statements.tokens())

    def revoke_token(self, name: str, actor: str | None) -> Steps[None]:
        return ask(statements.revoke_token(name, actor or self.worker))

    def stats(self, period: Duration) -> Steps[Stats]:
        return ask(statements.stats(self.namespace, self.queue, period))

    def history(self, period: Duration) -> Steps[History]:
        return ask(statements.history(self.namespace, self.queue, period))

    def attention(self, everywhere: bool) -> Steps[list[Finding]]:
        return ask(statements.attention(None if everywhere else self.namespace))

    def story(self, id: int) -> Steps[Story]:
        event = yield from self.event(id, deliveries=True)
        log = yield from self.log(id)
        found = yield from ask(statements.lineage(self.namespace, self.queue, id))
        return Story(
            event=event,
            attempts=attempts(log),
            deliveries=event.deliveries or (),
            caused_by=next(iter(found.get("caused_by", ())), None),
            causes=tuple(found.get("causes", ())),
            same_correlation=tuple(found.get("correlated", ())),
        )

    def find_events(self, word: str, limit: int, payload: bool) -> Steps[list[Event]]:
        return ask(statements.find_events(self.namespace, self.queue, word, limit, payload))

    def create_queue(
        self,
        name: str,
        types: Sequence[str] | None,
        tags: Sequence[str] | None,
        all_tags: bool,
        since: datetime | None,
        after: int | None,
        settings: Mapping[str, Any],
        actor: str | None,
    ) -> Steps[bool]:
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
        return (yield from ask(statements.create_queue(self.namespace, queue)))

    def change_queue(self, name: str, settings: dict[str, Any], actor: str | None) -> Steps[None]:
        who = actor or self.worker
        return (yield from ask(statements.change_queue(self.namespace, name, settings, who)))

    def delete_queue(self, name: str, with_deliveries: bool, actor: str | None) -> Steps[None]:
        who = actor or self.worker
        return ask(statements.delete_queue(self.namespace, name, with_deliveries, who))

    def queue_named(self, name: str | None) -> Steps[Queue]:
        return ask(statements.queue(self.namespace, self.queue if name is None else name))

    def queues(self) -> Steps[list[Queue]]:
        return ask(statements.queues(self.namespace))

    def pause(self, name: str | None, actor: str | None) -> Steps[None]:
        who = actor or self.worker
        return ask(statements.pause(self.namespace, name or self.queue, who))

    def resume(self, name: str | None, actor: str | None) -> Steps[None]:
        who = actor or self.worker
        return ask(statements.resume(self.namespace, name or self.queue, who))

    def drain(self, name: str | None, actor: str | None) -> Steps[None]:
        who = actor or self.worker
        return ask(statements.drain(self.namespace, name or self.queue, who))

    def has_capacity(self, type: str | None, tags: Sequence[str] | None) -> Steps[bool]:
        return ask(statements.has_capacity(self.namespace, type, strings(tags, "tags")))

    def pauses(self, timeout: Duration) -> Iterator[float]:
        """How long to sleep after each of the questions that fit into a time; the last is not slept after."""
        now = self.memory.clock
        until = now() + interval(timeout, "timeout").total_seconds()
        pause = FIRST_PAUSE
        while (left := until - now()) > 0:
            yield min(pause * random.uniform(0.5, 1), left)
            pause = min(2 * pause, LONGEST_PAUSE)
        yield 0

    def state(self, limit: int, after: int) -> Steps[QueueState]:
        return ask(statements.state(self.namespace, self.queue, limit, after))

    def save_state(self) -> Steps[None]:
        return ask(statements.save_state(self.namespace, self.queue))

    def low_water(self) -> Steps[LowWater]:
        return ask(statements.low_water(self.namespace, self.queue))

    def checkpoint(self) -> Steps[Checkpoint]:
        return ask(statements.checkpoint(self.namespace, self.queue))

    def checkpoints(self, limit: int, before: datetime | None) -> Steps[list[Checkpoint]]:
        until = None if before is None else moment(before, "before")
        return (yield from ask(statements.checkpoints(self.namespace, self.queue, limit, until)))

    def recoveries(self, limit: int) -> Steps[list[Recovery]]:
        return ask(statements.recoveries(self.namespace, self.queue, limit))

    def replay(self, replay: Replay) -> Steps[ReplayPage]:
        """The next stretch of it."""
        page = yield from ask(
            statements.replay(
                *(self.namespace, self.queue, replay.after, replay.since, replay.types),
                *(REPLAYED, replay.mark),
            )
        )
        replay.read(page)
        return page

    def export(self, move: bool) -> Export:
        return Export(self.namespace, self.queue, move=move)

    def fence(self, fence: Fence, actor: str | None) -> Steps[None]:
        """The next step of it. A queue that is draining is paused, as it would be in the end."""
        who = actor or self.worker
        if fence.known is None:
            queue = yield from ask(statements.queue(self.namespace, self.queue))
            if queue.state == "draining":
                yield from ask(statements.pause(self.namespace, self.queue, who))
        fence.read((yield from ask(statements.fence(self.namespace, self.queue, fence.known, who))))

    def import_state(
        self, file: Contents, progress: Callable[[int], object] | None, actor: str | None
    ) -> Steps[Imported]:
        who = actor or self.worker
        named = str(uuid4()), self.namespace, self.queue
        replies = yield Together(
            chain(
                [
                    statements.create_namespace(self.namespace, {}, who),
                    statements.begin_import(*named, file.header, who),
                ],
                (statements.import_events(*named, part) for part in file.parts(progress)),
                [statements.end_import(*named, file.events)],
            )
        )
        imported: Imported = replies[-1]
        return imported

    def tick(self, upkeep: bool) -> Steps[Tick]:
        return ask(statements.tick(None, upkeep))


def token_digest(token: str) -> bytes:
    """What is stored of a token. Its bits are random, so that no slow hash would make it harder to guess."""
    return hashlib.sha256(token.encode()).digest()


def _chunks(ids: list[int]) -> list[list[int]]:
    return [ids[start : start + STEP] for start in range(0, len(ids), STEP)]


def event_filter(
    status: Status | Sequence[Status] | None,
    types: Sequence[str] | None,
    tags: Sequence[str] | None,
    all_tags: bool,
    since: datetime | None,
    until: datetime | None,
    key: str | None,
    orphaned: bool,
    orphan_after: Duration,
) -> Filter:
    return Filter(
        [status] if isinstance(status, str) else strings(status, "status"),
        strings(types, "types"),
        strings(tags, "tags"),
        all_tags,
        None if since is None else moment(since, "since"),
        None if until is None else moment(until, "until"),
        key,
        orphaned,
        interval(orphan_after, "orphan_after"),
    )


def _lasts(poll: Poll, claimed: Sequence[Claimed]) -> float:
    """For how many seconds a claim lasts, roughly where the queue has said it: this machine's clock may be wrong."""
    if poll.lease is not None:
        return poll.lease.total_seconds()
    left = [(one.lease_expires_at - datetime.now(UTC)).total_seconds() for one in claimed[:1]]
    return max([60.0, *left])


def _several(claimed: AnyClaim | Sequence[AnyClaim]) -> Sequence[AnyClaim]:
    return claimed if isinstance(claimed, Sequence) else [claimed]


def pending(namespace: str, event: NewEvent, published: Published) -> Event:
    """The event as it is now: who publishes one need not ask for it."""
    due_at = event.at
    if event.delay is not None:
        due_at = published.created_at + interval(event.delay, "delay")
    later = due_at is not None and due_at > published.created_at
    return Event(
        id=published.ids[0],
        namespace=namespace,
        type=event.type,
        tags=tuple([tag.strip(" ") for tag in event.tags]) if event.tags else (),
        payload={} if event.payload is None else event.payload,
        status=None if published.repeated else "PENDING",
        repeated=bool(published.repeated),
        key=event.key,
        max_retries=event.max_retries,
        priority=5 if event.priority is None else event.priority,
        next_retry_at=due_at if later else None,
        created_at=published.created_at,
        updated_at=published.created_at,
        title=event.title or event.type,
        description=event.description,
        version=event.version,
        source=event.source,
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        trace_id=event.trace_id,
        producer=event.producer,
        headers=event.headers,
        backoff=None if event.backoff is None else policy(event.backoff),
        pressure=published.pressure,
    )


def _check_finished(claims: Sequence[AnyClaim], verdicts: list[Verdict]) -> None:
    if verdicts.count(statements.COMPLETED) == len(verdicts):
        return
    lost = [c for c, v in zip(claims, verdicts, strict=True) if v.verdict == "lost"]
    if lost:
        ids = tuple(claim.id for claim in lost)
        raise LeaseLost(
            f"the lease on event {_listed(ids)} is lost: attempt {lost[0].attempt} is not the "
            f"current one, and nothing was changed{_others(claims, ids)}",
            ids,
        )
    conflicts = [(c, v) for c, v in zip(claims, verdicts, strict=True) if v.verdict == "conflict"]
    if conflicts:
        claim, verdict = conflicts[0]
        ids = tuple(claim.id for claim, _ in conflicts)
        raise FinishConflict(
            f"attempt {claim.attempt} of event {_listed(ids)} has already ended as "
            f"{verdict.action} at {verdict.at}{_others(claims, ids)}",
            ids,
        )


def _listed(ids: Sequence[int]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]} (and of {len(ids) - 1} more)"


def _others(claims: Sequence[AnyClaim], ids: Sequence[int]) -> str:
    return "" if len(ids) == len(claims) else f"; the other {len(claims) - len(ids)} are finished"

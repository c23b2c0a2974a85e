"""Finish: attempts end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from headrace.engine.arguments import array, is_id, most_attempts
from headrace.engine.caller import Caller, Connection
from headrace.engine.json_values import encode
from headrace.engine.results import (
    Ended,
    Proofs,
    in_common,
    milliseconds,
    other_end,
    proofs_of,
    unless_all_none,
)
from headrace.engine.statement import Batchable, Row, Statement, Steps, ask, instant_or_none, timed
from headrace.engine.verdicts import COMPLETED, Finalized, check_finished, is_end, several
from headrace.errors import LeaseLost
from headrace.model import (
    AnyClaim,
    Backoff,
    Claim,
    Claimed,
    Completed,
    Duration,
    Failed,
    Released,
    Result,
    Verdict,
)

_FINISH = """\
select item, verdict, action, pg_catalog.timestamptz_send(at), pg_catalog.timestamptz_send(retry_at),
       retry_count, max_retries
from headrace.finish(%s, %s, %s::bigint[], %s::int[], %s::bigint[], %s::int[], %s::int[], %s::pg_catalog.jsonb, %s::pg_catalog.text[])"""


_LOST = Verdict("lost")


def finish(namespace: str, queue: str, results: Sequence[Result]) -> Statement[list[Verdict]]:
    """Verdicts come in the order of the results. A claim that cannot exist is lost, without asking
    the database."""
    proofs = proofs_of([result.claimed for result in results])
    if proofs is None:
        return _finish_possible(namespace, queue, results)
    others = {
        str(item): other_end(result)
        for item, result in enumerate(results, 1)
        if type(result) is not Completed
    }
    ended = Ended(
        [milliseconds(result.execution_time_ms) for result in results],
        [result.status_code for result in results],
        encode(others, "a result").decode() if others else None,
    )
    return _end(namespace, queue, proofs, ended)


def complete(
    namespace: str, queue: str, claims: Sequence[AnyClaim], ms: int | None, code: int | None
) -> Statement[list[Verdict]]:
    """A finish in which all attempts are completed alike, in half the time."""
    proofs = proofs_of(claims)
    if proofs is None:
        return finish(namespace, queue, [Completed(claim, ms, code) for claim in claims])
    ended = Ended([milliseconds(ms)] * len(claims), [code] * len(claims))
    return _end(namespace, queue, proofs, ended)


def complete_lease(
    namespace: str,
    queue: str,
    lease: int,
    size: int,
    ms: int | None,
    code: int | None,
    token: str | None,
) -> Statement[bool]:
    """Complete all that a lease covers. False: some of it has ended, and nothing was done."""
    return Statement(
        "select headrace.complete_lease(%s, %s, %s::bigint, %s::int, %s::int, %s::int, %s)",
        (namespace, queue, lease, size, milliseconds(ms), code, token),
        lambda rows: rows[0][0],
    )


def complete_held(
    namespace: str, queue: str, claim: AnyClaim, ms: int | None, code: int | None
) -> Statement[bool] | None:
    """Complete one delivery that has a lease of its own. False: the claim no longer holds it, and
    nothing was done. None: there can be no such claim."""
    if proofs_of([claim]) is None:
        return None
    return Statement(
        "select headrace.complete_held(%s, %s, %s::bigint, %s::int, %s::int, %s::int, %s)",
        (namespace, queue, claim.id, claim.attempt, milliseconds(ms), code, claim.lease_token),
        lambda rows: rows[0][0],
    )


def _end(namespace: str, queue: str, proofs: Proofs, ended: Ended) -> Statement[list[Verdict]]:
    def read(rows: list[Row]) -> list[Verdict]:
        verdicts = [COMPLETED] * len(proofs.ids)
        for item, verdict, action, at, retry_at, retry_count, max_retries in rows:
            verdicts[item - 1] = Verdict(
                verdict,
                action,
                instant_or_none(at),
                instant_or_none(retry_at),
                retry_count,
                max_retries,
            )
        return verdicts

    return Statement(
        _FINISH,
        (
            namespace,
            queue,
            array(proofs.ids),
            array(proofs.attempts),
            unless_all_none(proofs.leases),
            unless_all_none(ended.ms),
            unless_all_none(ended.codes),
            ended.others,
            in_common(proofs.tokens),
        ),
        read,
    )


def finalized(namespace: str, queue: str, id: int) -> Statement[Verdict | None]:
    """How an event has ended for good. None: it has not."""
    return Statement(
        "select action, pg_catalog.timestamptz_send(at), retry_count, max_retries "
        "from headrace.finalized(%s, %s::bigint, %s) where action is not null",
        (namespace, id, queue),
        lambda rows: next(
            (
                Verdict("repeated", action, instant_or_none(at), None, retry_count, max_retries)
                for action, at, retry_count, max_retries in rows
            ),
            None,
        ),
    )


def _finish_possible(
    namespace: str, queue: str, results: Sequence[Result]
) -> Statement[list[Verdict]]:
    places = [place for place, result in enumerate(results) if proofs_of([result.claimed])]
    statement = finish(namespace, queue, [results[place] for place in places])

    def read(rows: list[Row]) -> list[Verdict]:
        verdicts = [_LOST] * len(results)
        for place, verdict in zip(places, statement.read(rows), strict=True):
            verdicts[place] = verdict
        return verdicts

    return Statement(statement.sql, statement.params, read)


class Reported(NamedTuple):
    """The end of an attempt, reported by a worker that may know no more than the event and a
    name."""

    result: Result
    """Its claim's attempt is 0 where it is not known."""
    worker: str | None


_REPORT = """\
select item, verdict, action, pg_catalog.timestamptz_send(at), pg_catalog.timestamptz_send(retry_at),
       retry_count, max_retries
from headrace.report(%s, %s, %s::bigint[], %s::int[], %s::pg_catalog.text[], %s::int[], %s::int[], %s::pg_catalog.jsonb, %s::pg_catalog.text[])"""


def report(namespace: str, queue: str, reports: Sequence[Reported]) -> Statement[list[Verdict]]:
    """Verdicts come in the order of the reports."""
    results = [reported.result for reported in reports]
    others = {
        str(item): other_end(result)
        for item, result in enumerate(results, 1)
        if not isinstance(result, Completed)
    }

    def read(rows: list[Row]) -> list[Verdict]:
        verdicts = {item: Verdict(*timed(tuple(row), 2, 3)) for item, *row in rows}
        return [verdicts[item] for item in range(1, len(results) + 1)]

    return Statement(
        _REPORT,
        (
            namespace,
            queue,
            array([result.claimed.id for result in results]),
            array([result.claimed.attempt or None for result in results]),
            [reported.worker for reported in reports],
            array([milliseconds(result.execution_time_ms) for result in results]),
            array([result.status_code for result in results]),
            encode(others, "a result").decode() if others else None,
            in_common([result.claimed.lease_token for result in results]),
        ),
        read,
    )


def report_one(namespace: str, queue: str, reported: Reported) -> Statement[Verdict]:
    """A report that goes together with others of its queue."""
    alone = report(namespace, queue, [reported])
    together = partial(report, namespace, queue)
    return Statement(
        alone.sql,
        alone.params,
        lambda rows: alone.read(rows)[0],
        batchable=Batchable(namespace, ("report", queue), reported, 0, together, may_wait=True),
    )


class FinishVerbs(Caller):
    """Verbs that end attempts."""

    def complete(
        self,
        claimed: AnyClaim | Sequence[AnyClaim],
        *,
        execution_time_ms: int | None = None,
        status_code: int | None = None,
        connection: Connection | None = None,
    ) -> Steps[None]:
        """End one attempt well, or many. Repeating it changes nothing. LeaseLost: the claim is no
        longer the current one; FinishConflict: the attempt has ended otherwise. Of many, the others
        are completed all the same."""
        claims = several(claimed)
        is_one = len(claims) == 1 and claims[0].held
        if is_one and (yield from self._complete_held(claims[0], execution_time_ms, status_code)):
            return
        lease = self.memory.claims.whole(claims)
        if lease is not None and (
            yield from self._complete_lease(lease, claims, execution_time_ms, status_code)
        ):
            return
        if claims:
            verdicts: list[Verdict] = yield complete(
                *self.names, claims, execution_time_ms, status_code
            )
            self.memory.claims.ended(claims)
            check_finished(claims, verdicts)

    def _complete_held(self, claim: AnyClaim, ms: int | None, code: int | None) -> Steps[bool]:
        statement = complete_held(*self.names, claim, ms, code)
        completed: bool = statement is not None and (yield statement)
        if completed:
            self.memory.claims.ended([claim])
        return completed

    def _complete_lease(
        self, lease: int, claims: Sequence[AnyClaim], ms: int | None, code: int | None
    ) -> Steps[bool]:
        size, token = len(claims), claims[0].lease_token
        completed = yield from ask(complete_lease(*self.names, lease, size, ms, code, token))
        if completed:
            self.memory.claims.ended_whole(lease)
        return completed

    def fail(
        self,
        claimed: AnyClaim,
        error: str | BaseException = "",
        *,
        retry_in: Duration | None = None,
        max_retries: int | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        reason: str | None = None,
        execution_time_ms: int | None = None,
        status_code: int | None = None,
        connection: Connection | None = None,
    ) -> Steps[Verdict]:
        """End an attempt as failed: the event is retried by its retry policy, and dead-lettered
        when that is used up, or at once if a `reason` is given. The verdict says when the next
        attempt is due."""
        failed = Failed(
            claimed,
            error,
            execution_time_ms,
            status_code,
            retry_in=retry_in,
            max_retries=most_attempts(max_retries, max_attempts),
            backoff=backoff,
            reason=reason,
        )
        return self._finish_one(failed)

    def release(
        self,
        claimed: AnyClaim,
        *,
        delay: Duration | None = None,
        connection: Connection | None = None,
    ) -> Steps[Verdict]:
        """Hand an event back unfinished: it is ready again at once, or snoozed for `delay`, and no
        attempt is charged. The verdict of a snooze says until when. A snooze beyond the queue's
        `max_snoozes` counts as a failure."""
        return self._finish_one(Released(claimed, delay=delay))

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
    ) -> Steps[Verdict]:
        """End an event for good, whatever its retry policy: COMPLETED, with errors
        COMPLETED_WITH_ERRORS, or by `success` COMPLETED or FAILED; True or False in the place of
        the errors is the success. `errorResults` is another name for `errors`. A bare id means this
        client's claim of that event. An event that is already finalized stays as it is: the verdict
        says what is stored, and a bare id gets that verdict even if another client finalized the
        event. LeaseLost: the event is not finalized, and this client does not hold it; or the claim
        is no longer the current one."""
        how = Finalized.of(errors, success, errorResults)
        ended = (execution_time_ms, status_code)
        if not isinstance(claimed_or_id, Claimed | Claim):
            return (yield from self._finalize_by_id(claimed_or_id, how, *ended))
        verdict = yield from self._finalize(claimed_or_id, how, *ended)
        if verdict.verdict == "repeated" and verdict.retry_at is not None:
            verdict = replace(verdict, verdict="conflict")  # it has failed, and comes again
        elif verdict.verdict == "conflict" and is_end(verdict):
            verdict = replace(verdict, verdict="repeated")
        check_finished([claimed_or_id], [verdict])
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
            stored = yield from ask(finalized(*self.names, id))
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

    def finish(
        self, results: Sequence[Result], *, connection: Connection | None = None
    ) -> Steps[list[Verdict]]:
        """End many attempts, each in its own way, in one statement; the verdicts have the same
        order. A lost claim is reported in its verdict and raises nothing."""
        if not results:
            return []
        verdicts = yield from ask(finish(*self.names, results))
        self.memory.claims.ended([result.claimed for result in results])
        return verdicts

    def _finish_one(self, result: Result) -> Steps[Verdict]:
        """Finish one attempt, and raise if the claim was lost or the attempt has ended
        otherwise."""
        verdicts = yield from self.finish([result])
        check_finished([result.claimed], verdicts)
        return verdicts[0]

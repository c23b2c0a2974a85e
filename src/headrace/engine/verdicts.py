"""The results that a finish sends, and the meaning of its verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from headrace.engine.arguments import error_text
from headrace.errors import FinishConflict, InvalidInput, LeaseLost
from headrace.model import AnyClaim, Completed, Failed, Result, Verdict

COMPLETED = Verdict("counted", "COMPLETED")


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


def is_end(verdict: Verdict) -> bool:
    """Whether the delivery has ended, and not just this attempt at it."""
    ends = ("COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED")
    return verdict.action in ends and verdict.retry_at is None


def several(claimed: AnyClaim | Sequence[AnyClaim]) -> Sequence[AnyClaim]:
    return claimed if isinstance(claimed, Sequence) else [claimed]


def check_finished(claims: Sequence[AnyClaim], verdicts: list[Verdict]) -> None:
    if verdicts.count(COMPLETED) == len(verdicts):
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

"""A handler: a function, the events that it is for, and how its attempts end."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.engine.arguments import MOST_ATTEMPTS, most_attempts, seconds, strings
from headrace.engine.backoff import checked
from headrace.errors import InvalidInput
from headrace.model import Backoff, Claimed, Completed, CutOff, Duration, Failed, Released, Result
from headrace.model.codec import NO_CODECS, Codecs
from headrace.model.failure_text import failure_text
from headrace.model.patterns import check_pattern, check_tag, matches
from headrace.node.handler.opener import Opener
from headrace.node.handler.outcome import (
    Discard,
    Done,
    Outcome,
    Retry,
    Snooze,
    mistaken,
)
from headrace.node.handler.payload import PayloadMismatch, Reader
from headrace.node.handler.signature import (
    Call,
    Parameters,
    asked_of,
    caller,
    check_kind,
    is_async,
    name_of,
)
from headrace.telemetry.tracing import handled

Rules: TypeAlias = Mapping[type[BaseException] | tuple[type[BaseException], ...], Outcome]

HANDLER_ERROR = "Handler error"  # why an event is dead whose handler failed on every retry
CUT_OFF = "Its handler lost the connection to PostgreSQL"  # again and again, and alone
RETURNS = (
    "a handler returns None, Done(…), Retry(…), Snooze(…) or Discard(…), and raises an exception "
    "if it fails"
)

logger = logging.getLogger("headrace.node")


class Payloads(list[Any]):
    """Of a batch, as the types that its handler asks for."""

    claims: list[Claimed]
    """The events that they are of."""


@dataclass(frozen=True, eq=False, slots=True)
class Handler:
    """A function, what it is for and how its failures are dealt with; `made` makes one."""

    name: str
    function: Callable[..., Any]
    call: Call
    """Calls the function with the arguments that it asks for: `handler.call(event, connection,
    context)`. Raises PayloadMismatch. That of a batch takes the list that `read` returned."""
    patterns: tuple[str, ...]
    tags: tuple[str, ...] | None
    all_tags: bool
    is_async: bool
    wants_connection: bool
    wants_context: bool
    asked: Parameters
    reads: Reader | None
    opener: Opener
    max_retries: int | None
    policy: Mapping[str, Any] | None
    rules: Mapping[type[BaseException], Outcome]
    timeout: float | None
    concurrency: int | None
    batch: int
    """The largest batch; 0: it is called with one event at a time."""
    _told: set[str] = dataclasses.field(default_factory=set, repr=False)

    def matches(self, type: str, tags: Sequence[str]) -> bool:
        if not any(matches(pattern, type) for pattern in self.patterns):
            return False
        if self.tags is None:
            return True
        return (all if self.all_tags else any)(tag in tags for tag in self.tags)

    def read(self, claims: Sequence[Claimed]) -> tuple[list[Claimed], list[Any], list[Result]]:
        """Of a batch: the claims whose payloads fit, the arguments for them, and the results of the
        other claims."""
        if self.reads is None and not self.opener.is_needed_for(claims):
            return list(claims), list(claims), []
        fitting: list[Claimed] = []
        given, ended = Payloads(), []
        for claimed in claims:
            try:
                opened = self.opener(claimed)
                given.append(opened if self.reads is None else self.reads(opened.payload))
                fitting.append(opened)
            except Exception as error:
                ended.append(self.failed(claimed, error))
        given.claims = fitting
        return fitting, given, ended

    def result(self, claimed: Claimed, returned: Any, ms: int | None = None) -> Result:
        """How the attempt has ended, by what the function returned."""
        if returned is None:
            return Completed(claimed, ms)
        match returned:
            case Done(code):
                return Completed(claimed, ms, code)
            case Retry(after, reason):
                return self._retried(claimed, reason, after, ms)
            case Snooze(delay):
                return Released(claimed, ms, delay=delay)
            case Discard(reason):
                return self._discarded(claimed, reason, reason, ms)
        if inspect.isawaitable(returned):
            return self._never_awaited(claimed, returned, ms)
        if (looks := mistaken(returned)) is not None:
            error = f"{self.name} returned {looks}, which is not an outcome: {RETURNS}"
            return self._retried(claimed, error, None, ms)
        self._warn_once(
            f"{self.name} returned a value of the type {type(returned).__name__}, which has "
            f"no meaning: {RETURNS}"
        )
        return Completed(claimed, ms)

    def results(
        self, claims: Sequence[Claimed], returned: Any, ms: int | None = None
    ) -> list[Result]:
        """How each attempt of a batch has ended: alike, or as the returned outcomes say, one for
        each."""
        if not isinstance(returned, list | tuple):
            return [self.result(claimed, returned, ms) for claimed in claims]
        if len(returned) != len(claims):
            error = f"{self.name} returned {len(returned)} outcomes for {len(claims)} events"
            return [self._retried(claimed, error, None, ms) for claimed in claims]
        return [
            self.result(claimed, one, ms) for claimed, one in zip(claims, returned, strict=True)
        ]

    def failed(self, claimed: Claimed, error: BaseException, ms: int | None = None) -> Result:
        """How the attempt has ended, by the exception that the function raised: the nearest rule
        decides, else the retry policy. For an exception group, the rule of its members decides if
        all have the same."""
        if isinstance(error, PayloadMismatch):
            return self._discarded(claimed, f"{self.name}: {error}", f"{error.what}: {error}", ms)
        text = failure_text(error)
        match self._rule(error):
            case Done(code):
                return Completed(claimed, ms, code)
            case Snooze(delay):
                return Released(claimed, ms, delay=delay)
            case Discard(reason):
                return self._discarded(claimed, text, reason, ms)
            case Retry(after, _):
                return self._retried(claimed, text, after, ms)
            case _:
                return self._retried(claimed, text, None, ms)

    def _rule(self, error: BaseException) -> Outcome | None:
        if not self.rules:
            return None
        found = next((kind for kind in type(error).__mro__ if kind in self.rules), None)
        if found is not None:
            return self.rules[found]
        if isinstance(error, BaseExceptionGroup):  # as a task group raises them
            one, *others = map(self._rule, error.exceptions)
            return one if all(other == one for other in others) else None
        return None

    def _retried(
        self, claimed: Claimed, error: str, after: Duration | None, ms: int | None
    ) -> Failed:
        return Failed(
            claimed,
            error,
            ms,
            retry_in=after,
            max_retries=self.max_retries,
            backoff=self.policy,
            last_reason=HANDLER_ERROR,
        )

    def cut_off(self, claimed: Claimed, error: str, ms: int | None) -> CutOff:
        """How an attempt ends that has lost its connection to PostgreSQL."""
        text = f"{self.name} lost its connection to PostgreSQL: {error}"
        return CutOff(claimed, text, ms, max_retries=self.max_retries, last_reason=CUT_OFF)

    def _discarded(self, claimed: Claimed, error: str, reason: str, ms: int | None) -> Failed:
        return Failed(claimed, error, ms, reason=reason)

    def _never_awaited(self, claimed: Claimed, returned: Any, ms: int | None) -> Failed:
        if inspect.iscoroutine(returned):
            returned.close()
        error = (
            f"{self.name} is a plain function and returned an awaitable, which is never "
            "awaited: declare it with async def"
        )
        return self._retried(claimed, error, None, ms)

    def _warn_once(self, warning: str) -> None:
        if not self._told:
            self._told.add(warning)
            logger.warning("%s", warning)


def made(
    function: Callable[..., Any],
    patterns: Iterable[str],
    *,
    tags: Sequence[str] | None = None,
    all_tags: bool = False,
    max_retries: int | None = None,
    max_attempts: int | None = None,
    backoff: Backoff | None = None,
    rules: Rules | None = None,
    timeout: Duration | None = None,
    concurrency: int | None = None,
    batch: int = 0,
    resources: Collection[str] = (),
    codecs: Codecs = NO_CODECS,
) -> Handler:
    """A handler, or InvalidInput that says what is wrong with it: where the handler is written, and
    not when an event comes."""
    check_kind(function)
    largest = _whole(batch, "the largest batch", 0, 10_000) or 0
    asked = asked_of(function, batch=largest > 0, resources=resources)
    checked_patterns = tuple(dict.fromkeys(map(check_pattern, patterns)))
    if not checked_patterns:
        raise InvalidInput("a handler must name at least one type; '*' stands for all types")
    opener = Opener(codecs)
    return Handler(
        name=name_of(function),
        function=function,
        call=handled(
            caller(function, asked, opener, batch=largest > 0),
            name_of(function),
            is_async=is_async(function),
        ),
        patterns=checked_patterns,
        tags=_tags(tags),
        all_tags=bool(all_tags),
        is_async=is_async(function),
        wants_connection="connection" in asked.names,
        wants_context="context" in asked.names,
        asked=asked,
        reads=asked.reads,
        opener=opener,
        max_retries=_whole(
            most_attempts(max_retries, max_attempts), "max_retries", 0, MOST_ATTEMPTS
        ),
        policy=None if backoff is None else checked(backoff),
        rules=_rules(rules or {}),
        timeout=_timeout(timeout),
        concurrency=_whole(concurrency, "concurrency", 1, 100_000),
        batch=largest,
    )


def _tags(tags: Sequence[str] | None) -> tuple[str, ...] | None:
    given = strings(tags, "tags")
    if given is None:
        return None
    if not given:
        raise InvalidInput(
            "tags must name at least one tag; leave them out for events with any tags or none"
        )
    return tuple(sorted(set(map(check_tag, given))))


def _whole(number: int | None, what: str, least: int, most: int) -> int | None:
    if number is None or (type(number) is int and least <= number <= most):
        return number
    raise InvalidInput(f"{what} must be a whole number from {least} to {most}, not {number!r:.100}")


def _timeout(timeout: Duration | None) -> float | None:
    if timeout is None:
        return None
    length = seconds(timeout, "timeout")
    if not length > 0:
        raise InvalidInput("a timeout must be longer than 0 seconds")
    return length


def _rules(rules: Rules) -> dict[type[BaseException], Outcome]:
    checked: dict[type[BaseException], Outcome] = {}
    for kinds, outcome in rules.items():
        for kind in kinds if isinstance(kinds, tuple) else (kinds,):
            if not isinstance(kind, type) or not issubclass(kind, BaseException):
                raise InvalidInput(f"a rule must be for an exception class, not for {kind!r:.100}")
            if not isinstance(outcome, Outcome):
                raise InvalidInput(
                    f"the rule for {kind.__name__} must be Done(…), Retry(…), Snooze(…) or "
                    f"Discard(…), not {outcome!r:.100}"
                )
            checked[kind] = outcome
    return checked

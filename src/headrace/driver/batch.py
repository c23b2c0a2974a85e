"""Batches: statements that are asked at the same moment become one, with a reply for each caller.

A caller that finds no statement under way sends its own at once, alone. Callers that come while a
statement is under way go into the next one together: the busier they are, the larger it is. Here
is what the batchers of plain and of async callers share; nothing here waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from time import monotonic
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from psycopg import Error, errors

from headrace.driver.explain import OutcomeUnknown, is_gone
from headrace.engine.statement import Batchable
from headrace.errors import HeadraceError, Unavailable

MOST = 200  # callers in a statement
MOST_BYTES = 4 * 1024 * 1024  # of what they ask
GROUPS = 1000  # that are kept while they are idle
# Seconds after which a statement counts as blocked, and the next one does not wait for it. Callers
# look that often whether their time is up.
SLOW = 0.1
# Statements at a time. One that is not slow goes alone: two of half the size would cost more.
UNDER_WAY = 4
# Seconds to search for the statement that fails a batch; then every suspect gets the error.
SEARCH = 5.0

INTERRUPTED = "another caller of the same batch was interrupted"

Asked = TypeVar("Asked", bound="Waiting")
Answers: TypeAlias = list[Any]
"""A reply or an exception for each caller."""


class Asking(Protocol):
    """A statement, or a call, that goes together with others."""

    @property
    def batchable(self) -> Batchable | None: ...


class Waiting:
    """A caller whose statement goes together with those of others."""

    __slots__ = ("batchable", "statement", "until")

    def __init__(self, statement: Asking, bound: float) -> None:
        assert statement.batchable is not None
        self.statement = statement
        self.batchable = statement.batchable
        self.until = monotonic() + bound

    @property
    def is_gone(self) -> bool:
        """It was cancelled, or its time was up."""
        raise NotImplementedError


class Group(Generic[Asked]):
    """Callers whose statements can go together: those that wait, the oldest first."""

    def __init__(self) -> None:
        self.waiting: deque[Asked] = deque()
        self.under_way: dict[object, float] = {}
        """The statements under way, and when each was sent."""
        self.company = 1
        """How many went together last time."""

    @property
    def is_idle(self) -> bool:
        return not self.under_way and not self.waiting

    def may_send(self) -> bool:
        """Whether the next statement need not wait for the one under way: that one is slow. An
        interrupted caller may leave one here that has ended; it is slow, too."""
        if not self.under_way:
            return True
        now = monotonic()
        slow = [now - since >= SLOW for since in self.under_way.values()]
        return len(slow) < UNDER_WAY and all(slow)

    def drop_those_who_left(self) -> None:
        if any(one.is_gone for one in self.waiting):
            self.waiting = deque(one for one in self.waiting if not one.is_gone)

    def take(self) -> list[Asked]:
        """The callers that go into the next statement."""
        taken: list[Asked] = []
        size = 0
        while self.waiting and len(taken) < MOST:
            if not self.waiting[0].is_gone:
                size += self.waiting[0].batchable.size
                if taken and size > MOST_BYTES:
                    break
                taken.append(self.waiting[0])
            self.waiting.popleft()
        self.company = len(taken)
        return taken


class Groups(dict[Hashable, Any]):
    """The groups of a batcher, by their keys."""

    def __init__(self, kind: Callable[[], Any]) -> None:
        self._kind = kind

    def of(self, batchable: Batchable) -> Any:
        key = batchable.namespace, batchable.kind
        group = self.get(key)
        if group is None:
            if len(self) >= GROUPS:
                for idle in [other for other, its in self.items() if its.is_idle]:
                    del self[idle]
            group = self[key] = self._kind()
        return group


def merged(asked: Sequence[Waiting]) -> Any:
    """One statement for all of them, with a reply for each."""
    return asked[0].batchable.together([one.batchable.asked for one in asked])


def isolated(
    asked: Sequence[Asked], until: float
) -> Generator[Sequence[Asked], list[Any], Answers]:
    """Run all together: yields those that are to be run in one statement, and is sent their replies.

    If one of them is refused, or PostgreSQL reports an error, nothing was done: the others are run
    again without it. Finding the one that fails takes long, and all of them may: after `until`, all
    remaining ones get the error. After any other error the outcome is unknown, so all get it and
    none is repeated.
    """
    try:
        return list((yield asked))
    except Exception as error:
        if len(asked) == 1:
            return [_alone(error)]
        if not _has_done_nothing(error):
            return [copied(error) for _ in asked]
        if not isinstance(error, HeadraceError) and monotonic() >= until:
            return [copied(error) for _ in asked]
        bad: int | None = getattr(error, "position", None)
        if bad is None:
            half = len(asked) // 2
            first = yield from isolated(asked[:half], until)
            return first + (yield from isolated(asked[half:], until))
        rest = [*asked[:bad], *asked[bad + 1 :]]
        others = yield from isolated(rest, until)
        return [*others[:bad], _alone(error), *others[bad:]]


def _has_done_nothing(error: Exception) -> bool:
    """Whether the transaction was surely rolled back: PostgreSQL has reported an error, and did not
    end the session by it."""
    if isinstance(error, Unavailable):
        return False
    if isinstance(error, errors.OperationalError) and is_gone(error):
        return False
    return isinstance(error, HeadraceError) or (
        isinstance(error, Error) and error.sqlstate is not None
    )


def _alone(error: Exception) -> Exception:
    """Without its position in the batch: the caller does not know of the batch."""
    if hasattr(error, "position"):
        error.position = None
    return error


def copied(error: Exception) -> Exception:
    """The same error for one more caller: each raises its own, with its own traceback."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__, copy.__suppress_context__ = error.__cause__, error.__suppress_context__
    return copy


def interrupted() -> OutcomeUnknown:
    return OutcomeUnknown(f"{INTERRUPTED}: the call took effect, or it did not")

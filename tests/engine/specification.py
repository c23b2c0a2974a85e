"""What the engine must do, in the fewest words: queues in memory, one thread, a clock that is told the time.

It is read as a specification, so it says nothing of how. Where the engine may choose (which of several types
goes first, how it numbers things), it is shown the choice, and says whether that was allowed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MAX_RETRIES = 3
BACKOFF = 300


class Ready(NamedTuple):
    rank: int  # who came earlier goes first; what came together has one rank


class Delayed(NamedTuple):
    due: int


class Claimed(NamedTuple):
    lease: int


class Ended(NamedTuple):
    status: str


class NewEvent(NamedTuple):
    type: str
    priority: int
    delay: int = 0
    max_retries: int | None = None


class Claim(NamedTuple):
    """What a poll gives: (event, attempt) in its queue is the token."""

    queue: str
    event: int
    attempt: int
    lease: int


class Finish(NamedTuple):
    """How an attempt is said to have ended."""

    action: str = "complete"
    retry_in: int | None = None
    max_retries: int | None = None
    reason: str | None = None
    status: str | None = None

    def __repr__(self) -> str:
        given = (f"{name}={value!r}" for name, value in self._asdict().items() if value is not None)
        return f"Finish({', '.join(given)})"


class End(NamedTuple):
    """How an attempt has ended, as the log has it; what is answered to whoever asks again."""

    action: str | None = None
    at: int | None = None
    retry_at: int | None = None
    retry_count: int | None = None
    max_retries: int | None = None


class Lease(NamedTuple):
    queue: str
    worker: str
    until: int
    suspect: bool


@dataclass
class Delivery:
    """An event in a queue."""

    queue: str
    event: int
    type: str
    priority: int
    own_max_retries: int | None
    state: Ready | Delayed | Claimed | Ended
    attempts: int = 0
    failures: int = 0
    crashes: int = 0
    suspect: bool = False
    ends: dict[int, End] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        match self.state:
            case Ended(status):
                return status
            case Claimed():
                return "PROCESSING"
            case _:
                return "PENDING"

    def max_retries(self, handler: int | None = None) -> int:
        """The event's own, or else the handler's, or else the queue's."""
        given = (self.own_max_retries, handler, MAX_RETRIES)
        return next(limit for limit in given if limit is not None)

    def is_used_up(self, handler: int | None = None) -> bool:
        return self.failures + self.crashes >= max(1, self.max_retries(handler))


class Specification:
    def __init__(self) -> None:
        self.now = 0
        self.deliveries: dict[tuple[str, int], Delivery] = {}
        self.leases: dict[int, Lease] = {}
        self._ranks = 0

    # publish

    def publish(self, id: int, event: NewEvent) -> None:
        state = Delayed(self.now + event.delay) if event.delay else Ready(self._next_rank())
        self.deliveries["main", id] = Delivery(
            "main", id, event.type, event.priority, event.max_retries, state
        )

    # tick

    def tick(self) -> None:
        """What is due becomes ready; a lease that has run out ends, and what it held is abandoned."""
        for delivery in sorted(self._in(Delayed), key=lambda d: (d.state.due, d.event)):
            if delivery.state.due <= self.now:
                delivery.state = Ready(self._next_rank())
        rank = self._next_rank()  # nobody has said which of two leases ends first
        for id, lease in list(self.leases.items()):
            held = self.held_by(id)
            if held and lease.until < self.now:
                for delivery in held:
                    self._abandon(delivery, rank)
                del self.leases[id]

    def _abandon(self, delivery: Delivery, rank: int) -> None:
        """Nobody knows what killed a worker, so the first time charges nobody: it makes a suspect."""
        delivery.crashes += delivery.suspect
        self._log_end(delivery, End("ABANDONED", self.now))
        if delivery.suspect and delivery.is_used_up():
            self._bury(delivery, "FAILED")
        else:
            delivery.state = Ready(rank)
        delivery.suspect = True

    # poll

    def poll(
        self, queue: str, worker: str, most: int, lease: int, each: bool, given: list[Any]
    ) -> None:
        """The engine has given these; were they to be had, and is none of them missing?"""
        if not self.calm(queue) and self.first_suspect(queue, worker) is None:
            self.tick()  # a poll that finds nothing does what time has made due
        calm, suspect = self.calm(queue), self.first_suspect(queue, worker)
        chosen = [self.deliveries[queue, row.id] for row in given]
        if chosen and chosen[0].suspect:
            assert suspect is not None, "a worker has at most one suspect"
            assert len(chosen) == 1, "a suspect is claimed alone"
            assert place(chosen[0]) == place(suspect), "the first suspect goes first"
            assert not before(suspect, calm, most), "its turn has not come"
        else:
            assert suspect is None or before(suspect, calm), "it was the suspect's turn"
            assert len(chosen) == min(most, len(calm)), (
                "as many as there are, at most what was asked"
            )
            check_order(chosen, calm)
        for delivery, row in zip(chosen, given, strict=True):
            self._claim(delivery, row, held=each or delivery.suspect)
            self.leases[row.lease] = Lease(queue, worker, self.now + lease, delivery.suspect)

    def calm(self, queue: str) -> list[Delivery]:
        """What can be claimed and is not suspected."""
        return [d for d in self._in(Ready) if d.queue == queue and not d.suspect]

    def first_suspect(self, queue: str, worker: str) -> Delivery | None:
        """The suspect whose turn is next; a worker that has one in work gets no other."""
        if any(
            lease.suspect and lease.worker == worker and lease.queue == queue
            for id, lease in self.leases.items()
            if lease.until >= self.now and self.held_by(id)
        ):
            return None
        suspects = (d for d in self._in(Ready) if d.queue == queue and d.suspect)
        return min(suspects, key=place, default=None)

    def _claim(self, delivery: Delivery, row: Any, *, held: bool) -> None:
        """The attempt is counted by the claim, before anybody has begun."""
        delivery.attempts += 1
        delivery.state = Claimed(row.lease)
        delivery.log.append(f"PICKED {delivery.attempts}")
        said = (row.attempt, row.type, row.priority, row.retry_count, row.crashes, row.max_retries)
        assert (*said, row.held) == (
            delivery.attempts,
            delivery.type,
            delivery.priority,
            delivery.failures,
            delivery.crashes,
            delivery.max_retries(),
            held,
        )

    # finish

    def finish(self, claim: Claim, how: Finish) -> tuple[str, End | None]:
        """Only the current attempt can be ended, and only once. Asked again, it answers the same again."""
        delivery = self.deliveries[claim.queue, claim.event]
        if isinstance(delivery.state, Claimed) and claim.attempt == delivery.attempts:
            return "counted", self._end(delivery, how)
        end = delivery.ends.get(claim.attempt)
        if end is None or end.action in ("ABANDONED", "RESET", "CANCELLED"):
            return "lost", end
        same = {
            "complete": ["COMPLETED"],
            "release": ["RELEASED"],
            "fail": ["FAILED", "COMPLETED_WITH_ERRORS"],
        }[how.action]
        return ("repeated" if end.action in same else "conflict"), end

    def _end(self, delivery: Delivery, how: Finish) -> End:
        match how.action:
            case "complete":
                delivery.state = Ended("COMPLETED")
                end = self._log_end(delivery, End("COMPLETED", self.now))
            case "release":
                delivery.state = Ready(self._next_rank())
                end = self._log_end(delivery, End("RELEASED", self.now))
            case _:
                end = self._fail(delivery, how)
        return end

    def _fail(self, delivery: Delivery, how: Finish) -> End:
        delivery.failures += 1
        counts = delivery.failures, delivery.max_retries(how.max_retries)
        if how.reason is not None or delivery.is_used_up(how.max_retries):
            status = how.status or "FAILED"
            end = self._log_end(delivery, End(status, self.now, None, *counts))
            self._bury(delivery, status)
            return end
        due = self.now + (BACKOFF if how.retry_in is None else how.retry_in)
        delivery.state = Delayed(due) if due > self.now else Ready(self._next_rank())
        return self._log_end(delivery, End("FAILED", self.now, due, *counts))

    def _bury(self, delivery: Delivery, status: str) -> None:
        delivery.state = Ended(status)
        delivery.log.append(f"DEAD_LETTERED {delivery.attempts}")

    def _log_end(self, delivery: Delivery, end: End) -> End:
        delivery.ends[delivery.attempts] = end
        delivery.log.append(f"{end.action} {delivery.attempts}")
        return end

    # extend

    def extend(self, claim: Claim, by: int) -> str | None:
        """A lease that ran out but was not taken away yet is held on to. None: it has nothing left to hold, and
        nobody has said what is answered then."""
        if claim.lease not in self.leases:
            return "lost"
        if not self.held_by(claim.lease):
            return None
        self.leases[claim.lease] = self.leases[claim.lease]._replace(until=self.now + by)
        return "held"

    # administration

    def cancel(self, delivery: Delivery) -> bool | None:
        """Whether it did it; None: it is refused, because the delivery has ended otherwise."""
        if isinstance(delivery.state, Ended):
            return False if delivery.status == "CANCELLED" else None
        self._administer(delivery, "CANCELLED")
        delivery.state = Ended("CANCELLED")
        return True

    def reset(self, delivery: Delivery) -> bool | None:
        """Ready now, and the counters stay; a dead letter is redriven."""
        match delivery.state:
            case Ready():
                return False
            case Ended("COMPLETED" | "CANCELLED"):
                return None
            case Ended():
                self._redrive(delivery)
            case _:
                self._administer(delivery, "RESET")
        delivery.state = Ready(self._next_rank())
        return True

    def _redrive(self, delivery: Delivery) -> None:
        """Attempts go on growing, what counts starts anew; but who has crashed workers is watched."""
        self._administer(delivery, "REDRIVEN")
        delivery.suspect = delivery.crashes > 0
        delivery.failures = delivery.crashes = 0

    def _administer(self, delivery: Delivery, action: str) -> None:
        """An attempt in work is fenced off: this was its end."""
        if isinstance(delivery.state, Claimed):
            self._log_end(delivery, End(action, self.now))
        else:
            delivery.log.append(f"{action} {delivery.attempts}")

    # where things are

    def live(self) -> Iterator[tuple[Any, ...]]:
        """What has not ended, with all there is to say about it."""
        for d in self.deliveries.values():
            counts = d.queue, d.event, d.attempts, d.failures, d.crashes, d.suspect
            match d.state:
                case Ready():
                    yield *counts, None, None, None
                case Delayed(due):
                    yield *counts, None, due, None
                case Claimed(lease):
                    yield *counts, lease, None, self.leases[lease].until

    def held_by(self, lease: int) -> list[Delivery]:
        return [d for d in self._in(Claimed) if d.state.lease == lease]

    def _in(self, state: type) -> list[Any]:
        return [d for d in self.deliveries.values() if isinstance(d.state, state)]

    def _next_rank(self) -> int:
        self._ranks += 1
        return self._ranks


def place(delivery: Any) -> tuple[int, int]:
    """The most urgent first, and then who came first."""
    return delivery.priority, delivery.state.rank


def before(suspect: Delivery, calm: Iterable[Any], most: int | None = None) -> bool:
    """Whether something stands before a suspect. A poll that asks for less than there are types need not look
    at all of them: then only what is more urgent counts."""
    calm = list(calm)
    if most is not None and most < len({(d.type, d.priority) for d in calm}):
        return any(d.priority < suspect.priority for d in calm)
    return any(place(d) < place(suspect) for d in calm)


def check_order(chosen: list[Any], calm: list[Any]) -> None:
    """The most urgent first; of each type the oldest first; types share, in any way."""
    assert [place(d) for d in chosen] == sorted(place(d) for d in chosen)
    left = [d for d in calm if d not in chosen]
    for passed_over in left:
        assert all(d.priority <= passed_over.priority for d in chosen), "it was more urgent"
        assert all(place(d) <= place(passed_over) for d in chosen if d.type == passed_over.type), (
            "it was older"
        )

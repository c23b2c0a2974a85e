"""What the engine must do, in the fewest words: queues in memory, one thread, a clock that is told the time.

It is read as a specification, so it says nothing of how. Where the engine may choose (which of several types goes
first, how it numbers things), it is shown the choice, and says whether that was allowed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

QUEUES: dict[str, set[str]] = {"main": {"a", "b"}, "some": {"b"}}  # and the types they take
MAX_RETRIES = 3
BACKOFF = 300


class Ready(NamedTuple):
    rank: int  # who came earlier goes first; what came together has one rank


class Delayed(NamedTuple):
    due: int
    is_retry: bool = False


class Claimed(NamedTuple):
    lease: int


class Ended(NamedTuple):
    status: str


class NewEvent(NamedTuple):
    type: str
    priority: int
    delay: int = 0
    max_retries: int | None = None
    key: str | None = None
    unique: str | None = None
    debounce: str | None = None
    settle: int | None = None
    at_latest: int | None = None


class Limit(NamedTuple):
    """Of a type, or of the whole queue: so many in work at once; so many starts in a minute, evenly, and `burst` more."""

    type: str | None
    at_once: int | None = None
    rate: int | None = None
    burst: int = 0


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
    delay: int | None = None

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

    @property
    def is_final(self) -> bool:
        """Whether the delivery has ended with it."""
        ends = ("COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED")
        return self.action in ends and self.retry_at is None


class Lease(NamedTuple):
    queue: str
    worker: str
    until: int
    suspect: bool


@dataclass(eq=False)
class Delivery:
    """An event in a queue."""

    queue: str
    id: int
    event: NewEvent
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

    @property
    def is_abandoned(self) -> bool:
        """It waits because a lease over it ran out, and nothing has happened to it since."""
        abandoned = self.log[-1:] == [f"ABANDONED {self.attempts}"]
        return abandoned and isinstance(self.state, Ready | Delayed)

    @property
    def place(self) -> tuple[int, int]:
        """The most urgent first, and then who came first."""
        assert isinstance(self.state, Ready)
        return self.event.priority, self.state.rank

    def max_retries(self, handler: int | None = None) -> int:
        """The event's own, or else the handler's, or else the queue's."""
        given = (self.event.max_retries, handler, MAX_RETRIES)
        return next(limit for limit in given if limit is not None)

    def is_used_up(self, handler: int | None = None) -> bool:
        return self.failures + self.crashes >= max(1, self.max_retries(handler))


class Specification:
    def __init__(self) -> None:
        self.now = 0
        self.deliveries: dict[tuple[str, int], Delivery] = {}
        self.leases: dict[int, Lease] = {}
        self.paused: set[str] = set()
        self.limits: dict[str, tuple[Limit, ...]] = {}
        self._rates: dict[tuple[str, str | None], tuple[Fraction, int]] = {}  # left, and when
        self.chains: dict[tuple[str, str], tuple[int, int]] = {}
        """The last event of a debounce key in a queue, and when the first of those was published that it stands for."""
        self._ranks = 0

    @property
    def has_keys(self) -> bool:
        return any(d.event.key for d in self.deliveries.values())

    def publish(self, id: int, event: NewEvent) -> None:
        """It is delivered once to each queue that takes it. While an event of its unique key is unfinished, there is no
        other: that one has been told."""
        holder = self.holder(event)
        if holder is not None:
            assert id == holder, "another holds the unique key"
            return
        assert not any(id == known for _, known in self.deliveries), "it is another event"
        state = Delayed(self.now + event.delay) if event.delay else Ready(self._next_rank())
        for queue, types in QUEUES.items():
            if event.type in types:
                if event.debounce:
                    state = self._supersede(queue, id, event)
                self.deliveries[queue, id] = Delivery(queue, id, event, state)

    def holder(self, event: NewEvent, besides: int | None = None) -> int | None:
        """The unfinished event that has its unique key."""
        for d in self.deliveries.values():
            same = event.unique is not None and d.event.unique == event.unique
            if same and d.id != besides and not isinstance(d.state, Ended):
                return d.id
        return None

    def _supersede(self, queue: str, id: int, event: NewEvent) -> Ready | Delayed:
        """What waits of its debounce key and was never claimed has ended. It is due when it has been quiet, or at the
        latest; then it has the place of the other."""
        assert event.debounce is not None
        assert event.settle is not None
        assert event.at_latest is not None
        last, first = self.chains.get((queue, event.debounce), (0, self.now))
        rank = None
        before = self.deliveries.get((queue, last))
        if before and isinstance(before.state, Ready | Delayed) and not before.attempts:
            place = (before.event.type, before.event.priority)
            if isinstance(before.state, Ready) and place == (event.type, event.priority):
                rank = before.state.rank
            before.state = Ended("CANCELLED")
            before.log.append("SUPERSEDED 0")
        else:
            first = self.now
        self.chains[queue, event.debounce] = id, first
        due = min(self.now + event.settle, first + event.at_latest)
        return Delayed(due) if due > self.now else Ready(rank or self._next_rank())

    # what time does

    def tick(self) -> None:
        """What is due becomes ready; a lease that has run out ends, and what it held is abandoned."""
        for delivery in sorted(self._in(Delayed), key=lambda d: (d.state.due, d.id)):
            if delivery.state.due <= self.now:
                delivery.state = Ready(self._next_rank())
        rank = self._next_rank()  # nobody has said which of two leases ends first
        for id, lease in list(self.leases.items()):
            held = self.held_by(id)
            if held and lease.until < self.now:
                for delivery in held:
                    self._abandon(delivery, rank)
                del self.leases[id]

    def is_due(self) -> bool:
        """Whether a tick would do anything."""
        return any(d.state.due <= self.now for d in self._in(Delayed)) or any(
            self.leases[d.state.lease].until < self.now for d in self._in(Claimed)
        )

    def _abandon(self, delivery: Delivery, rank: int, handler: int | None = None) -> None:
        """Nobody knows what killed a worker, so the first time charges nobody: it makes a suspect."""
        delivery.crashes += delivery.suspect
        self._log_end(delivery, End("ABANDONED", self.now))
        if delivery.suspect and delivery.is_used_up(handler):
            delivery.log.append(f"FAILED {delivery.attempts}")
            self._bury(delivery, "FAILED")
        else:
            delivery.state = Ready(rank)
        delivery.suspect = True

    # poll

    def poll(
        self,
        queue: str,
        worker: str,
        types: list[str] | None,
        most: int,
        lease: int,
        each: bool,
        given: list[Any],
        ticked: bool,
    ) -> None:
        """The engine has given these, and did or did not tick: was that right?

        Where there are ordering keys, it is only said what may be claimed, not that a poll finds it at once: the
        engine may look in the wrong place first. It finds it by and by: see the end of every program.
        """
        if queue in self.paused:
            assert (given, ticked) == ([], False), "a paused queue is left alone"
            return
        if ticked:
            claimable = self.claimable(queue, worker, types)
            assert not claimable or self.has_keys, "there was something to claim"
            self.tick()
        assert given or not self.is_due(), "a poll that finds nothing does what time has made due"
        chosen = [self.deliveries[queue, row.id] for row in given]
        self._check_choice(chosen, self.claimable(queue, worker, types), most)
        held = each or any(d.suspect or d.event.key for d in chosen)
        for delivery, row in zip(chosen, given, strict=True):
            self._claim(delivery, row, held=held)
            self.leases[row.lease] = Lease(queue, worker, self.now + lease, delivery.suspect)

    def claimable(self, queue: str, worker: str, types: list[str] | None) -> list[Delivery]:
        """What this worker could get: what is ready, of the types it asks for, of a key the first if none of it is in work, and a suspect only
        if it has none in work."""
        busy = any(
            self.leases[d.state.lease].until >= self.now
            for d in self._in(Claimed)
            if d.suspect and (d.queue, self.leases[d.state.lease].worker) == (queue, worker)
        )
        ready = [
            d
            for d in self._in(Ready)
            if d.queue == queue and d.event.type in (types or d.event.type)
        ]
        ready = [d for d in ready if self.room(d) > 0]
        return [d for d in ready if not (d.suspect and busy) and self._has_its_turn(d)]

    def room(self, delivery: Delivery) -> int:
        """How many like this one may start now."""
        its = (limit for limit in self.limits.get(delivery.queue, ()) if _is_of(delivery, limit))
        return min((self._room(delivery.queue, limit) for limit in its), default=1000)

    def _room(self, queue: str, limit: Limit) -> int:
        running = sum(d.queue == queue and _is_of(d, limit) for d in self._in(Claimed))
        free = 1000 if limit.at_once is None else limit.at_once - running
        return max(0, min(free, int(self._left(queue, limit))))

    def _left(self, queue: str, limit: Limit) -> Fraction:
        if limit.rate is None:
            return Fraction(1000)
        full = Fraction(limit.burst + 1)
        left, at = self._rates.get((queue, limit.type), (full, self.now))
        return min(full, left + Fraction((self.now - at) * limit.rate, 60))

    def _start(self, delivery: Delivery) -> None:
        for limit in self.limits.get(delivery.queue, ()):
            if limit.rate is not None and _is_of(delivery, limit):
                left = self._left(delivery.queue, limit) - 1
                self._rates[delivery.queue, limit.type] = left, self.now

    def _fits(self, calm: list[Delivery]) -> int:
        """How many of these may start now, together."""
        waiting = Counter(d.event.type for d in calm)
        rooms = {d.event.type: self.room(d) for d in calm}
        whole = min(
            (
                self._room(calm[0].queue, limit)
                for limit in (self.limits.get(calm[0].queue, ()) if calm else ())
                if limit.type is None
            ),
            default=1000,
        )
        return min(whole, sum(min(many, rooms[type]) for type, many in waiting.items()))

    def _has_its_turn(self, delivery: Delivery) -> bool:
        """Of an ordering key one at a time, and the lowest first. What is put off by its publisher joins the line when
        it is due; what waits for its retry keeps the others waiting."""
        if delivery.event.key is None:
            return True
        line = [
            other.id if isinstance(other.state, Ready) else 0
            for other in self.deliveries.values()
            if (other.queue, other.event.key) == (delivery.queue, delivery.event.key)
            and (isinstance(other.state, Ready) or is_in_work(other))
        ]
        return delivery.id == min(line)

    def _check_choice(self, chosen: list[Delivery], claimable: list[Delivery], most: int) -> None:
        assert set(chosen) <= set(claimable), "it was not to be claimed"
        assert len(set(chosen)) == len(chosen) <= most
        places = {delivery.id: delivery.place for delivery in claimable}
        calm = [d for d in claimable if not d.suspect and not d.event.key]
        suspects = [d for d in claimable if d.suspect and not d.event.key]
        first = min(suspects, key=lambda d: d.place, default=None)
        if any(d.suspect for d in chosen):
            assert len(chosen) == 1, "a suspect is claimed alone"
            assert chosen[0].event.key or chosen[0].place == first.place, "another was first"
            types = {(d.event.type, d.event.priority) for d in calm}
            # A poll that asks for less than there are types need not look at all of them.
            roughly = self.has_keys or most < len(types)
            assert not comes_before(calm, chosen[0], roughly=roughly), "its turn has not come"
        elif not self.has_keys:
            assert first is None or comes_before(calm, first), "it was the suspect's turn"
            assert len(chosen) == min(most, self._fits(calm)), "as many as there are and may start"
        for delivery in chosen:
            assert self.room(delivery) > 0, "its limit is reached"
            self._start(delivery)
            delivery.state = Claimed(0)
        left = [d for d in calm + suspects if d not in chosen and self.room(d) > 0]
        check_order(chosen, left, places)

    def _claim(self, delivery: Delivery, row: Any, *, held: bool) -> None:
        """The attempt is counted by the claim, before anybody has begun."""
        delivery.attempts += 1
        delivery.state = Claimed(row.lease)
        delivery.log.append(f"PICKED {delivery.attempts}")
        said = (row.attempt, row.type, row.priority, row.retry_count, row.crashes, row.max_retries)
        assert (*said, row.held) == (
            delivery.attempts,
            delivery.event.type,
            delivery.event.priority,
            delivery.failures,
            delivery.crashes,
            delivery.max_retries(),
            held,
        )

    # finish

    def finish_together(
        self, results: list[tuple[Claim, Finish]]
    ) -> Iterator[tuple[int, Finish, tuple[str, End | None]]]:
        """One call ends the claims that are held, then those whose end comes late, and answers the rest last."""
        left = dict(enumerate(results, 1))

        def ended(
            order: list[int], can_end: Callable[[Claim, Finish], bool]
        ) -> Iterator[tuple[int, Finish, tuple[str, End | None]]]:
            for item in order:
                claim, how = left[item]
                if can_end(claim, how):
                    del left[item]
                    yield item, how, self.finish(claim, how)

        yield from ended([*left], self._is_held)
        yield from ended(sorted(left, key=lambda item: left[item][0].event), self._is_late)
        yield from ended([*left], lambda *_: True)

    def finish(self, claim: Claim, how: Finish) -> tuple[str, End | None]:
        """Only the current attempt can be ended, and only once. Asked again, it answers the same again."""
        delivery = self.deliveries[claim.queue, claim.event]
        if self._is_held(claim, how):
            return "counted", self._end(delivery, how)
        if self._is_late(claim, how):
            delivery.suspect = delivery.crashes > 0
            delivery.crashes = max(0, delivery.crashes - 1)
            return "counted", self._end(delivery, how)
        end = delivery.ends.get(claim.attempt)
        if end is None or end.action in ("RESET", "CANCELLED"):
            return "lost", end
        if end.action == "ABANDONED" and how.action != "abandon":
            return "lost", end
        same = {
            "complete": ["COMPLETED"],
            "release": ["RELEASED" if how.delay is None else "SNOOZED"],
            "abandon": ["ABANDONED"],
            "fail": ["FAILED", "COMPLETED_WITH_ERRORS"],
        }[how.action]
        return ("repeated" if end.action in same else "conflict"), end

    def _is_held(self, claim: Claim, how: Finish) -> bool:
        delivery = self.deliveries[claim.queue, claim.event]
        return isinstance(delivery.state, Claimed) and claim.attempt == delivery.attempts

    def _is_late(self, claim: Claim, how: Finish) -> bool:
        """Its lease ran out, and nothing has happened to it since: its end still counts. What waits for its retry keeps the
        others of its key waiting, so it is too late for a failure once one of them is in work."""
        delivery = self.deliveries[claim.queue, claim.event]
        others = [
            other
            for other in self.deliveries.values()
            if other is not delivery
            and delivery.event.key
            and (other.queue, other.event.key) == (delivery.queue, delivery.event.key)
        ]
        return (
            how.action in ("complete", "fail")
            and delivery.is_abandoned
            and claim.attempt == delivery.attempts
            and not (how.action == "fail" and any(map(is_in_work, others)))
        )

    def _end(self, delivery: Delivery, how: Finish) -> End:
        match how.action:
            case "complete":
                delivery.state = Ended("COMPLETED")
                return self._log_end(delivery, End("COMPLETED", self.now))
            case "release" if how.delay is not None:
                due = self.now + how.delay
                delivery.state = Delayed(due, is_retry=True)
                return self._log_end(delivery, End("SNOOZED", self.now, due))
            case "release":
                due = self.now + self._release_delay(delivery)
                waits = Delayed(due, is_retry=True)
                delivery.state = waits if due > self.now else Ready(self._next_rank())
                return self._log_end(delivery, End("RELEASED", self.now))
            case "abandon":
                self._abandon(delivery, self._next_rank(), how.max_retries)
                return delivery.ends[delivery.attempts]
            case _:
                return self._fail(delivery, how)

    def _release_delay(self, delivery: Delivery) -> int:
        """The first release in a row comes back at once, the others later and later."""
        before, times = delivery.attempts - 1, 0
        while (end := delivery.ends.get(before - times)) and end.action == "RELEASED":
            times += 1
        return min(60, 2 ** (times - 1)) if times else 0

    def _fail(self, delivery: Delivery, how: Finish) -> End:
        delivery.failures += 1
        counts = delivery.failures, delivery.max_retries(how.max_retries)
        if how.reason is not None or delivery.is_used_up(how.max_retries):
            status = how.status or "FAILED"
            end = self._log_end(delivery, End(status, self.now, None, *counts))
            self._bury(delivery, status)
            return end
        due = self.now + (BACKOFF if how.retry_in is None else how.retry_in)
        retry = Delayed(due, is_retry=True)
        delivery.state = retry if due > self.now else Ready(self._next_rank())
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

    # administration: whether it was done; None: it is refused, because the delivery has ended otherwise; "held": because
    # another event has its unique key

    def cancel(self, delivery: Delivery) -> bool | None:
        if isinstance(delivery.state, Ended):
            return False if delivery.status == "CANCELLED" else None
        self._administer(delivery, "CANCELLED")
        delivery.state = Ended("CANCELLED")
        return True

    def reset(self, delivery: Delivery) -> bool | str | None:
        """Ready now, and the counters stay; what is ready because it was abandoned is fenced off; a dead letter is redriven."""
        match delivery.state:
            case Ready() if not delivery.is_abandoned:
                return False
            case Ended():
                return self.redrive(delivery) or None
            case _:
                self._administer(delivery, "RESET")
                delivery.state = Ready(self._next_rank())
                return True

    def redrive(self, delivery: Delivery) -> bool | str:
        """Attempts go on growing, what counts starts anew; but who has crashed workers is watched."""
        if delivery.status not in ("FAILED", "COMPLETED_WITH_ERRORS"):
            return False
        if self.holder(delivery.event, besides=delivery.id):
            return "held"
        self._administer(delivery, "REDRIVEN")
        delivery.suspect = delivery.crashes > 0
        delivery.failures = delivery.crashes = 0
        delivery.state = Ready(self._next_rank())
        return True

    def rerun(self, delivery: Delivery) -> bool | str | None:
        """A new drive; who has crashed workers is watched."""
        if delivery.status not in ("COMPLETED", "CANCELLED"):
            return None
        if self.holder(delivery.event, besides=delivery.id):
            return "held"
        self._administer(delivery, "RERUN")
        delivery.suspect = delivery.crashes > 0
        delivery.failures = delivery.crashes = 0
        delivery.state = Ready(self._next_rank())
        return True

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
            counts = d.queue, d.id, d.attempts, d.failures, d.crashes, d.suspect
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


def is_in_work(delivery: Delivery) -> bool:
    match delivery.state:
        case Claimed() | Delayed(is_retry=True):
            return True
        case _:
            return False


def comes_before(calm: list[Delivery], suspect: Delivery, *, roughly: bool = False) -> bool:
    """Whether something stands before a suspect; roughly: only what is more urgent counts."""
    if roughly:
        return any(d.event.priority < suspect.event.priority for d in calm)
    return any(d.place < suspect.place for d in calm)


def _is_of(delivery: Delivery, limit: Limit) -> bool:
    return limit.type in (None, delivery.event.type)


def check_order(
    chosen: list[Delivery], left: list[Delivery], places: dict[int, tuple[int, int]]
) -> None:
    """The most urgent first; of each type the oldest first; types share, in any way."""
    order = [places[d.id] for d in chosen if d.event.key is None]
    assert order == sorted(order)
    assert [d.event.priority for d in chosen] == sorted(d.event.priority for d in chosen)
    for passed_over in left:
        for delivery in chosen:
            if delivery.suspect == passed_over.suspect and not delivery.event.key:
                assert delivery.event.priority <= passed_over.event.priority, "it was more urgent"
                assert (
                    delivery.event.type != passed_over.event.type
                    or places[delivery.id] <= passed_over.place
                ), "it was older"

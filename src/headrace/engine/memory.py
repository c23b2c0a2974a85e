"""The memory of a client between calls: where to look, when to tick, which claims it holds.

All of it may be lost or stale without harm; the database decides.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import is_

from headrace.model import AnyClaim, Claim, Claimed

Clock = Callable[[], float]

SWEEP_EVERY = 1.0
SWEEP_SHARE = (
    128  # a sweep is repeated after 128 times as long as it took: one event in 128 waits for it
)
DEAR_SWEEP = 0.005  # seconds beyond a poll with hints; a cheaper one is always worth a look
PRICED_BY = 5  # sweeps in a row: fewer dear ones are hiccups
FILTERS = 100  # filters, at most, for which hints are kept

TICK_EVERY = 1.0
TICK_WHOLE_EVERY = 60.0
TICK_OVERLAP = timedelta(seconds=10)

KEEP_CLAIM = 3.0  # times its lease, from the claim or from the last heartbeat
PRUNE_EVERY = 10.0
ENDED = 5_000  # claims that are remembered after their end, at least


@dataclass
class Hints:
    """Where the next poll with one filter looks, and whether it looks at everything: sweeps.

    A poll with hints is cheap but blind to what is new elsewhere. So an empty one is followed by a
    sweep at once, and one is due from time to time anyway. Only where sweeps have become dear
    (while a transaction holds a snapshot there are ever more dead entries to walk over) and find
    nothing, they are rationed.
    """

    text: str | None = None
    look_in: float | None = None
    """What the last poll told, see Polled."""
    _swept_at: float = 0.0
    _found: bool = True
    _plain: float = 0.0
    _prices: deque[float] = field(default_factory=lambda: deque([0.0] * PRICED_BY, PRICED_BY))

    def is_sweep_due(self, now: float) -> bool:
        pause = max(SWEEP_EVERY, SWEEP_SHARE * self._price)
        return self.text is None or now >= self._swept_at + pause

    def is_sweep_worthwhile(self, now: float) -> bool:
        """Whether to sweep after a poll with hints has found nothing."""
        rationed = self._price > DEAR_SWEEP and not self._found
        return not rationed or now >= self._swept_at + SWEEP_SHARE * self._price

    def polled(self, took: float) -> None:
        """With hints: the way to the database and back costs every poll the same."""
        self._plain = took

    def swept(self, now: float, took: float, found: bool) -> None:
        self._swept_at, self._found = now, found
        self._prices.append(max(took - self._plain, 0.0))

    @property
    def _price(self) -> float:
        return min(self._prices)


@dataclass
class Ticks:
    """When a client that polls ticks too: every second, and once a minute without a bound."""

    clock: Clock = time.monotonic
    is_failing: bool = False
    _next_at: float = 0.0
    _whole_at: float = 0.0
    _since: datetime | None = None

    def take_turn(self) -> bool:
        now = self.clock()
        if now < self._next_at:
            return False
        self._next_at = now + TICK_EVERY
        if now >= self._whole_at:
            self._whole_at, self._since = now + TICK_WHOLE_EVERY, None
        return True

    @property
    def since(self) -> datetime | None:
        return self._since

    def ticked(self, at: datetime) -> None:
        self._since, self.is_failing = at - TICK_OVERLAP, False


@dataclass(slots=True)
class _Lease:
    until: float  # its claims are remembered
    open: dict[int, Claimed]
    size: int
    lasts: float


@dataclass
class Claims:
    """The claims of this client by event, for callers that name an event and mean their claim."""

    clock: Clock = time.monotonic
    _leases: dict[int, _Lease] = field(default_factory=dict)
    _ended: dict[int, int] = field(default_factory=dict)  # the attempt, in two generations
    _ended_before: dict[int, int] = field(default_factory=dict)
    _prune_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def opened(self, claimed: Sequence[Claimed], lease: float) -> None:
        now = self.clock()
        with self._lock:
            if now >= self._prune_at:
                self._prune(now)
            if claimed:
                until = now + KEEP_CLAIM * lease
                opened = {one.id: one for one in claimed}
                self._leases[claimed[0].lease] = _Lease(until, opened, len(opened), lease)

    def extended(self, leases: Iterable[int], lease: float | None) -> None:
        """None: for as long as they were claimed for."""
        now = self.clock()
        with self._lock:
            for known in filter(None, map(self._leases.get, leases)):
                known.until = now + KEEP_CLAIM * (known.lasts if lease is None else lease)

    def whole(self, claims: Sequence[AnyClaim]) -> int | None:
        """The lease of a batch, if these are all that it covers: the very claims, in their
        order."""
        lease = claims[0].lease if claims and not claims[0].held else None
        if lease is None:
            return None
        with self._lock:
            known = self._leases.get(lease)
            if known is None or not len(claims) == len(known.open) == known.size:
                return None
            return lease if all(map(is_, known.open.values(), claims)) else None

    def ended_whole(self, lease: int) -> None:
        with self._lock:
            known = self._leases.pop(lease, None)
            if known is not None:
                self._note_ended({one.id: one.attempt for one in known.open.values()})

    def ended(self, claims: Sequence[AnyClaim]) -> None:
        attempts = {claim.id: claim.attempt for claim in claims}
        with self._lock:
            if not self._ended_together(claims, attempts):
                for claim in claims:
                    self._end(claim)
            self._note_ended(attempts)

    def of(self, event: int) -> AnyClaim | None:
        """The claim that is open, or else the last one that this client ended."""
        with self._lock:
            leases = reversed(self._leases.values())
            mine = next((known.open[event] for known in leases if event in known.open), None)
            ended = self._ended.get(event) or self._ended_before.get(event) or 0
            if mine is not None and mine.attempt > ended:
                return mine
            return Claim(event, ended) if ended else None

    def _note_ended(self, attempts: dict[int, int]) -> None:
        self._ended |= attempts
        if len(self._ended) > ENDED:
            self._ended_before, self._ended = self._ended, {}

    def _ended_together(self, claims: Sequence[AnyClaim], attempts: dict[int, int]) -> bool:
        """The common case, a whole lease at once, needs no look at its members."""
        lease = claims[0].lease if claims else None
        known = None if lease is None else self._leases.get(lease)
        if known is None or known.open.keys() != attempts.keys():
            return False
        if {claim.lease for claim in claims} != {lease}:
            return False
        del self._leases[claims[0].lease]  # type: ignore[arg-type]
        return True

    def _end(self, claim: AnyClaim) -> None:
        for lease in list(self._leases) if claim.lease is None else [claim.lease]:
            known = self._leases.get(lease)
            if known is None or claim.id not in known.open:
                continue
            if known.open[claim.id].attempt <= claim.attempt:
                del known.open[claim.id]
            if not known.open:
                del self._leases[lease]

    def _prune(self, now: float) -> None:
        self._prune_at = now + PRUNE_EVERY
        self._leases = {k: v for k, v in self._leases.items() if v.until >= now}


class Memory:
    """All that one client remembers."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.ticks = Ticks(clock)
        self.claims = Claims(clock)
        self._hints: dict[Hashable, Hints] = {}

    def hints(self, types: list[str] | None, tags: list[str] | None, all_tags: bool) -> Hints:
        key = (
            None if types is None else tuple(types),
            None if tags is None else tuple(tags),
            all_tags,
        )
        known = self._hints.get(key)
        if known is None:
            if len(self._hints) >= FILTERS:
                self._hints.clear()
            known = self._hints[key] = Hints()
        return known

"""Reports the ends of attempts to the database: many in one statement, while handlers run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple, TypeAlias, TypeVar

import psycopg
from msgspec.structs import replace

from headrace.driver.patience import Outage, Patience
from headrace.engine.verdicts import COMPLETED
from headrace.errors import NamespaceNotFound, QueueNotFound
from headrace.model import AnyClaim, Claimed, Completed, CutOff, Failed, Result, Verdict
from headrace.node.finish.report import report
from headrace.node.health.tally import Tally
from headrace.node.runner import NodeRunner

logger = logging.getLogger("headrace.node")

T = TypeVar("T")

LINGER = 0.01  # seconds that an end waits for the rest of its lease
TOGETHER = 1000  # results in a statement
MOST_UNTOLD = 5000  # ended events that are not reported yet: above this, the node claims none
TOO_MUCH = "54"  # how SQLSTATEs begin that say: not again

LOST = Verdict("lost")
_lease_of = attrgetter("lease")


class Lease:
    """Events that were claimed together, and the results of them that are not reported yet."""

    __slots__ = ("alike", "id", "left", "ms", "others", "ripe_at", "size", "taken", "token")

    def __init__(self, id: int, token: str | None) -> None:
        self.id = id
        self.token = token
        self.size = self.left = 0
        self.alike: list[Claimed] = []  # completed, in `ms` milliseconds each
        self.ms: int | None = None
        self.others: list[Result] = []
        self.taken: set[int] | None = None
        """Events that were taken out of it, and which no end counts for any more."""
        self.ripe_at = 0.0

    @property
    def is_alike(self) -> bool:
        """Whether all that it covers was completed in the same time, and it is several."""
        return len(self.alike) == self.size > 1

    def has(self, claimed: AnyClaim) -> bool:
        return self.taken is None or claimed.id not in self.taken

    def lose(self, id: int) -> bool:
        """An event was taken out. False: that was known."""
        if self.taken is None:
            self.taken = set()
        is_new = id not in self.taken
        self.taken.add(id)
        return is_new

    def take(self) -> list[Result]:
        results = [*(Completed(claimed, self.ms) for claimed in self.alike), *self.others]
        self.alike, self.others = [], []
        return results


class Settled(NamedTuple):
    """It has ended by other means than ours: in a transaction of its handler's."""

    result: Result
    counted: bool = True


Ended: TypeAlias = Result | Settled


class Finisher:
    """Results come in one by one; the database gets them by leases.

    A lease that has ended as a whole is ended by its number, which costs a fraction of naming its
    members. So results wait a moment for the rest of their lease. Used from the event loop alone.
    """

    def __init__(
        self,
        engine: NodeRunner,
        outage: Outage,
        tally: Tally,
        drop: Callable[[int], None],
        look_again: Callable[[], None],
        *,
        collects: bool = False,
    ) -> None:
        self._engine = engine
        self._outage = outage
        self._tally = tally
        self._drop = drop
        self._look_again = look_again
        self._collects = collects
        self._open: dict[int, Lease] = {}
        self._whole: list[Lease] = []
        self._partial: dict[int, Lease] = {}
        self._wake = asyncio.Event()
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._gave_up = asyncio.Event()
        self._call_when_caught_up: list[Callable[[], None]] = []

    def opened(self, claims: Sequence[Claimed]) -> list[Lease]:
        """Take note of what was claimed; under which leases."""
        leases = []
        for id, size in Counter(map(_lease_of, claims)).items():
            token = next(one.lease_token for one in claims if one.lease == id)
            lease = self._open.setdefault(id, Lease(id, token))
            lease.size += size
            lease.left += size
            leases.append(lease)
        return leases

    def complete(self, claimed: Claimed, ms: int | None) -> None:
        """End an attempt as most do, soon."""
        lease = self._open.get(claimed.lease)
        if lease is None or not (lease.taken is None or lease.has(claimed)):
            return  # it was lost
        if lease.alike and lease.ms != ms:
            lease.others.append(Completed(claimed, ms))
        else:
            lease.ms = ms
            lease.alike.append(claimed)
        self._one_more(lease)

    def end(self, result: Result) -> None:
        """End an attempt, soon."""
        if type(result) is Completed and result.status_code is None:
            self.complete(result.claimed, result.execution_time_ms)  # type: ignore[arg-type]
        elif (lease := self._open.get(result.claimed.lease or 0)) is not None and lease.has(
            result.claimed
        ):
            lease.others.append(self._labelled(result))
            self._one_more(lease)

    def _labelled(self, result: Result) -> Result:
        """Under dispatch="collect" a dead event is called COMPLETED_WITH_ERRORS, whichever of its
        handlers failed."""
        if self._collects and isinstance(result, Failed | CutOff):
            return replace(result, status="COMPLETED_WITH_ERRORS")
        return result

    def _one_more(self, lease: Lease) -> None:
        ended = len(lease.alike) + len(lease.others)
        if ended == lease.left:
            self._partial.pop(lease.id, None)
            self._whole.append(lease)
            self._wake.set()
        elif ended == 1:
            lease.ripe_at = time.monotonic() + LINGER
            self._partial[lease.id] = lease
            self._wake.set()

    def end_all(self, results: Iterable[Ended]) -> None:
        for result in results:
            if type(result) is Settled:
                self._settle(result)
            else:
                self.end(result)  # type: ignore[arg-type]

    def _settle(self, settled: Settled) -> None:
        self._tally.ended(settled.result, COMPLETED if settled.counted else LOST)
        lease = self._open.get(settled.result.claimed.lease or 0)
        if lease is not None and (settled.counted or lease.lose(settled.result.claimed.id)):
            self._ended(lease.id, 1)
        if may_be_suspect(settled.result.claimed):
            self._look_again()

    def lost(self, lease: int) -> bool:
        """Forget a lease that was lost; returns whether any of its events had not ended."""
        self._partial.pop(lease, None)
        return self._open.pop(lease, None) is not None

    def taken(self, lease_id: int, ids: Iterable[int]) -> list[int]:
        """Forget events that were taken out of a lease; returns those that were not known to be.
        The others of the lease go on."""
        lease = self._open.get(lease_id)
        if lease is None:
            return []
        fresh = [id for id in ids if lease.lose(id)]
        lease.alike = [claimed for claimed in lease.alike if lease.has(claimed)]
        lease.others = [result for result in lease.others if lease.has(result.claimed)]
        self._ended(lease_id, len(fresh))
        waiting = len(lease.alike) + len(lease.others)
        if waiting in (0, lease.left):  # of what is left, all has ended, or nothing
            self._partial.pop(lease_id, None)
            if waiting:
                self._whole.append(lease)
                self._wake.set()
        return fresh

    def holds(self, claimed: Claimed) -> bool:
        """Whether its lease is not lost, and it was not taken out. May be called by any thread."""
        lease = self._open.get(claimed.lease)
        return lease is not None and lease.has(claimed)

    @property
    def leases(self) -> int:
        return len(self._open)

    @property
    def is_behind(self) -> bool:
        """Whether the node must claim nothing: ended events would pile up in its memory."""
        return sum(lease.size for lease in self._whole) > MOST_UNTOLD

    def when_caught_up(self, call: Callable[[], None]) -> None:
        """Call it once, as soon as the finisher is not behind any more."""
        self._call_when_caught_up.append(call)

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            await self._wake.wait()
            self._at_rest.clear()
            if not self._whole:
                await self._wait_for_more()
            self._wake.clear()
            await self._tell(self._take())
            if self._partial:
                self._wake.set()
            self._at_rest.set()

    async def flush(self) -> None:
        """Wait until all ends so far are reported."""
        while self._whole or self._partial or not self._at_rest.is_set():
            for lease in self._partial.values():
                lease.ripe_at = 0.0
            self._wake.set()
            await asyncio.sleep(0)
            await self._at_rest.wait()

    def untold(self) -> list[Result]:
        """The results that are not reported yet, for another thread that reports them while the
        loop is blocked."""
        leases = list(self._open.values())
        return [
            result
            for lease in leases
            for result in (*(Completed(one, lease.ms) for one in lease.alike), *lease.others)
        ]

    def give_up(self) -> None:
        """Wait no longer for a database that does not answer: leases run out by themselves."""
        self._gave_up.set()

    async def _wait_for_more(self) -> None:
        ripe_at = min((lease.ripe_at for lease in self._partial.values()), default=0.0)
        pause = ripe_at - time.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)

    def _take(self) -> list[Lease]:
        """Whole leases, and what has waited long enough for the rest of its lease."""
        taken, self._whole = self._whole, []
        calls, self._call_when_caught_up = self._call_when_caught_up, []
        for call in calls:
            call()
        now = time.monotonic()
        for lease in [one for one in self._partial.values() if one.ripe_at <= now]:
            del self._partial[lease.id]
            taken.append(lease)
        return taken

    async def _tell(self, leases: list[Lease]) -> None:
        rest: list[Result] = []
        for lease in leases:
            if lease.id not in self._open:
                lease.take()
            elif not (lease.is_alike and await self._complete_whole(lease)):
                rest += lease.take()
        for start in range(0, len(rest), TOGETHER):
            await self._finish(rest[start : start + TOGETHER])

    async def _complete_whole(self, lease: Lease) -> bool:
        claims, size, ms = lease.alike, lease.size, lease.ms
        try:
            done = await self.insist(
                lambda: self._engine.complete_lease(lease.id, size, ms, lease.token)
            )
        except Exception:  # then one by one
            return False
        if done:
            lease.take()
            self._tally.completed(claims, ms)
            self._ended(lease.id, size)
        return done

    async def _finish(self, results: list[Result]) -> None:
        try:
            verdicts = await self.insist(lambda: self._engine.finish(results))
        except (NamespaceNotFound, QueueNotFound):  # deleted, with all that was in it
            verdicts = [LOST] * len(results)
        except Exception as error:
            if len(results) > 1:  # one of them is refused, and must not hold up the rest
                for result in results:
                    await self._finish([result])
            else:
                logger.error(
                    "event %s will be retried: PostgreSQL refused its end, %s",
                    results[0].claimed.id,
                    error,
                )
                self._lost_by_itself(results[0].claimed)
            return
        self.judged(results, verdicts)

    def judged(self, results: list[Result], verdicts: list[Verdict]) -> None:
        """These have ended in the database."""
        refused = []
        ended: Counter[int | None] = Counter()
        for result, verdict in zip(results, verdicts, strict=True):
            claimed = result.claimed
            self._tally.ended(result, verdict)
            report(result, verdict)
            if verdict.verdict == "lost":  # which the node may have been told of meanwhile
                refused += [claimed.id] * self._lost_by_itself(claimed)
            else:
                ended[claimed.lease] += 1
                refused += [claimed.id] * (verdict.verdict == "conflict")
        for lease, count in ended.items():
            self._ended(lease, count)
        if any(may_be_suspect(result.claimed) for result in results):
            self._look_again()
        if refused:
            logger.warning(
                "too late to end %d events: their leases were lost: %s", len(refused), refused[:10]
            )

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Try until PostgreSQL answers: results are not forgotten because of a lost connection."""
        patience = Patience(self._outage)
        while True:
            try:
                answer = await call()
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if self._gave_up.is_set() or (error.sqlstate or "").startswith(TOO_MUCH):
                    raise
                await patience.wait(error, self._gave_up)
            else:
                patience.worked()
                return answer

    def _lost_by_itself(self, claimed: AnyClaim) -> bool:
        """An event of a lease is lost, and the others go on. False: that was known."""
        lease = self._open.get(claimed.lease or 0)
        if lease is None:
            return True
        is_new = lease.lose(claimed.id)
        self._ended(lease.id, is_new)
        return is_new

    def _ended(self, lease: int | None, count: int) -> None:
        known = self._open.get(lease or 0)
        if known is None:
            return
        known.left -= count
        if known.left <= 0:
            del self._open[known.id]
            with suppress(Exception):
                self._drop(known.id)


def may_be_suspect(claimed: AnyClaim) -> bool:
    """A worker gets one suspect at a time, so the next one may be free when this one has ended."""
    return isinstance(claimed, Claimed) and claimed.held and claimed.attempt > 1

"""Keeps the leases of a node, and its registration, from a thread and a connection of their own.

So renewals go on while a handler blocks the event loop, or while all connections of a pool are in
use. The keeper reports lost leases, and events that were taken out of a lease. It retries calls that fail, because an expired lease is still
the node's until another worker takes it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any
from uuid import uuid4

import psycopg

from headrace.driver.connect import usable
from headrace.driver.patience import Outage
from headrace.engine import finish, leases
from headrace.errors import HeadraceError, NamespaceNotFound, QueueNotFound, Unavailable
from headrace.model import Extended, Result, Verdict
from headrace.model.pauses import Pauses
from headrace.node.lease.bounded_session import BoundedSession
from headrace.node.lease.loop_watch import LoopWatch
from headrace.node.lease.registration import Registration, RegistrationKeeper

CHUNK = 1_000  # leases in one statement
HEED_EVERY = 0.05  # seconds between two early heartbeats: any session can send hints
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds until what did not work is tried again

logger = logging.getLogger("headrace")


class LeaseKeeper:
    """Renews the leases that it holds, at a third of a lease's length. Its thread calls `on_lost`
    with a lease that was taken away; also with one whose deliveries have all just ended, if it was
    not dropped yet. And `on_taken` with a lease, and the events that were taken out of it with what
    was done to them; with the same ones again at each heartbeat.

    While the loop is blocked it also reports the results that `overdue` returns, and then calls
    `told` with their verdicts.
    """

    def __init__(
        self,
        dsn: str,
        namespace: str,
        queue: str,
        lease: float,
        outage: Outage,
        *,
        prepare: bool = True,
        on_lost: Callable[[int], None],
        on_taken: Callable[[int, Mapping[int, str]], None] = lambda lease, taken: None,
        overdue: Callable[[], list[Result]] = list,
        told: Callable[[list[Result], list[Verdict]], None] = lambda results, verdicts: None,
    ) -> None:
        self.instance = str(uuid4())
        """This start of the node, by which its claims are known."""
        bound = min(10.0, max(0.5, lease / 6))
        self._session = BoundedSession(usable(dsn), prepare, bound, self.instance)
        self._soon = min(1.0, lease / 12)
        self._namespace = namespace
        self._queue = queue
        self._lease = lease
        self._outage = outage
        self._on_lost = on_lost
        self._on_taken = on_taken
        self.queue_is_gone = False
        """The queue was deleted: that is why leases are lost."""
        self._overdue = overdue
        self._told = told
        self._untold: list[Result] = []
        self._all_told = threading.Event()
        self._all_told.set()
        self._held: dict[int, float] = {}
        self._tokens: dict[int, str | None] = {}
        self._hinted: set[int] = set()
        self._heed_at = 0.0
        self._lock = threading.Lock()
        self._registration = RegistrationKeeper(namespace, self._session, self.instance)
        self._watch: LoopWatch | None = None
        self._look_at = math.inf
        self._renew_at = math.inf
        self._retry_at = 0.0
        self._failures = 0
        self._pauses = Pauses(FIRST_PAUSE, min(LONGEST_PAUSE, lease / 12), at_once=True)
        self._closing = False
        self._poked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace leases", daemon=True)

    def start(self) -> None:
        self._renew_at = time.monotonic() + self._lease / 3
        self._thread.start()

    def close(self, timeout: float = 5.0) -> None:
        """Unregister and stop; leases that are still held are not renewed any more. Waits for that
        for a time, and only once: a server that did not answer then will not answer now."""
        if self._closing:
            return
        self._closing = True
        self._poked.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def hold(self, lease_id: int, since: float | None = None, *, token: str | None = None) -> None:
        """Renew the lease from now on. `since`: when it was claimed, by the monotonic clock.
        `token`: the lease's."""
        now = time.monotonic()
        with self._lock:
            self._held[lease_id] = now if since is None else since
            self._tokens[lease_id] = token
        if since is not None and now - since > self._lease / 3:  # it took long to come here
            self._renew_at = now
            self._poked.set()

    def drop(self, lease_id: int) -> None:
        with self._lock:
            self._held.pop(lease_id, None)
            self._tokens.pop(lease_id, None)

    def hint(self, lease_id: int | None) -> None:
        """Something may have been taken out of this lease, or, None, out of any: ask soon."""
        with self._lock:
            is_first = not self._hinted  # a flood of hints must not keep the thread awake
            if lease_id is None:
                self._hinted.update(self._held)
            elif lease_id in self._held:
                self._hinted.add(lease_id)
        if is_first and self._hinted:
            self._poked.set()

    def renewed_at(self, lease_id: int) -> float:
        """When the last successful renewal was sent, by the monotonic clock: the lease lasts from
        then, at least. Minus infinity: it is not held."""
        return self._held.get(lease_id, -math.inf)

    @property
    def holding(self) -> int:
        """How many leases it holds."""
        return len(self._held)

    @property
    def working(self) -> bool:
        """Whether PostgreSQL has answered when it was last asked."""
        return self._failures == 0

    @property
    def lag(self) -> float:
        """Seconds that the watched loop took to answer last time, or has not answered for."""
        return 0.0 if self._watch is None else self._watch.lag

    def register(self, node: Registration) -> Future[str]:
        """Register the node as soon as possible, or again if it was registered. The result is its
        id as it is stored, or an error that says what is wrong with it; while PostgreSQL is down,
        neither comes."""
        registered = self._registration.want(node)
        self._poked.set()
        return registered

    def watch_loop(self, loop: AbstractEventLoop, patience: float | None = None) -> None:
        """Warn when a loop does not answer for some seconds, and say what it is doing."""
        if patience is None:
            patience = min(5.0, max(1.0, self._lease / 3))
        self._watch = LoopWatch(loop, patience)
        self._look_at = 0.0
        self._poked.set()

    def _run(self) -> None:
        while not self._closing:
            self._poked.clear()
            self._look()
            self._tend()
            due_at = max(self._retry_at, self._next_at)
            self._poked.wait(max(0.0, min(due_at, self._look_at) - time.monotonic()))
        self._say_goodbye()

    @property
    def _next_at(self) -> float:
        """When there is something to do next in the database."""
        if self._untold:
            return 0.0
        heed_at = self._heed_at if self._hinted else math.inf
        return min(self._renew_at, self._registration.due_at, heed_at)

    def _look(self) -> None:
        watch = self._watch
        if watch is not None and self._look_at <= time.monotonic():
            self._look_at = time.monotonic() + watch.look()
            self._tell_soon(self._overdue())

    def _tend(self) -> None:
        """Do what is due in the database. A failure is logged once, and retried."""
        if time.monotonic() < self._retry_at:
            return
        try:
            if self._failures:
                self._session.open()
            self._tell()
            self._heed()
            self._renew()
            self._registration.tend()
        except Exception as error:
            self._session.close()
            self._failed(error)
        else:
            self._went_well()

    def _failed(self, error: Exception) -> None:
        ordinary = isinstance(error, psycopg.Error | OSError | HeadraceError)
        if not ordinary and not self._failures:
            logger.warning("leases cannot be renewed for now: %s", error, exc_info=error)
        self._failures += 1
        if self._failures > 1:  # else a new connection may do
            self._outage.began(self, error)
        self._retry_at = time.monotonic() + self._pauses.next()

    def _went_well(self) -> None:
        if self._failures:
            self._outage.ended(self)
        self._failures = 0
        self._pauses.reset()

    def _heed(self) -> None:
        """Renew the leases that hints are about, to learn what was taken out of them."""
        if not self._hinted or time.monotonic() < self._heed_at:
            return
        with self._lock:
            hinted, self._hinted = self._hinted, set()
            asked = [lease_id for lease_id in hinted if lease_id in self._held]
        self._heed_at = time.monotonic() + HEED_EVERY
        try:
            for at in range(0, len(asked), CHUNK):
                self._renew_some(asked[at : at + CHUNK])
        except BaseException:
            with self._lock:
                self._hinted.update(asked)
            raise

    def _renew(self) -> None:
        """Renew all but the youngest, which can wait for the next time."""
        now = time.monotonic()
        if now < self._renew_at:
            return
        with self._lock:
            held = list(self._held.items())
        old = [lease_id for lease_id, since in held if now - since >= self._lease / 6]
        busy = [self._renew_some(old[at : at + CHUNK]) for at in range(0, len(old), CHUNK)]
        self._renew_at = now + (self._soon if any(busy) else self._lease / 3)

    def _renew_some(self, leases: list[int]) -> bool:
        """Whether some of them were busy, and must be asked for again."""
        asked_at = time.monotonic()
        answers = self._extend(leases)
        for lease_id, answer in answers.items():
            if answer.taken:
                self._report(self._on_taken, lease_id, answer.taken)
            if answer.state == "held":
                with self._lock:
                    if lease_id in self._held:
                        self._held[lease_id] = asked_at
            elif answer.state == "lost":
                self._lose(lease_id)
        return any(answer.state == "busy" for answer in answers.values())

    def tell(self, results: list[Result]) -> Callable[[float], bool]:
        """Report soon how attempts have ended, in place of an event loop that is blocked. Returns a
        function that waits for that for some seconds, and returns whether it was done."""
        self._tell_soon(results)
        self._poked.set()
        return self._all_told.wait

    def _tell_soon(self, results: list[Result]) -> None:
        if results:
            with self._lock:
                self._untold += results
                self._all_told.clear()

    def _tell(self) -> None:
        with self._lock:
            results = self._untold
        if not results:
            return
        try:
            for start in range(0, len(results), CHUNK):
                some = results[start : start + CHUNK]
                ending = finish.finish(self._namespace, self._queue, some)
                self._told(some, self._session.ask(ending))
        except Unavailable:  # they are reported when PostgreSQL answers again
            raise
        except HeadraceError as error:  # the queue was deleted, with all that was in it
            logger.warning("the ends of events could not be reported: %s", error)
        with self._lock:
            self._untold = self._untold[len(results) :]
            if not self._untold:
                self._all_told.set()

    def _extend(self, ids: list[int]) -> dict[int, Extended]:
        tokens = {lease: self._tokens.get(lease) for lease in ids}
        try:
            extended = self._session.ask(
                leases.extend(self._namespace, self._queue, tokens, self._lease)
            )
            self.queue_is_gone = False
            return extended
        except (NamespaceNotFound, QueueNotFound):  # deleted, with all that was in it
            self.queue_is_gone = True
            return dict.fromkeys(ids, Extended("lost", None))

    def _lose(self, lease_id: int) -> None:
        with self._lock:
            self._tokens.pop(lease_id, None)
            if self._held.pop(lease_id, None) is None:
                return  # it was dropped meanwhile: all is well
        self._report(self._on_lost, lease_id)

    def _report(self, call: Callable[..., None], lease_id: int, *arguments: Any) -> None:
        try:
            call(lease_id, *arguments)
        except Exception:
            logger.exception("the lease %s is lost, and the node could not be informed", lease_id)

    def _say_goodbye(self) -> None:
        try:
            if not self._failures:
                self._registration.leave()
        except Exception as error:
            logger.info("the node could not unregister: %s", error)
        finally:
            self._registration.give_up()
            self._session.close()

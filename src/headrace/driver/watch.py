"""How a consumer waits for work in a queue: woken by publishers, or by the clock."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from typing import Protocol

# Seconds after a queue's sleep began. A transaction that looked for sleepers before it, and commits
# after the watch's poll, notifies nobody: its events then wait ten times as long as its commit
# took, at most, and no longer than until the idle poll.
LOOKS = (0.005, 0.05, 0.5, 5.0, 50.0)
# After a wake-up without work (another worker was faster) the next one is heeded at once, for the
# first few in a row. Then the watch pauses before it heeds the next: for so many seconds at first,
# twice as long each time, and no longer than the idle poll.
SPARED, SHORTEST = 5, 0.01
# A channel with more notifications than this in a second is not listened to for a while: reading
# them costs time, too.
FLOOD, CALM = 5000, 10.0
# Transactions that notify commit one by one. Where so many of those that wake a queue, within so
# many seconds, met another one, and there is work, the queue stays awake until it had no work for a
# moment: its watches look after a nap, twice as long as the one before while they find nothing.
CROWD = "crowd"
CROWDED, WINDOW = 3, 0.1
MOMENT, NAP, LONGEST_NAP = 0.05, 0.005, 0.02

logger = logging.getLogger("headrace")

Key = tuple[str, str]
"""A namespace, and a queue of it."""


class Sleeps(Protocol):
    """What is slept on, as a watch sees it."""

    async def arm(self, key: Key, watch: Watch) -> None: ...
    def disarm(self, key: Key, watch: Watch) -> None: ...
    def subscription(self, key: Key) -> Subscription | None: ...
    def try_again(self, key: Key) -> None: ...


class Watch:
    """A consumer's wait for work in a queue. The consumer arms it, polls once more, waits, and
    disarms it when it has work.

    Any session can notify. So wake-ups without work come more and more seldom, in the end as
    seldom as the polls of a consumer that is never woken: see `found`.
    """

    def __init__(self, sleeps: Sleeps, key: Key) -> None:
        self._sleeps = sleeps
        self._key = key
        self._woken = asyncio.Event()
        self._urgent = asyncio.Event()
        self._in_vain = 0  # wake-ups since something was last found
        self._looked_at = -math.inf
        self._nap = NAP

    async def arm(self) -> None:
        """Once this returns, notifications wake the consumer, if wake-ups work; a poll finds the
        events that came before."""
        self._woken.clear()
        self._urgent.clear()
        await self._sleeps.arm(self._key, self)
        self._looked_at = now()

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109
        """Whether a notification came, since the watch was armed or last woken; else the time is
        up, or publishers may have notified nobody. The consumer polls then, in any case."""
        self._sleeps.try_again(self._key)
        until = min(now() + timeout, look := self._next_look())
        try:
            async with asyncio.timeout_at(until):
                await self._woken.wait()
                await self._pause()
                self._in_vain += not self._urgent.is_set()
                return True
        except TimeoutError:
            if not self._woken.is_set() and until < look:  # a quiet time
                self._in_vain = 0
            return False
        finally:
            self._woken.clear()
            self._urgent.clear()
            self._looked_at = now()

    def _next_look(self) -> float:
        """When to poll though no notification came."""
        subscription = self._sleeps.subscription(self._key)
        if subscription is None:
            return math.inf
        if subscription.is_awake:
            nap, self._nap = self._nap, min(2 * self._nap, LONGEST_NAP)
            return now() + nap
        began = subscription.asleep_since
        return min((at for one in LOOKS if (at := began + one) > self._looked_at), default=math.inf)

    async def _pause(self) -> None:
        """Leave a notification unheeded for a while, if those before it were in vain."""
        if self._in_vain < SPARED:
            return
        until = self._looked_at + SHORTEST * 2.0 ** min(self._in_vain - SPARED, 30)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._urgent.wait()

    def found(self) -> None:
        """There was work: the next notification is heeded at once."""
        self._in_vain = 0
        self._nap = NAP
        subscription = self._sleeps.subscription(self._key)
        if subscription is not None:
            subscription.found(now())

    def disarm(self) -> None:
        """The consumer does not wait any more. Publishers learn that a little later: it may be
        back at once."""
        self._sleeps.disarm(self._key, self)

    def wake(self) -> None:
        """At once."""
        self._urgent.set()
        self._woken.set()

    def notified(self) -> None:
        self._woken.set()


class Subscription:
    """A queue that is slept on."""

    def __init__(self) -> None:
        self.watches: set[Watch] = set()
        self.channel: str | None = None  # None: publishers do not know
        self.asleep_since = -math.inf  # publishers know
        self.is_awake = False  # its watches nap, because publishers would wait for each other
        self.empty_since = 0.0
        self.left_until = -math.inf  # it is not made before
        self.settled = asyncio.Event()  # subscribed, or refused: no caller need wait for it
        self._heard, self._heard_since = 0, -math.inf
        self._met, self._met_since = 0, -math.inf
        self._found_at = -math.inf

    def falls_asleep(self, channel: str) -> None:
        self.channel = channel
        self.asleep_since = now()
        self.is_awake = False

    def is_lost(self) -> None:
        """With the connection."""
        self.channel = None
        self.is_awake = False
        self.settled.set()

    def wake(self) -> None:
        for watch in self.watches:
            watch.notified()

    def is_flooded(self, now: float) -> bool:
        """Whether the notification that has just come is one too many."""
        if now > self._heard_since + 1:
            self._heard, self._heard_since = 0, now
        self._heard += 1
        if self._heard != FLOOD:
            return False
        self.left_until = now + CALM
        logger.warning(
            "more than %d notifications a second come on %s: consumers poll for work for "
            "%.0f seconds",
            FLOOD,
            self.channel,
            CALM,
        )
        return True

    def gets_up(self, payload: str, now: float) -> bool:
        """Whether the notification that has just come is the one after which the queue is awake."""
        if now > self._met_since + WINDOW:
            self._met, self._met_since = 0, now
        self._met += payload == CROWD
        if self.is_awake or self._met < CROWDED or self._found_at < self._met_since:
            return False
        self.is_awake = True
        self.left_until = now + MOMENT
        return True

    def found(self, now: float) -> None:
        self._found_at = now
        if self.is_awake:
            self.left_until = now + MOMENT


def now() -> float:
    return asyncio.get_running_loop().time()

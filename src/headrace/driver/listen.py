"""Wake-ups: a consumer that waits for work is woken by LISTEN, on one connection for all queues.
A node hears there, too, that something was taken out of its claims.

They are only a hint. Without the connection, the consumer polls again when its time is up, and the
node sends its heartbeats; only the moments until then are lost.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, Self

from headrace.driver.connect import usable
from headrace.driver.listener import Listener, PooledError, listening
from headrace.driver.watch import Key, Subscription, Watch, now
from headrace.engine import claim, fork, leases
from headrace.errors import HeadraceError, Unavailable
from headrace.model.pauses import Pauses

ARMING = 1.0  # seconds that `arm` waits for the connection, at most
LINGER = 0.25  # seconds for which publishers still notify a watch that may be armed again at once
# Seconds between two attempts to connect. Polls go on meanwhile, so the server has work anyway; one
# connection more is little.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
# Seconds until the next attempt to register with publishers, where an outsider blocked it.
AGAIN = 1.0
LEASE = re.compile("[0-9]{1,18}")  # in a notification that something was taken out of it
STEADY = 1.0  # a connection that lasted for so many seconds counts as stable

logger = logging.getLogger("headrace")

Told = Callable[[int | None], None]
"""Takes the lease that something was taken out of; None: perhaps any."""


class Trouble(Protocol):
    """Is told when something does not work, and when it does."""

    def began(self, who: object, error: BaseException) -> None: ...
    def ended(self, who: object) -> None: ...


class _Log:
    """Logs it once each."""

    def __init__(self) -> None:
        self._is_on = False

    def began(self, who: object, error: BaseException) -> None:
        if not self._is_on:
            said = str(error).strip().partition("\n")[0] or type(error).__name__
            logger.warning("wake-ups do not work for now, and consumers poll for work: %s", said)
        self._is_on = True

    def ended(self, who: object) -> None:
        if self._is_on:
            logger.warning("wake-ups work again")
        self._is_on = False


class Wakeups:
    """A connection that listens, for any number of watches in one event loop. It reconnects by
    itself when it is lost. Without it, watches work by their timeouts: behind a transaction
    pooler (`prepare=False`, or detected) no connection can listen."""

    def __init__(self, dsn: str, *, prepare: bool = True, outage: Trouble | None = None) -> None:
        """`outage`: is told of it, in place of the log, when the connection cannot be had."""
        self._dsn = usable(dsn)
        self._prepare = prepare
        self._outage = outage or _Log()
        self._subscriptions: dict[Key, Subscription] = {}
        self._channels: dict[str, Subscription] = {}
        self._holders: dict[str, Told] = {}  # by the start of the node
        self._holder_channels: dict[str, Told] = {}
        self._working: bool | None = None  # None: not tried yet
        self._tried = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        fork.register(self)

    def after_fork(self) -> None:
        """Nothing listens here until it is opened again: the task and its loop are the parent's."""
        Wakeups.__init__(self, self._dsn, prepare=self._prepare, outage=self._outage)

    async def open(self) -> None:
        """Never fails: PostgreSQL may be away, and come."""
        if self._prepare and self._task is None:
            self._task = asyncio.create_task(self._keep_listening(), name="headrace wake-ups")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._tried.wait(), ARMING)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def watch(self, namespace: str, queue: str) -> Watch:
        return Watch(self, (namespace, queue))

    def hear(self, instance: str, told: Told) -> None:
        """Have it called whenever something is taken out of the claims of this start of a node."""
        self._holders[instance] = told
        self._changed.set()

    @property
    def working(self) -> bool:
        """Whether notifications can arrive now."""
        return self._working is True

    async def arm(self, key: Key, watch: Watch) -> None:
        subscription = self._subscriptions.setdefault(key, Subscription())
        subscription.watches.add(watch)
        if self._working and subscription.channel is None and subscription.left_until <= now():
            subscription.settled.clear()
            self._changed.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(subscription.settled.wait(), ARMING)

    def subscription(self, key: Key) -> Subscription | None:
        return self._subscriptions.get(key)

    def try_again(self, key: Key) -> None:
        """Subscribe where that was not possible before: the outsider may have left by now."""
        subscription = self._subscriptions.get(key)
        if (
            self._working
            and subscription is not None
            and subscription.channel is None
            and subscription.left_until <= now()
        ):
            self._changed.set()

    def disarm(self, key: Key, watch: Watch) -> None:
        subscription = self._subscriptions.get(key)
        if subscription is not None:
            subscription.watches.discard(watch)
            subscription.empty_since = now()
            self._changed.set()

    async def _keep_listening(self) -> None:
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE, at_once=True)
        while True:
            began = now()
            try:
                async with listening(self._dsn, self._heard) as listener:
                    await self._serve(listener)
            except PooledError:
                self._given_up()
                return
            # Any error: wake-ups are a hint, and never fail a caller.
            except Exception as error:
                self._forget_channels()
                if now() - began > STEADY:
                    pauses.reset()
                pause = pauses.next()
                if pause:  # else the next one may work at once
                    self._outage.began(self, error)
                await asyncio.sleep(pause)

    async def _serve(self, listener: Listener) -> None:
        """Keep the subscriptions as they are wanted and wake their watches, until the connection
        is lost."""
        await self._subscribe_all(listener)
        await self._hear_all(listener)
        self._started()
        while True:
            self._changed.clear()
            await self._subscribe_all(listener)
            await self._hear_all(listener)
            lingering = await self._unsubscribe_idle(listener)
            await listener.listen(self._changed, lingering)

    async def _subscribe_all(self, listener: Listener) -> None:
        for key, subscription in list(self._subscriptions.items()):
            if subscription.watches and subscription.channel is None:
                if subscription.left_until <= now():
                    await self._subscribe(listener, key, subscription)
                subscription.settled.set()

    async def _hear_all(self, listener: Listener) -> None:
        heard = self._holder_channels.values()
        for instance, told in list(self._holders.items()):
            if told not in heard:
                channel = await listener.ask(leases.hear_interruptions(instance))
                self._holder_channels[channel] = told
                told(None)  # no notification came before

    async def _subscribe(self, listener: Listener, key: Key, subscription: Subscription) -> None:
        try:
            channel = await listener.ask(claim.fall_asleep(*key))
        except Unavailable:
            raise
        except HeadraceError:  # the queue does not exist, as the poll will report
            subscription.watches.clear()
            return
        if channel is None:  # an outsider holds the lock, and the engine reports which
            subscription.left_until = now() + AGAIN
        else:
            subscription.falls_asleep(channel)
            self._channels[channel] = subscription

    async def _unsubscribe_idle(self, listener: Listener) -> float | None:
        """Unsubscribe from queues that no watch waits for, or that are flooded; returns the
        seconds until there may be more of these."""
        time = now()
        lingering = None
        for key, subscription in list(self._subscriptions.items()):
            left = subscription.empty_since + LINGER - time
            is_left = subscription.left_until > time
            if subscription.watches and not is_left:
                continue
            if left > 0 and not is_left:
                lingering = left if lingering is None else min(left, lingering)
            elif subscription.channel is None:
                if not is_left:
                    del self._subscriptions[key]
            else:
                channel, subscription.channel = subscription.channel, None
                del self._channels[channel]
                await listener.ask(claim.wake_up(channel))
        return lingering

    def _heard(self, channel: str, payload: str) -> None:
        told = self._holder_channels.get(channel)
        if told is not None:
            told(int(payload) if LEASE.fullmatch(payload) else None)
            return
        subscription = self._channels.get(channel)
        if subscription is None:
            return
        subscription.wake()
        time = now()
        if subscription.gets_up(payload, time) or subscription.is_flooded(time):
            self._changed.set()

    def _started(self) -> None:
        self._outage.ended(self)
        self._working = True
        self._tried.set()
        for subscription in self._subscriptions.values():  # no notification came while it was down
            subscription.wake()

    def _given_up(self) -> None:
        logger.info(
            "PostgreSQL is behind a transaction pooler: there are no wake-ups, and consumers poll "
            "for work"
        )
        self._forget_channels()

    def _forget_channels(self) -> None:
        self._working = False
        self._tried.set()
        self._channels.clear()
        self._holder_channels.clear()
        for subscription in self._subscriptions.values():
            subscription.is_lost()

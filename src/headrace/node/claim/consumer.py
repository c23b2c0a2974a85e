"""Claims events for one lane, ahead of its handlers but not far, and has them run."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from headrace.driver.patience import Outage, Patience
from headrace.driver.watch import Watch
from headrace.engine.claim import Polled
from headrace.model import Claimed, Released
from headrace.node.claim.lane import Lane
from headrace.node.claim.pace import Pace
from headrace.node.claim.slots import Slots
from headrace.node.finish.finisher import Finisher, may_be_suspect
from headrace.node.lease.keeper import LeaseKeeper
from headrace.node.runner import NodeRunner

LARGEST = 1000  # events in a claim
FARTHEST = 2000  # events that are claimed ahead of those that run
STALE = 0.25  # seconds: events that wait longer for their handler were claimed too early
SHORTEST = 0.001  # seconds between two looks
LINGER = 0.05  # seconds that a suspect is given to end before the next poll


class Asked(NamedTuple):
    """A claim that is under way."""

    answer: asyncio.Future[Polled]
    wanted: int
    limited: int
    at: float


class Consumer:
    """The events of a lane from their claim to their handlers.

    The number of events that are claimed ahead follows the handlers: it grows while they run out of
    events within a moment, and shrinks when events wait for them. So a no-op handler has thousands
    of events in the buffer, and a slow one leaves events to other nodes that it could not start
    soon.
    """

    def __init__(
        self,
        lane: Lane,
        engine: NodeRunner,
        finisher: Finisher,
        keeper: LeaseKeeper,
        watch: Watch,
        outage: Outage,
        slots: Slots,
        run: Callable[[Consumer], None],
        *,
        idle: float,
        largest: int,
    ) -> None:
        self.lane = lane
        self.buffer: deque[Claimed] = deque()
        self.few = 0
        """The buffer's length at which more events are claimed: a run that takes one then calls
        `took`."""
        self.slots = slots
        self.finisher = finisher
        self._engine = engine
        self._keeper = keeper
        self._watch = watch
        self._patience = Patience(outage)
        self._run = run
        self._nap: asyncio.Future[bool] | None = None
        self._idle = idle
        self._largest = min(largest, LARGEST)
        self._unit = max(1, lane.batch)
        self._ahead = 0  # units that are claimed ahead
        self._its_turn = False
        self._asked: Asked | None = None  # ahead
        self._claimed_at = 0.0
        self._is_armed = False
        self._was_early = False
        self._pace = Pace()
        self._room = asyncio.Event()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Claim until `stop` is called."""
        try:
            while self._asked is not None or not self._stop.is_set():
                if self._asked is None and (pause := self._pace.pause(time.monotonic())):
                    await asyncio.sleep(pause)
                    continue
                asked, self._asked = self._asked or self._ask(), None
                if asked is None:
                    await self._wait_for_room()
                else:
                    await self._take(asked)
        finally:
            if self._asked is not None:
                self._asked.answer.cancel()
            self._patience.over()
            self._watch.disarm()

    def _ask(self, coming: int = 0) -> Asked | None:
        """Ask for events, if there is room for more than those that come already."""
        wanted = self._wanted(coming)
        if wanted == 0:
            return None
        # Events with a limit that wait in a buffer would keep their slots from other nodes.
        waiting = len(self.buffer) + coming
        limited = max(0, min(wanted, self._units(ahead=0) * self._unit - waiting))
        self._its_turn = False
        answer = asyncio.ensure_future(self._engine.claim(self.lane, wanted, limited))
        return Asked(answer, wanted, limited, time.monotonic())

    async def _take(self, asked: Asked) -> None:
        """Take what was asked for, and, where there is more, ask for that before: PostgreSQL works
        then while events are decoded and handled here."""
        try:
            polled = await asked.answer
            if polled.size >= asked.wanted and not self._stop.is_set():
                self._asked = self._ask(coming=polled.size)
                await asyncio.sleep(0)  # now it is on its way
            claimed = await self._engine.read(polled)
        except Exception as error:
            self._get_up()  # the queue may have been deleted, and another of its name created
            await self._patience.wait(error, self._stop)
            return
        self._patience.worked()
        if claimed:
            self._found(claimed, asked)
            if self._asked is None and len(claimed) == 1 and may_be_suspect(claimed[0]):
                # The next suspect comes when this one has ended, which is told by `look_again`. A
                # poll before that finds nothing, and would be in the way of the poll after it.
                await self._watch.wait(LINGER)
        elif polled.look_in == 0 and asked.limited < asked.wanted:
            self._pace.found_nothing()
            self._reach(0)  # only events with a limit wait: they need a handler that is free
        elif not polled.size:
            await self._sleep(polled.look_in)

    def stop(self) -> list[Claimed]:
        """Claim no more, and give what was claimed and has not begun."""
        self._stop.set()
        self._room.set()
        if self._nap is not None:
            self._nap.cancel()
        return self.take_all()

    def take_all(self) -> list[Claimed]:
        """Empty the buffer, from which threads take too."""
        taken = []
        with suppress(IndexError):
            while True:
                taken.append(self.buffer.popleft())
        return taken

    def took(self) -> None:
        """A run has taken an event from the buffer: there may be room for more."""
        waiting = len(self.buffer)
        if waiting > self.few:
            return
        self._room.set()
        if not waiting and time.monotonic() - self._claimed_at > STALE:
            self._reach(self._ahead // 2)

    def look_again(self) -> None:
        """Poll before the idle time is up: there may be an event without a notification."""
        self._watch.wake()

    def forget(self, lease: int, ids: Collection[int] | None = None) -> int:
        """Drop the buffered events of a lost lease, or only these of them; returns how many they
        are."""
        taken = self.take_all()
        kept = [one for one in taken if one.lease != lease or not (ids is None or one.id in ids)]
        self.buffer.extend(kept)
        self.took()
        return len(taken) - len(kept)

    def start(self) -> None:
        """Start one more run, if there is an event and a slot for it."""
        if not self.buffer:
            self._its_turn = True
            self._room.set()
        elif self.slots.take(self):
            self._run(self)

    def _wanted(self, coming: int) -> int:
        """The number of events to claim now; 0: the buffer has enough, with those that come."""
        waiting = len(self.buffer) + coming
        if waiting > self.few or self.finisher.is_behind:
            return 0
        return max(0, min(self._units(self._ahead) * self._unit - waiting, self._largest))

    def _units(self, ahead: int) -> int:
        # A lane whose turn came while its buffer was empty may exceed the slots by one claim.
        return max(self.slots.free + ahead, self._its_turn)

    def _reach(self, ahead: int) -> None:
        self._ahead = min(ahead, max(1, FARTHEST // self._unit))
        self.few = self._ahead * self._unit // 2

    async def _wait_for_room(self) -> None:
        self._room.clear()
        if self.slots.free == 0:
            self.slots.wait(self)
        if self.finisher.is_behind:
            self.finisher.when_caught_up(self._room.set)
        await self._room.wait()

    def _found(self, claimed: Sequence[Claimed], asked: Asked) -> None:
        for lease in self.finisher.opened(claimed):
            self._keeper.hold(lease.id, asked.at, token=lease.token)
        if self._stop.is_set():  # while we asked
            self.finisher.end_all(map(Released, claimed))
            return
        now = time.monotonic()
        is_soon = now - self._claimed_at <= STALE
        if not self.buffer and len(claimed) >= asked.wanted and is_soon:
            self._reach(max(2 * self._ahead, self.slots.size))
        elif self.buffer and not is_soon:
            self._reach(self._ahead // 2)
        self._claimed_at = now
        self.buffer.extend(claimed)
        self.start()
        self._watch.found()
        self._was_early = False
        self._pace.found(len(claimed), asked.wanted, now)
        if self._pace.is_busy:
            self._get_up()

    def _get_up(self) -> None:
        if self._is_armed:
            self._watch.disarm()
            self._is_armed = False

    async def _sleep(self, look_in: float | None) -> None:
        """Wait until there may be an event. Publishers wake the node from now on; one more poll
        finds the events that came just before. `look_in`: after how many seconds a rate lets an
        event start; another node may be faster, so two such looks that find nothing never follow
        each other, unless the node was woken before the time came."""
        self._pace.found_nothing()
        if self._stop.is_set():
            return
        if not self._is_armed:
            self._is_armed = True
            await self._watch.arm()
            return
        pause = self._idle
        is_early = not self._was_early and look_in is not None and look_in < pause
        if is_early:
            pause = max(look_in or 0.0, SHORTEST)
        until = time.monotonic() + pause
        self._nap = asyncio.ensure_future(self._watch.wait(pause))
        await asyncio.wait([self._nap])
        self._nap = None
        # One that ended before its time, by a wake-up, was no such look.
        self._was_early = is_early and time.monotonic() >= until

"""Keeps the leases of a node, and its place in the registry, from a thread and a connection of their own.

So a handler that blocks the event loop, or a pool whose connections are all in use, keeps nobody from
renewing. What is lost is told of; what cannot be asked is tried again, because a lease that ran out is
still ours until somebody takes it away.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import psycopg
from psycopg.abc import PQGen

from headrace import statements
from headrace.errors import HeadraceError, NamespaceNotFound, QueueNotFound
from headrace.model import Extended, Recovered
from headrace.node.blocking import LoopWatch
from headrace.opening import READ_COMMITTED, usable
from headrace.running import run
from headrace.sessions import Session
from headrace.statements import Statement

CHUNK = 1_000  # leases in one statement
HEARTBEAT = 30.0  # seconds; after 90 without one a node is not alive
BUSY = 1.0  # seconds until what somebody had locked is tried again
NOTICED = 0.25  # seconds until a server has mostly noticed that a process has died
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds until what did not work is tried again

logger = logging.getLogger("headrace")

T = TypeVar("T")


class Registration(NamedTuple):
    """What a node says of itself."""

    node_id: str
    display_name: str | None = None
    description: str | None = None
    metadata: Mapping[str, Any] = {}
    handles: Sequence[str] = ()
    worker: str = ""


class LeaseKeeper:
    """Renews what it is told to hold, at a third of a lease's length. `on_lost` is called by its thread, with a
    lease that was taken away; also with one whose deliveries have all just ended, if it was not dropped yet."""

    def __init__(
        self,
        dsn: str,
        namespace: str,
        queue: str,
        lease: float,
        *,
        prepare: bool = True,
        on_lost: Callable[[int], None],
    ) -> None:
        self.instance = str(uuid4())
        """This start of the node, by which its claims are known."""
        bound = min(10.0, max(0.5, lease / 6))
        self._line = _Line(usable(dsn), prepare, bound, self.instance)
        self._soon = min(1.0, lease / 12)
        self._namespace = namespace
        self._queue = queue
        self._lease = lease
        self._on_lost = on_lost
        self._held: dict[int, float] = {}
        self._lock = threading.Lock()
        self._registry = _Registry(namespace, self._line, self.instance)
        self._watch: LoopWatch | None = None
        self._look_at = math.inf
        self._renew_at = math.inf
        self._retry_at = 0.0
        self._failures = 0
        self._closing = False
        self._poked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace leases", daemon=True)

    def start(self) -> None:
        self._renew_at = time.monotonic() + self._lease / 3
        self._thread.start()

    def close(self, timeout: float = 5.0) -> None:
        """Say goodbye and stop; what is still held is not renewed any more. Waits for that, up to a time."""
        self._closing = True
        self._poked.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def hold(self, lease_id: int, since: float | None = None) -> None:
        """Renew it from now on. `since`: when it was asked for, by the monotonic clock."""
        now = time.monotonic()
        with self._lock:
            self._held[lease_id] = now if since is None else since
        if since is not None and now - since > self._lease / 3:  # it took long to come here
            self._renew_at = now
            self._poked.set()

    def drop(self, lease_id: int) -> None:
        with self._lock:
            self._held.pop(lease_id, None)

    def renewed_at(self, lease_id: int) -> float:
        """When it was last asked for with success, by the monotonic clock: it lasts from then, at least. Minus
        infinity: it is not held."""
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
        """Register the node, or anew if it was registered, as soon as can be. Gives its id as it is kept, or says
        what is wrong with it; while PostgreSQL is away, neither."""
        registered = self._registry.want(node)
        self._poked.set()
        return registered

    def watch_loop(self, loop: AbstractEventLoop, patience: float | None = None) -> None:
        """Warn when a loop does not answer for so many seconds, and say what it is doing."""
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
            due_at = max(self._retry_at, min(self._renew_at, self._registry.due_at))
            self._poked.wait(max(0.0, min(due_at, self._look_at) - time.monotonic()))
        self._say_goodbye()

    def _look(self) -> None:
        watch = self._watch
        if watch is not None and self._look_at <= time.monotonic():
            self._look_at = time.monotonic() + watch.look()

    def _tend(self) -> None:
        """Do what is due in the database. What goes wrong is said once, and tried again."""
        if time.monotonic() < self._retry_at:
            return
        try:
            if self._failures:
                self._line.open()
            self._renew()
            self._registry.tend()
        except Exception as error:
            self._line.close()
            self._failed(error)
        else:
            self._went_well()

    def _failed(self, error: Exception) -> None:
        if not self._failures:
            said = str(error).strip().partition("\n")[0] or type(error).__name__
            ordinary = isinstance(error, psycopg.Error | OSError | HeadraceError)
            logger.warning("leases cannot be renewed for now: %s", said, exc_info=not ordinary)
        pause = min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE, self._lease / 12)
        self._failures = min(self._failures + 1, 30)
        self._retry_at = time.monotonic() + pause * random.uniform(0.5, 1)

    def _went_well(self) -> None:
        if self._failures:
            logger.info("leases are renewed again")
        self._failures = 0

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
            if answer.state == "held":
                with self._lock:
                    if lease_id in self._held:
                        self._held[lease_id] = asked_at
            elif answer.state == "lost":
                self._lose(lease_id)
        return any(answer.state == "busy" for answer in answers.values())

    def _extend(self, leases: list[int]) -> dict[int, Extended]:
        try:
            return self._line.ask(
                statements.extend(self._namespace, self._queue, leases, self._lease)
            )
        except (NamespaceNotFound, QueueNotFound):  # deleted, with all that was in it
            return dict.fromkeys(leases, Extended("lost", None))

    def _lose(self, lease_id: int) -> None:
        with self._lock:
            if self._held.pop(lease_id, None) is None:
                return  # it was dropped meanwhile: all is well
        try:
            self._on_lost(lease_id)
        except Exception:
            logger.exception("nobody could be told that the lease %s is lost", lease_id)

    def _say_goodbye(self) -> None:
        try:
            if not self._failures:
                self._registry.leave()
        except Exception as error:
            logger.info("the node could not say goodbye: %s", error)
        finally:
            self._registry.give_up()
            self._line.close()


class _Registry:
    """A node's place in the registry, and what earlier starts of it have left behind."""

    def __init__(self, namespace: str, line: _Line, instance: str) -> None:
        self._namespace = namespace
        self._line = line
        self._instance = instance
        self._look_back_at = 0.0  # infinity: there is nobody left to take over from
        self._alive_pause = NOTICED
        self._node: Registration | None = None
        self._registered = False
        self._replaced = False
        self._waiting: list[Future[str]] = []
        self._lock = threading.Lock()
        self.due_at = math.inf

    def want(self, node: Registration) -> Future[str]:
        waiting: Future[str] = Future()
        with self._lock:
            self._node = node
            self._waiting.append(waiting)
            self._registered = False
            self.due_at = 0.0
        return waiting

    def tend(self) -> None:
        """Register if it is wanted, else be heard of, when it is due."""
        if time.monotonic() < self.due_at:
            return
        with self._lock:
            node, registered = self._node, self._registered
            self.due_at = math.inf if node is None else self.due_at
        if node is None:
            return
        if registered:
            self._touch(node)
        else:
            self._register(node)

    def _touch(self, node: Registration) -> None:
        touch = statements.touch_node_heartbeat(self._namespace, node.node_id, self._instance)
        state = self._line.ask(touch)
        if state == "missing":
            self._register(node)
        elif state == "replaced" and not self._replaced:
            logger.warning("another process has registered as the node %r", node.node_id)
        self._replaced = state == "replaced"
        self._recover(node)
        self.due_at = self._next_time()

    def _register(self, node: Registration) -> None:
        with self._lock:
            waiting = list(self._waiting)
        try:
            kept = self._line.ask(self._registering(node))
            self._recover(node)
        except HeadraceError as error:
            if not waiting:
                raise
            self._refuse(node, waiting, error)
            return
        with self._lock:
            self._registered = self._node is node
            del self._waiting[: len(waiting)]
            self.due_at = self._next_time() if self._registered else 0.0
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(kept)

    def _recover(self, node: Registration) -> None:
        """Take over what earlier starts of the node held when they died, a good deal at a time."""
        if time.monotonic() < self._look_back_at:
            return
        try:
            recovered = self._line.ask(
                statements.recover(self._namespace, node.node_id, self._instance)
            )
        except psycopg.errors.QueryCanceled:  # it takes too long here: leases run out anyway
            recovered = Recovered(0, "alive")
        if recovered.deliveries:
            logger.info(
                "the node %s has taken over %d events of an earlier start that died",
                node.node_id,
                recovered.deliveries,
            )
        pauses = {"more": 0.0, "busy": BUSY, "alive": self._alive_pause, "done": math.inf}
        self._look_back_at = time.monotonic() + pauses[recovered.state]
        if recovered.state == "alive":  # or killed so lately that the server does not know
            self._alive_pause = min(2 * self._alive_pause, HEARTBEAT)

    def _next_time(self) -> float:
        return min(time.monotonic() + HEARTBEAT, self._look_back_at)

    def _registering(self, node: Registration) -> Statement[str]:
        return statements.register_node(
            self._namespace,
            node.node_id,
            self._instance,
            node.display_name,
            node.description,
            node.metadata,
            list(node.handles),
            node.worker,
        )

    def _refuse(self, node: Registration, waiting: list[Future[str]], error: HeadraceError) -> None:
        with self._lock:
            if self._node is node:
                self._node = None
            del self._waiting[: len(waiting)]
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    def leave(self) -> None:
        if self._node is not None and self._registered:
            leaving = statements.unregister_node(
                self._namespace, self._node.node_id, self._instance
            )
            self._line.ask(leaving)

    def give_up(self) -> None:
        for future in self._waiting:
            future.cancel()


class _Line:
    """The connection, there when it is needed. Nothing on it takes longer than `bound` seconds. While it lasts, others
    know that this start of the node lives; behind a transaction pooler they cannot."""

    def __init__(self, dsn: str, prepare: bool, bound: float, instance: str) -> None:
        self._dsn = dsn
        self._prepare = prepare
        self._bound = bound
        self._instance = instance
        self._session: _BoundedSession | None = None

    def ask(self, statement: Statement[T]) -> T:
        return run(self.open(), statement, prepare=self._prepare)

    def open(self) -> _BoundedSession:
        if self._session is None:
            session = _BoundedSession.connect(
                self._dsn,
                autocommit=True,
                prepare_threshold=0 if self._prepare else None,
                connect_timeout=math.ceil(max(2.0, self._bound)),
            )
            session.bound = self._bound
            if self._prepare:  # else a session's settings are everybody's
                session.execute(READ_COMMITTED)
                session.execute(f"set statement_timeout = {math.ceil(self._bound * 1000)}")
                session.execute("set idle_session_timeout = 0")
                run(session, statements.stay(self._instance), prepare=True)
            self._session = session
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


class _BoundedSession(Session):
    """A session that a server that has vanished does not keep waiting."""

    bound = 10.0

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        return super().wait(_within(self.bound, gen), interval)


def _within(seconds: float, exchange: PQGen[T]) -> PQGen[T]:
    """An exchange with a server that ends in time, this way or the other."""
    deadline = time.monotonic() + seconds
    try:
        wanted = next(exchange)
        while True:
            ready = yield wanted
            if ready:
                wanted = exchange.send(ready)
            elif time.monotonic() >= deadline:
                raise TimeoutError("PostgreSQL does not answer")
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]

"""A node's registration: its name, its heartbeat, and the recovery of events of earlier starts."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import psycopg

from headrace.engine import nodes
from headrace.engine.statement import Statement
from headrace.errors import HeadraceError, Unavailable
from headrace.model import Recovered
from headrace.model.pauses import NO_JITTER, Pauses
from headrace.node.lease.bounded_session import BoundedSession

HEARTBEAT = 30.0  # seconds; after 90 without one a node is not alive
BUSY = 1.0  # seconds until rows that were locked are tried again
NOTICED = 0.25  # seconds until a server has mostly noticed that a process has died

logger = logging.getLogger("headrace")


class Registration(NamedTuple):
    """A node's own description, which it registers."""

    node_id: str
    display_name: str | None = None
    description: str | None = None
    metadata: Mapping[str, Any] = {}
    handles: Sequence[str] = ()
    worker: str = ""
    at_once: int | None = None


class RegistrationKeeper:
    """A node's place in the registry, and what earlier starts of it have left behind."""

    def __init__(self, namespace: str, session: BoundedSession, instance: str) -> None:
        self._namespace = namespace
        self._session = session
        self._instance = instance
        self._look_back_at = 0.0  # infinity: no earlier start is left to take over from
        self._alive_pauses = Pauses(NOTICED, HEARTBEAT, jitter=NO_JITTER)
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
        touch = nodes.touch_node_heartbeat(self._namespace, node.node_id, self._instance)
        state = self._session.ask(touch)
        if state == "missing":
            self._register(node)
        elif state == "replaced" and not self._replaced:
            logger.warning("another process has registered as the node %r", node.node_id)
        self._replaced = state == "replaced"
        self._recover(node)
        with self._lock:
            if self._registered:  # else a new registration is due
                self.due_at = self._next_time()

    def _register(self, node: Registration) -> None:
        with self._lock:
            waiting = list(self._waiting)
        try:
            kept = self._session.ask(self._registering(node))
            self._recover(node)
        except Unavailable:
            raise
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
            recovered = self._session.ask(
                nodes.recover(self._namespace, node.node_id, self._instance)
            )
        except psycopg.errors.QueryCanceled:  # it takes too long here: leases run out anyway
            recovered = Recovered(0, "alive")
        if recovered.deliveries:
            logger.info(
                "the node %s recovered %d events from an earlier start that died",
                node.node_id,
                recovered.deliveries,
            )
        if recovered.state == "alive":  # or killed so lately that the server does not know
            pause = self._alive_pauses.next()
        else:
            pause = {"more": 0.0, "busy": BUSY, "done": math.inf}[recovered.state]
        self._look_back_at = time.monotonic() + pause

    def _next_time(self) -> float:
        return min(time.monotonic() + HEARTBEAT, self._look_back_at)

    def _registering(self, node: Registration) -> Statement[str]:
        return nodes.register_node(
            self._namespace,
            node.node_id,
            self._instance,
            node.display_name,
            node.description,
            node.metadata,
            list(node.handles),
            node.worker,
            node.at_once,
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
            leaving = nodes.unregister_node(self._namespace, self._node.node_id, self._instance)
            self._session.ask(leaving)

    def give_up(self) -> None:
        for future in self._waiting:
            future.cancel()

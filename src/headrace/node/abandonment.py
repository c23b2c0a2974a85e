"""Handlers that did not end though their time was up: how many there are, and how their transactions are cut off.

Python cannot end a thread, nor a task that swallows its cancellation. Such a handler is abandoned: its event has failed, and
its slot, its lease and its connection are another's. It may go on, and whatever it still does changes nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import generators
from psycopg.pq.abc import PGcancelConn
from psycopg.waiting import wait_conn

T = TypeVar("T")

logger = logging.getLogger("headrace.node")

FEWEST = 10  # handlers that a node may have abandoned, however few it runs at once


class Abandoned(BaseException):
    """Raised in the node's own code around a handler that has ended after it was abandoned."""


class Abandonment(Generic[T]):
    """The abandoned handlers of a node that still run. `changed` is called when there is one more or one less."""

    def __init__(self, concurrency: int, changed: Callable[[], None]) -> None:
        self.most = max(FEWEST, concurrency)
        self._changed = changed
        self._runs: set[T] = set()

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def is_full(self) -> bool:
        """Whether one more would have to keep its slot: threads and memory are not endless."""
        return len(self._runs) >= self.most

    def add(self, run: T) -> None:
        self._runs.add(run)
        self._changed()

    def remove(self, run: T) -> None:
        self._runs.discard(run)
        self._changed()


def cut(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Have the server roll back what runs on a connection that another thread or task may be using.

    Only its socket is shut down: to close the connection would free what that thread has in its hands. A server in the middle
    of a statement does not look at its socket, so it is told to cancel too, where libpq can do that without holding up
    all of Python: from version 17."""
    pgconn = connection.pgconn
    with suppress(psycopg.Error, OSError):
        cancel = pgconn.cancel_conn() if psycopg.capabilities.has_cancel_safe() else None
        with socket.socket(fileno=os.dup(pgconn.socket)) as its:
            its.shutdown(socket.SHUT_RDWR)
        if cancel is not None:
            threading.Thread(target=_cancel, args=(cancel,), daemon=True).start()


def _cancel(cancel: PGcancelConn) -> None:
    with suppress(psycopg.Error):
        cancel.start()
        wait_conn(generators.cancel(cancel), interval=0.1)

"""Ends a connection from another thread than the one that uses it."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import generators
from psycopg.pq.abc import PGcancelConn
from psycopg.waiting import wait_conn


def disconnect(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Have the server roll back the transaction of a connection that another thread or task may
    be using.

    Only the socket is shut down: to close the connection would free memory that the other thread
    uses. A server in the middle of a statement does not look at its socket, so it is told to
    cancel too, where libpq can do that without blocking all of Python: from version 17.
    """
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

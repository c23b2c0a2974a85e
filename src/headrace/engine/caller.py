"""On whose behalf verbs are called: the namespace, the queue, the worker, and what is remembered
between calls."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.engine import fork
from headrace.engine.memory import Memory
from headrace.model.codec import NO_CODECS, Codecs

Connection: TypeAlias = Any
"""psycopg's connection, SQLAlchemy's or a Session of it, Django's, or asyncpg's: see
docs/transactions.md."""


def _always(connection: Connection | None) -> bool:
    return True


class Caller:
    """The part that all verbs share. It does no I/O: a runner runs the calls that verbs return."""

    def __init__(
        self,
        namespace: str,
        queue: str,
        worker: str | None = None,
        is_alone: Callable[[Connection | None], bool] = _always,
        codecs: Codecs = NO_CODECS,
    ) -> None:
        self.namespace = namespace
        self.queue_name = queue
        self.names = (namespace, queue)
        self._given_name = worker
        self.worker = worker or _process_name()
        self.memory = Memory()
        self.codecs = codecs
        self.is_alone = is_alone
        """Whether each statement on this connection, or else on the runner's own, is a transaction
        of its own."""
        fork.register(self)

    def after_fork(self) -> None:
        self.worker = self._given_name or _process_name()
        self.memory.claims.after_fork()


def _process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"

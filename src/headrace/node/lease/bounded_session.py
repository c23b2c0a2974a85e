"""The connection of what a node must never wait for: its own, and bounded in time."""

from __future__ import annotations

import math
from typing import TypeVar

from headrace.driver.connect import SETTLE
from headrace.driver.run import run
from headrace.driver.session import Session
from headrace.engine import nodes
from headrace.engine.statement import Statement

T = TypeVar("T")


class BoundedSession:
    """A session that connects when it is needed. Nothing on it takes longer than `bound` seconds.
    While it lasts, other nodes know that this start of the node lives; behind a transaction pooler
    they cannot know."""

    def __init__(self, dsn: str, prepare: bool, bound: float, instance: str) -> None:
        self._dsn = dsn
        self._prepare = prepare
        self._bound = bound
        self._instance = instance
        self._session: Session | None = None

    def ask(self, statement: Statement[T]) -> T:
        return run(self.open(), statement, prepare=self._prepare)

    def open(self) -> Session:
        if self._session is None:
            session = Session.connect_within(
                max(2.0, self._bound),
                self._dsn,
                autocommit=True,
                prepare_threshold=0 if self._prepare else None,
            )
            session.bound = self._bound
            if self._prepare:  # behind a pooler a session's settings would reach other clients
                session.command(SETTLE)
                session.command(b"set statement_timeout = %d" % math.ceil(self._bound * 1000))
                session.command(b"set idle_session_timeout = 0")
                run(session, nodes.stay(self._instance), prepare=True)
            self._session = session
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

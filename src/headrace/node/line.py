"""The connection of what a node must never wait for: its own, and bounded in time."""

from __future__ import annotations

import math
from typing import TypeVar

from headrace import statements
from headrace.opening import SETTLE
from headrace.running import run
from headrace.sessions import Session
from headrace.statements import Statement

T = TypeVar("T")


class Line:
    """The connection, there when it is needed. Nothing on it takes longer than `bound` seconds. While it lasts, others
    know that this start of the node lives; behind a transaction pooler they cannot."""

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
            session = Session.connect(
                self._dsn,
                autocommit=True,
                prepare_threshold=0 if self._prepare else None,
                connect_timeout=math.ceil(max(2.0, self._bound)),
            )
            session.bound = self._bound
            if self._prepare:  # else a session's settings are everybody's
                session.command(SETTLE)
                session.command(b"set statement_timeout = %d" % math.ceil(self._bound * 1000))
                session.command(b"set idle_session_timeout = 0")
                run(session, statements.stay(self._instance), prepare=True)
            self._session = session
        return self._session

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

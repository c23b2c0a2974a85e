"""Two actors on connections of their own, whose statements are executed in every order.

An actor is a list of steps; a step that has to wait for a lock is left waiting, and those behind it come as soon as it is
over. So an order that cannot be is bent into the next one that can, and no time-out decides anything.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import psycopg

from tests.database import Database
from tests.engine.races_helpers import Background, Session

Step = Callable[[Session], Any]

# What a call may be told: it was too late, or the other one was faster. A deadlock is never the answer.
TOLD = ("QU", "40001")


class Actor(NamedTuple):
    name: str
    steps: Sequence[Step]
    waits: bool = True
    """Whether any of its steps may have to wait for the other."""


def orders(one: int, other: int) -> Iterator[tuple[int, ...]]:
    """Every way to mix so many steps of the actor 0 with so many of the actor 1."""
    for places in combinations(range(one + other), one):
        yield tuple(0 if place in places else 1 for place in range(one + other))


class _Player:
    """An actor at work."""

    def __init__(self, db: Database, actor: Actor, session: Session) -> None:
        self._db = db
        self._actor = actor
        self._session = session
        self._steps = deque(actor.steps)
        self._due = 0  # steps whose turn has come
        self._running: Background[Any] | None = None
        self.waited = False

    def turn(self) -> None:
        self._due += 1

    def goes_on(self) -> bool:
        """Do what is due, until there is nothing or it has to wait; whether something was done."""
        done = False
        while self._is_free() and self._due:
            self._due -= 1
            self._running = Background(_told, self._steps.popleft(), self._session)
            done = True
            self._db.wait_for(lambda: self._is_free() or self._is_blocked())
        return done

    @property
    def is_over(self) -> bool:
        return self._is_free() and not self._due

    def _is_free(self) -> bool:
        if self._running is not None and self._running.over:
            self._running.result()
            self._running = None
        return self._running is None

    def _is_blocked(self) -> bool:
        pid = self._session.connection.info.backend_pid
        if self._db.sql("select cardinality(pg_blocking_pids(%s)) > 0", [pid]) != [(True,)]:
            return False
        if self._running is not None and not self._running.over:
            assert self._actor.waits, f"{self._actor.name} waits for the other"
            self.waited = True
        return True


def _told(step: Step, session: Session) -> None:
    try:
        step(session)
    except psycopg.Error as error:
        if not (error.sqlstate or "").startswith(TOLD):
            raise


def play(
    db: Database, actors: Sequence[Actor], sessions: Sequence[Session], order: Sequence[int]
) -> bool:
    """Execute the steps of two actors in an order; whether one of them had to wait."""
    players = [_Player(db, actor, session) for actor, session in zip(actors, sessions, strict=True)]
    for number in order:
        players[number].turn()
        _go_on(players)

    def are_over() -> bool:
        _go_on(players)
        return all(player.is_over for player in players)

    db.wait_for(are_over)
    return any(player.waited for player in players)


def _go_on(players: Sequence[_Player]) -> None:
    """All that can be done is done: what one does may be what the other waits for."""
    while sum(player.goes_on() for player in players):
        pass

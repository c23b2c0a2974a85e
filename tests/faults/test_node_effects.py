"""What handlers write through their connection is there exactly once, whoever is killed or frozen, and when."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Claimed, Node
from tests.database import Database
from tests.faults.crew import Crew, Worker, completed, crew_of, ends, eventually
from tests.faults.proxy import Fault, Proxy
from tests.node.nodes import running, settled, until
from tests.requirements import requirement

LEASE = 1.0
REST = pytest.mark.rest
LONG = (pytest.mark.long, pytest.mark.matrix, pytest.mark.timeout(600))


@pytest.fixture
def db(db: Database) -> Database:
    db.sql("create table effects (event bigint)")  # without a constraint: two rows are two rows
    return db


def effects(db: Database) -> list[int]:
    return [event for (event,) in db.sql("select event from effects order by 1")]


class Weather:
    """Kills workers in the middle of their work, whom others replace, and freezes them for longer than a lease or not."""

    def __init__(self, crew: Crew, kind: str, seconds: float) -> None:
        self._crew = crew
        self._kind = kind
        self._seconds = seconds  # that a handler takes
        self._frozen: dict[Worker, float] = {}
        self._chance = random.Random(seed := random.randrange(2**32))
        print(f"seed {seed}")
        self.kills = self.freezes = 0

    def strike(self) -> None:
        eventually(self._is_anybody_at_work)
        worker = self._chance.choice(self._at_work() or self._crew.alive)
        if not self.kills or self._chance.random() < 0.5:
            self._frozen.pop(worker, None)
            worker.kill()
            self._crew.start(self._kind)
            self.kills += 1
        else:
            worker.signal(signal.SIGSTOP)
            self._frozen[worker] = time.monotonic() + self._chance.uniform(0, 2 * LEASE)
            self.freezes += 1
        self.pass_by(self._chance.uniform(0, LEASE))

    def _is_anybody_at_work(self) -> bool:
        self.thaw(time.monotonic())  # all of them may be frozen
        return bool(self._at_work())

    def _at_work(self) -> list[Worker]:
        """Those who have begun something just now, and surely not ended it."""
        just_now = time.time() - self._seconds / 2
        return [one for one in self._crew.alive if any(s.at > just_now for s in one.starts[-1:])]

    def pass_by(self, duration: float) -> None:
        """Let a time pass, and thaw who has been frozen for long enough."""
        until = time.monotonic() + duration
        while time.monotonic() < until:
            self.thaw(time.monotonic())
            time.sleep(0.02)

    def thaw(self, now: float = float("inf")) -> None:
        for worker in [worker for worker, at in self._frozen.items() if at <= now]:
            del self._frozen[worker]
            worker.signal(signal.SIGCONT)


@pytest.mark.parametrize(
    ("kind", "count", "strikes", "seconds"),
    [
        ("async", 500, 4, 0.2),
        pytest.param("plain", 500, 4, 0.2, marks=REST),
        pytest.param("async", 20_000, 60, 0.05, marks=LONG),
        pytest.param("plain", 20_000, 60, 0.05, marks=LONG),
    ],
)
@requirement("G4", "G6", "G7", "G10")
def test_effects_are_exactly_once_whoever_is_killed_or_frozen(
    db: Database, tmp_path: Path, kind: str, count: int, strikes: int, seconds: float
) -> None:
    with crew_of(db, tmp_path, lease=LEASE, idle=0.2, concurrency=10) as crew:
        crew.start_some(4, kind)
        queue = db.queue()
        ids: list[int] = []
        weather = Weather(crew, kind, seconds)
        for _ in range(strikes):
            event = {"type": "effect", "payload": seconds, "max_retries": 1000}
            ids += queue.publish_many([event] * (count // strikes + 1))
            weather.strike()
        weather.thaw()
        eventually(lambda: completed(db, ids), patience=60 + count / 100)
        crew.stop()
    print(f"{weather.kills} kills, {weather.freezes} freezes, {len(crew.starts)} starts")
    assert len(crew.starts) > len(ids), "none was begun twice: this run has shown nothing"
    assert effects(db) == sorted(ids)


@pytest.fixture
def proxy(db: Database) -> Iterator[Proxy]:
    with Proxy(db.dsn) as proxy:
        yield proxy


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize(
    ("fault", "attempts"),
    [("cut", 2), ("unanswered", 1), ("vanished", 1)],
    ids=["COMMIT is lost", "its reply is lost", "its reply is lost and the server with it"],
)
@requirement("G7", "G8", "G10")
async def test_a_commit_that_nobody_hears_of_has_one_effect_and_one_end(
    db: Database, proxy: Proxy, kind: str, fault: str, attempts: int
) -> None:
    queue = db.queue()
    # A lease that lasts longer than a call waits for a connection, which is half a minute.
    node = Node("node", dsn=proxy.dsn, lease=120, idle=0.2, grace=5)
    if kind == "async":

        @node.on_event("a")
        async def handle(event: Claimed, connection: Any) -> None:
            await connection.execute("insert into effects values (%s)", [event.id])

    else:

        @node.on_event("a")
        def handle_plainly(event: Claimed, connection: Any) -> None:
            connection.execute("insert into effects values (%s)", [event.id])

    async with running(node):
        # With the end of the statement: connections are set to "read committed" at any time.
        proxy.arm(Fault(fault, 1, saying=b"commit\0"))
        id = queue.publish("a").id
        if fault == "vanished":
            await until(lambda: proxy.struck)
            await until(lambda: effects(db) == [id])
            await until(lambda: node.vitals().trouble)
            proxy.reappear()
        await until(lambda: queue.event(id).status == "COMPLETED")
        await settled(node)
        assert node.vitals().ended == {("a", "completed"): 1} | (
            {("a", "abandoned"): 1} if attempts == 2 else {}
        )
    assert proxy.struck is not None
    assert effects(db) == [id]
    assert (queue.event(id).attempts, queue.event(id).retry_count) == (attempts, 0)
    assert ends(db) == [(id, "COMPLETED")]

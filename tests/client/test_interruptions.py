"""Calls that are interrupted at every line that speaks to PostgreSQL, and wherever they wait for it."""

import asyncio
import linecache
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from inspect import getfile
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from psycopg import waiting
from psycopg.abc import PQGen
from psycopg.pq import PipelineStatus, TransactionStatus

from headrace import client
from headrace.driver import batcher, pool, session_state, wire
from headrace.driver.run import run
from headrace.driver.session import Session
from headrace.engine import encoding
from headrace.engine.statement import Statement, Together
from tests.database import Database

pytestmark = pytest.mark.one_database("how a client reaches one server")

PATIENCE = 20.0  # seconds for a call that takes milliseconds
MANY = 9  # events, in seven statements: more than are sent ahead

EVERYWHERE = pytest.mark.parametrize(
    ("many", "often"), [(1, 100), (MANY, 1), pytest.param(MANY, 100, marks=pytest.mark.rest)]
)

Line = tuple[str, int]  # of a file
Place = tuple[Line, int]  # a line, and the first, second, … time that it is reached

FILES = (
    wire.__file__,
    getfile(Session),
    session_state.__file__,
    pool.__file__,
    batcher.__file__,
    client.__file__,
)
WAITING: Line = ("", 0)


class Places:
    """The lines of sessions and their exchanges that a call reaches, and what is done when it comes to one of them."""

    def __init__(self, chosen: Place | None = None, act: Callable[[], object] = str) -> None:
        self.chosen = chosen
        self.act = act
        self.times: Counter[Line] = Counter()
        self.is_committing = False
        self._thread = 0

    def __enter__(self) -> "Places":
        self._thread = threading.get_ident()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        self._thread = 0

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            # Only there: a frame keeps the locals that it was asked for, and with them what should be collected.
            if frame.f_code.co_name == "send_words":
                self.is_committing |= frame.f_locals.get("words") == b"commit"
            # Python handles no signal between a body and the end of its `with`: there the line is traced once more.
            line = frame.f_code.co_filename, frame.f_lineno
            if not text(line).startswith("with "):
                self.reach(line)
        return self._trace

    def reach(self, line: Line) -> None:
        if self._thread == threading.get_ident():  # and not the pool's
            self.times[line] += 1
            if (line, self.times[line]) == self.chosen:
                self.act()

    @property
    def is_reached(self) -> bool:
        """Not always: an answer comes in pieces that are as large as they happen to be."""
        return self.chosen is not None and self.times[self.chosen[0]] >= self.chosen[1]

    def all(self, often: int) -> list[Place]:
        """Each line so many times, and the last time."""
        return [
            (line, time)
            for line, times in sorted(self.times.items())
            for time in range(1, times + 1)
            if time <= often or time == times
        ]


def text(line: Line) -> str:
    return linecache.getline(*line).strip()


def said(place: Place) -> str:
    line, time = place
    return f"interrupted at line {line[1]} for the {time}. time: {text(line) or 'waiting'}"


def named(places: Places) -> str:
    if places.chosen is None:
        return "undisturbed"
    (file, number), time = places.chosen
    return f"at.{Path(file).stem or 'waiting'}.{number}.{time}"


def within_time(action: Callable[[], None], of: str) -> None:
    """Whoever hangs fails, and is left behind."""
    errors: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive(), f"it hangs, {of}"
    if errors:
        raise AssertionError(of) from errors[0]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "FIRST_EVENTS", 1)
    monkeypatch.setattr(encoding, "BATCH_EVENTS", 1)


def forget_prepared(queue: Any) -> None:
    for kept in queue._source._at_hand:
        kept._wire.forget()


def check(db: Database, queue: Any, type: str, allowed: Collection[int]) -> None:
    """All or nothing, and what the pool has at hand can be used."""
    ((count,),) = db.sql("select count(*) from headrace.events where type = %s", [type])
    assert count in allowed
    for kept in queue._source._at_hand:
        assert kept.pgconn.transaction_status == TransactionStatus.IDLE
        assert kept.pgconn.pipeline_status == PipelineStatus.OFF


@EVERYWHERE
@pytest.mark.usefixtures("small_batches")
def test_ctrl_c_is_one_wherever_it_comes(
    db: Database, monkeypatch: pytest.MonkeyPatch, many: int, often: int
) -> None:
    queue = db.queue(pool_size=1)
    places = Places()
    wait = waiting.wait

    def counted(exchange: PQGen[Any]) -> PQGen[Any]:
        ready: Any = None
        try:
            while True:
                wanted = exchange.send(ready)
                places.reach(WAITING)
                ready = yield wanted
        except StopIteration as end:
            return end.value

    def interrupt() -> None:
        raise KeyboardInterrupt

    def call() -> None:
        type = named(places)
        forget_prepared(queue)
        try:
            with places:
                queue.publish_many([(type, {})] * many)
        except KeyboardInterrupt:
            check(db, queue, type, {0, many} if places.is_committing or many == 1 else {0})
        else:
            assert not places.is_reached
            check(db, queue, type, {many})
        queue.publish("after")

    monkeypatch.setattr(waiting, "wait", lambda e, *a, **options: wait(counted(e), *a, **options))
    within_time(call, "undisturbed")
    assert places.is_committing is (many > 1)
    for place in places.all(often):
        places = Places(place, interrupt)
        within_time(call, said(place))


@pytest.mark.anyio
@EVERYWHERE
@pytest.mark.usefixtures("small_batches")
async def test_a_task_may_be_cancelled_wherever_it_is(db: Database, many: int, often: int) -> None:
    async with db.async_queue(pool_size=1) as queue:
        places = Places()
        task: asyncio.Task[Any]
        allowed = {many}

        def cancel() -> None:
            nonlocal allowed
            if not task.done():
                allowed = {0, many} if places.is_committing or many == 1 else {0}
                task.cancel()

        async def call() -> None:
            nonlocal task, allowed
            type, allowed = named(places), {many}
            forget_prepared(queue)
            task = asyncio.create_task(queue.publish_many([(type, {})] * many))
            with places:
                await asyncio.wait({task})
            assert task.cancelled() or not task.exception()
            assert task.cancelled() or allowed == {many}
            check(db, queue, type, allowed)
            await queue.publish("after")

        async def call_within_time(of: str) -> None:
            calling = asyncio.create_task(call())
            await asyncio.wait({calling}, timeout=PATIENCE)
            assert calling.done(), f"it hangs, {of}"
            if calling.exception():
                raise AssertionError(of) from calling.exception()

        await call_within_time("undisturbed")
        assert places.is_committing is (many > 1)
        loop = asyncio.get_running_loop()
        for place in places.all(often):
            places = Places(place, lambda: loop.call_soon(cancel))
            await call_within_time(said(place))


def test_ctrl_c_does_not_wait_for_what_the_server_waits_for(db: Database) -> None:
    other = db.connect()
    other.execute("select pg_advisory_lock(1)")

    def made(session: Session) -> Iterator[Statement[Any]]:
        yield Statement("select pg_advisory_lock(1)::text", (), list)
        db.wait_until_blocked(session.info.backend_pid)
        raise KeyboardInterrupt

    def call() -> None:
        session = Session.connect(db.dsn, autocommit=True, prepare_threshold=0)
        with closing(session), pytest.raises(KeyboardInterrupt):
            run(session, Together(made(session)), prepare=True)
        blocked = "select from pg_locks where locktype = 'advisory' and not granted"
        db.wait_for(lambda: db.sql(blocked) == [])

    within_time(call, "interrupted while statements are made")

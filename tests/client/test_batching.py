"""Publishers that come at the same moment share a statement, and each gets its own answer."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import headrace
from headrace import InvalidInput, NewEvent, NotStored, OutcomeUnknown, QueueDraining, QueueFull
from headrace.driver import batch
from headrace.driver.async_batcher import AsyncBatcher
from headrace.driver.batcher import Batcher
from headrace.engine.statement import Batchable, Statement
from headrace.errors import HeadraceError
from tests.client.shards import Shards
from tests.database import Database, Server
from tests.requirements import requirement

PATIENCE = 30.0

one_database = pytest.mark.one_database("the statements of one database")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements are held up here, and those who come meanwhile are to go together."""
    monkeypatch.setattr(batch, "SLOW", 10.0)


@contextmanager
def held_up(db: Database) -> Iterator[psycopg.Connection[Any]]:
    """Nobody stores an event as long as this lasts."""
    with db.connect(autocommit=False) as connection:
        connection.execute("lock table headrace.events in share mode")
        yield connection
        connection.rollback()


def batcher_of(queue: Any) -> Any:
    return getattr(queue, "_queue", queue)._batcher


def how_many_wait(queue: Any) -> int:
    return sum(
        sum(not caller.is_gone for caller in group.waiting)
        for group in list(batcher_of(queue)._groups.values())
    )


def how_many_are_blocked(db: Database) -> int:
    [(count,)] = db.sql(
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'"
    )
    return int(count)


class Publishers:
    """Callers in threads of their own."""

    def __init__(self, db: Database, queue: Any) -> None:
        self.db = db
        self.queue = queue
        self._threads = ThreadPoolExecutor(50)
        self.answers: list[Future[Any]] = []

    def call(self, method: Callable[..., Any], *given: Any, **named: Any) -> "Future[Any]":
        self.answers.append(self._threads.submit(method, *given, **named))
        return self.answers[-1]

    def first(self, *given: Any, **named: Any) -> "Future[Any]":
        """It goes alone, and is held up."""
        answer = self.call(self.queue.publish, *given, **named)
        self.db.wait_for(lambda: how_many_are_blocked(self.db) == 1)
        return answer

    def then(self, *given: Any, **named: Any) -> "Future[Any]":
        """It waits for the ones before."""
        before = how_many_wait(self.queue)
        answer = self.call(self.queue.publish, *given, **named)
        self.db.wait_for(lambda: how_many_wait(self.queue) == before + 1)
        return answer

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


@pytest.fixture
def publishers(db: Database, queue: Any) -> Iterator[Publishers]:
    made = Publishers(db, queue)
    yield made
    made.close()


def told(answer: "Future[Any]") -> Any:
    """The event, or the kind of the error."""
    error = answer.exception(PATIENCE)
    return answer.result() if error is None else type(error)


@requirement("G1")
@one_database
def test_publishers_that_come_together_share_a_statement_and_each_gets_its_own_event(
    db: Database, publishers: Publishers
) -> None:
    with held_up(db):
        publishers.first("a", 0)
        for n in range(1, 12):
            kind, details = ("a", {}) if n % 3 else ("b", {"tags": [f"t{n}"], "priority": n % 10})
            publishers.then(kind, n, **details)
    events = [told(answer) for answer in publishers.answers]
    assert [event.payload for event in events] == list(range(12))
    assert len({event.id for event in events}) == 12
    for event in events:
        stored = publishers.queue.event(event.id)
        assert (stored.type, stored.tags, stored.payload, stored.created_at) == (
            *(event.type, event.tags),
            *(event.payload, event.created_at),
        )
    assert db.sql("select count(distinct xmin::text) from headrace.events") == [(2,)]


@requirement("G18")
@one_database
def test_a_bad_event_is_refused_alone(db: Database, publishers: Publishers) -> None:
    with held_up(db):
        publishers.first("a", 0)
        publishers.then("a", 1)
        publishers.then("a", 2, priority=10)
        publishers.then("a", 3, tags=["with,comma"])
        publishers.then("a", {"long": "x" * 2_000_000})
        publishers.then("b", 5)
    answers = [told(answer) for answer in publishers.answers]
    assert [getattr(answer, "payload", answer) for answer in answers] == [
        *(0, 1, InvalidInput, InvalidInput, headrace.PayloadTooLarge, 5)
    ]
    refused = publishers.answers[2].exception()
    assert "priority" in str(refused)
    assert getattr(refused, "position", None) is None, "its publisher knows of no batch"
    assert db.sql("select count(*) from headrace.events") == [(3,)]


@one_database
def test_what_cannot_be_encoded_joins_nobody(db: Database, publishers: Publishers) -> None:
    with held_up(db):
        publishers.first("a", 0)
        publishers.then("a", 1)
        bad = publishers.call(publishers.queue.publish, "a", float("nan"))
        assert told(bad) is headrace.InvalidPayload
    assert [told(answer).payload for answer in publishers.answers[:2]] == [0, 1]


@one_database
def test_a_full_queue_refuses_its_events_and_no_others(
    db: Database, publishers: Publishers
) -> None:
    publishers.queue.create_queue("small", types=["small"], max_queue_depth=1)
    publishers.queue.create_queue("shut", types=["shut"])
    publishers.queue.publish("small")
    db.sql("select headrace.drain('default', 'shut')")
    with held_up(db):
        publishers.first("other", 0)
        for kind in ("small", "other", "shut", "small", "other", "small"):
            publishers.then(kind)
    answers = [told(answer) for answer in publishers.answers[1:]]
    assert [getattr(answer, "type", answer) for answer in answers] == [
        *(QueueFull, "other", QueueDraining, QueueFull, "other", QueueFull)
    ]
    errors = [answer.exception() for answer in publishers.answers]
    assert len({id(error) for error in errors if error}) == 4, "each raises its own"
    assert db.sql("select count(*) from headrace.events where type <> 'other'") == [(1,)]


@requirement("G2")
@one_database
def test_nobody_waits_for_the_key_of_another(db: Database, publishers: Publishers) -> None:
    with db.connect(autocommit=False) as other:
        other.execute(
            """select headrace.publish('default', '[{"type": "a", "idempotency_key": "k"}]')"""
        )
        key = publishers.call(publishers.queue.publish, "a", idempotency_key="k")
        db.wait_for(lambda: how_many_are_blocked(db) == 1)
        others = [publishers.call(publishers.queue.publish, "a", n) for n in range(4)]
        assert [told(answer).payload for answer in others] == [0, 1, 2, 3]
        free = publishers.call(publishers.queue.publish, "a", idempotency_key="free")
        assert not told(free).repeated
        assert not key.done()
        other.rollback()
    assert not told(key).repeated


@requirement("G2")
@one_database
def test_what_may_have_been_stored_is_unknown_to_each_and_is_not_repeated(
    db: Database, publishers: Publishers
) -> None:
    with held_up(db):
        publishers.first("a", 0)
        for n in range(1, 6):
            publishers.then("a", n)
        kill_the_blocked(db)
        db.wait_for(lambda: how_many_are_blocked(db) == 1 and how_many_wait(publishers.queue) == 0)
        kill_the_blocked(db)
        answers = [told(answer) for answer in publishers.answers]
    assert all(issubclass(answer, OutcomeUnknown) for answer in answers)
    assert db.sql("select count(*) from headrace.events") == [(0,)]
    errors = [answer.exception() for answer in publishers.answers]
    assert len({id(error) for error in errors}) == 6


def kill_the_blocked(db: Database) -> None:
    db.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'"
    )


@requirement("G2", "G20")
@one_database
def test_time_is_up_for_each_on_its_own(
    db: Database, publishers: Publishers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was not sent is told that nothing was stored."""
    monkeypatch.setattr(batch, "SLOW", 0.05)
    monkeypatch.setattr(batch, "UNDER_WAY", 1)
    pool = getattr(publishers.queue, "_queue", publishers.queue)._source
    with held_up(db):
        pool.bound = 4.0
        sent = publishers.first("a", 0)
        pool.bound = 0.5
        for n in range(1, 4):
            publishers.call(publishers.queue.publish, "a", n)
        for answer in publishers.answers[1:]:
            assert issubclass(told(answer), NotStored)
        assert issubclass(told(sent), OutcomeUnknown)
    pool.bound = PATIENCE
    assert publishers.queue.publish("a", 4).payload == 4
    assert 0 < db.sql("select count(*) from headrace.events")[0][0] < 3


@one_database
def test_nobody_is_kept_waiting_by_a_statement_that_is_held_up(
    db: Database, publishers: Publishers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "SLOW", 0.02)
    with held_up(db):
        for n in range(3):
            publishers.call(publishers.queue.publish, "a", n)
            db.wait_for(lambda n=n: how_many_are_blocked(db) == n + 1)  # type: ignore[misc]
    assert [told(answer).payload for answer in publishers.answers] == [0, 1, 2]


@one_database
def test_a_closed_client_lets_go_of_all_that_wait(db: Database, publishers: Publishers) -> None:
    with held_up(db):
        publishers.first("a", 0)
        for n in range(1, 4):
            publishers.then("a", n)
        closing = publishers.call(publishers.queue.close)
        db.wait_for(lambda: getattr(publishers.queue, "_queue", publishers.queue)._source.closed)
    closing.result(PATIENCE)
    for answer in publishers.answers[1:4]:
        assert issubclass(told(answer), psycopg.OperationalError)
    assert told(publishers.answers[0]).payload == 0
    assert db.sql("select count(*) from headrace.events") == [(1,)]


def test_over_several_shards_each_has_its_own_batches(server: Server, request: Any) -> None:
    shards = Shards(server, 2)
    with headrace.connect(shards.dsn) as queue:
        together = [batcher_of(one) for one in queue.shards.values()]
        assert len({id(one) for one in together}) == 2
        publishers = Publishers(shards, queue)
        with held_up(shards.parts[0]), held_up(shards.parts[1]):
            for n in range(24):
                key = f"k{n}" if n % 2 else None
                publishers.call(queue.publish, "a", n, key=key, priority=10 if n == 7 else None)
            parts = queue.shards.values()
            shards.wait_for(lambda: sum(map(how_many_wait, parts)) == 22)
        answers = [told(answer) for answer in publishers.answers]
        publishers.close()
    payloads = [getattr(answer, "payload", answer) for answer in answers]
    assert payloads == [*range(7), InvalidInput, *range(8, 24)]
    for n, event in enumerate(answers):
        if n != 7:
            stored = shards.part_of(event.id).sql(
                "select payload from headrace.events where id = %s", [event.id]
            )
            assert stored == [(n,)]
    shards.close()


# Without a database: what is asked, and how it is answered, is given.


class Engine:
    """Notes what is asked together, and answers when it is let."""

    def __init__(self, *, held: bool = False) -> None:
        self.asked: list[list[Any]] = []
        self.may_answer = threading.Event()
        if not held:
            self.may_answer.set()

    def statement(self, one: Any, size: int = 0) -> Statement[str]:
        asked = Batchable("default", "kind", one, size, self.together)
        return Statement("", [one], lambda rows: "", batchable=asked)

    def together(self, asked: Sequence[Any]) -> Statement[list[str]]:
        return Statement("", [*asked], lambda rows: [])

    def answer(self, asked: Sequence[Any]) -> list[str]:
        for place, one in enumerate(asked):
            if one == "lost":
                raise ConnectionError
            if one == "interrupted":
                raise KeyboardInterrupt
            if one == "bad":
                raise InvalidInput("bad", place)
            if one == "bad somewhere":
                raise HeadraceError("bad")
            if one == "held up":
                raise psycopg.errors.LockNotAvailable
        return [f"done {one}" for one in asked]

    def run(self, statement: Statement[Any], until: float | None) -> Any:
        self.asked.append([*statement.params])
        assert self.may_answer.wait(PATIENCE)
        answers = self.answer(statement.params)
        return answers if statement.batchable is None else answers[0]

    async def run_async(self, statement: Statement[Any]) -> Any:
        self.asked.append([*statement.params])
        while not self.may_answer.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0)
        answers = self.answer(statement.params)
        return answers if statement.batchable is None else answers[0]


class Desk:
    """A batcher of one of the two kinds, and those who ask it."""

    def __init__(self, kind: str, engine: Engine) -> None:
        self.engine = engine
        self._is_async = kind == "async"
        self._answers: list[Any] = []
        if not self._is_async:
            self.batcher: Any = Batcher(engine.run, lambda: PATIENCE)
            self._threads = ThreadPoolExecutor(300)
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.batcher = AsyncBatcher(engine.run_async, lambda: PATIENCE)

    def ask(self, one: Any, size: int = 0) -> "Future[Any]":
        statement = self.engine.statement(one, size)
        if self._is_async:
            return asyncio.run_coroutine_threadsafe(self.batcher.ask(statement), self._loop)
        return self._threads.submit(self.batcher.ask, statement)

    def early(self) -> "Future[Any]":
        """It is under way."""
        answer = self.ask("early")
        wait_for(lambda: bool(self.engine.asked))
        return answer

    def late(self, *asked: Any, size: int = 0) -> "list[Future[Any]]":
        """All of them wait, in this order."""
        answers = []
        for one in asked:
            answers.append(self.ask(one, size))
            wait_for(lambda: self.waiting() == len(answers))
        return answers

    def waiting(self) -> int:
        return sum(len(group.waiting) for group in self.batcher._groups.values())

    def close(self) -> None:
        self.engine.may_answer.set()
        if self._is_async:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        else:
            self._threads.shutdown()


def wait_for(condition: Callable[[], bool]) -> None:
    tries = threading.Event()
    for _ in range(int(PATIENCE / 0.001)):
        if condition():
            return
        tries.wait(0.001)
    raise AssertionError("it did not come to be")


@pytest.fixture(params=["plain", "async"])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    made = Desk(request.param, Engine(held=True))
    yield made
    made.close()


def all_told(answers: "list[Future[Any]]") -> list[str]:
    return [str(answer.exception(PATIENCE) or answer.result()) for answer in answers]


def test_a_lone_caller_goes_at_once_and_alone(desk: Desk) -> None:
    desk.engine.may_answer.set()
    assert [desk.ask(n).result(PATIENCE) for n in range(3)] == ["done 0", "done 1", "done 2"]
    assert desk.engine.asked == [[0], [1], [2]]
    wait_for(lambda: all(group.is_idle for group in desk.batcher._groups.values()))


def test_those_who_come_while_others_are_under_way_go_together(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "MOST", 20)
    early = desk.early()
    late = desk.late(*range(25))
    desk.engine.may_answer.set()
    assert all_told([early, *late]) == ["done early", *(f"done {n}" for n in range(25))]
    assert desk.engine.asked == [["early"], [*range(20)], [*range(20, 25)]]


@requirement("G18")
def test_what_is_large_goes_in_several(desk: Desk) -> None:
    early = desk.early()
    late = desk.late(*range(5), size=batch.MOST_BYTES // 2)
    desk.engine.may_answer.set()
    all_told([early, *late])
    assert desk.engine.asked[1:] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("bad", ["bad", "bad somewhere", "held up"])
def test_one_that_is_refused_is_refused_alone(desk: Desk, bad: str) -> None:
    early = desk.early()
    late = desk.late(1, bad, 2, bad, 3)
    desk.engine.may_answer.set()
    told = all_told(late)
    assert [told[0], told[2], told[4]] == ["done 1", "done 2", "done 3"]
    errors = [late[1].exception(), late[3].exception()]
    assert all(errors)
    assert errors[0] is not errors[1]
    assert [getattr(error, "position", None) for error in errors] == [None, None]
    early.result(PATIENCE)


def test_where_all_are_held_up_all_are_told_before_long(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "SEARCH", -1.0)
    desk.early()
    late = desk.late(*["held up"] * 50)
    desk.engine.may_answer.set()
    assert {type(answer.exception(PATIENCE)) for answer in late} == {
        psycopg.errors.LockNotAvailable
    }
    assert len(desk.engine.asked) == 2, "one by one it would be a hundred"


def test_what_may_have_been_done_is_not_done_again(desk: Desk) -> None:
    desk.early()
    late = desk.late(1, "lost", 2)
    desk.engine.may_answer.set()
    assert {type(answer.exception(PATIENCE)) for answer in late} == {ConnectionError}
    assert desk.engine.asked[1:] == [[1, "lost", 2]]


def test_others_are_told_when_the_sender_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that sends for all is the one that Ctrl-C or an exception from outside hits."""
    desk = Desk("plain", Engine(held=True))
    desk.early()
    late = desk.late(1, "interrupted", 2)
    desk.engine.may_answer.set()
    errors = [answer.exception(PATIENCE) for answer in late]
    assert sorted(type(error).__name__ for error in errors) == [
        *("KeyboardInterrupt", "OutcomeUnknown", "OutcomeUnknown")
    ]
    assert desk.ask(3).result(PATIENCE) == "done 3"
    desk.close()


def test_what_an_interrupted_caller_leaves_behind_keeps_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch, "SLOW", 0.01)
    desk = Desk("plain", Engine())
    desk.ask(0).result(PATIENCE)
    [group] = desk.batcher._groups.values()
    group.under_way[object()] = 0.0  # as if it had been interrupted before its last line
    assert [desk.ask(n).result(PATIENCE) for n in range(3)] == ["done 0", "done 1", "done 2"]
    desk.close()


def test_the_time_of_a_caller_that_was_sent_is_its_own(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It began when the caller came. A thread that sends for others is in the statement itself."""
    monkeypatch.setattr(batch, "SLOW", 0.02)
    monkeypatch.setattr(desk.batcher, "_bound", lambda: 0.5)
    early = desk.early()
    answers = [desk.ask("late"), desk.ask("as late")]
    waiting = 2 if isinstance(desk.batcher, AsyncBatcher) else 1
    wait_for(lambda: sum(answer.done() for answer in answers) == waiting)
    for answer in answers:
        if answer.done():
            assert isinstance(answer.exception(), OutcomeUnknown | NotStored)
    desk.engine.may_answer.set()
    assert early.result(PATIENCE) == "done early"


def test_a_cancelled_caller_takes_nobody_along() -> None:
    desk = Desk("async", Engine(held=True))
    desk.early()
    late = desk.late(1, 2, 3)
    late[1].cancel()
    wait_for(
        lambda: sum(not c.is_gone for g in desk.batcher._groups.values() for c in g.waiting) == 2
    )
    desk.engine.may_answer.set()
    assert [late[0].result(PATIENCE), late[2].result(PATIENCE)] == ["done 1", "done 3"]
    assert desk.engine.asked == [["early"], [1, 3]]
    desk.close()


def test_a_statement_whose_callers_are_all_cancelled_is_given_up() -> None:
    desk = Desk("async", Engine(held=True))
    early = desk.early()
    early.cancel()
    wait_for(lambda: all(group.is_idle for group in desk.batcher._groups.values()))
    second = desk.early()
    late = desk.late(1, 2)
    second.cancel()
    wait_for(lambda: desk.engine.asked[-1] == [1, 2])
    for one in late:
        one.cancel()
    wait_for(lambda: all(group.is_idle for group in desk.batcher._groups.values()))
    desk.close()


@requirement("G18")
@pytest.mark.anyio
async def test_what_is_too_long_for_one_statement_goes_in_several(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The payloads are short, and what describes them is not."""
    monkeypatch.setattr(batch, "MOST_BYTES", 150_000)
    async with headrace.connect_async(db.dsn) as queue:
        events = [NewEvent("a", n, title=f"{n}" * 60_000) for n in range(9)]
        stored = await asyncio.gather(*map(queue.publish, events))
    assert [event.payload for event in stored] == list(range(9))
    sizes = db.sql("select count(*) from headrace.events group by xmin::text")
    assert max(sizes) == (2,)

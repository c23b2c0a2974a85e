"""Every call ends in time, and says what it knows: stored, not stored, or unknown."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import headrace
from headrace import NotStored, OutcomeUnknown
from tests.client.clients import Client
from tests.faults.awaited import Awaiting
from tests.faults.awaited import awaiting as awaiting  # the fixtures
from tests.faults.awaited import awaiting_server as awaiting_server
from tests.faults.proxy import Proxy
from tests.requirements import requirement

pytestmark = requirement("G2", "G20")

BOUND = 0.5  # seconds of a call
LATE = 20.0  # seconds after which it is taken to wait for ever: less than any bound that it could have by accident


@pytest.fixture
def db(awaiting: Awaiting) -> Awaiting:
    """For the clients of this module."""
    return awaiting


def publish(queue: Any) -> Any:
    return queue.publish("a", {"n": 1}, idempotency_key="k")


def publish_together(queue: Any) -> Any:
    """Several statements between BEGIN and COMMIT."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headrace.engine.encoding.BATCH_EVENTS", 2)
        return queue.publish_many([("a", n) for n in range(7)])


CALLS = pytest.mark.parametrize("call", [publish, publish_together])


def pool_of(queue: Any) -> Any:
    return getattr(queue, "_queue", queue)._source


def limit(queue: Any, seconds: float) -> None:
    """Of calls from now on: what is not about to fail has time, however slow the machine is."""
    pool = pool_of(queue)
    pool.bound = pool.timeout = seconds


def in_thread(call: Callable[..., Any], *arguments: Any) -> "Future[Any]":
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            answer.set_result(call(*arguments))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return answer


def told(call: Callable[..., Any], *arguments: Any) -> BaseException | None:
    """What a call raises, which it must do in time."""
    return in_thread(call, *arguments).exception(LATE)


@CALLS
def test_a_commit_that_waits_for_a_standby_ends_in_time_as_unknown(
    client: Client, db: Awaiting, call: Callable[..., Any]
) -> None:
    queue = client.queue()
    with db.nobody_follows():
        limit(queue, BOUND)
        began = time.monotonic()
        error = told(call, queue)
        assert isinstance(error, OutcomeUnknown)
        assert isinstance(error, psycopg.OperationalError)
        assert time.monotonic() - began >= BOUND
        db.wait_for(lambda: not db.waiting())  # its session is not left behind on the server
    limit(queue, LATE)
    assert call(queue)


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
@CALLS
def test_a_commit_whose_wait_is_broken_off_is_not_called_a_success(
    client: Client, db: Awaiting, call: Callable[..., Any], how: str
) -> None:
    queue = client.queue()
    with db.nobody_follows():
        answer = in_thread(call, queue)
        db.end_waits(how)
        assert isinstance(answer.exception(LATE), OutcomeUnknown)
    assert call(queue)


def test_it_is_heard_by_those_who_are_told_of_errors_alone(client: Client, db: Awaiting) -> None:
    db.sql(f"alter database {db.name} set client_min_messages = error")
    queue = client.queue()
    with db.nobody_follows():
        answer = in_thread(publish, queue)
        db.end_waits()
        assert isinstance(answer.exception(LATE), OutcomeUnknown)


@CALLS
def test_on_a_connection_of_the_callers_it_is_not_called_a_success_either(
    client: Client, db: Awaiting, call: Callable[..., Any]
) -> None:
    queue = client.queue_on(client.connection(autocommit=True))
    with db.nobody_follows():
        answer = in_thread(call, queue)
        db.end_waits()
        assert isinstance(answer.exception(LATE), OutcomeUnknown)


@CALLS
def test_over_a_pool_of_the_callers_it_is_not_called_a_success_either(
    client: Client, db: Awaiting, call: Callable[..., Any]
) -> None:
    queue = client.queue_on(client.pool())
    with db.nobody_follows():
        answer = in_thread(call, queue)
        db.end_waits()
        assert isinstance(answer.exception(LATE), OutcomeUnknown)
    assert call(queue)


def test_a_call_that_gets_no_connection_in_time_has_stored_nothing(
    client: Client, db: Awaiting
) -> None:
    queue = client.queue(pool_size=1)
    taken = client.call(pool_of(queue).getconn)
    limit(queue, BOUND)
    error = told(publish, queue)
    assert isinstance(error, NotStored)
    assert "within 0.5 s" in str(error)
    client.call(pool_of(queue).putconn, taken)
    limit(queue, LATE)
    assert publish(queue).id == 1
    assert db.sql("select count(*) from headrace.events") == [(1,)]


@pytest.fixture
def network(db: Awaiting) -> Iterator[Proxy]:
    with Proxy(db.dsn) as network:
        yield network


def test_a_statement_that_is_swallowed_by_the_network_ends_in_time_as_unknown(
    client: Client, db: Awaiting, network: Proxy
) -> None:
    db.dsn = network.dsn
    queue = client.queue()
    publish(queue)
    network.swallows = True
    limit(queue, BOUND)
    assert isinstance(told(publish, queue), OutcomeUnknown)
    # The next one finds no connection, or one that is as dead; it is not kept waiting for that one's end.
    assert isinstance(told(publish, queue), headrace.Unavailable)


def test_what_is_lost_before_it_was_sent_is_not_stored(
    client: Client, db: Awaiting, network: Proxy
) -> None:
    """The statement has to be prepared first: where that is not answered, it has not been sent."""
    db.dsn = network.dsn
    queue = client.queue()
    network.swallows = True
    limit(queue, BOUND)
    assert isinstance(told(publish, queue), NotStored)


@pytest.fixture
def hole() -> Iterator[int]:
    """The port of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_server_that_never_answers_is_not_waited_for(
    client: Client, db: Awaiting, hole: int
) -> None:
    db.dsn = f"postgresql://nobody@127.0.0.1:{hole},127.0.0.1:{hole},127.0.0.1:{hole}/none"
    began = time.monotonic()
    error = told(lambda: client.queue(timeout=BOUND))
    assert isinstance(error, psycopg.OperationalError)
    assert time.monotonic() - began < 3 * 2  # which psycopg would give to each of them


def test_behind_a_server_that_never_answers_the_next_one_is_found(
    client: Client, db: Awaiting, hole: int, network: Proxy
) -> None:
    there = conninfo_to_dict(network.dsn)
    db.dsn = make_conninfo(
        network.dsn,
        host=f"127.0.0.1,{there['host']}",
        port=f"{hole},{there['port']}",
        connect_timeout=2,
    )
    assert publish(client.queue(timeout=LATE))


def test_a_call_of_many_steps_has_its_time_for_each(client: Client, db: Awaiting) -> None:
    """What is published together is not broken off as long as it goes on."""
    queue = client.queue()
    limit(queue, 2)
    until = time.monotonic() + 3

    def events() -> Iterator[tuple[str, int]]:
        for n in itertools.takewhile(lambda _: time.monotonic() < until, itertools.count()):
            yield "a", n
            time.sleep(0.001)

    assert len(queue.publish_many(events())) == db.sql("select count(*) from headrace.events")[0][0]


def test_a_client_gives_each_call_the_time_that_it_was_told(client: Client) -> None:
    pools = [pool_of(client.queue(timeout=7)), pool_of(client.queue())]
    assert [(pool.bound, pool.timeout) for pool in pools] == [(7, 7), (30, 30)]


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "soon"])
def test_a_time_limit_is_longer_than_nothing(timeout: Any) -> None:
    with pytest.raises(headrace.InvalidInput, match="timeout"):
        headrace.connect("postgresql://nobody@127.0.0.1:1/none", timeout=timeout)
    with pytest.raises(headrace.InvalidInput, match="timeout"):
        headrace.connect_async("postgresql://nobody@127.0.0.1:1/none", timeout=timeout)
    with pytest.raises(headrace.InvalidInput, match="timeout"):
        headrace.Node(timeout=timeout)


@CALLS
def test_a_server_that_takes_no_writes_is_left_for_the_one_that_does(
    client: Client, awaiting: Awaiting, call: Callable[[Any], Any]
) -> None:
    """As behind a proxy that does not know yet that its server has become a standby."""
    setting = f"alter database {awaiting.name} {{}} default_transaction_read_only"
    awaiting.sql(setting.format("set") + " = on")
    queue = client.queue(pool_size=1)
    with pytest.raises(NotStored, match="takes no writes"):
        call(queue)
    with pytest.raises(NotStored, match="takes no writes"):
        queue.poll(max_events=1)
    with awaiting.connect(options="-c default_transaction_read_only=off") as open_for_writing:
        open_for_writing.execute(setting.format("reset"))
    with suppress(NotStored):  # it may have connected again already
        call(queue)
    assert call(queue)


def test_a_transaction_of_the_caller_that_is_read_only_is_the_callers(awaiting: Awaiting) -> None:
    with headrace.connect(awaiting.dsn) as queue, awaiting.connect() as connection:
        connection.read_only, connection.autocommit = True, False
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), connection.transaction():
            queue.publish("a", connection=connection)
        assert not connection.closed

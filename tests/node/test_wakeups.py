"""Wake-ups: who sleeps is told of work, and whatever becomes of the connection, nobody waits for ever."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import psycopg
import pytest

from headrace import Claimed
from headrace.driver import listen, listener
from headrace.driver import watch as watches
from headrace.driver.listen import Wakeups
from headrace.driver.watch import Subscription, Watch
from tests.database import PATIENCE, Database
from tests.node.nodes import node, running
from tests.pooler import pgbouncer
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

SLEEPERS = 1212433732
BLINK = 0.02  # a timeout for what is not to come
LOOKS = watches.LOOKS
LATE = 1.0  # seconds that a busy machine may add


@pytest.fixture(autouse=True)
def _only_by_a_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "LOOKS", ())


@pytest.fixture
async def wakeups(db: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Wakeups]:
    monkeypatch.setattr(listen, "ARMING", PATIENCE)
    async with Wakeups(db.dsn) as wakeups:
        yield wakeups


@pytest.fixture
async def watch(wakeups: Wakeups) -> Watch:
    return wakeups.watch("default", "main")


def publish(db: Database, type: str = "a") -> None:
    db.sql("select headrace.publish('default', jsonb_build_object('type', %s::text))", [type])


def publish_in(connection: psycopg.Connection) -> None:
    connection.execute("""select headrace.publish('default', '{"type": "a"}')""")


def is_old(transaction: psycopg.Connection, age: str) -> bool:
    asked = transaction.execute(
        "select clock_timestamp() - transaction_timestamp() >= %s::interval", [age]
    )
    return asked.fetchone() == (True,)


def subscription(wakeups: Wakeups) -> Subscription:
    found = wakeups.subscription(("default", "main"))
    assert found is not None
    return found


def sleepers(db: Database) -> int:
    """How many sessions publishers know to be asleep."""
    [(count,)] = db.sql(
        "select count(*) from pg_locks where locktype = 'advisory' and classid = %s and granted"
        " and database = (select oid from pg_database where datname = current_database())",
        [SLEEPERS],
    )
    return count


def listeners(db: Database) -> list[int]:
    """The sessions of this database whose last statement was one of ours that falls asleep or wakes up."""
    return [
        pid
        for (pid,) in db.sql(
            "select pid from pg_stat_activity where datname = current_database()"
            " and query ~ 'fall_asleep|wake_up|idle_session_timeout' and pid <> pg_backend_pid()"
        )
    ]


def cut(db: Database) -> None:
    db.sql("select pg_terminate_backend(pid) from unnest(%s::int[]) pid", [listeners(db)])


async def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.005)


async def asleep_again(db: Database, watch: Watch) -> None:
    """Who waits on tries again from time to time to be known to publishers."""
    deadline = time.monotonic() + PATIENCE
    while sleepers(db) == 0:
        assert time.monotonic() < deadline, "it did not happen"
        await watch.wait(BLINK)


@requirement("G19")
async def test_who_sleeps_is_woken_by_a_publish(db: Database, watch: Watch) -> None:
    await watch.arm()
    publish(db)
    assert await watch.wait(PATIENCE)


async def test_publishers_notify_as_soon_as_it_is_armed(db: Database, watch: Watch) -> None:
    await watch.arm()
    assert sleepers(db) == 1


async def test_who_is_not_armed_waits_for_his_time(db: Database, watch: Watch) -> None:
    publish(db)
    assert not await watch.wait(BLINK)


async def test_what_was_heard_before_it_was_armed_does_not_count(
    db: Database, watch: Watch
) -> None:
    await watch.arm()
    publish(db)
    assert await watch.wait(PATIENCE)
    publish(db)
    await eventually(watch._woken.is_set)
    await watch.arm()
    assert not await watch.wait(BLINK)


async def test_one_wake_up_is_told_once(db: Database, watch: Watch) -> None:
    await watch.arm()
    publish(db)
    assert await watch.wait(PATIENCE)
    assert not await watch.wait(BLINK)
    publish(db)
    assert await watch.wait(PATIENCE)


async def test_after_a_while_publishers_do_not_notify_who_no_longer_waits(
    db: Database, watch: Watch
) -> None:
    await watch.arm()
    watch.disarm()
    await eventually(lambda: sleepers(db) == 0)


async def test_who_waits_again_at_once_need_not_ask(
    db: Database, wakeups: Wakeups, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    await watch.arm()
    watch.disarm()
    monkeypatch.setattr(listener.Listener, "ask", None)  # asking would fail
    await watch.arm()
    publish(db)
    assert await watch.wait(PATIENCE)
    assert wakeups.working


async def test_watches_of_one_queue_share_one_sleeper(db: Database, wakeups: Wakeups) -> None:
    watches = [wakeups.watch("default", "main") for _ in range(3)]
    await asyncio.gather(*(watch.arm() for watch in watches))
    assert sleepers(db) == 1
    watches[0].disarm()
    publish(db)
    assert await asyncio.gather(*(watch.wait(PATIENCE) for watch in watches[1:])) == [True, True]
    assert not await watches[0].wait(BLINK)


async def test_each_queue_wakes_its_own(db: Database, wakeups: Wakeups) -> None:
    db.sql("select headrace.create_queue('default', 'billing', types => '{bill}')")
    main, billing = wakeups.watch("default", "main"), wakeups.watch("default", "billing")
    await asyncio.gather(main.arm(), billing.arm())
    publish(db)
    assert await main.wait(PATIENCE)
    assert not await billing.wait(BLINK)
    publish(db, "bill")
    assert await billing.wait(PATIENCE)


async def test_a_queue_that_is_not_there_is_waited_for_by_the_clock(
    db: Database, wakeups: Wakeups, watch: Watch
) -> None:
    nowhere = wakeups.watch("default", "nowhere")
    await nowhere.arm()
    assert not await nowhere.wait(BLINK)
    await watch.arm()
    publish(db)
    assert await watch.wait(PATIENCE)


class TestAPublisherThatNotifiesNobody:
    """It looked for sleepers before one fell asleep, and commits after that one's poll."""

    @pytest.fixture(autouse=True)
    def _looks(self, monkeypatch: pytest.MonkeyPatch, _only_by_a_notification: None) -> None:
        monkeypatch.setattr(watches, "LOOKS", LOOKS)

    async def test_who_has_just_fallen_asleep_looks_again(self, watch: Watch) -> None:
        await watch.arm()
        armed = asyncio.get_running_loop().time()
        for look in (0.005, 0.05, 0.5):
            assert not await watch.wait(PATIENCE)
            passed = asyncio.get_running_loop().time() - armed
            assert look - BLINK <= passed < PATIENCE / 2

    async def test_who_was_known_to_publishers_all_the_time_need_not(
        self, watch: Watch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watches, "LOOKS", (0.001,))
        await watch.arm()
        assert not await watch.wait(PATIENCE)
        for _ in range(3):
            watch.disarm()
            await watch.arm()
            began = asyncio.get_running_loop().time()
            assert not await watch.wait(BLINK)
            assert asyncio.get_running_loop().time() - began >= BLINK / 2

    @requirement("G19")
    async def test_its_event_is_found_though_the_next_poll_is_far(
        self, db: Database, watch: Watch
    ) -> None:
        with db.connect(autocommit=False) as publisher:
            publish_in(publisher)
            await watch.arm()
            assert db.sql("select count(*) from headrace.poll('default', worker => 'w')") == [(0,)]
            publisher.commit()
        async with asyncio.timeout(PATIENCE):
            while not db.sql("select id from headrace.poll('default', worker => 'w')"):
                assert not await watch.wait(10 * PATIENCE)

    @requirement("G19")
    async def test_a_transaction_of_five_seconds_costs_a_poll_interval(self, db: Database) -> None:
        one, started = node(db, idle=1), asyncio.Event()
        at: list[float] = []

        @one.on_event("a")
        async def handle(event: Claimed) -> None:
            at.append(time.monotonic())
            started.set()

        with db.connect(autocommit=False) as publisher:
            publish_in(publisher)
            async with running(one):
                await eventually(lambda: sleepers(db) == 1)
                await eventually(lambda: is_old(publisher, "5 s"))
                publisher.commit()
                committed = time.monotonic()
                await asyncio.wait_for(started.wait(), PATIENCE)
        assert at[0] - committed < 1 + LATE


class TestLostConnections:
    @requirement("G19")
    async def test_it_comes_back_and_wakes_who_waits(
        self, db: Database, watch: Watch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "headrace")
        await watch.arm()
        cut(db)
        assert await watch.wait(PATIENCE)
        assert sleepers(db) == 1
        publish(db)
        assert await watch.wait(PATIENCE)
        assert caplog.records == []

    async def test_to_arm_takes_no_longer_while_it_is_away(
        self, db: Database, wakeups: Wakeups, watch: Watch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def refused(*arguments: object, **options: object) -> None:
            raise psycopg.OperationalError("no server")

        monkeypatch.setattr(listener.AsyncSession, "connect", refused)
        cut(db)
        await eventually(lambda: not wakeups.working)
        async with asyncio.timeout(listen.ARMING / 2):
            await watch.arm()
            assert not await watch.wait(BLINK)

    async def test_a_server_that_is_away_is_told_of_once_and_tried_again(
        self, db: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listen, "FIRST_PAUSE", 0.001)
        monkeypatch.setattr(listen, "LONGEST_PAUSE", 0.01)
        tries = []
        connect = listener.AsyncSession.connect

        async def refused(*arguments: object, **options: object) -> None:
            tries.append(1)
            raise psycopg.OperationalError("no server\nhere")

        monkeypatch.setattr(listener.AsyncSession, "connect", refused)
        async with Wakeups(db.dsn) as wakeups:
            watch = wakeups.watch("default", "main")
            await watch.arm()
            await eventually(lambda: len(tries) > 3)
            assert [record.getMessage() for record in caplog.records] == [
                "wake-ups do not work for now, and consumers poll for work: no server"
            ]
            monkeypatch.setattr(listener.AsyncSession, "connect", connect)
            assert await watch.wait(PATIENCE)
            publish(db)
            assert await watch.wait(PATIENCE)

    async def test_however_often_it_was_cut_it_is_back_in_a_few_seconds(
        self, db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        pauses: list[float] = []
        sleep = asyncio.sleep

        async def hurry(seconds: float) -> None:
            task = asyncio.current_task()
            if task is not None and task.get_name() == "headrace wake-ups":
                pauses.append(seconds)
            await sleep(0.001)

        async def refused(*arguments: object, **options: object) -> None:
            raise psycopg.OperationalError("no server here")

        monkeypatch.setattr(listener.AsyncSession, "connect", refused)
        monkeypatch.setattr(asyncio, "sleep", hurry)
        async with Wakeups(db.dsn):
            await eventually(lambda: len(pauses) > 20)
        assert pauses[0] == 0
        assert 0.02 < pauses[1] <= 0.05
        assert 0.5 < max(pauses) <= 1

    async def test_a_server_that_does_not_answer_keeps_nobody(
        self, db: Database, wakeups: Wakeups, watch: Watch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listen, "ARMING", 0.01)
        monkeypatch.setattr(listener, "ANSWER", 0.1)
        blocker = db.connect(autocommit=False)
        blocker.execute("lock headrace.queues in access exclusive mode")
        await watch.arm()
        assert not await watch.wait(BLINK)
        await eventually(lambda: not wakeups.working)
        blocker.rollback()
        assert await watch.wait(PATIENCE)
        assert wakeups.working

    async def test_it_is_closed_while_the_server_does_not_answer(
        self, db: Database, wakeups: Wakeups, watch: Watch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listen, "ARMING", 0.01)
        blocker = db.connect(autocommit=False)
        blocker.execute("lock headrace.queues in access exclusive mode")
        await watch.arm()
        async with asyncio.timeout(listener.ANSWER / 2):
            await wakeups.close()


async def test_without_prepared_statements_there_is_a_pooler_and_nobody_listens(
    db: Database,
) -> None:
    async with Wakeups(db.dsn, prepare=False) as wakeups:
        watch = wakeups.watch("default", "main")
        await watch.arm()
        publish(db)
        assert not await watch.wait(BLINK)
        watch.disarm()
    assert listeners(db) == []


@requirement("G19")
async def test_a_pooler_that_lends_the_session_to_others_is_found_out(
    db: Database, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "PROBE", 0.1)
    caplog.set_level(logging.INFO, "headrace")
    with pgbouncer(db, "transaction") as dsn:
        async with Wakeups(dsn) as wakeups:
            watch = wakeups.watch("default", "main")
            await watch.arm()
            await eventually(lambda: bool(caplog.records))
            publish(db)
            assert not await watch.wait(BLINK)
            assert not wakeups.working
    assert [record.getMessage() for record in caplog.records] == [
        "PostgreSQL is behind a transaction pooler: there are no wake-ups, and consumers poll for work"
    ]


async def test_through_a_pooler_of_whole_sessions_who_sleeps_is_woken(db: Database) -> None:
    with pgbouncer(db, "session") as dsn:
        async with Wakeups(dsn) as wakeups:
            watch = wakeups.watch("default", "main")
            await watch.arm()
            publish(db)
            assert await watch.wait(PATIENCE)


async def test_closing_leaves_no_connection(db: Database, wakeups: Wakeups, watch: Watch) -> None:
    await watch.arm()
    await wakeups.close()
    await eventually(lambda: listeners(db) == [])
    assert not await watch.wait(BLINK)


async def test_an_outsider_with_the_lock_keeps_nobody_from_polling_and_nobody_waits_for_him(
    db: Database, wakeups: Wakeups, watch: Watch
) -> None:
    outsider = db.connect()
    outsider.execute("select pg_advisory_lock(%s, id) from headrace.queues", [SLEEPERS])
    await watch.arm()
    assert not await watch.wait(BLINK)
    assert wakeups.working
    outsider.execute("select pg_advisory_unlock_all()")
    await asleep_again(db, watch)
    publish(db)
    assert await watch.wait(PATIENCE)


class TestACrowd:
    """Transactions that notify commit one by one, so a queue with many of them stays awake."""

    @pytest.fixture
    def publishers(self, db: Database) -> list[psycopg.Connection]:
        return [db.connect(autocommit=False) for _ in range(1 + watches.CROWDED)]

    @pytest.fixture
    async def busy(
        self, db: Database, watch: Watch, publishers: list[psycopg.Connection]
    ) -> Callable[[], Awaitable[None]]:
        async def busy() -> None:
            for publisher in publishers:
                publish_in(publisher)
            for publisher in publishers:
                publisher.commit()
            assert await watch.wait(PATIENCE)

        return busy

    async def test_a_queue_that_many_fill_at_once_is_awake_until_it_is_quiet(
        self,
        db: Database,
        watch: Watch,
        busy: Callable[[], Awaitable[None]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(watches, "WINDOW", PATIENCE)
        monkeypatch.setattr(watches, "MOMENT", PATIENCE)
        await watch.arm()
        await busy()
        watch.found()
        assert sleepers(db) == 1
        await busy()
        await eventually(lambda: sleepers(db) == 0)
        for _ in range(10):
            assert not await watch.wait(PATIENCE)  # a nap
        monkeypatch.setattr(watches, "MOMENT", 0.0)
        watch.found()
        await asleep_again(db, watch)
        publish(db)
        assert await watch.wait(PATIENCE)

    async def test_who_finds_nothing_sleeps_on(
        self,
        db: Database,
        wakeups: Wakeups,
        watch: Watch,
        busy: Callable[[], Awaitable[None]],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(watches, "WINDOW", PATIENCE)
        await watch.arm()
        await busy()
        await busy()
        await eventually(lambda: subscription(wakeups)._met == 2 * watches.CROWDED)
        assert not subscription(wakeups).is_awake
        assert sleepers(db) == 1

    async def test_one_publisher_after_the_other_is_no_crowd(
        self, db: Database, watch: Watch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watches, "WINDOW", PATIENCE)
        await watch.arm()
        for _ in range(2 * watches.CROWDED):
            publish(db)
            assert await watch.wait(PATIENCE)
            watch.found()
        assert sleepers(db) == 1


class TestStorms:
    """Anybody can notify, as often as he likes."""

    @pytest.fixture
    async def storm(self, db: Database, watch: Watch) -> Callable[[], Awaitable[None]]:
        [(channel,)] = db.sql("select 'headrace_' || id from headrace.queues")
        outsider = db.connect()
        await watch.arm()
        assert not await watch.wait(BLINK)

        async def storm() -> None:
            outsider.execute(f"notify {channel}")
            await eventually(watch._woken.is_set)

        return storm

    async def test_who_finds_nothing_is_woken_more_and_more_seldom(
        self, watch: Watch, storm: Callable[[], Awaitable[None]]
    ) -> None:
        woken = 0
        for _ in range(60):
            await storm()
            woken += await watch.wait(BLINK)
        assert watches.SPARED <= woken <= 30

    async def test_who_finds_something_is_woken_at_once_again(
        self, watch: Watch, storm: Callable[[], Awaitable[None]]
    ) -> None:
        watch._in_vain = 50  # the pause is a year
        await storm()
        assert not await watch.wait(BLINK)
        watch.found()
        await storm()
        assert await watch.wait(PATIENCE)

    async def test_it_is_over_when_nobody_notifies_for_as_long_as_one_waits(
        self, watch: Watch, storm: Callable[[], Awaitable[None]]
    ) -> None:
        watch._in_vain = 50
        await storm()
        assert not await watch.wait(BLINK)
        assert not await watch.wait(BLINK)
        await storm()
        assert await watch.wait(PATIENCE)

    async def test_a_flood_is_not_even_listened_to(
        self,
        db: Database,
        watch: Watch,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(watches, "FLOOD", 100)
        [(channel,)] = db.sql("select 'headrace_' || id from headrace.queues")
        await watch.arm()
        assert sleepers(db) == 1
        db.sql("select pg_notify(%s, n::text) from generate_series(1, 10000) n", [channel])
        await eventually(lambda: sleepers(db) == 0)
        assert "more than 100 notifications a second" in caplog.text
        assert await watch.wait(PATIENCE)  # the first of them
        publish(db)
        assert not await watch.wait(BLINK)

    async def test_after_a_flood_it_is_listened_to_again(
        self, db: Database, watch: Watch, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watches, "FLOOD", 100)
        monkeypatch.setattr(watches, "CALM", 0.05)
        [(channel,)] = db.sql("select 'headrace_' || id from headrace.queues")
        await watch.arm()
        db.sql("select pg_notify(%s, n::text) from generate_series(1, 200) n", [channel])
        assert await watch.wait(PATIENCE)
        await eventually(lambda: sleepers(db) == 0)
        await asleep_again(db, watch)
        publish(db)
        assert await watch.wait(PATIENCE)

    async def test_what_the_process_itself_says_is_heeded_at_once(
        self, watch: Watch, storm: Callable[[], Awaitable[None]]
    ) -> None:
        watch._in_vain = 50
        await storm()
        watch.wake()
        assert await watch.wait(PATIENCE)

"""A node's leases are kept whatever its event loop does, and what is lost is told of."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

import headrace
from headrace.driver.patience import Outage
from headrace.engine import leases
from headrace.errors import InvalidInput
from headrace.model import Completed
from headrace.node.lease import bounded_session, registration
from headrace.node.lease.keeper import LeaseKeeper
from headrace.node.lease.registration import Registration
from tests.database import PATIENCE, Database
from tests.pooler import pgbouncer
from tests.requirements import requirement

LEASE = 0.3
Keep = Callable[..., LeaseKeeper]


@pytest.fixture
def lost() -> list[int]:
    return []


@pytest.fixture
def keep(db: Database, lost: list[int]) -> Iterator[Keep]:
    """Makes keepers that have started."""
    keepers: list[LeaseKeeper] = []

    def keep(
        dsn: str = db.dsn, lease: float = LEASE, bound: float = PATIENCE, **options: Any
    ) -> LeaseKeeper:
        options.setdefault("on_lost", lost.append)
        keeper = LeaseKeeper(dsn, "default", "main", lease, Outage("n"), **options)
        keeper._session._bound = (
            bound  # a busy machine does not answer within a sixth of so short a lease
        )
        keeper.start()
        keepers.append(keeper)
        return keeper

    yield keep
    for keeper in keepers:
        keeper.close()


@pytest.fixture
def keeper(keep: Keep) -> LeaseKeeper:
    return keep()


@pytest.fixture
def queue(db: Database) -> headrace.EventQueue:
    return db.queue()


def claim(queue: headrace.EventQueue, each: bool = False) -> int:
    """The lease of a delivery, long enough for a test to take its time."""
    queue.publish("a")
    [claimed] = queue.poll(lease=3_600, each=each)
    return claimed.lease


def renewed(db: Database, *ids: int) -> bool:
    """Whether a lease is as long as a keeper makes it: that is much less than it was claimed for."""
    rows = db.sql(
        "select bool_and(until < headrace._now() + interval '1 minute'), count(*)"
        " from headrace.leases where id = any (%s)",
        [list(ids)],
    )
    return rows == [(True, len(ids))]


def cut(db: Database) -> None:
    db.sql("select pg_terminate_backend(pid) from unnest(%s::int[]) pid", [sessions(db)])


def sessions(db: Database) -> list[int]:
    return [
        pid
        for (pid,) in db.sql(
            "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and query ~ 'extend|_node|idle_session_timeout'"
        )
    ]


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name in ("headrace", "headrace.node")
    ]


class TestTelling:
    @requirement("G4")
    def test_what_could_not_be_told_is_told_over_the_next_connection(
        self, db: Database, queue: headrace.EventQueue, keep: Keep
    ) -> None:
        id = queue.publish("a").id
        [claimed] = queue.poll(lease=3_600, each=True)
        keeper = keep(lease=60)
        telling = "select pid from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0"
        with db.connect(autocommit=False) as locker:
            locker.execute("lock table headrace.outcomes in share mode")
            told = keeper.tell([Completed(claimed, 1)])
            db.wait_for(lambda: db.sql(telling) != [])
            db.sql(f"select pg_terminate_backend(pid, 5000) from ({telling}) t")
            locker.rollback()
        assert told(PATIENCE)
        assert queue.event(id).status == "COMPLETED"


class TestRenewing:
    @requirement("G4")
    @pytest.mark.parametrize("each", [False, True])
    def test_what_is_held_is_renewed_again_and_again(
        self, db: Database, queue: headrace.EventQueue, keeper: LeaseKeeper, each: bool
    ) -> None:
        lease = claim(queue, each)
        keeper.hold(lease)
        db.wait_for(lambda: renewed(db, lease))
        first = keeper.renewed_at(lease)
        db.wait_for(lambda: keeper.renewed_at(lease) > first)

    def test_what_is_dropped_is_renewed_no_more(
        self, db: Database, queue: headrace.EventQueue, keeper: LeaseKeeper, lost: list[int]
    ) -> None:
        dropped, held = claim(queue), claim(queue)
        keeper.hold(dropped)
        keeper.hold(held)
        keeper.drop(dropped)
        keeper.drop(12345)
        db.wait_for(lambda: renewed(db, held))
        assert not renewed(db, dropped)
        assert keeper.renewed_at(dropped) == float("-inf")
        assert (keeper.holding, lost) == (1, [])

    def test_it_lasts_from_when_it_was_asked_for(self, keeper: LeaseKeeper) -> None:
        before = time.monotonic() - 0.01
        keeper.hold(1, since=before)
        assert keeper.renewed_at(1) == before

    @requirement("G13")
    @pytest.mark.parametrize("hours", [-1, 1])
    def test_whatever_the_time_is_here_a_lease_lasts_as_long_as_it_says(
        self, db: Database, queue: headrace.EventQueue, keeper: LeaseKeeper, hours: int
    ) -> None:
        db.advance(hours=hours)
        lease = claim(queue)
        keeper.hold(lease)
        held = keeper.renewed_at(lease)
        db.wait_for(lambda: keeper.renewed_at(lease) > held or not keeper.working)
        assert renewed(db, lease)

    def test_many_are_renewed_in_several_statements(
        self,
        db: Database,
        queue: headrace.EventQueue,
        keeper: LeaseKeeper,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("headrace.node.lease.keeper.CHUNK", 2)
        ids = [claim(queue) for _ in range(5)]
        for id in ids:
            keeper.hold(id)
        db.wait_for(lambda: renewed(db, *ids))

    def test_one_that_is_busy_is_not_lost_and_asked_for_again(
        self, db: Database, queue: headrace.EventQueue, keeper: LeaseKeeper, lost: list[int]
    ) -> None:
        busy, free = claim(queue), claim(queue)
        locker = db.connect(autocommit=False)
        locker.execute("select from headrace.leases where id = %s for update", [busy])
        keeper.hold(busy)
        keeper.hold(free)
        db.wait_for(lambda: renewed(db, free))
        assert not renewed(db, busy)
        locker.rollback()
        db.wait_for(lambda: renewed(db, busy))
        assert lost == []

    def test_hold_and_drop_may_be_called_by_any_thread(self, keeper: LeaseKeeper) -> None:
        def hold_and_drop(first: int) -> None:
            for id in range(first, first + 5_000):
                keeper.hold(id)
                keeper.drop(id)

        threads = [threading.Thread(target=hold_and_drop, args=[n * 10_000]) for n in range(1, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert keeper.holding == 0


class TestLosing:
    @requirement("G6")
    def test_what_was_taken_away_is_told_of_once_and_forgotten(
        self, db: Database, queue: headrace.EventQueue, keeper: LeaseKeeper, lost: list[int]
    ) -> None:
        gone, kept = claim(queue), claim(queue)
        db.sql("delete from headrace.leases where id = %s", [gone])
        keeper.hold(gone)
        keeper.hold(kept)
        db.wait_for(lambda: lost == [gone] and renewed(db, kept))
        assert keeper.renewed_at(gone) == float("-inf")
        before = keeper.renewed_at(kept)
        db.wait_for(lambda: keeper.renewed_at(kept) > before)
        assert lost == [gone]

    def test_a_queue_that_was_deleted_has_taken_all_with_it(
        self, db: Database, queue: headrace.EventQueue, lost: list[int]
    ) -> None:
        keeper = LeaseKeeper(db.dsn, "default", "nowhere", LEASE, Outage("n"), on_lost=lost.append)
        keeper.hold(1)
        keeper.hold(2)
        keeper.start()
        db.wait_for(lambda: sorted(lost) == [1, 2])
        keeper.close()

    def test_whoever_is_told_may_fail_and_the_others_are_still_kept(
        self, db: Database, queue: headrace.EventQueue, keep: Keep, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(lease: int) -> None:
            raise ValueError(lease)

        keeper = keep(on_lost=fail)
        keeper.hold(12345)
        db.wait_for(lambda: keeper.holding == 0)
        kept = claim(queue)
        keeper.hold(kept)
        db.wait_for(lambda: renewed(db, kept))
        [(level, message)] = messages(caplog)
        assert (level, "12345" in message) == ("ERROR", True)


class TestFaults:
    @pytest.fixture(autouse=True)
    def listen(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "headrace")

    def test_a_connection_that_is_lost_is_opened_again(
        self,
        db: Database,
        queue: headrace.EventQueue,
        keeper: LeaseKeeper,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        first = claim(queue)
        keeper.hold(first)
        db.wait_for(lambda: renewed(db, first))
        cut(db)
        second = claim(queue)
        keeper.hold(second)
        db.wait_for(lambda: renewed(db, first, second) and keeper.working)
        assert messages(caplog) == [], "it was back at once"

    def test_a_server_that_is_away_is_told_of_once_and_tried_again(
        self,
        db: Database,
        queue: headrace.EventQueue,
        keep: Keep,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
        lost: list[int],
    ) -> None:
        tries = []
        session = bounded_session.Session

        def refused(*arguments: object, **options: object) -> None:
            tries.append(1)
            raise psycopg.OperationalError("no server\nhere")

        monkeypatch.setattr(bounded_session, "Session", SimpleNamespace(connect_within=refused))
        keeper = keep()
        lease = claim(queue)
        keeper.hold(lease)
        db.wait_for(lambda: len(tries) > 3)
        assert messages(caplog) == [("WARNING", "node n: trying again, because no server")]
        assert not keeper.working
        monkeypatch.setattr(bounded_session, "Session", session)
        db.wait_for(lambda: renewed(db, lease) and keeper.working)
        assert messages(caplog)[1:] == [("WARNING", "node n: it works again")]
        assert lost == []

    def test_a_statement_that_hangs_is_given_up(
        self, db: Database, queue: headrace.EventQueue, keep: Keep
    ) -> None:
        lease = claim(queue)
        blocker = db.connect(autocommit=False)
        blocker.execute("lock headrace.leases in access exclusive mode")
        keeper = keep(bound=0.5)
        keeper.hold(lease)
        db.wait_for(lambda: not keeper.working)
        blocker.rollback()
        db.wait_for(lambda: renewed(db, lease))

    def test_a_server_that_has_vanished_is_not_waited_for(self, db: Database) -> None:
        with bounded_session.Session.connect(db.dsn, autocommit=True) as session:
            session.bound = 0.1
            began = time.monotonic()
            with pytest.raises(headrace.OutcomeUnknown):
                session.execute("select pg_sleep(100)")
            assert time.monotonic() - began < PATIENCE
            session.close()

    def test_an_error_of_our_own_stops_nothing(
        self,
        db: Database,
        queue: headrace.EventQueue,
        keeper: LeaseKeeper,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        extend = leases.extend
        monkeypatch.setattr(leases, "extend", None)
        lease = claim(queue)
        keeper.hold(lease)
        db.wait_for(lambda: not keeper.working)
        monkeypatch.setattr(leases, "extend", extend)
        db.wait_for(lambda: renewed(db, lease))

    @requirement("G19")
    def test_leases_are_kept_through_a_transaction_pooler(
        self, db: Database, queue: headrace.EventQueue, keep: Keep
    ) -> None:
        with pgbouncer(db) as dsn:
            keeper = keep(dsn, prepare=False)
            lease = claim(queue)
            keeper.hold(lease)
            db.wait_for(lambda: renewed(db, lease))
            keeper.close()


@pytest.mark.long
@requirement("G4")
def test_a_lease_holds_though_its_connection_is_cut_again_and_again(
    db: Database, queue: headrace.EventQueue, keep: Keep, lost: list[int]
) -> None:
    keeper = keep(lease=2.0)
    queue.publish("a")
    [claimed] = queue.poll(lease=2)
    keeper.hold(claimed.lease)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        cut(db)
        queue.tick()
        time.sleep(0.02)
        assert lost == []
    queue.complete(claimed)


class TestBlockedLoops:
    @requirement("G4")
    def test_a_handler_that_blocks_the_loop_is_named_and_its_lease_kept(
        self,
        db: Database,
        queue: headrace.EventQueue,
        keeper: LeaseKeeper,
        caplog: pytest.LogCaptureFixture,
        lost: list[int],
    ) -> None:
        lease = claim(queue)
        keeper.hold(lease)

        async def blocks_for_three_leases() -> None:
            """Or for longer, on a machine that takes its time: until the lease has been renewed after three, and the
            keeper, who may have been held up himself, has seen for a whole one that nobody answers."""
            began = time.monotonic()
            while (
                keeper.renewed_at(lease) < began + 3 * LEASE
                or keeper.lag <= LEASE
                or not messages(caplog)
            ):
                assert time.monotonic() < began + PATIENCE, "it is not renewed, or not seen"
                time.sleep(0.01)  # noqa: ASYNC251

        async def main() -> None:
            keeper.watch_loop(asyncio.get_running_loop(), patience=LEASE / 2)
            await blocks_for_three_leases()

        asyncio.run(main())
        assert lost == []
        [(level, message)] = messages(caplog)
        assert level == "WARNING"
        assert "blocks_for_three_leases" in message
        assert __file__ in message


class TestRegistry:
    NODE = Registration("a node", display_name="A", handles=("order.*",), worker="host:1")

    @pytest.fixture(autouse=True)
    def often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registration, "HEARTBEAT", 0.02)

    def test_a_node_is_registered_under_the_id_that_is_told_and_says_goodbye(
        self, queue: headrace.EventQueue, keeper: LeaseKeeper
    ) -> None:
        assert keeper.register(self.NODE).result(PATIENCE) == "a-node"
        [node] = queue.nodes()
        assert (node.node_id, node.alive, node.handles) == ("a-node", True, ("order.*",))
        assert node.display_name == "A"
        keeper.close()
        [node] = queue.nodes()
        assert not node.alive
        assert node.stopped_at is not None

    @requirement("PG-22")
    def test_what_it_handles_may_change(
        self, queue: headrace.EventQueue, keeper: LeaseKeeper
    ) -> None:
        keeper.register(self.NODE)
        keeper.register(self.NODE._replace(handles=["a", "b"])).result(PATIENCE)
        [node] = queue.nodes()
        assert node.handles == ("a", "b")

    def test_what_changes_while_it_is_heard_of_is_registered_at_once(
        self, queue: headrace.EventQueue, keeper: LeaseKeeper, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask, wanted = keeper._session.ask, threading.Event()
        changed: list[Future[str]] = []

        def ask_and_change(statement: Any) -> Any:
            answer = ask(statement)
            if "touch_node_heartbeat" in statement.sql and not changed:
                monkeypatch.setattr(registration, "HEARTBEAT", 3600.0)
                changed.append(keeper.register(self.NODE._replace(handles=["a", "b"])))
                wanted.set()
            return answer

        monkeypatch.setattr(keeper._session, "ask", ask_and_change)
        keeper.register(self.NODE).result(PATIENCE)
        assert wanted.wait(PATIENCE)
        changed[0].result(PATIENCE)
        assert queue.nodes()[0].handles == ("a", "b")

    @requirement("PG-23")
    def test_it_is_heard_of(
        self, db: Database, queue: headrace.EventQueue, keeper: LeaseKeeper
    ) -> None:
        keeper.register(self.NODE).result(PATIENCE)
        [first] = queue.nodes()
        db.wait_for(lambda: queue.nodes()[0].last_heartbeat > first.last_heartbeat)

    def test_one_that_was_forgotten_registers_again(
        self, db: Database, queue: headrace.EventQueue, keeper: LeaseKeeper
    ) -> None:
        keeper.register(self.NODE).result(PATIENCE)
        db.sql("delete from headrace.nodes")
        db.wait_for(lambda: len(queue.nodes()) == 1)
        assert queue.nodes()[0].handles == ("order.*",)

    def test_one_whose_id_another_has_is_told_so_once(
        self,
        db: Database,
        queue: headrace.EventQueue,
        keep: Keep,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        keeper, other = keep(), keep()
        keeper.register(self.NODE).result(PATIENCE)
        other.register(self.NODE).result(PATIENCE)
        db.wait_for(lambda: messages(caplog) != [])
        for _ in range(2):
            [before] = queue.nodes()
            db.wait_for(
                lambda before=before: queue.nodes()[0].last_heartbeat > before.last_heartbeat
            )
        assert messages(caplog) == [
            ("WARNING", "another process has registered as the node 'a node'")
        ]
        keeper.close()
        assert queue.nodes()[0].alive

    def test_what_cannot_be_registered_is_refused(self, keeper: LeaseKeeper) -> None:
        with pytest.raises(InvalidInput, match="letter or a digit"):
            keeper.register(Registration("///")).result(PATIENCE)
        assert keeper.register(self.NODE).result(PATIENCE) == "a-node"
        assert keeper.working

    def test_it_is_registered_when_the_server_is_back(
        self, db: Database, keep: Keep, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = bounded_session.Session

        def refused(*arguments: object, **options: object) -> None:
            raise psycopg.OperationalError("no server")

        monkeypatch.setattr(bounded_session, "Session", SimpleNamespace(connect_within=refused))
        keeper = keep()
        registered = keeper.register(self.NODE)
        db.wait_for(lambda: not keeper.working)
        assert not registered.done()
        monkeypatch.setattr(bounded_session, "Session", session)
        assert registered.result(PATIENCE) == "a-node"


class TestClosing:
    def test_it_leaves_no_connection_and_no_thread(
        self, db: Database, queue: headrace.EventQueue, keeper: LeaseKeeper
    ) -> None:
        lease = claim(queue)
        keeper.hold(lease)
        db.wait_for(lambda: renewed(db, lease))
        keeper.close()
        assert not keeper._thread.is_alive()
        db.wait_for(lambda: sessions(db) == [])

    def test_it_waits_no_longer_than_it_is_told_to(self, db: Database, keep: Keep) -> None:
        blocker = db.connect(autocommit=False)
        blocker.execute("lock headrace.namespaces in access exclusive mode")
        keeper = keep(lease=60)
        waiting = keeper.register(Registration("a"))
        db.wait_for(lambda: sessions(db) != [])
        began = time.monotonic()
        keeper.close(0.05)
        assert time.monotonic() - began < PATIENCE / 2
        blocker.rollback()
        assert waiting.result(PATIENCE) == "a"

    def test_who_waits_to_be_registered_is_not_left_waiting(
        self, db: Database, monkeypatch: pytest.MonkeyPatch, keep: Keep
    ) -> None:
        def refused(*arguments: object, **options: object) -> None:
            raise psycopg.OperationalError("no server")

        monkeypatch.setattr(bounded_session, "Session", SimpleNamespace(connect_within=refused))
        keeper = keep()
        waiting = keeper.register(Registration("a"))
        db.wait_for(lambda: not keeper.working)
        keeper.close()
        assert waiting.cancelled()

    def test_one_that_never_started_is_closed_too(self, db: Database) -> None:
        LeaseKeeper(db.dsn, "default", "main", LEASE, Outage("n"), on_lost=print).close()

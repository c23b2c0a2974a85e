"""Failure modes, a class each: every one was a way to lose, to double or to stop something, and its tests show that it is closed."""

import json
import os
import socket
from typing import Any, ClassVar

import psycopg
import pytest

from tests.database import STRIDE, Database
from tests.engine.footprint import footprint
from tests.engine.races_helpers import (
    ISOLATION_LEVELS,
    READ_COMMITTED,
    Background,
    Session,
    blocked,
    everything_is_in_one_place,
)
from tests.requirements import requirement

batch_or_held = pytest.mark.parametrize("each", [False, True], ids=["batch", "held"])


@pytest.fixture
def worker(db: Database) -> Session:
    return Session(db)


@pytest.fixture
def other(db: Database) -> Session:
    return Session(db)


def ids(claims: list) -> list[int]:
    return [claimed.id for claimed in claims]


class TestLeaseSharedByTransactions:
    @pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
    @requirement("G10")
    def test_two_handlers_of_one_lease_never_deadlock_over_a_row_of_the_users(
        self, db: Database, worker: Session, other: Session, isolation: str
    ) -> None:
        db.sql("create table account (balance int); insert into account values (0)")
        worker.publish(2)
        first, second = worker.poll(2, each=True)
        worker.begin(isolation)
        worker.finish([first])
        other.begin(isolation)
        other.sql("update account set balance = balance + 1")
        assert other.hurry().finish([second]) == ["counted"]
        update = blocked(
            db, worker, worker.sql, "update account set balance = balance + 1 where balance < 9"
        )
        other.commit()
        if isolation == READ_COMMITTED:
            update.result()
        else:  # the user's own conflict, about the user's own row
            with pytest.raises(psycopg.errors.SerializationFailure):
                update.result()

    @requirement("G4", "G10")
    def test_a_finish_that_stays_open_for_long_does_not_let_the_workers_leases_lapse(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        worker.publish(4)
        slow, sibling = worker.poll(2, each=True)
        elsewhere = worker.poll(2, each=True)
        worker.begin()
        worker.finish([slow])
        for _ in range(5):
            db.advance(seconds=50)
            assert other.hurry().extend(slow.lease, elsewhere[0].lease) == ["held", "held"]
            other.tick()
        worker.commit()
        assert worker.finish([sibling, *elsewhere]) == ["counted"] * 3


class TestPoisonBesideInnocents:
    @batch_or_held
    @pytest.mark.parametrize("max_retries", [0, 3])
    @requirement("G9", "EQ-18", "EB-14")
    def test_a_delivery_that_kills_its_worker_dies_alone_and_its_neighbours_uncharged(
        self, db: Database, worker: Session, each: bool, max_retries: int
    ) -> None:
        published = worker.publish(5, max_retries=max_retries)
        poison = published[2]
        starts = 0
        charged: dict[int, tuple[int, int]] = {}
        for _ in range(25):
            claims = worker.poll(5, each=each)
            if poison in ids(claims):
                starts += 1
                db.advance(seconds=61)  # its worker is dead
            else:
                worker.finish(claims)
                charged |= {claim.id: (claim.retry_count, claim.crashes) for claim in claims}
        assert starts <= max(1, max_retries) + 1
        assert db.sql("select event from headrace.dead_letters") == [(poison,)]
        assert charged == {id: (0, 0) for id in published if id != poison}
        assert everything_is_in_one_place(db)

    @batch_or_held
    @requirement("G9")
    def test_one_on_its_last_attempt_does_not_die_of_a_crash_it_may_have_no_part_in(
        self, db: Database, worker: Session, each: bool
    ) -> None:
        [last] = worker.publish(max_retries=2)
        worker.finish(worker.poll(), action="fail", retry_in=0)
        worker.publish(4)
        assert last in ids(worker.poll(5, each=each))
        db.advance(seconds=61)
        worker.tick()
        assert db.sql("select 1 from headrace.dead_letters") == []
        assert db.placement()[last] == ["ready"]


class TestDeliveriesOnTheMove:
    PLACES = ("ready", "delayed", "held", "leases", "dead_letters", "outcomes", "errors", "events")

    @pytest.mark.parametrize("place", PLACES)
    @batch_or_held
    def test_a_delivery_that_moves_while_it_is_looked_at_is_never_said_to_have_ended(
        self, db: Database, worker: Session, other: Session, place: str, each: bool
    ) -> None:
        [event] = worker.publish()
        worker.poll(each=each)
        db.advance(seconds=61)
        # The look-up stops at this place, whatever it has seen before; meanwhile the delivery moves.
        other.begin()
        other.sql(f"lock table headrace.{place} in access exclusive mode")
        status = "select status from headrace.event('default', %s)"
        look = blocked(db, worker, worker.sql, status, [event])
        other.reap()
        other.commit()
        assert look.result() in ([("PROCESSING",)], [("PENDING",)])
        assert worker.sql(status, [event]) == [("PENDING",)]

    @batch_or_held
    @requirement("G17")
    def test_the_queue_shows_a_delivery_on_the_move_exactly_once(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        [event] = worker.publish(max_retries=1000)
        stop: list[bool] = []

        def move(session: Session) -> None:
            while not stop:
                claims = session.poll(each=each)
                session.finish(claims, action="release")

        mover = Background(move, other)
        try:
            seen = [
                worker.sql("select id from headrace.event_queue")
                + worker.sql("select id from headrace.event('default', %s)", [event])
                for _ in range(150)
            ]
        finally:
            stop.append(True)
        mover.result()
        assert seen == [[(event,), (event,)]] * 150


class TestBoundsOfIds:
    """A number drawn before its transaction has an xid is invisible to who waits for old transactions."""

    CALLS = ("publish one", "publish many", "poll", "complete", "complete a batch", "fail", "tick")

    @staticmethod
    def prepare(worker: Session, db: Database, call: str) -> Any:
        match call:
            case "publish one":
                return lambda: worker.publish(type="plain", payload={})
            case "publish many":
                return lambda: worker.publish(3, tags=["a"])
        worker.publish(2)
        if call == "poll":
            return lambda: worker.poll(2)
        claims = worker.poll(2, each=call == "complete")
        match call:
            case "complete" | "complete a batch":
                return lambda: worker.finish(claims)
            case "fail":
                return lambda: worker.finish(claims, action="fail")
            case _:
                db.advance(seconds=61)
                return worker.tick

    @pytest.mark.parametrize("call", CALLS)
    def test_no_number_is_drawn_before_the_transaction_has_an_xid(
        self, db: Database, worker: Session, other: Session, call: str
    ) -> None:
        make = self.prepare(worker, db, call)
        other.begin()
        other.sql("alter sequence headrace.ids cache 1")  # whoever draws a number waits
        drawing = blocked(db, worker, make)
        pid = worker.connection.info.backend_pid
        waits = "select backend_xid is not null, wait_event from pg_stat_activity where pid = %s"
        assert db.sql(waits, [pid]) == [(True, "relation")]
        other.rollback()
        drawing.result()

    def test_a_bound_is_not_final_while_a_lower_number_may_still_commit(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        worker.begin()
        [late] = worker.publish()
        [bound] = other.publish()
        [(horizon,)] = db.sql("select pg_snapshot_xmax(pg_current_snapshot())::text")
        final = "select pg_snapshot_xmin(pg_current_snapshot()) >= %s::xid8"
        assert late < bound
        assert db.sql(final, [horizon]) == [(False,)]
        worker.commit()
        db.wait_for(lambda: db.sql(final, [horizon]) == [(True,)])  # others' transactions count too
        assert [id for id in db.placement() if id <= bound] == [late, bound]


class TestHintsUnderAHeldSnapshot:
    @pytest.mark.new_database
    def test_a_claim_with_hints_does_not_walk_what_was_claimed_before(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        db.sql("alter table headrace.ready set (autovacuum_enabled = off)")
        other.begin("repeatable read")  # somebody's report
        hints = None
        for _ in range(10):
            for _ in range(50):
                worker.publish(10)  # too few for a pack
            claims = worker.poll(500, hints=hints)
            hints = claims[0].hints
            worker.finish(claims)
            db.advance(seconds=1)
        worker.publish(10)
        poll = "select * from headrace.poll('default', max_events => 5, hints => %s)"
        _, hinted = footprint(worker.connection, poll, [hints])
        _, blind = footprint(worker.connection, poll, [None])
        assert blind["ready_pkey"].entries > 4000
        assert hinted["ready_pkey"].entries < 1100  # the last two claims, a quarter second behind

    @requirement("G4", "G19")
    def test_hints_hide_nothing_from_a_sweep(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        hints = None
        for _ in range(3):
            worker.publish(2, type="known")
            hints = worker.poll(2, hints=hints)[0].hints
            db.advance(seconds=1)
        [elsewhere] = worker.publish(type="new", priority=9)
        assert worker.poll(9, hints=hints) == []
        assert ids(worker.poll(9, hints=hints, sweep=True)) == [elsewhere]

    @requirement("G4")
    def test_what_a_rolled_back_claimer_frees_below_the_hints_is_found_by_a_sweep(
        self, db: Database, worker: Session, other: Session
    ) -> None:
        worker.publish(2)
        other.begin()
        freed = ids(other.poll(2))
        hints = None
        for _ in range(3):
            worker.publish(2)
            hints = worker.poll(2, hints=hints)[0].hints
            db.advance(seconds=1)
        other.rollback()
        assert ids(worker.poll(9, hints=hints, sweep=True)) == freed


class TestFairnessAmongRoutes:
    @requirement("G16")
    def test_a_small_route_is_served_beside_large_ones(self, db: Database, worker: Session) -> None:
        for name in ("large", "larger", "largest"):
            worker.publish(200, type=name)
        small = worker.publish(3, type="small")
        assert small[0] in ids(worker.poll(20))

    @pytest.mark.parametrize("sweep", [False, True], ids=["hints", "sweeps"])
    def test_no_route_is_always_last(self, db: Database, worker: Session, sweep: bool) -> None:
        names = {"a", "b", "c", "d"}
        for name in names:
            worker.publish(300, type=name)
        hints = worker.poll(4)[0].hints  # knows all four
        served = set()
        for _ in range(250):
            [claimed] = worker.poll(1, hints=hints, sweep=sweep)
            served.add(claimed.type)
            if served == names:
                return
        raise AssertionError(f"never served: {names - served}")

    def test_an_urgent_event_of_a_late_route_comes_before_all_others(
        self, db: Database, worker: Session
    ) -> None:
        for n in range(20):
            worker.publish(5, type=f"usual {n}")
        urgent = worker.publish(2, type="urgent", priority=0)
        assert ids(worker.poll(3))[:2] == urgent


class TestHeartbeatAgainstReaper:
    @batch_or_held
    @requirement("G5")
    def test_a_heartbeat_between_the_reapers_look_and_its_lock_saves_the_lease(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        worker.publish(24)
        leases = [worker.poll(2, each=each)[0].lease for _ in range(12)]
        saved = leases[-1]
        db.advance(seconds=61)
        gate = Session(db)
        gate.begin()
        gate.sql("lock table headrace.counts in share mode")
        # The reaper has looked, and waits in the middle of the first of them …
        reaper = blocked(db, other, other.reap)
        assert worker.hurry().extend(saved) == ["held"]
        gate.commit()
        # … and finds the last one changed when its turn comes.
        assert reaper.result() == 11
        assert everything_is_in_one_place(db)
        assert db.sql("select id from headrace.leases") == [(saved,)]


class TestExpiredLeases:
    @batch_or_held
    @requirement("G9")
    def test_an_expired_lease_gives_back_counters_order_and_filters(
        self, db: Database, worker: Session, each: bool
    ) -> None:
        [event] = worker.publish(type="order.paid", tags=["eu", "vip"], priority=2, max_retries=9)
        [first] = worker.poll(each=each)
        worker.finish([first], action="fail", retry_in=0)
        worker.publish(type="order.sent", priority=2)
        assert event in ids(worker.poll(9, each=each))
        db.advance(seconds=61)
        worker.tick()
        [again] = worker.poll(types=["order.paid"], tags=["vip"], each=each)
        assert (again.id, again.priority, again.created_at) == (event, 2, first.created_at)
        assert (again.attempt, again.retry_count, again.crashes) == (3, 1, 0)
        db.advance(seconds=61)
        worker.tick()
        [alone] = worker.poll(types=["order.paid"], tags=["vip"], each=each)
        assert (alone.attempt, alone.retry_count, alone.crashes) == (4, 1, 1)


class TestMissingPartitions:
    @requirement("G1")
    def test_a_publisher_takes_no_strong_lock_although_its_month_is_missing(
        self, db: Database, worker: Session
    ) -> None:
        db.advance(days=31 * 6)
        before = db.sql("select count(*) from pg_class")
        worker.begin()
        worker.publish(3)
        worker.publish(tags=["a"], delay=5)
        modes = worker.sql(
            "select distinct mode from pg_locks where pid = pg_backend_pid() and locktype = 'relation'"
        )
        assert {mode for (mode,) in modes} <= {"AccessShareLock", "RowExclusiveLock"}
        worker.commit()
        assert db.sql("select count(*) from pg_class") == before
        assert db.sql("select count(*) from headrace.events_default") == [(4,)]

    @batch_or_held
    @requirement("G4")
    def test_what_the_net_caught_is_moved_while_it_is_worked_on(
        self, db: Database, worker: Session, other: Session, each: bool
    ) -> None:
        db.advance(days=31 * 6)
        waiting, failing, leased = (worker.publish(payload={"n": n})[0] for n in range(3))
        claims = {claimed.id: claimed for claimed in worker.poll(3, each=each)}
        worker.finish([claims[failing]], action="fail", error="no", retry_in=0)
        worker.finish([claims[waiting]], action="release")
        assert other.tick(upkeep=True).kept_up
        for net in ("events_default", "outcomes_default", "errors_default"):
            assert db.sql(f"select 1 from headrace.{net}") == []
        again = worker.poll(9)
        assert {claimed.id: claimed.payload for claimed in again} == {
            waiting: {"n": 0},
            failing: {"n": 1},
        }
        worker.finish([*again, claims[leased]])
        assert set(map(tuple, db.placement().values())) == {("outcome",)}
        assert worker.outcomes(failing) == ["FAILED", "COMPLETED"]


class TestRetentionOfUnfinishedEvents:
    BODY: ClassVar = {"the": "body"}

    @staticmethod
    def retire(db: Database, session: Session, lease: int | None = None) -> None:
        """Eight months later: the month is over for good; a lease that is kept lives on."""
        [(month,)] = db.sql("select tableoid::regclass::text from headrace.events limit 1")
        db.advance(days=31 * 8)
        if lease is not None:
            assert session.extend(lease, by="7 days") == ["held"]
        assert session.tick(upkeep=True).kept_up
        assert db.sql("select 1 from headrace.events") == []
        kept = db.sql("select headrace._setting('retention_action')") == [("detach",)]
        assert db.sql("select to_regclass(%s) is not null", [month]) == [(kept,)]
        if kept:
            assert db.sql(f"select 1 from {month}") != []

    @requirement("G4", "G17")
    def test_a_ready_event_is_claimed_with_its_body_and_ended(
        self, db: Database, worker: Session
    ) -> None:
        published = worker.publish(2, payload=self.BODY)
        self.retire(db, worker)
        claims = worker.poll(9)
        assert [(claimed.id, claimed.payload) for claimed in claims] == [
            (id, self.BODY) for id in published
        ]
        assert worker.finish(claims) == ["counted"] * 2
        assert worker.outcomes(published[0]) == ["COMPLETED"]

    @requirement("G4")
    def test_a_delayed_event_comes_when_its_time_has_come(
        self, db: Database, worker: Session
    ) -> None:
        [event] = worker.publish(payload=self.BODY, delay=86400 * 31 * 9)
        self.retire(db, worker)
        assert worker.poll() == []
        db.advance(days=32)
        [claimed] = worker.poll()
        assert (claimed.id, claimed.payload) == (event, self.BODY)
        assert worker.finish([claimed]) == ["counted"]

    @batch_or_held
    @requirement("G4")
    def test_a_leased_event_can_be_completed_failed_retried_and_buried(
        self, db: Database, worker: Session, each: bool
    ) -> None:
        worker.publish(3, payload=self.BODY)
        done, retried, buried = worker.poll(3, each=each)
        self.retire(db, worker, lease=done.lease)
        assert worker.finish([done]) == ["counted"]
        assert worker.finish([retried], action="fail", retry_in=0) == ["counted"]
        assert worker.finish([buried], action="fail", reason="enough") == ["counted"]
        [again] = worker.poll(9)
        assert (again.id, again.payload) == (retried.id, self.BODY)
        assert worker.finish([again]) == ["counted"]
        dead = db.sql("select event, payload, reason from headrace.dead_letters")
        assert dead == [(buried.id, self.BODY, "enough")]

    @batch_or_held
    @requirement("G4", "G9")
    def test_an_event_whose_worker_died_months_ago_comes_back_with_its_body(
        self, db: Database, worker: Session, each: bool
    ) -> None:
        published = worker.publish(2, payload=self.BODY)
        worker.poll(2, each=each)
        self.retire(db, worker)
        for _ in published:
            [claimed] = worker.poll(9)
            assert (claimed.attempt, claimed.payload) == (2, self.BODY)
            assert worker.finish([claimed]) == ["counted"]
        assert worker.poll(9) == []

    @requirement("G4", "G17")
    def test_a_detached_month_keeps_everything_and_what_lived_in_it_is_worked_to_its_end(
        self, db: Database, worker: Session
    ) -> None:
        db.sql("select headrace.configure('retention_action', 'detach')")
        worker.publish(4, payload=self.BODY)
        batch = worker.poll(1)
        [held] = worker.poll(1, each=True)
        worker.sql("select headrace.extend('default', 'main', %s, '7 days')", [[held.lease]])
        self.retire(db, worker, lease=batch[0].lease)
        claims = [claimed for _ in range(3) for claimed in worker.poll(9)]
        assert [claimed.payload for claimed in claims] == [self.BODY] * 3
        assert worker.finish([*batch, *claims]) == ["counted"] * 4
        assert worker.poll(9) == []

    def test_a_dead_letter_keeps_its_body(self, db: Database, worker: Session) -> None:
        [event] = worker.publish(payload=self.BODY, max_retries=0)
        worker.finish(worker.poll(), action="fail", error="broken")
        self.retire(db, worker)
        [(status, payload)] = db.sql(
            "select status, payload from headrace.event('default', %s)", [event]
        )
        assert (status, payload) == ("FAILED", self.BODY)

    def test_what_was_carried_over_goes_when_it_has_ended(
        self, db: Database, worker: Session
    ) -> None:
        worker.publish(2)
        self.retire(db, worker)
        worker.finish(worker.poll())
        worker.tick(upkeep=True)
        assert db.sql("select count(*) from headrace.events_carried") == [(1,)]
        worker.finish(worker.poll())
        worker.tick(upkeep=True)
        assert db.sql("select count(*) from headrace.events_carried") == [(0,)]

    def test_a_carried_event_does_not_push_in_front_of_its_betters(
        self, db: Database, worker: Session
    ) -> None:
        [old] = worker.publish(priority=5)
        self.retire(db, worker)
        [urgent] = worker.publish(priority=1)
        [later] = worker.publish(priority=5)
        claims = worker.poll(3)
        assert ids(claims) == [urgent, old, later]
        assert [claimed.hints is not None for claimed in claims] == [True, False, False]


class TestLogicalReplication:
    @pytest.fixture
    def published_db(self, db: Database) -> Database:
        db.sql("create publication everything for all tables")
        db.sql("alter table headrace_test.clock replica identity full")  # ours, not the engine's
        return db

    def test_no_table_refuses_deletes_or_updates(self, published_db: Database) -> None:
        db = published_db
        tables = db.sql(
            "select c.oid::regclass::text, quote_ident(a.attname) from pg_class c"
            " join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and a.attidentity = ''"
            " where c.relnamespace = 'headrace'::regnamespace and c.relkind in ('r', 'p')"
        )
        assert len(tables) > 20
        for table, column in tables:
            db.sql(f"delete from {table} where false")
            db.sql(f"update {table} set {column} = {column} where false")

    def test_everything_works_under_a_publication_for_all_tables(
        self, published_db: Database
    ) -> None:
        db = published_db
        worker = Session(db)
        worker.publish(3, tags=["a"], max_retries=1)
        worker.publish(2, delay=5)
        db.advance(seconds=6)
        worker.tick()
        batch = worker.poll(3)
        worker.extend(batch[0].lease)
        worker.finish(batch[:1])
        worker.finish(batch[1:2], action="fail")
        held = worker.poll(2, each=True)
        worker.finish(held[:1], action="release")
        db.advance(seconds=61)
        worker.tick()
        worker.publish()
        db.advance(days=31 * 8)
        assert worker.tick(upkeep=True).kept_up
        db.sql("select headrace.configure('retention', '3 months')")
        db.sql("select headrace.configure('retention', null)")
        while claims := worker.poll(9):
            assert set(worker.finish(claims)) == {"counted"}
        assert worker.tick(upkeep=True).kept_up
        assert db.sql("select 1 from headrace.deliveries") == []


class TestLostCommitReplies:
    """The client is gone, its backend is still committing: the trigger keeps it there for as long as the test likes."""

    @pytest.fixture
    def committing(self, db: Database, worker: Session) -> Any:
        db.sql("""
            create table effects (event bigint);
            create function slowly() returns trigger language plpgsql as
                'begin perform pg_advisory_xact_lock(42); return null; end';
            create constraint trigger slowly after insert on effects deferrable initially deferred
                for each row execute function slowly();
        """)
        db.sql("select pg_advisory_lock(42)")
        worker.publish()
        [mine] = worker.poll(each=True)
        worker.begin()
        worker.sql("insert into effects values (%s)", [mine.id])
        worker.finish([mine])
        commit = blocked(db, worker, worker.commit)
        wire = socket.socket(fileno=os.dup(worker.connection.pgconn.socket))
        wire.shutdown(socket.SHUT_RDWR)
        wire.close()
        with pytest.raises(psycopg.OperationalError):
            commit.result()
        return mine

    @requirement("G10")
    def test_a_commit_that_still_comes_is_waited_for_and_the_event_is_not_run_again(
        self, db: Database, other: Session, committing: Any
    ) -> None:
        answer = blocked(db, other, other.resolve, committing)
        db.sql("select pg_advisory_unlock(42)")
        assert answer.result() == "COMPLETED"
        db.advance(seconds=61)
        other.tick()
        assert other.poll() == []
        assert db.sql("select event from effects") == [(committing.id,)]

    @requirement("G10")
    def test_a_commit_that_never_comes_is_told_too_and_the_event_is_run_once(
        self, db: Database, other: Session, committing: Any
    ) -> None:
        answer = blocked(db, other, other.resolve, committing)
        db.sql("select pg_terminate_backend(pid) from pg_stat_activity where query = 'commit'")
        assert answer.result() is None
        assert db.sql("select 1 from effects") == []
        assert other.finish([committing]) == ["counted"]


class TestLookUpsInALongLog:
    EVENT = 5_000_000 * STRIDE

    @pytest.fixture
    def long_log(self, db: Database) -> Database:
        """Outcomes of two million events; what PostgreSQL knows of them is how the first fifty looked."""
        worker = Session(db)
        for _ in range(50):
            worker.publish()
            worker.finish(worker.poll())
        db.sql("analyze headrace.outcomes, headrace.errors")
        db.sql("""
            insert into headrace.outcomes (id, at, picked_at, bucket, lease, namespace, queue, action, worker, events,
                                           attempts, positions)
            select 1000 + n, headrace._now(), headrace._now(), n, n, 1, q, 'COMPLETED', '', array[headrace._id_at(n * 1024)], '{1}', '{0}'
            from generate_series(1, 2000) n, generate_series(1, 2) q
        """)
        db.sql("select setval('headrace.ids', %s)", [self.EVENT])
        return db

    @pytest.mark.new_database
    def test_the_index_of_buckets_finds_an_events_outcomes(self, long_log: Database) -> None:
        long_log.sql("analyze headrace.outcomes")
        [(month,)] = long_log.sql("select distinct tableoid::regclass::text from headrace.outcomes")
        [(plan,)] = long_log.sql(
            f"explain (format json) select * from {month} o where o.bucket = 77 and o.queue = 1"
        )
        assert "_bucket_queue_idx" in json.dumps(plan)

    @pytest.mark.new_database
    @pytest.mark.parametrize("call", ["event", "event_log", "finish", "resolve"])
    def test_a_look_up_reads_the_rows_of_its_bucket_and_no_others(
        self, long_log: Database, call: str
    ) -> None:
        worker = Session(long_log)
        [event] = worker.publish()
        [claimed] = worker.poll(each=True)
        worker.finish([claimed])
        asked = {
            "event": "select * from headrace.event('default', %(event)s)",
            "event_log": "select * from headrace.event_log('default', %(event)s)",
            "finish": "select * from headrace.finish('default', 'main', array[%(event)s], array[1])",
            "resolve": "select headrace.resolve('default', 'main', %(event)s, 1)",
        }
        rows, read = footprint(worker.connection, asked[call], {"event": event})
        assert rows
        assert 0 < sum(t.entries for n, t in read.relations.items() if "outcomes" in n) < 20, read


class TestFinishByIdAndAttempt:
    @pytest.mark.new_database
    def test_a_held_delivery_is_found_by_its_id_and_attempt_alone(
        self, db: Database, worker: Session
    ) -> None:
        worker.publish(120)
        [mine] = worker.poll(each=True)
        for _ in range(40):
            worker.poll(2)
        rows, read = footprint(
            worker.connection,
            "select * from headrace.finish('default', 'main', %s, %s)",
            [[mine.id], [mine.attempt]],
        )
        assert rows == []
        assert db.placement()[mine.id] == ["outcome"]
        assert read["leases"].entries + read["leases_pkey"].entries <= 2
        assert read["leases_batches"].entries == 0

    @requirement("G6")
    def test_a_batchs_member_is_found_by_its_id_and_attempt_too(
        self, db: Database, worker: Session
    ) -> None:
        worker.publish(6)
        worker.poll(3)
        claims = worker.poll(3)
        assert worker.finish(claims[1:2], lease=False) == ["counted"]
        assert worker.finish(claims[1:2], lease=False) == ["repeated"]
        stale = claims[0]._replace(attempt=7)
        assert worker.finish([stale], lease=False) == ["lost"]
        assert list(db.placement().values()).count(["lease"]) == 5


class TestPlansOfHotFunctions:
    HOT = ("poll", "poll_batch", "finish", "extend", "_settle", "_take_batched", "_publish_batch",
           "_routes_with_work", "_routes_between", "_filtered_routes", "_tick_due", "_tick_expired")  # fmt: skip

    def test_its_plans_are_kept(self, db: Database) -> None:
        kept = db.sql(
            "select proname::text from pg_proc where pronamespace = 'headrace'::regnamespace"
            " and 'plan_cache_mode=force_generic_plan' = any (proconfig)"
        )
        assert {name for (name,) in kept} >= set(self.HOT)

    @pytest.mark.new_database
    @batch_or_held
    def test_a_claim_planned_on_an_empty_table_stays_right_for_a_hundred_thousand(
        self, db: Database, worker: Session, each: bool
    ) -> None:
        for table in ("ready", "held", "leases"):
            db.sql(f"alter table headrace.{table} set (autovacuum_enabled = off)")
        worker.publish()
        for _ in range(3):
            worker.finish(worker.poll(10, each=each))
        db.sql("""
            with stored as (
                insert into headrace.events (id, created_at, route, namespace, version, priority, type, payload)
                select nextval('headrace.ids'), headrace._now(), n % 7, 1, 1, 5, 'event', '{}'
                from generate_series(1, 100000) n
                returning id, created_at, route
            )
            insert into headrace.ready (event, created_at, route, seq, queue, priority)
            select s.id, s.created_at, s.route, s.id, q.id, 5 from stored s, headrace.queues q
        """)
        poll = "select * from headrace.poll('default', max_events => 10, \"each\" => %s)"
        claims, read = footprint(worker.connection, poll, [each])
        assert len(claims) == 10
        assert read.total.entries < 300
        assert read.total.blocks < 600
        _, read = footprint(
            worker.connection,
            "select * from headrace.finish('default', 'main', %s, %s, %s)",
            [ids_of := [c[0] for c in claims], [c[1] for c in claims], [c[11] for c in claims]],
        )
        assert len(ids_of) == 10
        assert read.total.entries < 300

"""Partitions come and go, and releases too, while everybody works: upkeep gives way, migrate is not felt."""

import time
from threading import Event

import pytest

from headrace.install.migrate import migrate
from tests.database import PATIENCE, Database
from tests.engine.races_helpers import Background, Session, blocked
from tests.requirements import requirement


@pytest.fixture
def worker(db: Database) -> Session:
    return Session(db)


@pytest.fixture
def ticker(db: Database) -> Session:
    return Session(db)


def partitions(db: Database, parent: str = "events") -> list[str]:
    return [
        name
        for (name,) in db.sql(
            "select inhrelid::regclass::text from pg_inherits where inhparent = %s::regclass"
            " order by 1",
            [f"headrace.{parent}"],
        )
    ]


def pass_months(db: Database, months: int) -> None:
    db.advance(days=31 * months)


class TestUpkeepGivesWay:
    @requirement("G1")
    def test_months_are_made_beside_an_open_publisher_without_waiting(
        self, db: Database, worker: Session, ticker: Session
    ) -> None:
        worker.begin()
        published = worker.publish()
        pass_months(db, 2)
        before = partitions(db)
        assert ticker.tick(upkeep=True).kept_up
        assert len(partitions(db)) >= len(before) + 1
        worker.commit()
        assert [claimed.id for claimed in worker.poll(9)] == published

    @requirement("G1", "G18")
    def test_who_waits_for_a_month_that_is_being_made_gets_into_it(
        self, db: Database, worker: Session, ticker: Session
    ) -> None:
        pass_months(db, 6)  # nobody has made this month
        worker.publish(2)
        completed, failed = worker.poll(2, each=True)
        ticker.begin()
        ticker.tick(upkeep=True)
        finisher, failer = Session(db), Session(db)
        publish = blocked(db, worker, worker.publish)
        finish = blocked(db, finisher, finisher.finish, [completed])
        fail = blocked(db, failer, failer.finish, [failed], action="fail", error="no")
        ticker.commit()
        [event] = publish.result()
        assert finish.result() == fail.result() == ["counted"]
        assert db.placement() == {
            completed.id: ["outcome"],
            failed.id: ["delayed"],
            event: ["ready"],
        }
        for net in ("events_default", "outcomes_default", "errors_default"):
            assert db.sql(f"select count(*) from headrace.{net}") == [(0,)]

    def test_months_are_not_made_over_a_readers_head_but_after_it(
        self, db: Database, worker: Session, ticker: Session
    ) -> None:
        worker.begin()
        worker.sql("select count(*) from headrace.events")
        pass_months(db, 2)
        before = partitions(db)
        assert not ticker.tick(upkeep=True).kept_up
        assert partitions(db) == before
        worker.commit()
        db.advance(minutes=1)  # not an hour
        assert ticker.keep_up()
        assert partitions(db) != before

    @pytest.mark.parametrize("holder", ["publisher", "reader of all", "reader of the old month"])
    @requirement("G17")
    def test_a_month_is_not_dropped_over_somebodys_head_but_after(
        self, db: Database, worker: Session, ticker: Session, holder: str
    ) -> None:
        old = partitions(db)[0]
        worker.publish()
        worker.begin()
        match holder:
            case "publisher":
                worker.publish()
            case "reader of all":
                worker.sql("select count(*) from headrace.events")
            case "reader of the old month":
                worker.sql(f"select count(*) from {old}")
        pass_months(db, 8)
        assert not ticker.tick(upkeep=True).kept_up
        assert old in partitions(db)
        worker.commit()
        db.advance(minutes=1)
        assert ticker.keep_up()
        assert old not in partitions(db)

    @requirement("G4")
    def test_what_is_due_becomes_ready_although_the_partitions_have_to_wait(
        self, db: Database, worker: Session, ticker: Session
    ) -> None:
        [delayed] = worker.publish(delay=60)
        [leased] = worker.publish()
        worker.poll()
        worker.begin()
        worker.sql("select count(*) from headrace.events")
        pass_months(db, 8)
        tick = ticker.tick(upkeep=True)
        assert (tick.due, tick.expired, tick.kept_up) == (1, 1, False)
        assert db.placement() == {delayed: ["ready"], leased: ["ready"]}

    @requirement("G4")
    def test_what_is_due_becomes_ready_although_a_month_cannot_be_dropped_at_all(
        self, db: Database, worker: Session, ticker: Session
    ) -> None:
        [delayed] = worker.publish(delay=60)
        old = partitions(db)[0]
        db.sql(f"create view somebodys as select * from {old}")
        pass_months(db, 8)
        tick = ticker.tick(upkeep=True)
        assert (tick.due, tick.kept_up) == (1, False)
        assert db.placement() == {delayed: ["ready"]}

    @requirement("G4")
    def test_a_month_does_not_go_while_a_queue_is_filled_from_it(
        self, db: Database, worker: Session, ticker: Session
    ) -> None:
        published = worker.publish(3)
        for claimed in worker.poll(3):
            worker.finish([claimed])
        old = partitions(db)[0]
        db.sql("select headrace.create_queue('default', 'late', after => 0)")
        worker.begin()
        worker.sql("select headrace._tick_queues(headrace._now(), '-infinity')")
        assert worker.sql("select count(*) from headrace.chores") == [(0,)], "it is filled"
        pass_months(db, 9)
        ticker.tick(upkeep=True)
        assert old in partitions(db)
        worker.commit()
        ticker.tick(upkeep=True)
        assert old not in partitions(db)
        late = db.sql("select id, payload from headrace.poll('default', 'late', max_events => 9)")
        assert late == [(id, {}) for id in published]

    def test_a_second_upkeep_leaves_it_to_the_first(
        self, db: Database, worker: Session, ticker: Session
    ) -> None:
        pass_months(db, 2)
        worker.begin()
        assert worker.tick(upkeep=True).kept_up
        assert not ticker.hurry().tick(upkeep=True).kept_up
        worker.commit()

    def test_publishers_and_claimers_get_through_while_upkeep_tries_and_tries(
        self, db: Database, worker: Session, ticker: Session
    ) -> None:
        reader = Session(db)
        worker.publish()
        pass_months(db, 8)
        reader.begin()
        reader.sql("select count(*) from headrace.outcomes")
        # Every lock that upkeep asks for in vain is 50 ms; nobody else may wait for much longer.
        worker.sql("set lock_timeout = '5s'")
        through = Event()

        def tick() -> list[bool]:
            kept: list[bool] = []
            while len(kept) < 5 or not through.is_set():
                kept.append(ticker.tick(upkeep=True).kept_up)
            return kept

        ticks = Background(tick)
        while not ticks.over:
            worker.publish()
            worker.finish(worker.poll(9))
            through.set()
        assert not any(ticks.result())
        reader.commit()
        assert ticker.tick(upkeep=True).kept_up

    @requirement("G4", "G7", "G17")
    def test_months_come_and_go_under_full_load_without_a_deadlock_or_a_loss(
        self, db: Database, ticker: Session
    ) -> None:
        stop: list[bool] = []

        def work(session: Session) -> tuple[list[int], list[int]]:
            published: list[int] = []
            counted: list[int] = []
            while not stop:
                session.begin()
                ids = session.publish(3, max_retries=1000)
                claims = session.poll(5, each=True)
                verdicts = session.finish(claims)
                session.commit()
                published += ids
                counted += [
                    claimed.id
                    for claimed, verdict in zip(claims, verdicts, strict=True)
                    if verdict == "counted"
                ]
            return published, counted

        def read(session: Session) -> None:
            while not stop:
                session.sql("select count(*) from headrace.event_queue")
                session.sql("select id from headrace.event_log limit 1")

        workers = [Background(work, Session(db)) for _ in range(2)]
        reader = Background(read, Session(db))
        deadline = time.monotonic() + PATIENCE
        try:
            for _ in range(9):
                pass_months(db, 1)
                while not ticker.keep_up():
                    db.advance(minutes=1)
                    assert time.monotonic() < deadline, "upkeep never gets its turn"
        finally:
            stop.append(True)
        reader.result()
        results = [worker.result() for worker in workers]
        published = [id for ids, _ in results for id in ids]
        counted = [id for _, ids in results for id in ids]
        last = Session(db)
        while claims := last.poll(1000):
            assert set(last.finish(claims)) == {"counted"}
            counted += [claimed.id for claimed in claims]
        assert sorted(counted) == sorted(published)
        assert len(partitions(db)) < 14  # months have gone, too


class TestMigrateBesideSessions:
    """A release is installed while workers run; the digest is changed so that there is one to install."""

    @pytest.fixture
    def release(self, db: Database) -> Session:
        db.sql("update headrace.release set digest = 'of an earlier one'")
        return Session(db)

    def test_a_session_goes_on_with_its_prepared_statements(
        self, db: Database, worker: Session, release: Session
    ) -> None:
        for _ in range(8):  # psycopg prepares what it has seen five times
            worker.publish()
            assert worker.finish(worker.poll()) == ["counted"]
        worker.publish()
        [claimed] = worker.poll()
        assert migrate(release.connection)
        assert worker.finish([claimed]) == ["counted"]
        worker.publish()
        assert worker.finish(worker.poll()) == ["counted"]
        assert worker.extend(claimed.lease) == ["lost"]
        worker.tick()

    @pytest.mark.parametrize("each", [False, True], ids=["batch", "held"])
    @requirement("G10")
    def test_it_does_not_wait_for_open_claims_and_finishes_and_they_commit(
        self, db: Database, worker: Session, release: Session, each: bool
    ) -> None:
        worker.publish(2)
        worker.begin()
        first, second = worker.poll(2, each=each)
        assert worker.finish([first]) == ["counted"]
        assert migrate(release.hurry().connection)
        assert worker.finish([second]) == ["counted"]
        worker.commit()
        assert set(map(tuple, db.placement().values())) == {("outcome",)}

    def test_while_it_waits_for_a_report_everybody_else_works(
        self, db: Database, worker: Session, release: Session
    ) -> None:
        report = Session(db)
        report.begin()
        report.sql("select count(*) from headrace.event_queue")
        waiting = blocked(db, release, migrate, release.connection)
        worker.hurry().publish()
        assert worker.finish(worker.poll()) == ["counted"]
        worker.tick()
        report.commit()
        assert waiting.result()

    def test_workers_do_not_notice_releases_that_are_installed_while_they_run(
        self, db: Database, release: Session
    ) -> None:
        stop: list[bool] = []
        rounds = [0, 0]

        def work(session: Session, n: int) -> None:
            while not stop:
                session.publish(2)
                claims = session.poll(4, each=bool(rounds[n] % 2))
                assert session.finish(claims) == ["counted"] * len(claims)
                rounds[n] += 1

        workers = [Background(work, Session(db), n) for n in range(2)]
        try:
            for n in range(6):
                release.sql("update headrace.release set digest = %s", [str(n)])
                assert migrate(release.connection)
            db.wait_for(lambda: all(rounds) or any(worker.over for worker in workers))
        finally:
            stop.append(True)
        for worker in workers:
            worker.result()

"""Many who fire, plan and change the same schedule at the same time."""

from collections import Counter
from threading import Event
from typing import Any

import psycopg
import pytest

from tests.database import Database
from tests.engine.functions_helpers import stop_the_clock
from tests.engine.races_helpers import (
    ISOLATION_LEVELS,
    REPEATABLE_READ,
    Background,
    Session,
    blocked,
)
from tests.requirements import requirement

SCHEDULE = "select headrace.schedule_task('default', 'a', '* * * * * *')"
PLAN = """
select headrace.plan_task('default', task_id, version, array(
    select date_trunc('second', headrace._now()) + n * interval '1 second' from generate_series(1, %s) n))
from headrace.schedules('default')
"""
FIRED = """
select e.details ->> 'scheduled_for' from headrace.events('default', oldest_first => true, "limit" => 1000) e
"""
CHANGES = {
    "pause": "select headrace.pause_schedule('default', 'a')",
    "remove": "select headrace.remove_schedule('default', 'a')",
    "change": "select headrace.schedule_task('default', 'a', '0 0 1 1 *')",
}
every_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


def schedule(db: Database, fires: int = 1) -> None:
    """A task that is to fire every second, so many times."""
    db.sql(SCHEDULE)
    db.sql(PLAN, [fires])


def fired(db: Database) -> list[str]:
    return [instant for (instant,) in db.sql(FIRED)]


@pytest.mark.rest  # as tests/node/test_ticking.py
@pytest.mark.parametrize("call", ["tick", "poll"])
@requirement("G12")
def test_three_who_tick_fire_each_of_300_instants_once(db: Database, call: str) -> None:
    stop_the_clock(db)
    schedule(db, 300)
    over = Event()

    def tick(session: Session) -> int:
        count = 0
        while not over.is_set():
            if call == "tick":
                count += session.tick().fired
            else:
                # Nobody waits for this type, so every poll comes to where it looks what is due.
                session.poll(types=["none"], sweep=True)
        return count

    tickers = [Background(tick, Session(db)) for _ in range(3)]
    for second in range(301):
        db.advance(seconds=1)
        db.wait_for(lambda due=second: len(fired(db)) >= due - 20)  # a minute late is missed
    db.wait_for(lambda: len(fired(db)) == 300)
    over.set()
    counts = [ticker.result() for ticker in tickers]
    instants = fired(db)
    assert Counter(instants).most_common(1)[0][1] == 1
    assert instants == sorted(instants)
    assert len(instants) == 300
    assert sum(counts) == (300 if call == "tick" else 0)
    assert db.sql("select count(*), count(distinct event) from headrace.fires") == [(300, 300)]


class TestRaces:
    @pytest.fixture
    def sessions(self, db: Database) -> tuple[Session, Session]:
        schedule(db)
        db.advance(seconds=2)
        return Session(db), Session(db)

    @requirement("G12")
    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_who_ticks_beside_a_tick_waits_for_nothing_and_fires_nothing(
        self, db: Database, sessions: tuple[Session, Session], end: str
    ) -> None:
        one, other = sessions
        one.begin()
        assert one.tick().fired == 1
        assert other.hurry().tick().fired == 0
        one.sql(end)
        assert other.tick().fired == (end == "rollback")
        assert len(fired(db)) == 1

    @requirement("G12")
    def test_what_somebody_was_firing_who_is_killed_is_fired_by_another(
        self, db: Database, sessions: tuple[Session, Session]
    ) -> None:
        one, other = sessions
        one.begin()
        assert one.tick().fired == 1
        pid = one.connection.info.backend_pid
        db.sql("select pg_terminate_backend(%s)", [pid])
        gone = "select count(*) from pg_stat_activity where pid = %s"
        db.wait_for(lambda: db.sql(gone, [pid]) == [(0,)])
        assert other.tick().fired == 1
        assert len(fired(db)) == 1

    @every_change
    def test_a_change_waits_for_a_tick_and_then_nothing_more_is_fired(
        self, db: Database, sessions: tuple[Session, Session], change: str
    ) -> None:
        ticker, admin = sessions
        db.sql(PLAN, [5])
        ticker.begin()
        count = ticker.tick().fired
        waiting = blocked(db, admin, admin.sql, change)
        ticker.commit()
        waiting.result()
        db.advance(seconds=10)
        assert ticker.tick().fired == 0
        assert len(fired(db)) == count > 0

    @every_change
    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_a_tick_does_not_wait_for_a_change_and_fires_if_it_does_not_come_about(
        self, db: Database, sessions: tuple[Session, Session], change: str, end: str
    ) -> None:
        ticker, admin = sessions
        admin.begin()
        admin.sql(change)
        assert ticker.hurry().tick().fired == 0
        admin.sql(end)
        assert ticker.tick().fired == (end == "rollback")

    @pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
    def test_two_who_schedule_the_same_make_one_task(
        self, db: Database, sessions: tuple[Session, Session], isolation: str
    ) -> None:
        one, other = sessions
        db.sql(CHANGES["remove"])
        one.begin()
        one.sql(SCHEDULE)
        other.begin(isolation)
        waiting = blocked(db, other, other.sql, SCHEDULE)
        one.commit()
        try:
            waiting.result()
            other.commit()
        except psycopg.errors.SerializationFailure:  # it is to be tried again
            assert isolation != ISOLATION_LEVELS[0]
        assert db.sql("select count(*) from headrace.scheduled_tasks") == [(1,)]

    def test_two_who_plan_the_same_store_what_one_would_have(
        self, db: Database, sessions: tuple[Session, Session]
    ) -> None:
        one, other = sessions
        plan = PLAN.replace("headrace._now()", "planned_until")  # what both of them see
        one.begin()
        one.sql(plan, [5])
        waiting = blocked(db, other, other.sql, plan, [5])
        one.commit()
        waiting.result()
        [(fires,)] = db.sql("select next_fires from headrace.scheduled_tasks")
        assert len(fires) == len(set(fires)) == 6

    def test_who_plans_waits_for_a_tick_and_loses_nothing(
        self, db: Database, sessions: tuple[Session, Session]
    ) -> None:
        ticker, planner = sessions
        ticker.begin()
        ticker.tick()
        waiting = blocked(db, planner, planner.sql, PLAN, [5])
        ticker.commit()
        waiting.result()
        db.advance(seconds=10)
        assert ticker.tick().fired == 5
        assert len(set(fired(db))) == 6

    def test_a_plan_for_what_a_task_was_before_is_of_no_use(
        self, db: Database, sessions: tuple[Session, Session]
    ) -> None:
        admin, planner = sessions
        admin.begin()
        admin.sql(CHANGES["change"])
        waiting = blocked(db, planner, planner.sql, PLAN, [5])
        admin.commit()
        assert waiting.result() == [(False,)]
        assert db.sql("select next_fires from headrace.scheduled_tasks") == [([],)]

    def test_whoever_sees_an_old_world_is_told_to_try_again(
        self, db: Database, sessions: tuple[Session, Session]
    ) -> None:
        old, ticker = sessions
        attempts: list[tuple[str, list[Any] | None]] = [(PLAN, [5]), *((c, None) for c in CHANGES.values())]  # fmt: skip
        for sql, params in attempts:
            old.begin(REPEATABLE_READ)
            db.sql("update headrace.scheduled_tasks set updated_at = headrace._now()")
            with pytest.raises(psycopg.errors.SerializationFailure):
                old.sql(sql, params)
            old.rollback()
        assert ticker.tick().fired == 1


@requirement("G12")
def test_fires_that_race_with_everything_else_are_never_two(db: Database) -> None:
    """Two tick, one plans, one pauses and resumes, one schedules and runs by hand: each instant has one event at most."""
    stop_the_clock(db)
    schedule(db, 5)
    over = Event()
    tick = "select headrace.tick()"
    everything: list[tuple[str, ...]] = [
        (tick,),
        (tick,),
        (PLAN,),
        (CHANGES["pause"], "select headrace.resume_schedule('default', 'a')"),
        (SCHEDULE, "select headrace.run_schedule('default', 'a')"),
    ]
    rounds = [0] * len(everything)

    def run(session: Session, n: int) -> None:
        while not over.is_set():
            for call in everything[n]:
                session.sql(call, [10] if call is PLAN else None)
            rounds[n] += 1

    runners = [Background(run, Session(db), n) for n, _ in enumerate(everything)]
    for _ in range(60):
        db.advance(seconds=1)
        db.sql("select pg_sleep(0.01)")
    db.wait_for(lambda: all(rounds) or any(runner.over for runner in runners))
    over.set()
    for runner in runners:
        runner.result()
    instants = db.sql(
        "select e.details ->> 'scheduled_for', count(*) from headrace.events e"
        " where e.details ? 'scheduled_for' group by 1"
    )
    assert {count for _, count in instants} == {1}
    assert db.sql("select count(*) from headrace.fires") == [(len(instants),)]


def test_a_namespace_is_deleted_with_a_task_that_is_just_being_scheduled(db: Database) -> None:
    db.sql("select headrace.create_namespace('theirs')")
    scheduling, deleting = Session(db), Session(db)
    scheduling.begin()
    scheduling.sql("select headrace.schedule_task('theirs', 'a', '@daily')")
    waiting = blocked(db, deleting, deleting.sql, "select headrace.delete_namespace('theirs')")
    scheduling.commit()
    waiting.result()
    assert db.sql("select count(*) from headrace.scheduled_tasks") == [(0,)]

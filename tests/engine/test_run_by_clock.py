"""A scheduler outside comes when a task's time has: whoever was first, an instant has one event."""

from datetime import datetime
from threading import Event
from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import stop_the_clock
from tests.engine.races_helpers import Background, Session
from tests.engine.test_schedules import HOUR, MINUTE, Scheduler
from tests.requirements import requirement


@pytest.fixture
def scheduler(db: Database) -> Scheduler:
    """At the beginning of a minute, which is long enough for all that a test does in it."""
    scheduler = Scheduler(db)
    db.advance(seconds=60 - scheduler.now().second)
    return scheduler


def this_minute(scheduler: Scheduler) -> datetime:
    return scheduler.now().replace(second=0)


def run(scheduler: Scheduler, task: Any) -> int | None:
    [(event,)] = scheduler.engine.call("run_scheduled_task", task_id=task.task_id, by_clock=True)
    return event


class TestOnce:
    @requirement("G12")
    def test_what_the_tick_has_fired_is_fired(self, scheduler: Scheduler, db: Database) -> None:
        task = scheduler.schedule()
        at = this_minute(scheduler) + MINUTE
        scheduler.plan(task, at, at + HOUR)
        db.advance(minutes=1)
        assert scheduler.tick() == 1
        assert run(scheduler, task) is None
        assert scheduler.fired_for() == [at]

    @requirement("G12")
    def test_what_it_has_fired_the_tick_does_not_fire(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()
        at = this_minute(scheduler) + MINUTE
        scheduler.plan(task, at, at + HOUR)
        assert run(scheduler, task) is None  # too early
        db.advance(minutes=1)
        event = run(scheduler, task)
        assert [event] == [event.id for event in scheduler.events()]
        assert (run(scheduler, task), scheduler.tick()) == (None, 0)
        assert scheduler.fired_for() == [at]

    @requirement("G12", "PG-11")
    def test_beyond_what_was_worked_out_this_minute_is_an_instant(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()  # nobody who knows calendars has ever seen it
        db.advance(minutes=1)
        minute = this_minute(scheduler)
        db.advance(seconds=2)
        assert run(scheduler, task) is not None
        db.advance(seconds=20)
        assert run(scheduler, task) is None
        assert scheduler.fired_for() == [minute]
        # Who works out instants now does so from there on, even if it had looked before.
        assert scheduler.plan(task, minute, minute + MINUTE, minute + HOUR)
        db.advance(minutes=1)
        assert scheduler.tick() == 1
        assert scheduler.fired_for() == [minute, minute + MINUTE]

    @requirement("G12")
    def test_it_waits_for_a_tick_that_is_firing_and_fires_nothing_more(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()
        at = this_minute(scheduler) + MINUTE
        scheduler.plan(task, at)
        db.advance(minutes=1)
        ticking = Session(db)
        ticking.begin()
        assert ticking.tick().fired == 1
        other = Scheduler(db)
        coming = Background(run, other, task)
        db.wait_until_blocked(other.engine.connection)
        ticking.commit()
        assert coming.result() is None
        assert scheduler.fired_for() == [at]


class TestMissed:
    def outage(self, scheduler: Scheduler, db: Database, policy: str) -> Any:
        """Three instants nobody fired, the server being away, and none is known that follows."""
        task = scheduler.schedule(missed=policy)
        scheduler.plan(task, *(this_minute(scheduler) + n * MINUTE for n in (1, 2, 3)))
        db.advance(minutes=30)
        assert scheduler.tick() == 0  # whether these were the last is not known to it
        return task

    @pytest.mark.parametrize(("policy", "events"), [("coalesce", 1), ("catch_up", 4), ("skip", 1)])
    def test_who_comes_knows_that_this_minute_is_the_last(
        self, scheduler: Scheduler, db: Database, policy: str, events: int
    ) -> None:
        task = self.outage(scheduler, db, policy)
        assert run(scheduler, task) is not None
        assert len(scheduler.events()) == events
        assert scheduler.fired_for()[-1] == this_minute(scheduler)


class TestNothing:
    def test_a_full_queue_is_tried_again(self, scheduler: Scheduler, db: Database) -> None:
        task = scheduler.schedule()
        db.sql("select headrace.publish('default', '{}')")
        db.sql("""select headrace.change_queue('default', 'main', '{"max_queue_depth": 1}')""")
        db.advance(minutes=1)
        minute = this_minute(scheduler)
        assert run(scheduler, task) is None
        db.sql("""select headrace.change_queue('default', 'main', '{"max_queue_depth": null}')""")
        db.advance(seconds=11)
        assert scheduler.tick() == 1
        assert scheduler.db.sql("select fire_at from headrace.fires") == [(minute,)]

    @pytest.mark.parametrize("gone", ["pause", "remove"])
    def test_paused_or_gone_it_publishes_nothing(
        self, scheduler: Scheduler, db: Database, gone: str
    ) -> None:
        task = scheduler.schedule()
        scheduler.do(gone)
        db.advance(minutes=1)
        assert run(scheduler, task) is None
        assert scheduler.events() == []


@requirement("G12")
def test_two_who_come_and_two_who_tick_fire_each_minute_once(db: Database) -> None:
    """The first ten minutes are worked out; the others nobody knows of but those who come."""
    stop_the_clock(db)
    scheduler = Scheduler(db)
    task = scheduler.schedule(cron_expression="* * * * *")
    minutes = [this_minute(scheduler) + n * MINUTE for n in range(1, 21)]
    scheduler.plan(task, *minutes[:10])
    over = Event()

    def come(other: Scheduler) -> None:
        while not over.is_set():
            run(other, task)

    def tick(other: Scheduler) -> None:
        while not over.is_set():
            other.tick()

    crowd = [Background(who, Scheduler(db)) for who in (come, come, tick, tick)]
    try:
        for n, minute in enumerate(minutes, 1):
            db.sql(
                "update headrace_test.clock set shift = shift + (%s - headrace._now())", [minute]
            )
            fired = "select count(*) from headrace.fires"
            db.wait_for(lambda n=n, fired=fired: db.sql(fired) >= [(n,)])
    finally:
        over.set()
    for one in crowd:
        one.result()
    assert scheduler.fired_for() == minutes

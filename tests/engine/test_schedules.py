"""Schedules: one event for an instant, whoever ticks; what is missed, paused, changed, run by hand."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from headrace import InvalidInput
from headrace.engine.cron import NICKNAMES, Schedule
from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, refused, stop_the_clock
from tests.requirements import requirement

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


# What fields of a cron expression are made of.
PIECES = [
    *"0123456789",
    *"0123456",
    *"*/,-#LW",
    *"/,-",
    "12",
    "31",
    "59",
    "SUN",
    "fri",
    "JAN",
    "dec",
]


def can_be_planned(expression: str) -> bool:
    try:
        Schedule(expression)
    except InvalidInput:
        return False
    return True


class Scheduler:
    """A session that schedules, plans and ticks."""

    def __init__(self, db: Database, namespace: str = "default") -> None:
        self.db = db
        self.engine = Engine(db, namespace)
        self.namespace = namespace

    def now(self) -> datetime:
        """In whole seconds, as instants are."""
        return self.engine.now().replace(microsecond=0)

    def schedule(self, name: str = "nightly", **options: Any) -> Any:
        options = {"cron_expression": "0 2 * * *", "event_type": "tick", **options}
        options = {key: Jsonb(o) if isinstance(o, dict) else o for key, o in options.items()}
        [task] = self.engine.call("schedule_task", namespace=self.namespace, name=name, **options)
        return task

    def plan(self, task: Any, *fires: datetime) -> bool:
        [(used,)] = self.engine.call(
            "plan_task",
            namespace=self.namespace,
            task_id=task.task_id,
            version=task.version,
            next_fires=list(fires),
        )
        return used

    def task(self, name: str = "nightly") -> Any:
        [task] = [task for task in self.tasks() if task.name == name]
        return task

    def tasks(self) -> list[Any]:
        return self.engine.call("schedules", namespace=self.namespace)

    def to_plan(self) -> list[str]:
        return [t.name for t in self.engine.call("tasks_to_plan", namespace=self.namespace)]

    def do(self, action: str, name: str = "nightly") -> Any:
        [answer] = self.engine.call(f"{action}_schedule", namespace=self.namespace, name=name)
        return answer

    def tick(self) -> int:
        return self.engine.tick().fired

    def events(self) -> list[Any]:
        return self.engine.call("events", namespace=self.namespace, oldest_first=True, limit=1000)

    def fired_for(self) -> list[datetime]:
        """The instants that events are for, in the order of the events."""
        return [datetime.fromisoformat(e.details["scheduled_for"]) for e in self.events()]


@pytest.fixture
def scheduler(db: Database) -> Scheduler:
    return Scheduler(db)


class TestFiring:
    @requirement("G12", "PG-6", "PG-15")
    def test_an_instant_that_has_come_is_fired_once(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule(
            payload={"n": 1}, event={"tags": ["b", "a"], "priority": 2, "title": "Nightly"}
        )
        at = scheduler.now() + 10 * SECOND
        assert scheduler.plan(task, at, at + HOUR)
        assert scheduler.tick() == 0
        db.advance(seconds=11)
        assert [scheduler.tick() for _ in range(3)] == [1, 0, 0]
        [event] = scheduler.events()
        assert (event.type, event.tags, event.priority) == ("tick", ["b", "a"], 2)
        assert event.details == {
            "title": "Nightly",
            "producer": "scheduler",
            "scheduled_task_id": str(task.task_id),
            "scheduled_for": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        assert scheduler.engine.event(event.id).payload == {"n": 1}
        after = scheduler.task()
        assert (after.next_fires, after.last_fire_at) == ([at + HOUR], at)
        assert db.sql("select task_id, fire_at, event from headrace.fires") == [
            (task.task_id, at, event.id)
        ]

    def test_a_poll_that_finds_nothing_fires_what_is_due_and_gets_it(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()
        scheduler.plan(task, scheduler.now() + 10 * SECOND)
        assert scheduler.engine.poll(sweep=True) == []
        db.advance(seconds=11)
        [claimed] = scheduler.engine.poll(sweep=True)
        assert claimed.details["scheduled_task_id"] == str(task.task_id)

    def test_the_order_of_events_is_that_of_their_instants(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()
        fires = [scheduler.now() + n * SECOND for n in range(1, 31)]
        scheduler.plan(task, *reversed(fires))
        db.advance(seconds=31)
        assert scheduler.tick() == 30
        assert scheduler.fired_for() == fires

    def test_a_tick_that_is_rolled_back_has_fired_nothing(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()
        scheduler.plan(task, scheduler.now() + SECOND)
        db.advance(seconds=2)
        before = contents(db)
        connection = scheduler.engine.connection
        connection.execute("begin")
        assert scheduler.tick() == 1
        connection.execute("rollback")
        assert contents(db)["scheduled_tasks"] == before["scheduled_tasks"]
        assert scheduler.events() == []
        assert scheduler.tick() == 1
        assert len(scheduler.events()) == 1

    def test_an_instant_that_was_fired_is_not_fired_again_if_it_is_planned_again(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()
        at = scheduler.now() + SECOND
        scheduler.plan(task, at)
        db.advance(seconds=2)
        assert scheduler.tick() == 1
        db.sql("update headrace.scheduled_tasks set planned_until = %s", [at - HOUR])
        assert scheduler.plan(task, at, at + SECOND)
        db.advance(seconds=2)
        assert scheduler.tick() == 1
        assert scheduler.fired_for() == [at, at + SECOND]

    def test_more_tasks_than_one_tick_fires_are_fired_by_the_next(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        at = scheduler.now() + MINUTE
        for n in range(120):
            scheduler.plan(scheduler.schedule(f"task {n}"), at)
        db.advance(seconds=62)
        first = scheduler.engine.tick()
        assert (first.fired, first.more) == (100, True)
        assert scheduler.engine.tick().fired == 20


class TestMissed:
    """Every minute for three hours, and nobody there for the first two and a half."""

    @pytest.fixture
    def missed(self, scheduler: Scheduler, db: Database) -> Any:
        def miss(policy: str, **duration: float) -> list[datetime]:
            begin = scheduler.now().replace(second=0) + MINUTE
            fires = [begin + n * MINUTE for n in range(180)]
            scheduler.plan(scheduler.schedule(missed=policy), *fires)
            db.sql(
                "update headrace_test.clock set shift = shift + (%s - headrace._now())",
                [begin + timedelta(**duration)],
            )
            return fires

        return miss

    @requirement("G12")
    def test_coalesced_they_are_one_event_for_the_last(
        self, scheduler: Scheduler, missed: Any
    ) -> None:
        fires = missed("coalesce", hours=2.5, seconds=5)
        assert scheduler.tick() == 1
        assert scheduler.fired_for() == [fires[150]]
        assert scheduler.task().next_fires == fires[151:]

    @requirement("G12")
    def test_caught_up_with_they_are_an_event_each_for_the_last_hundred(
        self, scheduler: Scheduler, missed: Any
    ) -> None:
        fires = missed("catch_up", hours=2.5, seconds=5)
        assert scheduler.tick() == 100
        assert scheduler.fired_for() == fires[51:151]
        assert scheduler.tick() == 0

    @requirement("G12")
    def test_skipped_they_are_none_but_what_is_less_than_a_minute_late(
        self, scheduler: Scheduler, missed: Any, db: Database
    ) -> None:
        fires = missed("skip", hours=2.5, seconds=5)
        assert scheduler.tick() == 1
        assert scheduler.fired_for() == [fires[150]]
        db.advance(seconds=15 * 60)
        scheduler.tick()
        assert scheduler.fired_for() == [fires[150], fires[165]]

    def test_skipped_they_may_be_none_at_all(self, scheduler: Scheduler, db: Database) -> None:
        task = scheduler.schedule(missed="skip")
        scheduler.plan(task, scheduler.now() + SECOND)
        db.advance(seconds=62)
        assert scheduler.tick() == 0
        after = scheduler.task()
        assert (after.next_fires, after.last_fire_at) == ([], None)
        assert scheduler.engine.call("tick")[0].more is False

    @pytest.mark.parametrize(("policy", "last"), [("coalesce", 1), ("catch_up", 4)])
    def test_an_outage_beyond_what_was_planned_is_one_outage(
        self, scheduler: Scheduler, db: Database, policy: str, last: int
    ) -> None:
        task = scheduler.schedule(missed=policy)
        begin = scheduler.now()
        fires = [begin + n * MINUTE for n in range(1, 6)]
        scheduler.plan(task, *fires[:2])
        db.advance(minutes=4, seconds=5)
        assert scheduler.tick() == 0  # which was the last one is not known before somebody plans
        assert scheduler.to_plan() == ["nightly"]
        scheduler.plan(task, *fires[2:])
        assert scheduler.tick() == last
        assert scheduler.fired_for() == fires[4 - last : 4]

    @pytest.mark.parametrize("policy", ["coalesce", "catch_up", "skip"])
    def test_a_tick_that_is_slow_has_missed_nothing(
        self, scheduler: Scheduler, db: Database, policy: str
    ) -> None:
        task = scheduler.schedule(missed=policy)
        fires = [scheduler.now() + n * SECOND for n in range(1, 31)]
        scheduler.plan(task, *fires)
        db.advance(seconds=31)
        assert scheduler.tick() == 30
        assert scheduler.fired_for() == fires


MANY = """
do $$
declare
    task headrace.listed_task;
begin
    for n in 1..%(many)s loop
        task := headrace.schedule_task('default', 'task ' || n, '0 2 * * *', missed => '%(policy)s');
        perform headrace.plan_task('default', task.task_id, task.version, array[timestamptz '%(at)s', timestamptz '%(at)s' + interval '1 day']);
    end loop;
end $$
"""


class TestManyAtOneInstant:
    """More than ticks fire in a minute."""

    MANY = 1_000

    @pytest.fixture
    def at(self, scheduler: Scheduler, db: Database, request: Any) -> datetime:
        at = scheduler.now() + MINUTE
        policy = getattr(request, "param", "skip")
        db.sql(MANY % {"many": self.MANY, "policy": policy, "at": at.isoformat()})
        db.advance(seconds=62)
        return at

    def fired(self, db: Database) -> int:
        [(fired,)] = db.sql("select count(*) from headrace.fires")
        return fired

    def log(self, scheduler: Scheduler) -> list[Any]:
        entries = scheduler.engine.call("admin_log", limit=1000)
        return [entry for entry in entries if entry.action == "missed"]

    @requirement("G12")
    @pytest.mark.parametrize("at", ["skip", "coalesce", "catch_up"], indirect=True)
    def test_none_is_missed_while_ticks_are_busy_with_the_others(
        self, scheduler: Scheduler, db: Database, at: datetime
    ) -> None:
        more = True
        while more:
            more = scheduler.engine.tick().more
            db.advance(seconds=20)
        assert self.fired(db) == self.MANY
        assert self.log(scheduler) == []

    @requirement("G12")
    def test_what_is_left_when_all_are_down_for_a_minute_is_missed_and_noted(
        self, scheduler: Scheduler, db: Database, at: datetime
    ) -> None:
        assert scheduler.engine.tick().more
        db.advance(seconds=62)
        while scheduler.engine.tick().more:
            db.advance(seconds=20)
        assert self.fired(db) == 100
        noted = self.log(scheduler)
        assert len(noted) == self.MANY - 100
        assert {(one.actor, one.details["policy"], one.details["instants"]) for one in noted} == {
            ("headrace", "skip", 1)
        }
        assert {datetime.fromisoformat(one.details["last"]) for one in noted} == {at}

    def test_those_that_were_missed_do_not_keep_ticks_waiting_for_their_next_turn(
        self, scheduler: Scheduler, db: Database, at: datetime
    ) -> None:
        """A tick that fires nothing, because all that it looks at was missed, says that there is more."""
        db.advance(seconds=62)
        first = scheduler.engine.tick()
        assert (first.fired, first.more) == (0, True)


class TestTasks:
    @requirement("PG-6", "PG-27")
    def test_a_task_is_made_once_and_has_an_id_for_good(self, scheduler: Scheduler) -> None:
        first, second = scheduler.schedule(), scheduler.schedule()
        assert first.task_id == second.task_id
        assert (first.version, second.version) == (1, 1)
        assert (first.active, first.missed, first.timezone) == (True, "coalesce", "UTC")
        assert (first.payload, first.event, first.next_fires) == ({}, {}, [])
        assert first.updated_at == second.updated_at

    def test_the_same_definition_keeps_its_fires_and_so_does_another_event(
        self, scheduler: Scheduler
    ) -> None:
        task = scheduler.schedule()
        fires = [scheduler.now() + n * HOUR for n in range(1, 5)]
        scheduler.plan(task, *fires)
        assert scheduler.schedule().next_fires == fires
        changed = scheduler.schedule(payload={"n": 2}, missed="skip", event={"priority": 1})
        assert (changed.next_fires, changed.version) == (fires, 1)
        assert (changed.payload, changed.missed, changed.event) == ({"n": 2}, "skip", {"priority": 1})  # fmt: skip

    @requirement("PG-28")
    @pytest.mark.parametrize(
        "change", [{"cron_expression": "0 3 * * *"}, {"timezone": "Europe/Berlin"}], ids=str
    )
    def test_another_expression_or_zone_forgets_what_was_worked_out_for_it(
        self, scheduler: Scheduler, db: Database, change: dict[str, str]
    ) -> None:
        task = scheduler.schedule()
        soon = scheduler.now() + SECOND
        scheduler.plan(task, soon)
        changed = scheduler.schedule(**change)
        assert (changed.next_fires, changed.version) == ([], 2)
        assert scheduler.plan(task, soon + HOUR) is False  # it was worked out for the old one
        db.advance(seconds=5)
        assert scheduler.tick() == 0
        assert scheduler.plan(changed, scheduler.now() + SECOND)
        db.advance(seconds=5)
        assert scheduler.tick() == 1

    @requirement("PG-28")
    def test_paused_it_fires_nothing_and_has_missed_nothing_when_it_is_resumed(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()
        now = scheduler.now()
        scheduler.plan(task, now + SECOND, now + MINUTE, now + HOUR, now + 9 * HOUR)
        scheduler.do("pause")
        scheduler.do("pause")
        db.advance(seconds=90)
        assert scheduler.tick() == 0
        assert scheduler.schedule().active is False  # who starts again does not resume it
        assert scheduler.to_plan() == []
        scheduler.do("resume")
        resumed = scheduler.do("resume")
        assert (resumed.active, resumed.next_fires) == (True, [now + HOUR, now + 9 * HOUR])
        assert scheduler.tick() == 0
        db.advance(hours=1)
        assert scheduler.tick() == 1

    def test_paused_for_longer_than_it_was_planned_it_goes_on_from_now(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()
        scheduler.plan(task, scheduler.now() + MINUTE)
        scheduler.do("pause")
        db.advance(hours=1)
        now = scheduler.now()
        resumed = scheduler.do("resume")
        assert (resumed.next_fires, resumed.planned_until >= now) == ([], True)
        assert scheduler.to_plan() == ["nightly"]
        scheduler.plan(resumed, now - MINUTE, now + MINUTE)
        assert scheduler.task().next_fires == [now + MINUTE]

    @requirement("PG-28")
    def test_removed_it_is_gone_and_what_it_fired_stays(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()
        now = scheduler.now()
        scheduler.plan(task, now + SECOND, now + MINUTE)
        db.advance(seconds=2)
        scheduler.tick()
        scheduler.do("remove")
        db.advance(hours=1)
        assert (scheduler.tick(), scheduler.tasks(), len(scheduler.events())) == (0, [], 1)
        assert scheduler.plan(task, now + HOUR * 2) is False
        assert scheduler.schedule().task_id != task.task_id

    @requirement("PG-11", "PG-15")
    def test_run_by_hand_it_publishes_now_and_its_fires_stay(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule(payload={"n": 1})
        fires = [scheduler.now() + HOUR, scheduler.now() + 2 * HOUR]
        scheduler.plan(task, *fires)
        before = scheduler.task().updated_at
        ids = [scheduler.do("run")[0]]
        [(by_id,)] = scheduler.engine.call("run_scheduled_task", task_id=task.task_id)
        ids.append(by_id)
        events = scheduler.events()
        assert [event.id for event in events] == ids
        for event in events:
            assert event.details == {
                "producer": "scheduler",
                "scheduled_task_id": str(task.task_id),
            }
        after = scheduler.task()
        assert (after.next_fires, after.last_fire_at) == (fires, None)
        assert after.updated_at > before
        assert db.sql("select count(*) from headrace.fires") == [(0,)]

    @requirement("PG-11")
    def test_paused_or_gone_it_is_run_by_name_if_it_is_there_and_by_id_not_at_all(
        self, scheduler: Scheduler
    ) -> None:
        task = scheduler.schedule()
        scheduler.do("pause")
        assert scheduler.do("run")[0] is not None
        for _ in range(2):
            assert scheduler.engine.call("run_scheduled_task", task_id=task.task_id) == [(None,)]
            if scheduler.tasks():
                scheduler.do("remove")
        assert len(scheduler.events()) == 1

    @pytest.mark.parametrize("action", ["pause", "resume", "run", "remove"])
    def test_what_is_not_there_is_not_found(self, scheduler: Scheduler, action: str) -> None:
        with refused("QU013", "no schedule 'nightly'"):
            scheduler.do(action)

    def test_a_namespace_must_be_there(self, db: Database) -> None:
        nowhere = Scheduler(db, "nowhere")
        for call in (nowhere.schedule, nowhere.tasks, nowhere.to_plan):
            with refused("QU010"):
                call()
        for action in ("pause", "resume", "run", "remove"):
            with refused("QU010"):
                nowhere.do(action)
        task = Scheduler(db).schedule()
        with refused("QU010"):
            nowhere.plan(task)

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"name": ""}, "needs a name"),
            ({"name": "a/b"}, "no slash"),
            ({"cron_expression": "* * *"}, "five fields"),
            ({"cron_expression": None}, "five fields"),
            ({"cron_expression": "0 2 * * * * *"}, "five fields"),
            ({"cron_expression": "0 2 * * ;"}, "five fields"),
            ({"cron_expression": "@often"}, "one word is @hourly"),
            ({"cron_expression": "99 99 * * *"}, "the minute of a cron expression is 0 to 59"),
            ({"cron_expression": "60 0 2 * * *"}, "the second of a cron expression is 0 to 59"),
            ({"cron_expression": "0 24 * * *"}, "the hour of a cron expression is 0 to 23"),
            ({"cron_expression": "0 2 0 * *"}, "the day of the month of a cron expression"),
            ({"cron_expression": "0 2 * 13 *"}, "the month of a cron expression is 1 to 12"),
            ({"cron_expression": "0 2 * * fri-mon"}, "the day of the week of a cron expression"),
            ({"cron_expression": "0 2 * * 1,,2"}, "the day of the week of a cron expression"),
            ({"cron_expression": "*/0 2 * * *"}, "the minute of a cron expression"),
            ({"cron_expression": "0 2 31 2,4 *"}, "never fires"),
            ({"timezone": "Europe/Atlantis"}, "unknown time zone"),
            ({"timezone": None}, "time zone"),
            ({"missed": "maybe"}, "coalesce, catch_up or skip"),
            ({"event_type": "a*"}, "asterisk"),
            ({"event": {"delay": 5}}, "no delay"),
            ({"event": {"idempotency_key": "k"}}, "idempotency key"),
            ({"event": {"priority": 11}}, "priority"),
            ({"event": {"colour": "red"}}, "colour"),
        ],
    )
    def test_what_is_no_task_is_refused(
        self, scheduler: Scheduler, wrong: dict[str, Any], said: str
    ) -> None:
        with refused("QU001", said):
            scheduler.schedule(**wrong)
        assert scheduler.tasks() == []

    @requirement("PG-27")
    def test_the_database_takes_the_expressions_that_clients_can_work_out_and_no_others(
        self, db: Database
    ) -> None:
        pytest.importorskip("cronsim")
        expressions = [*NICKNAMES, "0 0 30 2 *", "0 0 31 2 1", "0 0 31 2,3 *", "0 0 L 2 *"]
        random = Random(16)
        for _ in range(3000):
            fields = random.choice((5, 5, 6))
            said = ["*"] * fields
            said[random.randrange(fields)] = "".join(random.choices(PIECES, k=random.randint(1, 5)))
            expressions.append(" ".join(said))
        told = dict(
            db.sql(
                "select e, headrace._cron_problem(e) is null from unnest(%s::text[]) e",
                [expressions],
            )
        )
        assert {e: can_be_planned(e) for e in told} == told
        assert sum(told.values()) > 200

    def test_a_payload_must_be_one_that_everybody_can_read(self, scheduler: Scheduler) -> None:
        with refused("QU003"):
            scheduler.schedule(payload={"a": "x" * 1_100_000})


class TestPlans:
    def test_instants_are_whole_seconds_sorted_each_once_and_after_those_that_are_known(
        self, scheduler: Scheduler
    ) -> None:
        task = scheduler.schedule()
        at = scheduler.now() + MINUTE
        half = timedelta(milliseconds=500)
        assert scheduler.plan(task, at + SECOND + half, at, at, at - HOUR)
        assert scheduler.task().next_fires == [at, at + SECOND]
        assert scheduler.plan(task, at, at + SECOND, at + HOUR)
        assert scheduler.task().next_fires == [at, at + SECOND, at + HOUR]
        assert scheduler.plan(task)
        with refused("QU001", "1000"):
            scheduler.plan(task, *[at] * 1001)

    def test_infinity_is_no_instant(self, scheduler: Scheduler, db: Database) -> None:
        task = scheduler.schedule()
        db.sql(
            "select headrace.plan_task('default', %s, 1, '{infinity,-infinity,null}')",
            [task.task_id],
        )
        assert scheduler.task().next_fires == []

    def test_a_task_with_few_instants_ahead_is_to_be_planned(self, scheduler: Scheduler) -> None:
        now = scheduler.now()
        daily, often, seldom = map(scheduler.schedule, ("daily", "often", "seldom"))
        assert set(scheduler.to_plan()) == {"daily", "often", "seldom"}
        scheduler.plan(daily, *[now + n * 24 * HOUR for n in range(1, 11)])
        scheduler.plan(often, *[now + MINUTE + n * SECOND for n in range(1, 100)])
        scheduler.plan(seldom, *[now + n * 24 * HOUR for n in range(1, 10)])
        assert scheduler.to_plan() == ["often", "seldom"]
        scheduler.plan(often, now + MINUTE + 100 * SECOND)
        assert scheduler.to_plan() == ["seldom"]

    def test_what_was_planned_late_is_found_by_a_tick_that_looks_no_further_back(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()
        db.advance(minutes=10)
        now = scheduler.now()
        scheduler.plan(task, now - 5 * MINUTE, now + HOUR)
        assert scheduler.engine.tick(since=now - 2 * SECOND).fired == 1
        assert scheduler.fired_for() == [now - 5 * MINUTE]

    def test_what_was_fired_more_than_a_month_ago_is_forgotten(
        self, scheduler: Scheduler, db: Database
    ) -> None:
        task = scheduler.schedule()
        now = scheduler.now()
        scheduler.plan(task, now + SECOND, now + timedelta(days=20), now + timedelta(days=90))
        for days in (1, 20, 12):
            db.advance(days=days)
            scheduler.tick()
        assert scheduler.engine.call("_forget") is not None
        assert db.sql("select fire_at from headrace.fires") == [(now + timedelta(days=20),)]


def test_a_full_queue_puts_a_fire_off_and_keeps_no_other_from_firing(db: Database) -> None:
    db.sql("select headrace.create_namespace('full')")
    full, other = Scheduler(db, "full"), Scheduler(db)
    for scheduler in (full, other):
        scheduler.plan(scheduler.schedule(), scheduler.now() + SECOND)
    full.engine.call(
        "change_queue", namespace="full", queue="main", settings=Jsonb({"max_queue_depth": 1})
    )
    full.engine.publish({})
    db.advance(seconds=2)
    assert full.tick() == 1
    assert (len(full.events()), len(other.events())) == (1, 1)
    assert full.tick() == 0
    [claimed] = full.engine.poll()
    full.engine.end("complete", claimed)
    db.advance(seconds=11)
    assert full.tick() == 1
    assert len(full.events()) == 2


def test_a_task_that_cannot_be_published_is_warned_of_and_keeps_no_other_from_firing(
    db: Database,
) -> None:
    scheduler = Scheduler(db)
    at = scheduler.now() + MINUTE
    for name in ("broken", "sound"):
        scheduler.plan(scheduler.schedule(name), at, at + HOUR)
    db.sql(
        """update headrace.scheduled_tasks set event = '{"priority": 99}' where name = 'broken'"""
    )
    warnings: list[str] = []
    scheduler.engine.connection.add_notice_handler(
        lambda notice: warnings.append(notice.message_primary or "")
    )
    db.advance(seconds=62)
    assert [scheduler.tick() for _ in range(3)] == [1, 0, 0]
    assert [warning.partition(" could")[0] for warning in warnings] == [
        "headrace: the schedule broken"
    ]
    assert scheduler.task("broken").next_fires == [at, at + HOUR]
    db.sql("update headrace.scheduled_tasks set event = '{}'")
    db.advance(seconds=11)
    assert scheduler.tick() == 1
    assert scheduler.fired_for() == [at, at]


def test_schedules_are_of_their_namespace_and_go_with_it(db: Database) -> None:
    db.sql("select headrace.create_namespace('theirs')")
    mine, theirs = Scheduler(db), Scheduler(db, "theirs")
    at = mine.now() + SECOND
    task = theirs.schedule()
    assert mine.tasks() == []
    assert mine.plan(task, at) is False
    assert theirs.plan(task, at)
    with refused("QU013"):
        mine.do("remove")
    db.sql("select headrace.delete_namespace('theirs')")
    db.advance(seconds=5)
    assert mine.tick() == 0
    assert db.sql("select count(*) from headrace.scheduled_tasks") == [(0,)]


def test_an_event_says_by_itself_which_schedule_fired_it_and_when_it_dies_too(db: Database) -> None:
    stop_the_clock(db)
    scheduler = Scheduler(db)
    task = scheduler.schedule(event={"max_retries": 0})
    at = scheduler.now() + SECOND
    scheduler.plan(task, at)
    db.advance(seconds=2)
    scheduler.tick()
    queue = db.queue()
    [claimed] = queue.poll()
    expected = (str(task.task_id), at.astimezone(UTC), "scheduler")
    event = queue.event(claimed.id)
    for seen in (claimed, event):
        assert (seen.scheduled_task_id, seen.scheduled_for, seen.producer) == expected
    queue.fail(claimed, "no")
    letter = queue.dead_letter(claimed.id)
    assert (letter.scheduled_task_id, letter.scheduled_for) == expected[:2]


def test_a_scheduled_for_that_is_no_time_breaks_no_reader(db: Database) -> None:
    db.sql("""select headrace.publish('default', '{"scheduled_for": "soon", "payload": {}}')""")
    queue = db.queue()
    [claimed] = queue.poll()
    assert claimed.scheduled_for is None
    assert queue.event(claimed.id).scheduled_for is None

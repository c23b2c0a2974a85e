"""The database's clock is wrong for a while, by hours or by more than a year, and right again: nothing that was planned by the
wrong time outlives it, and no history is thrown away for it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.testing.database import LET_RUN
from tests.database import Database
from tests.engine.functions_helpers import Engine, stop_the_clock
from tests.requirements import requirement

pytest.importorskip("cronsim")

AHEAD = [
    pytest.param({"hours": 8}, id="8 hours"),
    pytest.param({"days": 400}, id="400 days"),
]
MONTHS = """
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'headrace.events'::regclass and c.relname !~ 'default' order by 1
"""
OLD_MONTH = """
do $$
declare
    starts constant timestamptz := date_trunc('month', headrace._now() - interval '3 months', 'UTC');
begin
    perform headrace._make_partition('events', 'created_at', starts);
    update headrace.events set created_at = starts + interval '3 days' where type = 'old';
end $$
"""


MIDDLE = """
update headrace_test.clock
set shift = date_trunc('month', now(), 'UTC') + interval '14 days 12 hours 30 seconds' - clock_timestamp()
"""


@pytest.fixture
def engine(db: Database) -> Engine:
    """In the middle of a month, a day and a minute, where time stands still: no end of one comes in between."""
    db.sql(MIDDLE)
    db.sql(LET_RUN)
    stop_the_clock(db)
    return Engine(db)


def back(step: dict[str, int]) -> dict[str, int]:
    return {unit: -number for unit, number in step.items()}


def instants(engine: Engine) -> list[datetime]:
    events = engine.call("events", namespace="default", oldest_first=True, limit=1000)
    return [datetime.fromisoformat(event.details["scheduled_for"]) for event in events]


def coming(engine: Engine, minutes: int) -> list[datetime]:
    """The next minutes on the wall."""
    first = engine.now().astimezone(UTC).replace(second=0, microsecond=0)
    return [first + timedelta(minutes=n) for n in range(1, minutes + 1)]


def keep_up(queue: Any) -> None:
    """What a node does: it ticks, and it plans."""
    while queue.tick().more:
        pass
    queue.plan_schedules()
    while queue.tick().more:
        pass


class TestSchedules:
    @requirement("G12", "G13")
    @pytest.mark.parametrize("policy", ["coalesce", "catch_up", "skip"])
    @pytest.mark.parametrize("step", AHEAD)
    def test_they_fire_at_their_next_instant_after_the_clock_was_ahead(
        self, db: Database, engine: Engine, step: dict[str, int], policy: str
    ) -> None:
        queue = db.queue()
        queue.schedule_task("minutely", "* * * * *", "minute", missed=policy)
        keep_up(queue)
        db.step(**step)
        for _ in range(3):
            keep_up(queue)
        db.step(**back(step))
        keep_up(queue)
        expected = coming(engine, 3)
        for _ in expected:
            db.advance(minutes=1)
            keep_up(queue)
        assert [one for one in instants(engine) if one <= expected[-1]] == expected

    @requirement("G12", "G13")
    @pytest.mark.parametrize("step", AHEAD)
    def test_one_that_was_made_while_the_clock_was_ahead_and_nobody_ticked_fires(
        self, db: Database, engine: Engine, step: dict[str, int]
    ) -> None:
        queue = db.queue()
        db.step(**step)
        queue.schedule_task("minutely", "* * * * *", "minute")
        db.step(**back(step))
        queue.plan_schedules()
        expected = coming(engine, 3)
        for _ in expected:
            db.advance(minutes=1)
            queue.tick()
        assert instants(engine) == expected

    @requirement("G12", "G13")
    @pytest.mark.parametrize("step", AHEAD)
    def test_without_anybody_who_plans_the_instants_that_are_known_are_fired(
        self, db: Database, engine: Engine, step: dict[str, int]
    ) -> None:
        """Ticks alone have seen the wrong time, and put the schedule off until somebody plans."""
        queue = db.queue()
        queue.schedule_task("minutely", "* * * * *", "minute")
        queue.tick()
        db.step(**step)
        queue.tick()
        db.step(**back(step))
        queue.tick()
        expected = coming(engine, 2)
        for _ in expected:
            db.advance(minutes=1)
            queue.tick()
        assert instants(engine) == expected

    def test_an_instant_that_was_fired_too_early_is_not_fired_again(
        self, db: Database, engine: Engine
    ) -> None:
        queue = db.queue()
        queue.schedule_task("minutely", "* * * * *", "minute")
        keep_up(queue)
        db.step(minutes=10)
        keep_up(queue)
        db.step(minutes=-10)
        keep_up(queue)
        [early] = instants(engine)
        for _ in range(12):
            db.advance(minutes=1)
            keep_up(queue)
        fired = instants(engine)
        assert fired.count(early) == 1
        assert len(fired) == 12


class TestUpkeep:
    @requirement("G13")
    @pytest.mark.parametrize("step", AHEAD)
    def test_no_month_is_lost_and_the_next_look_is_made_anew(
        self, db: Database, engine: Engine, step: dict[str, int]
    ) -> None:
        [old] = engine.publish({"type": "old"})
        db.sql(OLD_MONTH)
        assert engine.tick(upkeep=True).kept_up
        before = db.sql(MONTHS)
        db.step(**step)
        for _ in range(9):
            db.step(seconds=5)
            while engine.tick(upkeep=True).more:
                pass
        [strange] = engine.publish({"type": "strange"})
        engine.tick(upkeep=True)
        db.step(**back(step))
        for _ in range(30):
            did = engine.tick()
            if did.kept_up:
                break
        assert did.kept_up
        while engine.tick(upkeep=True).more:
            pass
        assert engine.event(old).type == "old"
        assert engine.event(strange).type == "strange"
        [(home,)] = db.sql(
            "select tableoid::regclass::text from headrace.events where id = %s", [strange]
        )
        assert set(db.sql(MONTHS)) == {*before, (home.removeprefix("headrace."),)}

    @requirement("G13")
    def test_a_month_goes_when_the_new_time_has_lasted_for_an_hour(
        self, db: Database, engine: Engine
    ) -> None:
        """As after a year in which the database was switched off."""
        engine.publish({"type": "old"})
        engine.finish(engine.poll())
        db.sql(OLD_MONTH)
        [(old,)] = db.sql("select tableoid::regclass::text from headrace.events")
        engine.tick(upkeep=True)
        db.step(days=365)
        for _ in range(11):
            engine.tick(upkeep=True)
            assert (old.removeprefix("headrace."),) in db.sql(MONTHS)
            db.step(minutes=5)
        engine.tick(upkeep=True)
        assert (old.removeprefix("headrace."),) not in db.sql(MONTHS)

    def test_many_ticks_at_a_wrong_time_do_not_make_it_right(
        self, db: Database, engine: Engine
    ) -> None:
        others = [Engine(db) for _ in range(4)]
        db.step(days=400)
        for _ in range(10):
            for one in others:
                one.tick(upkeep=True)
            db.step(seconds=1)
        [(certain,)] = db.sql(
            "select headrace._retention_clock() < headrace._now() - '399 days'::interval"
        )
        assert certain

    @requirement("G13")
    @pytest.mark.parametrize("step", AHEAD)
    def test_the_looks_of_all_parts_go_on(
        self, db: Database, engine: Engine, step: dict[str, int]
    ) -> None:
        def work() -> None:
            engine.publish({}, {})
            engine.finish(engine.poll())

        def saved() -> Any:
            return db.sql(
                "select s.updated_at > headrace._now() - interval '1 minute' and s.updated_at <= headrace._now(),"
                " (select max(c.created_at) from headrace.queue_checkpoints c) - headrace._now()"
                " between '-1 minute' and '0' from headrace.event_queue_state s"
            )

        def look() -> None:
            for _ in range(3):
                work()
                engine.tick()
                db.advance(seconds=70)
                engine.tick()

        look()
        db.step(**step)
        look()
        db.step(**back(step))
        look()
        assert saved() == [(True, True)]
        assert db.sql(
            "select count(*) from headrace.upkeep where next_at > headrace._now() + interval '1 hour'"
        ) == [(0,)]
        ahead = "headrace._now() + interval '1 minute'"
        for table, column in [
            ("samplings", "at"),
            ("history", "at"),
            ("moments", "at"),
            ("stats", "minute"),
        ]:
            assert db.sql(f"select count(*) from headrace.{table} where {column} > {ahead}") == [
                (0,)
            ]
        db.advance(minutes=2)
        assert "upkeep_stopped" in {finding.code for finding in engine.call("attention")}

    def test_a_tick_that_looks_no_further_back_than_a_time_that_did_not_come_looks_at_all(
        self, db: Database, engine: Engine
    ) -> None:
        engine.publish({"delay": 5})
        db.advance(seconds=6)
        later = engine.now() + timedelta(hours=8)
        assert engine.tick(since=later).due == 1


class TestDeliveries:
    @requirement("G13")
    @pytest.mark.parametrize("renewed", [False, True])
    @pytest.mark.parametrize("each", [False, True])
    @pytest.mark.parametrize("step", AHEAD)
    def test_a_lease_of_a_worker_that_died_ends_when_its_length_is_over(
        self, db: Database, engine: Engine, step: dict[str, int], each: bool, renewed: bool
    ) -> None:
        engine.publish({}, {})
        engine.tick()
        if not renewed:
            db.step(**step)
        claims = engine.poll(2, lease="1 minute", each=each)
        if renewed:
            db.step(**step)
            engine.call("extend", namespace="default", queue="main", leases=[claims[0].lease])
        engine.tick()
        db.step(**back(step))
        assert engine.tick().expired == 0
        db.advance(seconds=50)
        assert engine.tick().expired == 0
        db.advance(seconds=11)
        assert engine.tick().expired == 1

    def test_a_lease_that_was_renewed_for_longer_lasts_for_longer(
        self, db: Database, engine: Engine
    ) -> None:
        engine.publish({})
        engine.tick()
        claim = engine.claim(lease="1 minute")
        renewed = {
            "namespace": "default",
            "queue": "main",
            "leases": [claim.lease],
            "by": "3 hours",
        }
        engine.call("extend", **renewed)
        db.step(hours=1)
        engine.tick()
        db.step(hours=-1)
        engine.tick()
        db.advance(minutes=170)
        assert engine.tick().expired == 0

    @requirement("G13")
    @pytest.mark.parametrize("step", AHEAD)
    def test_a_retry_comes_after_its_backoff(
        self, db: Database, engine: Engine, step: dict[str, int]
    ) -> None:
        [event] = engine.publish({"backoff": {"kind": "fixed", "delay": 60}})
        engine.tick()
        db.step(**step)
        engine.tick()
        engine.end("fail", engine.claim())
        db.step(**back(step))
        engine.tick()
        assert engine.poll() == []
        db.advance(seconds=61)
        engine.tick()
        assert engine.claim().id == event

    @requirement("G13")
    @pytest.mark.parametrize("step", AHEAD)
    def test_an_event_with_a_delay_comes_after_it_and_one_for_an_instant_then(
        self, db: Database, engine: Engine, step: dict[str, int]
    ) -> None:
        engine.tick()
        db.step(**step)
        at = engine.now() + timedelta(hours=1, microseconds=1)  # no number of milliseconds from now
        engine.tick()
        [delayed, keyed] = engine.publish({"delay": 60}, {"delay": 60, "key": "k"})
        [meant] = engine.publish({"at": at.isoformat()})
        db.step(**back(step))
        engine.tick()
        assert engine.poll() == []
        db.advance(seconds=61)
        engine.tick()
        claims = [engine.claim(), engine.claim()]
        assert {claim.id for claim in claims} == {delayed, keyed}
        assert engine.event(meant).next_retry_at == at

    @pytest.mark.parametrize("does", ["claims", "fails"])
    def test_a_call_that_began_while_the_clock_was_ahead_and_commits_later_is_put_right_too(
        self, db: Database, engine: Engine, does: str
    ) -> None:
        other = Engine(db)
        [event] = engine.publish({"backoff": {"kind": "fixed", "delay": 60}})
        engine.tick()
        db.step(hours=8)
        engine.tick()
        claim = engine.claim(lease="1 minute") if does == "fails" else None
        other.connection.execute("begin")
        if claim is None:
            other.claim(lease="1 minute", each=True)
        else:
            other.end("fail", claim)
        db.step(hours=-8)
        engine.tick()
        other.connection.execute("commit")
        for _ in range(2):
            db.advance(seconds=61)
            engine.tick()
        assert engine.claim().id == event

    @requirement("G13")
    @pytest.mark.parametrize("step", AHEAD)
    def test_what_was_published_by_a_later_time_can_be_purged(
        self, db: Database, engine: Engine, step: dict[str, int]
    ) -> None:
        db.step(**step)
        engine.publish({}, {"key": "k"}, {"delay": 60})
        db.step(**back(step))
        purged = [
            engine.call("purge", namespace="default", queue="main", what=what)[0].done
            for what in ("ready", "delayed")
        ]
        assert purged == [2, 1]

    @requirement("G13")
    @pytest.mark.parametrize("step", AHEAD)
    def test_what_nobody_handles_is_dead_lettered_though_it_is_dated_later(
        self, db: Database, engine: Engine, step: dict[str, int]
    ) -> None:
        """Of an ordering key as well, and what is not is not hidden behind it."""
        db.sql("update headrace.namespaces set unhandled = 'dead_letter'")
        engine.tick()
        db.step(**step)
        engine.publish({}, {"key": "k"})
        engine.tick()
        db.step(**back(step))
        for _ in range(7):
            engine.tick()
            db.advance(minutes=1)
        assert db.sql("select count(*) from headrace.dead_letters") == [(2,)]

    @requirement("G13")
    def test_a_key_is_kept_for_its_week(self, db: Database, engine: Engine) -> None:
        event = {"type": "paid", "idempotency_key": "k"}
        [first] = engine.publish(event)
        engine.tick()
        db.step(days=8)
        assert engine.publish(event) == [first]
        while engine.tick(upkeep=True).more:
            pass
        assert engine.publish(event) == [first]
        db.step(days=-8)
        engine.tick()
        db.advance(days=6)
        engine.tick(upkeep=True)
        assert engine.publish(event) == [first]

    def test_a_key_of_a_time_that_did_not_come_is_not_kept_until_then(
        self, db: Database, engine: Engine
    ) -> None:
        event = {"type": "paid", "idempotency_key": "k"}
        engine.tick()
        db.step(days=400)
        [first] = engine.publish(event)
        engine.tick()
        db.step(days=-400)
        engine.tick()
        assert engine.publish(event) == [first]
        db.advance(days=8)
        assert engine.publish(event) != [first]

    def test_a_pair_of_a_claim_goes_on_though_its_hints_are_of_a_later_time(
        self, db: Database, engine: Engine
    ) -> None:
        """What it was drained to becomes its bound, and dead rows are not walked over until that time has come."""
        moved = """
            select m.low from headrace._advance_hint(
                (false, 5::smallint, 1, 10, 20, extract(epoch from headrace._now()) + %s), 30, headrace._now()) m
        """
        assert [db.sql(moved, [apart]) for apart in (-1, 28_800)] == [[(20,)], [(20,)]]


class TestWhatIsTold:
    @requirement("G13")
    @pytest.mark.parametrize("step", AHEAD)
    def test_a_node_that_died_is_not_taken_for_alive(
        self, db: Database, engine: Engine, step: dict[str, int]
    ) -> None:
        node = {
            "namespace": "default",
            "node_id": "n",
            "instance": "7f2c1ab0-0000-4000-8000-000000000000",
        }
        engine.tick()
        db.step(**step)
        engine.call("register_node", **node)
        engine.tick()
        db.step(**back(step))
        engine.tick()
        db.advance(seconds=91)
        [node] = engine.call("nodes", namespace="default")
        assert node[1] is False

    def test_that_the_clock_was_set_back_is_in_the_log(self, db: Database, engine: Engine) -> None:
        engine.tick()
        db.step(hours=8)
        engine.tick()
        db.step(hours=-8)
        engine.tick()
        engine.tick()
        [entry] = [one for one in engine.call("admin_log") if one.actor == "headrace"]
        assert entry.action == "mend_times"
        assert set(entry.details) == {"was", "is"}

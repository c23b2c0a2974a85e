"""The queues of a namespace: made, changed, listed, paused and drained."""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine, Listener, contents, differences, refused
from tests.engine.races_helpers import Session, blocked
from tests.requirements import requirement

DEFAULTS = {
    "types": None,
    "tags": None,
    "all_tags": False,
    "takes": True,
    "max_retries": 3,
    "backoff": {"kind": "fixed", "delay": 300},
    "max_queue_depth": None,
    "high_watermark": None,
    "batch_size": None,
    "processing_interval": 1000,
    "metadata": {},
}


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def create(engine: Engine, queue: Any = "billing", **arguments: Any) -> bool:
    if "settings" in arguments:
        arguments["settings"] = Jsonb(arguments["settings"])
    [row] = engine.call("create_queue", namespace=engine.namespace, queue=queue, **arguments)
    return row[0]


def change(engine: Engine, queue: str = "main", **settings: Any) -> None:
    engine.call("change_queue", namespace=engine.namespace, queue=queue, settings=Jsonb(settings))


def queue(engine: Engine, name: str = "main") -> Any:
    [row] = engine.call("queue", namespace=engine.namespace, queue=name)
    return row


def settings(engine: Engine, name: str = "main") -> dict[str, Any]:
    row = queue(engine, name)
    return {name: getattr(row, name) for name in DEFAULTS}


def version(db: Database, namespace: str = "default") -> int:
    return db.sql("select version from headrace.namespaces where name = %s", [namespace])[0][0]


def guarded(db: Database) -> bool:
    return db.sql("select guarded from headrace.namespaces where name = 'default'")[0][0]


class TestMaking:
    def test_main_is_there_from_the_start_and_takes_everything(self, engine: Engine) -> None:
        assert settings(engine) == DEFAULTS
        assert (queue(engine).state, queue(engine).depth, queue(engine).filling) == (
            "active",
            0,
            None,
        )

    def test_a_queue_is_made_once(self, engine: Engine, db: Database) -> None:
        assert create(engine, types=["order.*", "invoice"], tags=["b", "a"], all_tags=True) is True
        before = contents(db)
        assert create(engine, types=["invoice", "order.*"], tags=["a", "b"], all_tags=True) is False
        assert differences(before, contents(db)) == set()
        made = settings(engine, "billing")
        assert made == DEFAULTS | {
            "types": ["invoice", "order.*"], "tags": ["a", "b"], "all_tags": True,
        }  # fmt: skip

    def test_one_that_takes_something_else_is_refused(self, engine: Engine, db: Database) -> None:
        create(engine, types=["order.*"])
        before = contents(db)
        for other in ({}, {"types": ["order"]}, {"types": ["order.*"], "tags": ["a"]},
                      {"types": ["order.*"], "all_tags": True}):  # fmt: skip
            with refused("QU052", "takes something else"):
                create(engine, **other)
        assert differences(before, contents(db)) == set()

    def test_a_queue_has_the_settings_it_was_made_with(self, engine: Engine) -> None:
        given = {"max_retries": 5, "batch_size": 10, "max_queue_depth": 100, "high_watermark": 80,
                 "processing_interval": 50, "metadata": {"team": "a"}, "backoff": {"kind": "linear", "delay": 1}}  # fmt: skip
        create(engine, settings=given)
        assert settings(engine, "billing") == DEFAULTS | given

    def test_each_namespace_has_its_own(self, engine: Engine, db: Database) -> None:
        engine.call("create_namespace", namespace="shop")
        there = Engine(db, "shop")
        assert create(engine) is True
        assert create(there, types=["a"]) is True
        assert [row.name for row in engine.call("queues", namespace="default")] == [
            "billing",
            "main",
        ]
        assert queue(there, "billing").types == ["a"]

    @requirement("G18")
    def test_what_is_no_name_or_no_filter_is_refused(self, engine: Engine, db: Database) -> None:
        before = contents(db)
        for name in (None, "", " a", "a/b", "x" * 101, "a\n"):
            with refused("QU001", "queue"):
                create(engine, name)
        for wrong in (
            {"types": []}, {"types": [None]}, {"types": [""]}, {"types": ["x" * 201]}, {"types": ["t"] * 1001},
            {"tags": []}, {"tags": [None]}, {"tags": [" a"]}, {"tags": ["a,b"]}, {"tags": ["*"]}, {"tags": [""]},
            {"settings": {"takes": False}}, {"settings": {"types": None}}, {"settings": []},
            {"since": "2020-01-01", "after": 5}, {"after": -1},
        ):  # fmt: skip
            with refused("QU001"):
                create(engine, **wrong)
        with refused("QU010"):
            engine.call("create_queue", namespace="nowhere", queue="a")
        assert differences(before, contents(db)) == set()


class TestSettings:
    def test_those_that_are_named_are_changed_and_null_brings_the_default_back(
        self, engine: Engine
    ) -> None:
        given = {"types": ["b", "a", "a"], "tags": ["x"], "all_tags": True, "takes": False, "max_retries": 0,
                 "backoff": {"kind": "exponential", "delay": 1, "max_delay": 60, "jitter": 0.5},
                 "max_queue_depth": 2**31 - 1, "high_watermark": 1, "batch_size": 1000,
                 "processing_interval": 1, "metadata": {"a": [1]}}  # fmt: skip
        for name, value in given.items():
            before = settings(engine)
            change(engine, **{name: value})
            assert settings(engine) == before | {name: ["a", "b"] if name == "types" else value}
        for name in given:
            before = settings(engine)
            change(engine, **{name: None})
            assert settings(engine) == before | {name: DEFAULTS[name]}
        assert settings(engine) == DEFAULTS

    @requirement("G18")
    @pytest.mark.parametrize(
        ("name", "wrong"),
        [
            ("types", ["order.*", 5, {}, [""], [1], []]),
            ("tags", ["a", [","], ["a "], [None]]),
            ("all_tags", ["true", 1]),
            ("takes", [0, "no"]),
            ("max_retries", [-1, 1001, 1.5, "3", True, 10**20]),
            ("backoff", [{}, 5, {"kind": "never"}, {"kind": "fixed", "delay": -1}]),
            ("max_queue_depth", [0, -5, 2**31, "many"]),
            ("high_watermark", [0, 2**31, 0.5]),
            ("batch_size", [0, 1001]),
            ("processing_interval", [0, 3_600_001]),
            ("metadata", [[], "text", {"a": "x" * 100_000}]),
            ("max_quue_depth", [5, None]),
        ],
    )
    def test_what_is_no_setting_or_no_value_for_it_is_refused_by_name(
        self, engine: Engine, db: Database, name: str, wrong: list[Any]
    ) -> None:
        before = contents(db)
        for value in wrong:
            with refused("QU001", name):
                change(engine, **{name: value})
        assert differences(before, contents(db)) == set()

    def test_the_watermark_is_not_above_the_limit(self, engine: Engine) -> None:
        change(engine, max_queue_depth=10, high_watermark=10)
        for wrong in ({"high_watermark": 11}, {"max_queue_depth": 9}):
            with refused("QU001", "is not above"):
                change(engine, **wrong)
        change(engine, max_queue_depth=None, high_watermark=11)

    def test_all_or_nothing(self, engine: Engine) -> None:
        with refused("QU001"):
            change(engine, max_retries=7, batch_size=-1)
        assert settings(engine) == DEFAULTS

    def test_a_queue_that_is_not_there_has_no_settings(self, engine: Engine) -> None:
        with refused("QU011", "'billing'"):
            change(engine, "billing", max_retries=1)
        with refused("QU010"):
            engine.call("change_queue", namespace="nowhere", queue="main", settings="{}")
        for function in ("pause", "resume", "drain", "queue"):
            with refused("QU011"):
                engine.call(function, namespace="default", queue="billing")
            with refused("QU010"):
                engine.call(function, namespace="nowhere", queue="main")
        with refused("QU010"):
            engine.call("queues", namespace="nowhere")


class TestVersions:
    def test_what_changes_what_queues_take_makes_a_new_version(
        self, engine: Engine, db: Database
    ) -> None:
        before = version(db)
        create(engine)
        assert version(db) == before + 1
        assert db.sql("select version from headrace.queues where name = 'billing'") == [
            (before + 1,)
        ]
        for settings in (
            {"types": ["a"]},
            {"tags": ["a"]},
            {"all_tags": True},
            {"takes": False},
            {"takes": True},
        ):
            before = version(db)
            change(engine, "billing", **settings)
            assert version(db) == before + 1

    def test_nothing_else_does(self, engine: Engine, db: Database) -> None:
        create(engine, types=["a"])
        before = version(db)
        create(engine, types=["a"])
        change(engine, "billing", types=["a"], max_retries=1, max_queue_depth=5, metadata={})
        for function in ("pause", "drain", "resume"):
            engine.call(function, namespace="default", queue="billing")
        assert version(db) == before

    def test_a_namespace_is_guarded_while_a_queue_has_a_limit_or_is_draining(
        self, engine: Engine, db: Database
    ) -> None:
        create(engine, settings={"high_watermark": 5})
        assert guarded(db)
        change(engine, "billing", takes=False)
        assert not guarded(db)
        change(engine, "billing", takes=True, high_watermark=None, max_queue_depth=5)
        change(engine, max_queue_depth=5)
        change(engine, "billing", max_queue_depth=None)
        assert guarded(db)
        change(engine, max_queue_depth=None)
        assert not guarded(db)
        engine.call("drain", namespace="default", queue="billing")
        assert guarded(db)
        engine.call("pause", namespace="default", queue="billing")
        assert not guarded(db)

    def test_changes_wait_for_each_other_and_publishers_for_none(self, db: Database) -> None:
        first, second, publisher = Session(db), Session(db), Session(db).hurry()
        first.begin()
        first.sql("select headrace.create_queue('default', 'billing')")
        waiting = blocked(
            db, second, second.sql, "select headrace.create_queue('default', 'billing')"
        )
        publisher.publish(3)
        publisher.publish(3, type="never.seen")
        first.commit()
        assert waiting.result() == [(False,)]
        assert version(db) == 2


class TestStates:
    @requirement("QS-9")
    def test_a_queue_is_active_paused_or_draining(self, engine: Engine) -> None:
        engine.publish({})
        for function, state in (("pause", "paused"), ("pause", "paused"), ("drain", "draining"), ("drain", "draining"),
                                ("pause", "paused"), ("resume", "active"), ("resume", "active")):  # fmt: skip
            engine.call(function, namespace="default")
            assert queue(engine).state == state

    def test_a_drained_queue_is_paused_by_tick_when_all_of_it_has_ended(
        self, engine: Engine, db: Database
    ) -> None:
        engine.publish({}, {}, {"delay": 60})
        engine.call("drain", namespace="default")

        def state() -> str:
            engine.tick()
            return queue(engine).state

        assert state() == "draining"
        batch = engine.poll(max_events=2)
        assert state() == "draining"
        engine.finish(batch)
        assert state() == "draining"
        db.advance(seconds=61)
        assert state() == "draining"
        held = engine.claim(each=True)
        assert state() == "draining"
        engine.end("fail", held)
        assert state() == "draining"  # it waits for its retry
        db.advance(minutes=6)
        engine.tick()
        engine.end("complete", engine.claim())
        assert guarded(db)
        assert state() == "paused"
        assert not guarded(db)

    def test_tick_does_not_wait_for_somebody_who_changes_the_queue(
        self, engine: Engine, db: Database
    ) -> None:
        engine.call("drain", namespace="default")
        other = Session(db)
        other.begin()
        other.sql("select headrace.change_queue('default', 'main', '{}')")
        ticker = Session(db).hurry()
        ticker.tick()
        assert queue(engine).state == "draining"
        other.commit()
        ticker.tick()
        assert queue(engine).state == "paused"

    def test_resume_wakes_those_who_sleep(self, engine: Engine, db: Database) -> None:
        listener = Listener(db)
        listener.fall_asleep()
        engine.call("pause", namespace="default")
        assert listener.heard() == []
        engine.call("resume", namespace="default")
        assert listener.heard() == [""]


class TestDeleting:
    """The queue late began in the past, so it has what main has."""

    @pytest.fixture
    def ids(self, engine: Engine) -> list[int]:
        ids = engine.publish(*[{}] * 5)
        create(engine, "late", after=0)
        while engine.tick().more:
            pass
        return ids

    def delete(self, engine: Engine, queue: str = "late", **arguments: Any) -> None:
        engine.call("delete_queue", namespace="default", queue=queue, **arguments)

    def test_an_empty_one_is_deleted_and_its_name_is_free(
        self, engine: Engine, db: Database
    ) -> None:
        create(engine, "late", types=["a"])
        before = version(db)
        self.delete(engine)
        assert version(db) == before + 1
        for call in ("queue", "pause", "poll"):
            with refused("QU011"):
                engine.call(call, namespace="default", queue="late")
        assert [row.name for row in engine.call("queues", namespace="default")] == ["main"]
        assert create(engine, "late", types=["b"]) is True
        while engine.tick().more:
            pass
        assert queue(engine, "late").types == ["b"]
        assert db.sql("select count(*) from headrace.chores") == [(0,)]

    def test_main_is_switched_off_instead(self, engine: Engine) -> None:
        with refused("QU001", "takes := false"):
            self.delete(engine, "main")
        with refused("QU011"):
            self.delete(engine, "nothing")
        with refused("QU010"):
            engine.call("delete_queue", namespace="nowhere", queue="late")

    def test_what_it_has_is_not_lost_by_mistake(
        self, engine: Engine, db: Database, ids: list[int]
    ) -> None:
        claims = engine.poll(queue="late", max_events=5, each=True)
        for claim in claims[:4]:
            engine.end("complete", claim, queue="late")
        with refused("QU053", "unfinished deliveries"):
            self.delete(engine)
        engine.end("finalize", claims[4], queue="late", success=False)
        with refused("QU053", "dead letters"):
            self.delete(engine)
        db.sql("delete from headrace.dead_letters")
        self.delete(engine)

    def test_with_its_deliveries_they_are_cancelled_and_the_log_says_so(
        self, engine: Engine, db: Database, ids: list[int]
    ) -> None:
        waiting, failed, dead, *working = engine.poll(queue="late", max_events=5, each=True)
        engine.end("release", waiting, queue="late")
        engine.end("fail", failed, queue="late")
        engine.end("finalize", dead, queue="late", success=False)
        self.delete(engine, with_deliveries=True, actor="me")
        while engine.tick().more:
            pass
        with refused("QU011"):
            engine.end("complete", working[0], queue="late")
        log = db.sql(
            "select event_id, worker_id, error_message from headrace.log_entries where action = 'CANCELLED' order by 1"
        )
        assert log == [(claim.id, "me", "its queue was deleted") for claim in (waiting, failed)]
        assert db.sql("select count(*) from headrace.chores") == [(1,)]  # two are in work
        db.advance(minutes=2)
        while engine.tick().more:
            pass
        assert db.sql("select count(*) from headrace.chores") == [(0,)]
        [entry] = [e for e in engine.trail(working[1].id) if e.action == "CANCELLED"]
        assert entry.queue == "late"
        assert engine.actions(dead.id)[-1] == "PURGED"
        assert db.sql("select count(*) from headrace.dead_letters") == [(0,)]
        assert queue(engine).depth == len(ids)

    def test_many_are_cleared_in_steps(self, engine: Engine, db: Database) -> None:
        db.sql(
            "select headrace.publish('default', (select jsonb_agg('{}'::jsonb) from generate_series(1, 2500)))"
        )
        create(engine, "late", after=0)
        engine.tick()
        assert queue(engine, "late").depth == 2500
        self.delete(engine, with_deliveries=True)
        steps = 0
        while engine.tick().more:
            steps += 1
        assert steps == 3
        assert db.sql(
            "select sum(cardinality(events)) from headrace.outcomes where action = 'CANCELLED'"
        ) == [(2500,)]

    def test_one_that_is_being_filled_is_deleted_as_well(
        self, engine: Engine, db: Database
    ) -> None:
        engine.publish({})
        create(engine, "late", after=0)
        self.delete(engine)
        while engine.tick().more:
            pass
        assert db.sql("select count(*) from headrace.chores") == [(0,)]
        assert queue(engine).depth == 1


class TestLooking:
    def test_depth_is_what_waits(self, engine: Engine) -> None:
        engine.publish({}, {}, {}, {"delay": 60})
        engine.poll()
        assert queue(engine).depth == 2
        assert [row.depth for row in engine.call("queues", namespace="default")] == [2]

"""attention: what is wrong now, found without walking what waits or has ended."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from headrace.model.attention import Finding
from tests.database import Database
from tests.engine.backlog import fill
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine, refused
from tests.engine.limits_helpers import PER_TENANT, limit, of

LEVELS = ["critical", "warning", "notice"]


@pytest.fixture
def engine(db: Database) -> Engine:
    engine = Engine(db)
    engine.tick()
    return engine


def findings(engine: Engine, namespace: str | None = "default") -> dict[str, Any]:
    """By code; each can be said."""
    found = engine.call("attention", namespace=namespace)
    for one in found:
        assert Finding(*one).sentence.endswith((".", "?", "No"))
    assert [LEVELS.index(one.level) for one in found] == sorted(
        LEVELS.index(one.level) for one in found
    )
    return {one.code: one for one in found}


def codes(engine: Engine, namespace: str | None = "default") -> set[str]:
    return set(findings(engine, namespace))


def later(engine: Engine, **duration: float) -> None:
    engine.db.advance(**duration)
    engine.tick()


def node(engine: Engine, handles: list[str], name: str = "a-node", worker: str = "n:1") -> Any:
    instance = uuid4()
    engine.call(
        "register_node",
        namespace=engine.namespace,
        node_id=name,
        instance=instance,
        handles=handles,
        worker=worker,
    )
    return instance


def beat(engine: Engine, instance: Any) -> None:
    engine.call("touch_node_heartbeat", namespace="default", node_id="a-node", instance=instance)


def test_where_all_is_well_nothing_is_found(engine: Engine) -> None:
    engine.publish({}, {"delay": 3600})
    engine.end("complete", engine.claim())
    assert codes(engine) == codes(engine, None) == set()


def test_that_nobody_ticks_is_found(engine: Engine, db: Database) -> None:
    engine.publish({}, {"delay": 1})
    engine.poll(lease="5 s")
    db.advance(minutes=2)
    stopped = findings(engine)["upkeep_stopped"]
    assert (stopped.level, stopped.namespace, stopped.about) == (
        *("critical", None),
        {"expired": 1, "due": 1},
    )
    engine.tick()
    assert codes(engine) == set()
    db.sql("delete from headrace.samplings")  # as on the first day
    assert codes(engine) == {"upkeep_stopped"}


def test_that_a_tick_leaves_something_is_found(engine: Engine, db: Database) -> None:
    engine.publish({"delay": 1})
    db.advance(minutes=2)
    db.sql("select headrace._sample_history(headrace._now())")
    assert findings(engine)["upkeep_behind"].about == {"expired": 0, "due": 1}


def test_rows_outside_the_months_are_found(engine: Engine, db: Database) -> None:
    db.sql(
        "insert into headrace.errors (outcome, event, at, queue, attempt, failures, max_retries, error)"
        " values (1, 1, '1999-01-01', 1, 1, 1, 1, '')"
    )
    assert findings(engine)["default_partition"].about == {"tables": ["errors"]}


def test_what_waits_long_is_found_unless_it_was_delayed_on_purpose(engine: Engine) -> None:
    instance = node(engine, ["*"])
    engine.publish({"type": "delayed", "delay": 3000})
    engine.publish({"type": "a"}, {"type": "b"})
    assert codes(engine) == set()
    later(engine, minutes=6)
    beat(engine, instance)
    found = findings(engine)["waiting_long"]
    assert (found.level, found.queue, found.about["waiting"]) == ("warning", "main", 2)
    assert 360 <= found.about["oldest_seconds"] < 400
    later(engine, hours=1)
    beat(engine, instance)
    assert findings(engine)["waiting_long"].level == "critical"
    engine.finish(engine.poll(max_events=2, types=["a", "b"]))
    assert codes(engine) == set()  # the delayed one is ready, for how long nobody knows


def test_a_type_that_no_node_handles_is_found(engine: Engine) -> None:
    instance = node(engine, ["order.*"])
    engine.publish({"type": "order.paid"}, {"type": "mail.sent"})
    later(engine, seconds=61)
    beat(engine, instance)
    found = findings(engine)
    assert found.keys() == {"unhandled"}
    assert found["unhandled"].about["type"] == "mail.sent"


def test_where_somebody_works_who_is_no_node_nothing_is_called_unhandled(engine: Engine) -> None:
    engine.publish(*[{"type": "a"}] * 3)
    later(engine, seconds=61)
    assert codes(engine) == {"unhandled"}
    claim = engine.claim(worker="a shell script")
    assert codes(engine) == set()
    engine.end("complete", claim)
    engine.tick()
    assert codes(engine) == set()  # it has just worked here
    later(engine, minutes=10)
    assert codes(engine) == {"unhandled"}


def test_what_waits_long_for_a_limit_is_said_to_and_is_not_late(engine: Engine) -> None:
    instance = node(engine, ["*"])
    limit(engine, PER_TENANT, {"scope": "type", "match": "slow", "rate": 1, "per": 3600})
    engine.publish(*of("big", 5), *of("small"), *[{"type": "slow"}] * 3)
    engine.poll(max_events=10, lease="2 hours")
    later(engine, minutes=4)
    beat(engine, instance)
    assert codes(engine) <= {"orphaned"}  # the worker is no node's
    later(engine, minutes=2)
    beat(engine, instance)
    rows = engine.call("attention", namespace="default")
    found = [Finding(*one) for one in rows if one.code != "orphaned"]
    assert [(one.code, one.level) for one in found] == [("limit_reached", "notice")] * 2
    assert {one.sentence for one in found} == {
        "The queue main: 3 events wait for the limit of the tag tenant:big (2 at once), the oldest for 6m.",
        "The queue main: 2 events wait for the limit of the type slow (1 per 1h), the oldest for 6m.",
    }
    engine.call("pause", namespace="default", queue="main")
    assert codes(engine).isdisjoint({"limit_reached", "waiting_long"})
    engine.call("resume", namespace="default", queue="main")
    limit(engine)
    assert "waiting_long" in codes(engine)


def test_limits_that_are_reached_are_found(engine: Engine) -> None:
    settings = '{"high_watermark": 2, "max_queue_depth": 4}'
    engine.call("change_queue", namespace="default", queue="main", settings=settings)
    engine.publish({}, {}, {})
    later(engine, seconds=2)
    watermark = findings(engine)["above_watermark"]
    assert (watermark.level, watermark.about) == ("warning", {"depth": 3, "limit": 2})
    engine.publish({})
    later(engine, seconds=2)
    full = findings(engine)["queue_full"]
    assert (full.level, full.about) == ("critical", {"depth": 4, "limit": 4})


def test_a_queue_that_stands_still_on_purpose_is_found_if_something_waits(engine: Engine) -> None:
    engine.call("pause", namespace="default", queue="main", actor="anna")
    assert codes(engine) == set()
    engine.publish({}, {})
    later(engine, hours=2)
    paused = findings(engine)
    assert paused.keys() == {"paused"}  # and what waits in it is not late as well
    assert paused["paused"].about == {"waiting": 2, "actor": "anna"}
    assert paused["paused"].since is not None
    engine.call("drain", namespace="default", queue="main")
    assert findings(engine)["draining"].level == "notice"


@pytest.mark.parametrize(
    ("failures", "level"), [(1, None), (2, "warning"), (5, "critical"), (10, "critical")]
)
def test_that_many_fail_is_found(engine: Engine, failures: int, level: str | None) -> None:
    engine.publish(*[{"payload": n} for n in range(10)])
    claims = engine.poll(max_events=10)
    others = {str(n): {"action": "fail", "error": "No"} for n in range(1, failures + 1)}
    engine.finish(claims, others)
    for _ in range(2):  # folded or not
        found = findings(engine).get("failing")
        assert (found and found.level) == level
        engine.tick()
    later(engine, minutes=7)
    assert "failing" not in codes(engine)


def test_new_dead_letters_are_found_with_the_commonest_error(engine: Engine) -> None:
    engine.publish(*[{"max_retries": 0}] * 4)
    for error in ("order 1: No", "order 2: No", "rarely"):
        engine.end("fail", engine.claim(), error=error)
    found = findings(engine)["dead_letters"]
    assert (found.about["letters"], found.about["alike"]) == (3, 2)
    assert found.about["error"] == "order 2: No"
    assert Finding(*found).sentence == (
        "The queue main has 3 new dead letters in the last hour, 2 with the same error: order 2: No"
    )
    alike = msgspec.structs.replace(Finding(*found), about={**found.about, "alike": 3})
    assert alike.sentence == "The queue main has 3 new dead letters in the last hour: order 2: No"
    later(engine, hours=2)
    assert "dead_letters" not in codes(engine)


def test_a_node_that_went_silent_with_claims_is_found(engine: Engine) -> None:
    node(engine, ["*"])
    engine.publish({}, {})
    engine.poll(max_events=2, worker="n:1", lease="1 hour")
    assert codes(engine) == set()
    later(engine, minutes=2)
    found = findings(engine)["node_lost"]
    assert (found.level, found.about["deliveries"]) == ("critical", 2)
    assert found.about["node_id"] == "a-node"


def test_what_somebody_else_holds_for_long_is_found(engine: Engine) -> None:
    instance = node(engine, ["*"])
    engine.publish({}, {})
    engine.poll(worker="n:1", lease="1 hour")
    engine.poll(worker="curl", each=True, lease="1 hour")
    later(engine, minutes=6)
    beat(engine, instance)
    found = findings(engine)
    assert found.keys() == {"orphaned"}
    assert found["orphaned"].about == {"deliveries": 1, "workers": ["curl"]}


def test_a_schedule_that_did_not_fire_is_found(engine: Engine, db: Database) -> None:
    engine.call("schedule_task", namespace="default", name="a task", cron_expression="* * * * *")
    [task] = engine.call("tasks_to_plan", namespace="default")
    fires = [task.at + timedelta(seconds=30)]
    engine.call(
        *("plan_task",),
        namespace="default",
        task_id=task.task_id,
        version=1,
        next_fires=fires,
    )
    db.advance(minutes=3)
    db.sql("select headrace._sample_history(headrace._now())")
    assert findings(engine)["schedule_late"].about["name"] == "a task"
    engine.tick()
    assert codes(engine) == {"schedule_unplanned"}
    engine.call("pause_schedule", namespace="default", name="a task")
    assert codes(engine) == set()


def test_a_namespace_is_told_of_its_own(engine: Engine, db: Database) -> None:
    for name in ("here", "there"):
        other = Engine(db, name)
        other.call("create_namespace", namespace=name)
        other.publish({"type": name, "max_retries": 0})
        other.end("fail", other.claim(), error="No")
        other.publish({"type": name})
    later(engine, minutes=10)
    for name in ("here", "there"):
        found = engine.call("attention", namespace=name)
        assert {(one.code, one.namespace) for one in found} == {
            ("dead_letters", name),
            ("unhandled", name),
        }
    assert len(engine.call("attention")) == 4
    with refused("QU010", "there is no namespace"):
        engine.call("attention", namespace="nowhere")


@pytest.mark.new_database
def test_it_costs_the_same_however_much_waits(engine: Engine) -> None:
    ask = "select * from headrace.attention()"
    fill(engine.db, 12_000, routes=5)
    later(engine, minutes=10)
    before = footprint(engine.connection, ask)[1]
    fill(engine.db, 30_000, routes=5)
    later(engine, seconds=5)
    after = footprint(engine.connection, ask)[1]
    assert after.deliveries == before.deliveries > 0
    assert after.total.blocks <= 1.2 * before.total.blocks + 50, f"{after}\n{before}"

"""Schedules and nodes through both clients."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

import headrace
from headrace import InvalidInput, NamespaceNotFound, ScheduleNotFound
from headrace.engine import nodes, statement
from tests.client.clients import Client
from tests.database import Database
from tests.engine.functions_helpers import stop_the_clock
from tests.requirements import requirement

pytest.importorskip("cronsim")


@requirement("PG-6", "PG-27", "PG-28")
def test_a_schedule_is_made_with_its_next_fires(queue: Any) -> None:
    task = queue.schedule_task(
        "nightly",
        "0 2 * * *",
        "report.due",
        {"report": 7},
        timezone="Europe/Berlin",
        missed="catch_up",
        tags=["a"],
        priority=2,
        max_retries=1,
        backoff={"kind": "fixed", "delay": 1},
        title="Nightly report",
        headers={"tenant": "acme"},
    )
    [listed] = queue.schedules()
    assert task == listed
    assert (task.name, task.cron_expression, task.timezone) == ("nightly", "0 2 * * *", "Europe/Berlin")  # fmt: skip
    assert (task.event_type, task.payload, task.missed) == ("report.due", {"report": 7}, "catch_up")
    assert task.event == {
        "tags": ["a"], "priority": 2, "max_retries": 1,
        "backoff": {"kind": "fixed", "delay": 1}, "title": "Nightly report",
        "headers": {"tenant": "acme"},
    }  # fmt: skip
    assert (task.active, task.last_fire_at, len(task.next_fires)) == (True, None, 20)
    assert {fire.tzinfo for fire in task.next_fires} == {UTC}
    assert queue.schedule_task("other", "@hourly").payload == {}
    assert [task.name for task in queue.schedules()] == ["nightly", "other"]


@pytest.mark.one_database("the test moves its clock")
@requirement("G12", "PG-15")
def test_it_fires_for_years_if_somebody_plans_and_anybody_ticks(db: Database) -> None:
    queue = db.queue()
    task = queue.schedule_task("monthly", "0 0 1 * *", "month", timezone="America/New_York")
    expected = task.next_fires
    seen: list[datetime] = []
    while len(seen) < 30:
        db.advance(days=10)
        queue.plan_schedules()
        queue.tick()
        for claimed in queue.poll():
            assert (claimed.scheduled_task_id, claimed.producer) == (task.task_id, "scheduler")
            seen.append(claimed.scheduled_for)
            queue.complete(claimed)
    assert seen[:20] == list(expected)
    assert seen == sorted(set(seen))
    assert {fire.day for fire in seen} == {1}
    assert {fire.hour for fire in seen} == {4, 5}  # midnight in New York


def test_whoever_starts_again_changes_nothing(queue: Any, db: Database) -> None:
    before = queue.schedule_task("a", "* * * * *", "b", {"n": 1})
    db.advance(seconds=1)
    assert queue.schedule_task("a", "* * * * *", "b", {"n": 1}) == before
    assert queue.plan_schedules() == 0
    changed = queue.schedule_task("a", "0 3 * * *", "b", {"n": 1})
    assert changed.task_id == before.task_id
    assert {fire.hour for fire in changed.next_fires} == {3}
    assert queue.schedules() == [changed]


@requirement("G12")
def test_what_everybody_was_down_for_is_fired_by_the_policy(queue: Any, db: Database) -> None:
    """Also far beyond what had been planned."""
    stop_the_clock(db)
    for missed in ("coalesce", "catch_up", "skip"):
        queue.schedule_task(missed, "* * * * * *", missed, missed=missed)
    db.advance(days=3)
    queue.tick()
    assert queue.plan_schedules() == 3
    while queue.tick().more:
        pass
    fired = {
        missed: len(queue.events(types=[missed], limit=1000).events)
        for missed in ("coalesce", "catch_up", "skip")
    }
    assert fired == {"coalesce": 1, "catch_up": 100, "skip": 60}


@requirement("PG-28")
def test_a_schedule_is_paused_resumed_run_and_removed(queue: Any, db: Database) -> None:
    task = queue.schedule_task("a", "0 * * * *", "b", {"n": 1})
    queue.pause_schedule("a")
    assert [one.active for one in queue.schedules()] == [False]
    event = queue.run_schedule("a")
    assert (event.type, event.payload, event.status) == ("b", {"n": 1}, "PENDING")
    assert (event.scheduled_task_id, event.scheduled_for) == (task.task_id, None)
    db.advance(days=40)
    assert queue.tick().fired == 0
    resumed = queue.resume_schedule("a")
    assert resumed == queue.schedules()[0]
    assert len(resumed.next_fires) >= 20
    assert resumed.next_fires[0] > task.next_fires[-1]
    queue.remove_schedule("a")
    assert queue.schedules() == []
    for call in (queue.pause_schedule, queue.resume_schedule, queue.run_schedule, queue.remove_schedule):  # fmt: skip
        with pytest.raises(ScheduleNotFound, match="no schedule 'a'"):
            call("a")


def test_what_is_wrong_is_refused_before_anything_is_stored(queue: Any) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"cron": "0 25 * * *"}, "not a cron expression: Bad hour"),
        ({"timezone": "Europe/Atlantis"}, "unknown time zone 'Europe/Atlantis'"),
        ({"missed": "perhaps"}, "coalesce, catch_up or skip"),
        ({"priority": 10}, "priority"),
        ({"tags": "a"}, "list of strings"),
        ({"payload": float("nan")}, "not finite"),
        ({"name": ""}, "needs a name"),
    ]
    for options, said in wrong:
        with pytest.raises(InvalidInput, match=said):
            queue.schedule_task(**{"name": "a", "cron": "@daily", **options})
    assert queue.schedules() == []


@pytest.mark.one_database("the test works on its tables")
def test_a_schedule_that_nobody_understands_keeps_no_other_from_being_planned(
    queue: Any, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.sql("select headrace.schedule_task('default', 'a', '0 0 */31 * 1#5')")
    db.sql("select headrace.schedule_task('default', 'b', '0 0 * * *', timezone => 'UTC+3')")
    db.sql("select headrace.schedule_task('default', 'c', '0 0 * * *')")
    assert queue.plan_schedules() == 1
    assert [len(task.next_fires) for task in queue.schedules()] == [0, 0, 20]
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "the schedule a will not fire",
        "the schedule b will not fire",
    ]


@requirement("PG-4", "PG-22")
def test_nodes_are_listed(client: Client, db: Database) -> None:
    queue = client.queue()
    assert queue.nodes() == []
    instance = str(uuid4())

    def ask(statement: statement.Statement[Any]) -> Any:
        return statement.read(db.sql(statement.sql, statement.params))

    register = nodes.register_node("default", "my node", instance, "Mine", None, {"a": 1}, ["b.*"], "host:1", 50)  # fmt: skip
    assert ask(register) == "my-node"
    [node] = queue.nodes()
    assert node == headrace.NodeInfo(
        node_id="my-node",
        alive=True,
        display_name="Mine",
        description=None,
        metadata={"a": 1},
        handles=("b.*",),
        worker_id="host:1",
        instance=instance,
        registered_at=node.registered_at,
        started_at=node.registered_at,
        last_heartbeat=node.registered_at,
        stopped_at=None,
    )
    assert ask(nodes.touch_node_heartbeat("default", "my node", instance)) == "alive"
    assert ask(nodes.unregister_node("default", "my node", instance)) is True
    [node] = queue.nodes()
    assert not node.alive
    assert node.stopped_at - node.registered_at < timedelta(minutes=1)
    with pytest.raises(NamespaceNotFound):
        client.queue_on(client.pool(), namespace="nowhere").nodes()

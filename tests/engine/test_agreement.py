"""What nodes, count_nodes, unhandled_types, attention and the doctor say of one database is never contradictory."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from headrace import doctor
from tests.database import Database
from tests.engine.functions_helpers import Engine
from tests.requirements import requirement

MINUTES = 10


@pytest.fixture
def engine(db: Database) -> Engine:
    engine = Engine(db)
    engine.tick()
    return engine


def later(engine: Engine, **duration: float) -> None:
    engine.db.advance(**duration)
    engine.tick()


def attention(engine: Engine) -> dict[str, Any]:
    return {one.code: one for one in engine.call("attention", namespace=None)}


def examined(db: Database, check: str) -> list[str]:
    """The states that a check of the doctor finds."""
    [wanted] = [known for known in doctor.CHECKS if known.name == check]
    with db.connect() as connection:
        return [one.state for one in doctor.examine(connection, db.dsn, checks=[wanted])]


def register(engine: Engine, *, name: str = "a-node", handles: str = "*") -> UUID:
    instance = uuid4()
    engine.call(
        "register_node",
        namespace="default",
        node_id=name,
        instance=instance,
        handles=[handles],
        worker=f"{name}:1",
    )
    return instance


def retried(engine: Engine) -> None:
    engine.publish({})
    engine.end("fail", engine.claim(), retry_in="1 second")
    later(engine, seconds=2)


def failed_at_once(engine: Engine) -> None:
    engine.publish({})
    engine.end("fail", engine.claim(), retry_in="0")


def released(engine: Engine) -> None:
    engine.publish({})
    engine.end("release", engine.claim())


def redriven(engine: Engine) -> None:
    engine.publish({"max_retries": 0})
    engine.end("fail", engine.claim())
    engine.call("redrive", namespace="default")


def reset(engine: Engine) -> None:
    engine.publish({})
    engine.call("reset", namespace="default", event_id=engine.claim(lease="7 days").id)


def abandoned(engine: Engine) -> None:
    engine.publish({})
    engine.claim(lease="1 second")
    later(engine, seconds=5)


def delayed(engine: Engine) -> None:
    engine.publish({"delay": 1})
    later(engine, seconds=2)


def keyed(engine: Engine) -> None:
    engine.publish({"key": "k"})


def keyed_and_retried(engine: Engine) -> None:
    engine.publish({"key": "k"}, {"key": "k"})
    engine.end("fail", engine.claim(), retry_in="0")


def fresh_behind_one_that_came_back(engine: Engine) -> None:
    retried(engine)
    engine.publish({})


WAYS: list[Callable[[Engine], None]] = [
    *(retried, failed_at_once, released, redriven, reset, abandoned, delayed, keyed),
    *(keyed_and_retried, fresh_behind_one_that_came_back),
]


@requirement("G4")
@pytest.mark.parametrize("bring", WAYS, ids=lambda way: way.__name__)
def test_whatever_waits_without_a_worker_is_seen(
    engine: Engine, bring: Callable[[Engine], None]
) -> None:
    bring(engine)
    later(engine, minutes=MINUTES)
    found = attention(engine)
    assert {"waiting_long", "unhandled"} & found.keys()
    [one] = [found[code] for code in ("waiting_long", "unhandled") if code in found]
    assert MINUTES * 60 <= one.about["oldest_seconds"] < MINUTES * 60 + 60
    assert examined(engine.db, "oldest_ready") == ["warning"]
    [waits] = engine.call("longest_waits")
    assert (waits.queue, waits.since) == ("main", one.since)


@pytest.mark.parametrize("bring", WAYS[:-1], ids=lambda way: way.__name__)
def test_what_has_just_become_ready_is_not_called_late(
    engine: Engine, bring: Callable[[Engine], None]
) -> None:
    """However long ago it was published: it has waited for a worker only since it came back."""
    bring(engine)
    for place in ("ready", "keyed"):
        engine.db.sql(
            f"update headrace.{place} set created_at = created_at - interval '1 day'"
            " where event <> 0 and attempts > 0"
        )
    assert attention(engine).keys() <= {"dead_letters"}
    assert examined(engine.db, "oldest_ready") == ["fine"]


def test_a_token_that_is_good_for_nothing_is_nothing_that_waits(engine: Engine) -> None:
    engine.publish({"key": "k"})
    engine.end("complete", engine.claim())
    [(tokens,)] = engine.db.sql("select count(*) from headrace.ready where key = 'k'")
    assert tokens == 1
    later(engine, hours=2)
    assert attention(engine) == {}
    engine.publish({"key": "k"})
    assert attention(engine) == {}
    assert examined(engine.db, "oldest_ready") == ["fine"]


def test_a_key_whose_turn_is_with_a_worker_does_not_wait_for_one(engine: Engine) -> None:
    engine.publish({"key": "k"}, {"key": "k"})
    engine.claim(lease="7 days", worker="curl")
    later(engine, minutes=4)
    assert engine.call("longest_waits") == []


def test_a_paused_queue_is_late_for_nobody(engine: Engine) -> None:
    failed_at_once(engine)
    engine.call("pause", namespace="default", queue="main")
    later(engine, minutes=MINUTES)
    assert attention(engine).keys() == {"paused"}
    assert examined(engine.db, "oldest_ready") == ["fine"]


@requirement("G4")
def test_a_node_whose_connection_is_gone_is_alive_for_nobody(engine: Engine, db: Database) -> None:
    line = db.connect()
    instance = uuid4()
    line.execute("select headrace.stay(%s)", [instance])
    line.execute(
        "select headrace.register_node('default', 'a-node', %s, handles => '{*}', worker => 'a-node:1')",
        [instance],
    )
    engine.publish({}, {}, {})
    engine.poll(max_events=2, worker="a-node:1", lease="1 hour")
    assert [one.alive for one in engine.call("nodes", namespace="default")] == [True]
    assert attention(engine) == {}
    line.close()
    db.wait_for(lambda: not engine.call("nodes", namespace="default")[0].alive)
    assert [tuple(one) for one in engine.call("count_nodes")] == [("default", 0, 1, 0)]
    assert attention(engine)["node_lost"].about["deliveries"] == 2
    assert [one.type for one in engine.call("unhandled_types", namespace="default")] == ["event"]
    later(engine, seconds=61)  # its heartbeats would keep it alive for as long
    assert attention(engine).keys() == {"node_lost", "unhandled"}


def test_the_claims_of_a_dead_node_are_not_somebodys_work(engine: Engine) -> None:
    register(engine)
    engine.publish({}, {})
    engine.poll(worker="a-node:1", lease="1 hour")
    later(engine, minutes=3)
    assert attention(engine).keys() == {"node_lost", "unhandled"}


@pytest.mark.parametrize("minutes", [0.5, 2, 90])
def test_whether_somebody_ticks_is_one_question(
    engine: Engine, db: Database, minutes: float
) -> None:
    db.advance(minutes=minutes)
    stopped = "upkeep_stopped" in attention(engine)
    assert stopped == (minutes > 1)
    assert examined(db, "upkeep") == (["problem"] if stopped else ["fine"])


def test_a_new_installation_has_an_hour_for_its_first_tick(db: Database) -> None:
    engine = Engine(db)
    db.sql("update headrace.migrations set applied_at = headrace._now()")
    assert attention(engine) == {}
    assert examined(db, "upkeep") == ["fine"]
    db.advance(minutes=61)
    assert attention(engine).keys() == {"upkeep_stopped"}
    assert examined(db, "upkeep") == ["problem"]


def test_hourly_upkeep_that_is_overdue_is_said_by_both(engine: Engine, db: Database) -> None:
    db.sql("update headrace.upkeep set next_at = next_at - interval '1 day' where task = 'hourly'")
    behind = attention(engine)["upkeep_behind"]
    assert behind.about["overdue_seconds"] > 80_000
    assert examined(db, "upkeep") == ["problem"]


def test_a_lease_whose_deliveries_are_finished_is_late_for_nobody(
    engine: Engine, db: Database
) -> None:
    engine.publish({})
    engine.end("complete", engine.claim(each=True, lease="1 second"))
    db.advance(minutes=2)
    db.sql("select headrace._sample_history(headrace._now())")
    assert db.sql("select count(*) from headrace.leases") == [(1,)]
    assert attention(engine) == {}
    assert examined(db, "expired_leases") == ["fine"]

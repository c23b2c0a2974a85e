"""recover: what a dead start of a node has left behind is taken over at once; what a live one has is left alone."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.database import Database
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine, refused
from tests.requirements import requirement


class Start:
    """A start of a node: a session of its own, and claims under its name."""

    def __init__(self, db: Database, node_id: str = "n", *, locked: bool = True) -> None:
        self.db = db
        self.node_id = node_id
        self.instance: UUID = uuid4()
        self.engine = Engine(db)
        if locked:
            self.engine.call("stay", instance=self.instance)
        self.register()

    def register(self) -> None:
        self.engine.call("register_node", namespace="default", node_id=self.node_id, instance=self.instance)  # fmt: skip

    def poll(self, **arguments: Any) -> list[Any]:
        return self.engine.poll(instance=self.instance, lease="5 minutes", **arguments)

    def recover(self) -> tuple[int, str]:
        """In as many steps as the machine needs."""
        recovered, state = 0, "more"
        while state == "more":
            step, state = self.recover_some()
            recovered += step
        return recovered, state

    def recover_some(self) -> tuple[int, str]:
        [told] = self.engine.call("recover", namespace="default", node_id=self.node_id, instance=self.instance)  # fmt: skip
        return told

    def die(self) -> None:
        pid = self.engine.connection.info.backend_pid
        self.engine.connection.close()
        gone = "select not exists (select from pg_stat_activity where pid = %s)"
        self.db.wait_for(lambda: self.db.sql(gone, [pid]) == [(True,)])


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def recoveries(engine: Engine) -> list[Any]:
    return engine.call("recoveries", namespace="default")


@requirement("QS-1", "QS-11", "QS-13")
def test_what_a_dead_start_held_is_claimable_at_once(engine: Engine, db: Database) -> None:
    ids = engine.publish(*[{}] * 5)
    dead = Start(db)
    batch = dead.poll(max_events=3)
    [held] = dead.poll(each=True)
    engine.end("complete", batch[0])
    dead.die()
    new = Start(db)
    assert new.recover() == (3, "done")
    assert engine.actions(ids[0])[-1] == "COMPLETED"
    assert [engine.actions(claim.id)[-1] for claim in (*batch[1:], held)] == ["ABANDONED"] * 3
    again = [claim for _ in range(5) for claim in engine.poll(max_events=5, worker=f"w{_}")]
    assert sorted((claim.id, claim.attempt) for claim in again) == [
        *((id, 2) for id in ids[1:4]),
        (ids[4], 1),
    ]
    [record] = recoveries(engine)
    assert (record.node_id, record.events_recovered, record.status) == ("n", 3, "completed")
    assert record.checkpoint_id == str(ids[0])
    assert record.recovery_start_time <= record.recovery_complete_time
    assert new.recover() == (0, "done")
    assert len(recoveries(engine)) == 1


@requirement("G6")
def test_what_was_taken_over_the_dead_one_cannot_finish_any_more(
    engine: Engine, db: Database
) -> None:
    engine.publish({}, {})
    dead = Start(db)
    claims = dead.poll(max_events=2)
    dead.die()
    Start(db).recover()
    for worker in ("one", "two"):
        engine.claim(worker=worker)
    assert [row.verdict for row in engine.finish(claims)] == ["lost"] * 2
    assert [row.state for row in engine.call("extend", namespace="default", queue="main", leases=[claims[0].lease])] == ["lost"]  # fmt: skip


@requirement("G9")
def test_the_first_death_makes_suspects_and_the_next_is_charged(
    engine: Engine, db: Database
) -> None:
    [id] = engine.publish({"max_retries": 1})
    for crashes in (0, 1):
        dead = Start(db)
        dead.poll()
        dead.die()
        Start(db).recover()
        assert engine.event(id).crashes == crashes
    assert engine.event(id).status == "FAILED"
    assert len(recoveries(engine)) == 2


@requirement("G5")
def test_one_that_lives_keeps_what_it_has(engine: Engine, db: Database) -> None:
    engine.publish(*[{}] * 3)
    first = Start(db)
    claims = first.poll(max_events=3)
    second = Start(db)
    assert second.recover() == (0, "alive")
    assert first.recover() == (0, "alive")
    assert [row.verdict for row in engine.finish(claims[:1])] == []
    assert recoveries(engine) == []
    first.die()
    assert second.recover() == (2, "done")


def test_one_without_a_lock_is_never_taken_for_dead(engine: Engine, db: Database) -> None:
    engine.publish({})
    pooled = Start(db, locked=False)
    pooled.poll()
    pooled.die()
    new = Start(db)
    assert new.recover() == (0, "done")
    assert engine.stats().processing == 1
    db.advance(minutes=6)
    engine.tick()
    assert new.recover() == (0, "done")
    assert db.sql("select count(*) from headrace.instances where instance = %s", [pooled.instance]) == [(0,)]  # fmt: skip


def test_after_a_restart_of_the_server_nobody_knows(engine: Engine, db: Database) -> None:
    engine.publish({})
    away = Start(db)
    away.poll()
    db.sql("update headrace.instances set locked_under = locked_under - interval '1 day'")
    away.die()
    assert Start(db).recover() == (0, "done")
    back = Start(db)  # that has been heard of since
    back.engine.call("touch_node_heartbeat", namespace="default", node_id="n", instance=back.instance)  # fmt: skip
    assert db.sql("select locked_under = pg_postmaster_start_time() from headrace.instances where instance = %s", [back.instance]) == [(True,)]  # fmt: skip


def test_only_what_has_its_id_is_its_own(engine: Engine, db: Database) -> None:
    engine.publish(*[{}] * 3)
    other, dead = Start(db, "other"), Start(db)
    other.poll()
    dead.poll()
    engine.poll(worker="a plain client")
    other.die()
    dead.die()
    assert Start(db).recover() == (1, "done")
    assert engine.stats().processing == 2


def test_who_says_goodbye_leaves_nothing_to_recover(engine: Engine, db: Database) -> None:
    leaving = Start(db)
    leaving.engine.call("unregister_node", namespace="default", node_id="n", instance=leaving.instance)  # fmt: skip
    assert db.sql("select * from headrace.instances") == []


def test_much_is_taken_over_in_steps(engine: Engine, db: Database) -> None:
    dead = Start(db)
    for _ in range(3):
        engine.publish(*[{}] * 1000)
        dead.poll(max_events=1000)
    dead.die()
    new = Start(db)
    recovered, state = new.recover_some()
    assert (recovered in {1000, 2000}, state) == (True, "more")
    assert recoveries(engine)[0].status == "running"
    assert new.recover() == (3000 - recovered, "done")
    [record] = recoveries(engine)
    assert (record.events_recovered, record.status) == (3000, "completed")


@pytest.mark.new_database
def test_how_far_its_queue_is_costs_a_look_for_all_claims_together(
    engine: Engine, db: Database
) -> None:
    engine.publish(*[{}] * 20)
    dead = Start(db)
    for _ in range(20):
        dead.poll(each=True)
    dead.die()
    new = Start(db)
    call = "select recovered from headrace.recover('default', 'n', %s)"
    [(recovered,)], touched = footprint(new.engine.connection, call, [new.instance])
    assert recovered >= 1
    # Nothing but a look at how far a queue is reads those.
    assert touched["chores"].scans + touched["chores_pkey"].scans == 1


def test_a_finish_in_flight_is_neither_waited_for_nor_robbed(engine: Engine, db: Database) -> None:
    [id] = engine.publish({})
    dead = Start(db)
    [claim] = dead.poll(each=True)
    handler = db.connect(autocommit=False)
    handler.execute("select headrace.complete('default', %s, %s)", [id, claim.attempt])
    dead.die()
    new = Start(db)
    assert new.recover() == (0, "busy")
    handler.commit()
    assert new.recover() == (0, "done")
    assert engine.event(id).status == "COMPLETED"


def test_who_is_locked_by_somebody_is_come_back_to(engine: Engine, db: Database) -> None:
    engine.publish({})
    dead = Start(db)
    dead.poll()
    dead.die()
    other = db.connect(autocommit=False)
    other.execute("select from headrace.instances where instance = %s for update", [dead.instance])
    new = Start(db)
    assert new.recover() == (0, "busy")
    other.rollback()
    assert new.recover() == (1, "done")


def test_two_that_recover_at_once_take_each_claim_over_once(engine: Engine, db: Database) -> None:
    engine.publish(*[{}] * 2)
    dead = Start(db)
    dead.poll(max_events=2)
    dead.die()
    first, second = Start(db), Start(db)
    first.engine.connection.execute("begin")
    assert first.recover()[0] == 2
    assert second.recover()[0] == 0
    first.engine.connection.execute("commit")
    assert second.recover()[0] == 0


@requirement("G6")
def test_what_a_dead_start_still_sends_counts_while_nobody_has_claimed_it_again(
    engine: Engine, db: Database
) -> None:
    engine.publish({}, {})
    dead = Start(db)
    first, second = dead.poll(max_events=2)
    dead.die()
    assert Start(db).recover() == (2, "done")
    engine.end("complete", first)
    assert engine.event(first.id).status == "COMPLETED"
    assert engine.claim().id == second.id
    with refused("QU020"):
        engine.end("complete", second)
    assert engine.event(second.id).status == "PROCESSING"

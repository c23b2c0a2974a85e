"""A finish that comes after the lease ran out counts while nobody else has taken the event."""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused, stop_the_clock
from tests.engine.races_helpers import ISOLATION_LEVELS, Background, Session
from tests.places import check_places
from tests.requirements import requirement

LOST, ENDED, REQUIRED = "QU020", "QU021", "requires the lease_token"
WRONG = "00000000-0000-4000-8000-000000000000"
WAITING = """
select crashes, failures, suspect, due_at is not null as delayed
from headrace.deliveries where event = %s and lease is null
"""

held_or_batch = pytest.mark.parametrize("each", [True, False], ids=["held", "batch"])


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def run_out(engine: Engine) -> None:
    """The leases run out, and tick has seen it."""
    engine.db.advance(seconds=61)
    engine.tick()


def late(engine: Engine, *, each: bool = True, **event: Any) -> Any:
    """A claim whose lease ran out."""
    [id] = engine.publish(event)
    claimed = engine.claim(each=each, worker="w1")
    assert claimed.id == id
    run_out(engine)
    assert engine.actions(id) == ["EMITTED", "PICKED", "ABANDONED"]
    return claimed


def charged(engine: Engine, **event: Any) -> Any:
    """A claim whose lease ran out and which was charged with it, because one had run out before."""
    late(engine, **event)
    claimed = engine.claim(worker="w2")
    run_out(engine)
    assert engine.event(claimed.id).crashes == 1
    return claimed


def waiting(engine: Engine, id: int) -> Any:
    [row] = engine.connection.execute(WAITING, [id]).fetchall()
    return row


@requirement("G6", "G7")
@held_or_batch
def test_a_late_complete_counts(engine: Engine, each: bool) -> None:
    mine = late(engine, each=each)
    engine.end("complete", mine, ms=600_000, code=200)
    event = engine.event(mine.id)
    assert (event.status, event.attempts, event.retry_count, event.crashes) == (
        "COMPLETED",
        1,
        0,
        0,
    )
    assert (event.worker_id, event.processing_started_at) == (
        "w1",
        engine.trail(mine.id)[1].created_at,
    )
    *_, abandoned, completed = engine.trail(mine.id)
    assert (abandoned.action, completed.action) == ("ABANDONED", "COMPLETED")
    assert (completed.attempt, completed.worker_id) == (1, "w1")
    assert (completed.execution_time_ms, completed.status_code) == (600_000, 200)
    assert engine.poll() == []
    check_places(engine.db.sql)


@requirement("G6", "G8")
@held_or_batch
def test_a_late_fail_counts_as_a_failure_and_not_as_a_crash(engine: Engine, each: bool) -> None:
    mine = late(engine, each=each)
    assert waiting(engine, mine.id).suspect
    retry_at = engine.end("fail", mine)
    assert waiting(engine, mine.id) == (0, 1, False, True)
    event = engine.event(mine.id)
    assert (event.status, event.retry_count, event.crashes) == ("PENDING", 1, 0)
    assert event.next_retry_at == retry_at
    assert engine.actions(mine.id)[-2:] == ["ABANDONED", "FAILED"]
    assert engine.end("fail", mine) == retry_at  # and again: the same
    assert engine.actions(mine.id)[-2:] == ["ABANDONED", "FAILED"]
    check_places(engine.db.sql)


@requirement("G9")
@pytest.mark.parametrize("action", ["complete", "fail", "finalize"])
def test_the_crash_that_was_charged_is_taken_back(engine: Engine, action: str) -> None:
    mine = charged(engine)
    engine.end(action, mine)
    event = engine.event(mine.id)
    assert event.crashes == 0
    assert event.retry_count == (action == "fail")
    actions = ["EMITTED", "PICKED", "ABANDONED", "PICKED", "ABANDONED"]
    assert engine.actions(mine.id) == [*actions, "FAILED" if action == "fail" else "COMPLETED"]
    check_places(engine.db.sql)


@requirement("G9")
def test_a_suspicion_that_an_earlier_lease_brought_stays(engine: Engine) -> None:
    """As after a failure in time: else a delivery that kills its workers could be started more often than is promised."""
    mine = charged(engine)
    engine.end("fail", mine)
    assert waiting(engine, mine.id) == (0, 1, True, True)


def test_a_late_finalize_is_the_end(engine: Engine) -> None:
    mine = late(engine)
    engine.call("finalize", namespace="default", event=mine.id, attempt=1, errors=["no"])
    assert engine.event(mine.id).status == "COMPLETED_WITH_ERRORS"
    assert engine.actions(mine.id)[-3:] == ["ABANDONED", "COMPLETED_WITH_ERRORS", "DEAD_LETTERED"]
    letter = engine.dead_letter(mine.id)
    assert (letter.failures, letter.crashes, letter.attempts) == (1, 0, 1)


def test_the_last_failure_kills_late_too(engine: Engine) -> None:
    mine = late(engine, max_retries=1)
    assert engine.end("fail", mine) is None
    letter = engine.dead_letter(mine.id)
    assert (letter.reason, letter.failures, letter.crashes) == ("Max retries exceeded", 1, 0)


@requirement("G8")
def test_a_late_finish_is_repeated_and_contradicted_like_any_other(engine: Engine) -> None:
    mine = late(engine)
    engine.end("complete", mine)
    engine.end("complete", mine)
    with refused(ENDED, "already ended as COMPLETED"):
        engine.end("fail", mine)
    assert engine.actions(mine.id).count("COMPLETED") == 1


@requirement("G6")
@held_or_batch
def test_nothing_but_an_end_comes_late(engine: Engine, each: bool) -> None:
    mine = late(engine, each=each)
    before = contents(engine.db)
    one = {"namespace": "default", "event": mine.id, "attempt": 1}
    for function, given in {
        "release": {},
        "start": {},
        "save_progress": {"progress": Jsonb(1)},
    }.items():
        with refused(LOST):
            engine.call(function, **one, **given)
    [heartbeat] = engine.call("heartbeat", **one, worker="w1")
    [extended] = engine.call("extend", namespace="default", queue="main", leases=[mine.lease])
    assert (heartbeat.state, extended.state) == ("lost", "lost")
    assert differences(before, contents(engine.db)) == set()


def hand_out(engine: Engine, id: int) -> None:
    assert engine.claim(worker="w2").id == id


def hand_out_and_release(engine: Engine, id: int) -> None:
    engine.end("release", engine.claim(worker="w2"))


def redrive(engine: Engine, id: int) -> None:
    bury(engine, id)
    engine.call("redrive", namespace="default", ids=[id])


def bury(engine: Engine, id: int) -> None:
    for _ in range(3):
        engine.claim(worker="w2")
        run_out(engine)
    assert engine.event(id).status == "FAILED"


def administer(function: str) -> Any:
    def do(engine: Engine, id: int) -> None:
        assert engine.call(function, namespace="default", event_id=id) == [(True,)]

    return do


@requirement("G5", "G6")
@held_or_batch
@pytest.mark.parametrize(
    "happens",
    [hand_out, hand_out_and_release, administer("reset"), administer("cancel"), bury, redrive],
    ids=["handed out", "released", "reset", "cancelled", "dead-lettered", "redriven"],
)
@pytest.mark.parametrize("action", ["complete", "fail", "finalize"])
def test_it_is_too_late_once_anything_else_has_happened(
    engine: Engine, each: bool, happens: Any, action: str
) -> None:
    mine = late(engine, each=each)
    happens(engine, mine.id)
    before = contents(engine.db)
    with refused(LOST):
        engine.end(action, mine)
    assert differences(before, contents(engine.db)) == set()


@requirement("G6", "G7")
@pytest.mark.parametrize("action", ["complete", "fail", "finalize"])
def test_it_is_too_late_for_the_attempt_that_was_the_last(engine: Engine, action: str) -> None:
    late(engine, max_retries=1)
    mine = engine.claim(worker="w2")
    run_out(engine)
    assert engine.event(mine.id).status == "FAILED"
    before = contents(engine.db)
    with refused(LOST):
        engine.end(action, mine)
    assert differences(before, contents(engine.db)) == set()


def test_a_later_attempt_may_be_late_where_an_earlier_one_is_lost(engine: Engine) -> None:
    first = late(engine)
    second = engine.claim(worker="w2")
    run_out(engine)
    with refused(LOST):
        engine.end("complete", first)
    engine.end("complete", second)
    assert engine.event(first.id).worker_id == "w2"


def test_a_lease_that_ran_out_unseen_is_finished_as_ever(engine: Engine) -> None:
    [id] = engine.publish({})
    mine = engine.claim(each=True)
    engine.db.advance(seconds=61)
    engine.end("complete", mine)
    assert engine.actions(id) == ["EMITTED", "PICKED", "COMPLETED"]


def test_what_its_own_worker_abandoned_may_be_finished_too(engine: Engine) -> None:
    """The connection was lost under its handler, and then it worked after all."""
    [id] = engine.publish({})
    mine = engine.claim(each=True)
    [row] = engine.finish([mine], {"1": {"action": "abandon", "error": "gone"}})
    assert row.verdict == "counted"
    engine.end("complete", mine, lease_token=str(mine.lease_token))
    assert engine.actions(id)[-2:] == ["ABANDONED", "COMPLETED"]


@requirement("G6")
def test_a_worker_that_knows_only_its_name_finishes_late(engine: Engine) -> None:
    mine = late(engine)

    def report(worker: str) -> str:
        [row] = engine.call("report", namespace="default", queue="main", events=[mine.id],
                            attempts=[None], workers=[worker])  # fmt: skip
        return str(row.verdict)

    assert report("w2") == "lost"
    assert report("w1") == "counted"
    assert report("w1") == "repeated"
    assert engine.event(mine.id).status == "COMPLETED"


@requirement("G6")
@held_or_batch
@pytest.mark.parametrize("action", ["complete", "fail", "finalize"])
def test_the_token_is_still_asked_for(engine: Engine, each: bool, action: str) -> None:
    """The lease is gone; the log keeps its token."""
    mine = late(engine, each=each)
    before = contents(engine.db)
    with refused(LOST):
        engine.end(action, mine, lease_token=WRONG)
    assert differences(before, contents(engine.db)) == set()
    engine.end(action, mine, lease_token=str(mine.lease_token))


@requirement("G6")
@held_or_batch
def test_a_queue_that_requires_tokens_does_so_late(engine: Engine, each: bool) -> None:
    engine.call("change_queue", namespace="default", queue="main",
                settings=Jsonb({"require_lease_token": True}))  # fmt: skip
    mine = late(engine, each=each)
    before = contents(engine.db)
    one = {"namespace": "default", "queue": "main", "events": [mine.id], "attempts": [1]}
    for function in ("complete", "fail", "finalize"):
        with refused("QU001", REQUIRED):
            engine.end(function, mine)
        with refused(LOST):
            engine.end(function, mine, lease_token=WRONG)
    with refused("QU001", REQUIRED):
        engine.call("report", **one, workers=["w1"])
    held = {"namespace": "default", "queue": "main", "event": mine.id, "attempt": 1}
    assert engine.call("complete_held", **held) == [(False,)]
    assert differences(before, contents(engine.db)) == set()
    assert engine.call("complete_held", **held, lease_token=str(mine.lease_token)) == [(True,)]
    assert engine.event(mine.id).status == "COMPLETED"


def test_what_the_log_cannot_prove_is_lost(engine: Engine) -> None:
    engine.call("change_queue", namespace="default", queue="main",
                settings=Jsonb({"require_lease_token": True}))  # fmt: skip
    mine = late(engine)
    engine.connection.execute("update headrace.outcomes set token = null")
    with refused(LOST):
        engine.end("complete", mine, lease_token=str(mine.lease_token))


def test_nobody_reads_the_token_in_the_log(engine: Engine) -> None:
    mine = late(engine)
    told = [
        engine.db.sql("select * from headrace.event_log"),
        engine.db.sql("select * from headrace.log_entries"),
        engine.trail(mine.id),
        engine.event(mine.id),
        engine.call("log_since", namespace="default"),
    ]
    assert str(mine.lease_token) not in str(told)


def test_of_many_each_is_judged_by_itself(engine: Engine) -> None:
    engine.publish(*[{}] * 4)
    batch = engine.poll(4, worker="w1")
    run_out(engine)
    handed_out = engine.claim(worker="w2")
    engine.publish({})
    [alive] = engine.poll(each=True, worker="w3", suspects=False)
    rows = engine.finish([*batch, alive], {"2": {"action": "fail", "error": "no"}})
    verdicts = {row.item: row.verdict for row in rows}
    place = [one.id for one in batch].index(handed_out.id) + 1
    assert verdicts[place] == "lost"
    assert verdicts.get(2) == ("lost" if place == 2 else "counted")
    statuses = {one.id: engine.event(one.id).status for one in [*batch, alive]}
    assert sorted(statuses.values()) == ["COMPLETED"] * (4 if place == 2 else 3) + (
        ["PROCESSING"] if place == 2 else ["PENDING", "PROCESSING"]
    )
    check_places(engine.db.sql)


def test_what_is_named_twice_is_ended_once(engine: Engine) -> None:
    mine = late(engine)
    rows = engine.call("report", namespace="default", queue="main", events=[mine.id] * 2,
                       attempts=[1, 1], workers=["w1", "w1"])  # fmt: skip
    assert sorted((row.item, row.verdict) for row in rows) == [(1, "counted"), (2, "repeated")]
    assert engine.actions(mine.id).count("COMPLETED") == 1


def test_an_attempt_is_counted_once(engine: Engine) -> None:
    mine = late(engine)
    engine.end("complete", mine)
    stats = engine.stats()
    assert (stats.attempts, stats.completed, stats.abandoned) == (1, 1, 1)


# ordering keys


@requirement("G11")
def test_a_late_complete_lets_the_next_of_its_key_have_its_turn(engine: Engine) -> None:
    first, second = engine.publish({"key": "k"}, {"key": "k"})
    mine = engine.claim()
    run_out(engine)
    engine.end("complete", mine)
    check_places(engine.db.sql)
    assert engine.claim().id == second
    assert engine.event(first).status == "COMPLETED"


@requirement("G11")
def test_a_late_fail_keeps_the_others_of_its_key_waiting(engine: Engine) -> None:
    first, second = engine.publish({"key": "k"}, {"key": "k"})
    mine = engine.claim()
    run_out(engine)
    engine.end("fail", mine)
    check_places(engine.db.sql)
    assert engine.poll(2, sweep=True) == []
    engine.db.advance(minutes=5, seconds=1)
    engine.tick()
    again = engine.claim()
    assert (again.id, again.attempt, again.retry_count) == (first, 2, 1)
    engine.end("complete", again)
    assert engine.claim().id == second
    check_places(engine.db.sql)


@requirement("G11")
def test_the_last_failure_of_a_key_lets_the_next_one_go(engine: Engine) -> None:
    _, second = engine.publish({"key": "k", "max_retries": 0}, {"key": "k"})
    mine = engine.claim()
    run_out(engine)
    engine.end("fail", mine)
    check_places(engine.db.sql)
    assert engine.claim().id == second


# inside transactions, and in races


@pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
@held_or_batch
def test_a_late_finish_may_be_part_of_a_transaction(
    engine: Engine, db: Database, each: bool, isolation: str
) -> None:
    mine = late(engine, each=each)
    session = Session(db)
    for end in ("rollback", "commit"):
        session.begin(isolation)
        assert session.finish([mine], lease=not each) == ["counted"]
        session.sql(end)
        is_done = end == "commit"
        assert engine.event(mine.id).status == ("COMPLETED" if is_done else "PENDING")


@pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
def test_a_claim_does_not_wait_for_a_late_finish(
    engine: Engine, db: Database, isolation: str
) -> None:
    mine = late(engine)
    session = Session(db)
    session.begin(isolation)
    assert session.finish([mine], action="fail", retry_in=0) == ["counted"]
    assert Session(db).hurry().poll(sweep=True) == []
    session.rollback()
    assert [one.id for one in Session(db).poll(sweep=True)] == [mine.id]


def test_a_late_finish_waits_for_the_claim_that_takes_it(engine: Engine, db: Database) -> None:
    mine = late(engine)
    claimer, worker = Session(db), Session(db)
    for end, verdict in (("rollback", "counted"), ("commit", "lost")):
        claimer.begin()
        assert [one.id for one in claimer.poll(sweep=True)] == [mine.id]
        worker.begin()
        finish = Background(worker.finish, [mine])
        db.wait_until_blocked(worker.connection)
        claimer.sql(end)
        assert finish.result() == [verdict]
        worker.rollback()


def test_whoever_missed_the_answer_to_its_commit_waits_for_a_late_finish(
    engine: Engine, db: Database
) -> None:
    mine = late(engine)
    worker, asker = Session(db), Session(db)
    worker.begin()
    worker.finish([mine])
    answer = Background(asker.resolve, mine)
    db.wait_until_blocked(asker.connection)
    worker.commit()
    assert answer.result() == "COMPLETED"


# reset


@requirement("API-21", "G6")
@held_or_batch
def test_reset_fences_off_what_is_ready_because_it_was_abandoned(
    engine: Engine, each: bool
) -> None:
    mine = late(engine, each=each)
    reset = {"namespace": "default", "event_id": mine.id, "reason": "worker_timeout"}
    before = waiting(engine, mine.id)
    assert engine.call("reset", **reset) == [(True,)]
    *_, entry = engine.trail(mine.id)
    assert (entry.action, entry.attempt, entry.error_message) == ("RESET", 1, "worker_timeout")
    assert waiting(engine, mine.id) == before  # the counters stay
    with refused(LOST):
        engine.end("complete", mine)
    assert engine.call("reset", **reset) == [(False,)]
    assert engine.actions(mine.id).count("RESET") == 1
    assert engine.claim().attempt == 2


@requirement("G11")
def test_reset_of_an_abandoned_one_keeps_the_order_of_its_key(engine: Engine) -> None:
    first, second = engine.publish({"key": "k"}, {"key": "k"})
    engine.claim()
    run_out(engine)
    assert engine.call("reset", namespace="default", event_id=first) == [(True,)]
    check_places(engine.db.sql)
    engine.end("complete", again := engine.claim())
    assert (again.id, again.attempt) == (first, 2)
    assert engine.claim().id == second


# how long a lease lasts


def set_lease(engine: Engine, seconds: Any) -> None:
    settings = Jsonb({"lease": seconds})
    engine.call("change_queue", namespace="default", queue="main", settings=settings)


def lasts(engine: Engine, function: str = "poll", **asked: Any) -> float:
    engine.publish({})
    [claimed] = engine.call(function, namespace="default", **asked)
    return (claimed.lease_expires_at - engine.now()).total_seconds()


@pytest.mark.parametrize("function", ["poll", "poll_batch"])
@pytest.mark.parametrize("each", [True, False])
def test_how_long_a_claim_lasts_is_a_setting_of_its_queue(
    engine: Engine, function: str, each: bool
) -> None:
    assert lasts(engine, function, each=each) == 60
    set_lease(engine, 900)
    assert lasts(engine, function, each=each) == 900
    assert lasts(engine, function, each=each, lease="5 seconds") == 5
    [queue] = engine.call("queue", namespace="default")
    assert queue.lease == 900
    set_lease(engine, None)
    assert lasts(engine, function, each=each) == 60
    [queue] = engine.call("queue", namespace="default")
    assert queue.lease is None


@pytest.mark.parametrize("wrong", [0, 0.09, -1, 604800.5, "60", True, [60], {"seconds": 60}])
def test_a_lease_lasts_from_a_tenth_of_a_second_to_a_week(engine: Engine, wrong: Any) -> None:
    with refused("QU001", "lease of a queue"):
        set_lease(engine, wrong)
    for right in (0.1, 604800):
        set_lease(engine, right)


def test_a_heartbeat_gives_the_queues_lease_again(engine: Engine) -> None:
    set_lease(engine, 600)
    [id] = engine.publish({})
    engine.claim(worker="w1")
    engine.db.advance(seconds=500)
    [beat] = engine.call("heartbeat", namespace="default", event=id, worker="w1")
    assert (beat.lease_expires_at - engine.now()).total_seconds() == 600

from http import HTTPStatus
from typing import Any

import pytest

from headrace import (
    Claim,
    Claimed,
    Completed,
    EventNotFound,
    Failed,
    FinishConflict,
    InvalidInput,
    LeaseLost,
    Released,
)
from tests.client.clients import Client
from tests.database import Database
from tests.requirements import requirement


@pytest.fixture
def claimed(queue: Any) -> list[Claimed]:
    queue.publish_many([("a", {"n": n}) for n in range(5)])
    return queue.poll(max_events=5)


@requirement("G8")
def test_repeating_a_finish_gives_the_first_answer_and_adds_nothing(
    queue: Any, claimed: list[Claimed]
) -> None:
    first = queue.fail(claimed[0], "broken")
    again = queue.fail(claimed[0], "broken otherwise")
    assert again.verdict == "repeated"
    assert (again.action, again.at, again.retry_at) == (first.action, first.at, first.retry_at)
    queue.complete(claimed[1])
    queue.complete(claimed[1])
    queue.release(claimed[2])
    assert queue.release(claimed[2]).verdict == "repeated"
    assert [entry.action for entry in queue.log(claimed[0].id)] == ["EMITTED", "PICKED", "FAILED"]


@requirement("G8")
def test_another_end_after_the_first_is_a_conflict_that_names_it(
    queue: Any, claimed: list[Claimed]
) -> None:
    queue.complete(claimed[0])
    with pytest.raises(FinishConflict, match="has already ended as COMPLETED") as raised:
        queue.fail(claimed[0], "too late")
    assert raised.value.ids == (claimed[0].id,)


@requirement("G6")
@pytest.mark.parametrize("finish", ["complete", "fail", "release", "finalize", "extend"])
def test_a_stale_claim_changes_nothing_and_is_told_so(
    queue: Any, db: Database, finish: str
) -> None:
    event = queue.publish("a")
    (stale,) = queue.poll()
    db.advance(seconds=61)
    queue.tick()
    (current,) = queue.poll()
    with pytest.raises(LeaseLost) as raised:
        getattr(queue, finish)(stale)
    assert raised.value.ids == (event.id,)
    assert db.placement() == {event.id: ["held"]}
    queue.complete(current)


def test_a_claim_that_never_was_is_lost(queue: Any, claimed: list[Claimed]) -> None:
    for claim in (Claim(claimed[0].id, 7), Claim(10**15, 1), Claim(claimed[0].id, 7, 10**15)):
        with pytest.raises(LeaseLost):
            queue.complete(claim)


def test_many_are_completed_at_once_in_one_row(
    queue: Any, db: Database, claimed: list[Claimed]
) -> None:
    queue.complete(claimed, execution_time_ms=3)
    assert set(map(tuple, db.placement().values())) == {("outcome",)}
    assert db.sql("select count(*) from headrace.outcomes") == [(1,)]
    assert queue.stats().average_ms == 3


@pytest.mark.one_database("the test works on its tables")
@pytest.mark.parametrize("end", ["complete", "release", "fail"])
def test_a_batch_of_which_another_has_ended_one_is_completed_but_for_that(
    queue: Any, db: Database, claimed: list[Claimed], end: str
) -> None:
    """This client does not know of it, and means the whole lease."""
    arguments = ", error => 'x'" if end == "fail" else ""
    db.sql(
        f"select headrace.{end}('default', %s, %s, lease => %s{arguments})",
        [claimed[2].id, claimed[2].attempt, claimed[2].lease],
    )
    if end == "complete":
        queue.complete(claimed)
    else:
        with pytest.raises(FinishConflict) as conflict:
            queue.complete(claimed)
        assert conflict.value.ids == (claimed[2].id,)
    places = db.placement()
    assert all("outcome" in places[one.id] for one in claimed if one is not claimed[2])
    queue.complete([one for one in claimed if one is not claimed[2]])


def test_of_many_the_lost_are_named_and_the_others_completed(
    queue: Any, db: Database, claimed: list[Claimed]
) -> None:
    queue.release(claimed[2])
    queue.poll()
    ghost = Claim(claimed[4].id, 9)
    with pytest.raises(LeaseLost, match="the other 4 are finished") as raised:
        queue.complete([claimed[0], claimed[1], claimed[3], claimed[4], ghost])
    assert raised.value.ids == (ghost.id,)
    with pytest.raises(FinishConflict, match="RELEASED") as conflict:
        queue.complete(claimed)
    assert conflict.value.ids == (claimed[2].id,)
    places = db.placement()
    assert [places[one.id] for one in claimed] == [
        ["outcome"], ["outcome"], ["lease"], ["outcome"], ["outcome"]
    ]  # fmt: skip


def test_completing_nothing_is_nothing(queue: Any) -> None:
    queue.complete([])
    assert queue.finish([]) == []
    assert queue.extend([]) == []


def test_any_mixture_is_finished_in_one_statement(
    queue: Any, db: Database, claimed: list[Claimed]
) -> None:
    verdicts = queue.finish(
        [
            Completed(claimed[0], 12, HTTPStatus.OK),
            Failed(claimed[1], "broken", 34, 500),
            Released(claimed[2]),
            Failed(claimed[3], "poison", reason="No handler", status="COMPLETED_WITH_ERRORS"),
            Completed(Claim(claimed[4].id, 9)),
        ]
    )
    assert [one.verdict for one in verdicts] == ["counted"] * 4 + ["lost"]
    assert [one.action for one in verdicts[:4]] == [
        "COMPLETED",
        "FAILED",
        "RELEASED",
        "COMPLETED_WITH_ERRORS",
    ]
    places = db.placement()
    assert [places[one.id] for one in claimed] == [
        ["outcome"], ["delayed"], ["ready"], ["dead"], ["lease"]
    ]  # fmt: skip
    log = queue.log(claimed[0].id)[-1], queue.log(claimed[1].id)[-1]
    assert [(entry.execution_time_ms, entry.status_code) for entry in log] == [(12, 200), (34, 500)]
    assert log[1].error_message == "broken"


def test_held_claims_and_batches_are_finished_together(queue: Any, db: Database) -> None:
    queue.publish_many([("a", {})] * 4)
    held = queue.poll(max_events=2, each=True)
    batch = queue.poll(max_events=2)
    queue.complete([held[0], batch[1], batch[0], held[1]])
    assert set(map(tuple, db.placement().values())) == {("outcome",)}


def test_the_failure_policy_may_be_said_with_the_failure(
    queue: Any, claimed: list[Claimed]
) -> None:
    def delay(verdict: Any) -> float:
        return (verdict.retry_at - verdict.at).total_seconds()

    assert delay(queue.fail(claimed[0], "x", retry_in=7)) == 7
    assert delay(queue.fail(claimed[1], "x", backoff={"kind": "fixed", "delay": 11})) == 11
    assert queue.fail(claimed[2], "x", max_retries=1).retry_at is None
    assert queue.fail(claimed[3], "x", reason="It is hopeless").retry_at is None
    assert delay(queue.fail(claimed[4])) == 300


def test_an_exception_is_stored_with_its_trace(queue: Any, claimed: list[Claimed]) -> None:
    try:
        raise ValueError("no such order")
    except ValueError as error:
        queue.fail(claimed[0], error)
    message = queue.log(claimed[0].id)[-1].error_message
    assert message.startswith("Traceback")
    assert message.endswith("ValueError: no such order")
    assert "test_an_exception_is_stored_with_its_trace" in message


@pytest.mark.parametrize(
    "error", ["a\0b", "\ud800", "x" * 200_000, "'; drop table x; --", RuntimeError("\0\udfff"), ""]
)
def test_no_error_message_can_break_the_report_of_a_failure(
    queue: Any, claimed: list[Claimed], error: Any
) -> None:
    assert queue.fail(claimed[0], error).verdict == "counted"
    stored = queue.log(claimed[0].id)[-1].error_message
    assert len(stored or "") <= 65_536


@pytest.mark.parametrize(
    "claim",
    [Claim(0, 1), Claim(-1, 1), Claim(2**63, 1), Claim(1, 0), Claim(1, 2**31), Claim(1, 1, 2**63)],
)
def test_a_claim_that_cannot_be_is_lost_and_its_batch_is_not(
    queue: Any, claimed: list[Claimed], claim: Claim
) -> None:
    results = [Completed(claimed[0]), Completed(claim), Failed(claimed[1], "x")]
    assert [one.verdict for one in queue.finish(results)] == ["counted", "lost", "counted"]
    assert [one.verdict for one in queue.finish([Completed(claim)])] == ["lost"]
    with pytest.raises(LeaseLost):
        queue.complete(claim)


@pytest.mark.one_database("the test works on its tables")
@pytest.mark.parametrize(
    "result",
    [
        lambda claimed: Completed(Claim("1", 1)),
        lambda claimed: Completed(Claim(1.5, 1)),
        lambda claimed: Completed(claimed, status_code="ok"),
        lambda claimed: Completed(claimed, status_code=2**40),
        lambda claimed: Failed(claimed, "x", retry_in=float("nan")),
        lambda claimed: Failed(claimed, "x", retry_in=-1),
        lambda claimed: Failed(claimed, "x", max_retries=-1),
        lambda claimed: Failed(claimed, "x", max_retries=1.5),
        lambda claimed: Failed(claimed, "x", backoff={"kind": "fixed"}),
        lambda claimed: Failed(claimed, "x", backoff={"kind": "odd", "delay": 1}),
        lambda claimed: Failed(claimed, "x", status="DONE"),
    ],
)
def test_a_result_that_makes_no_sense_is_refused_and_finishes_nothing(
    queue: Any, db: Database, claimed: list[Claimed], result: Any
) -> None:
    with pytest.raises(InvalidInput):
        queue.finish([Completed(claimed[1]), result(claimed[0])])
    assert set(map(tuple, db.placement().values())) == {("lease",)}


@pytest.mark.parametrize("ms", [-5, 10**12, 1.7])
def test_an_odd_duration_does_not_stop_a_finish(
    queue: Any, claimed: list[Claimed], ms: Any
) -> None:
    queue.complete(claimed[0], execution_time_ms=ms)
    stored = queue.log(claimed[0].id)[-1].execution_time_ms
    assert stored == min(max(int(ms), 0), 2**31 - 1)


@pytest.mark.one_database("a transaction is one database's")
@requirement("G10")
@pytest.mark.parametrize("verb", ["complete", "fail", "release", "finalize", "finish"])
def test_a_finish_joins_the_callers_transaction(client: Client, db: Database, verb: str) -> None:
    queue, connection = client.queue(), client.connection()
    event = queue.publish("a")
    (claimed,) = queue.poll(each=True)
    argument = [Completed(claimed)] if verb == "finish" else claimed
    getattr(queue, verb)(argument, connection=connection)
    client.call(connection.rollback)
    assert db.placement() == {event.id: ["held"]}
    getattr(queue, verb)(argument, connection=connection)
    client.call(connection.commit)
    assert db.placement() != {event.id: ["held"]}


@pytest.mark.one_database("a transaction is one database's")
def test_after_a_rollback_the_id_still_means_the_claim(client: Client) -> None:
    queue, connection = client.queue(), client.connection()
    event = queue.publish("a")
    queue.poll(each=True)
    queue.finalize(event.id, connection=connection)
    client.call(connection.rollback)
    queue.finalize(event.id)
    assert queue.event(event.id).status == "COMPLETED"


def test_a_heartbeat_makes_the_lease_last(queue: Any, db: Database) -> None:
    queue.publish_many([("a", {})] * 2)
    one, other = queue.poll(max_events=2)
    db.advance(seconds=50)
    extended = queue.extend(one, lease=60)
    assert extended.state == "held"
    assert (extended.lease_expires_at - one.lease_expires_at).total_seconds() > 49
    longer = queue.extend(one, lease=300)
    again = queue.extend(one)  # for as long as it was claimed for
    assert (longer.lease_expires_at - again.lease_expires_at).total_seconds() > 200
    db.advance(seconds=30)
    queue.tick()
    queue.complete([one, other])


def test_of_many_heartbeats_each_has_its_state(queue: Any, db: Database) -> None:
    queue.publish_many([("a", {})] * 3)
    (first,), batch = queue.poll(), queue.poll(max_events=2)
    queue.complete(first)
    states = queue.extend([batch[0], first, batch[1], Claim(1, 1), Claim(1, 1, 2**63)])
    assert [one.state for one in states] == ["held", "lost", "held", "lost", "lost"]


@requirement("G6")
@pytest.mark.parametrize("each", [True, False], ids=["held", "batch"])
def test_a_heartbeat_says_that_an_event_was_taken_from_its_claim(queue: Any, each: bool) -> None:
    queue.publish_many([("a", {})] * 2)
    one, other = queue.poll(max_events=2, each=each)
    queue.cancel(one.id)
    assert [state.state for state in queue.extend([one, other])] == ["lost", "held"]
    assert queue.extend(other).taken == {one.id: "CANCELLED"}
    with pytest.raises(LeaseLost, match=f"on event {one.id} is lost: the event was cancelled"):
        queue.extend(one)
    queue.complete(other)


def test_why_an_event_waits_is_asked_of_every_queue_or_of_one(queue: Any) -> None:
    queue.create_queue("second")
    queue.pause("second", actor="ops")
    event = queue.publish("a", delay=60)
    every = queue.why(event.id)
    assert [(one.queue, one.code) for one in every] == [
        ("main", "delayed"),
        ("main", "unhandled"),
        ("second", "delayed"),
        ("second", "queue_paused"),
        ("second", "unhandled"),
    ]
    assert queue.why(event.id, queue="second") == every[2:]
    assert every[3].about == {"actor": "ops"}
    for unknown in (event.id + 1000, -1, 2**70):
        with pytest.raises(EventNotFound):
            queue.why(unknown)


@pytest.mark.one_database("the test works on its tables")
def test_a_lease_that_somebody_has_locked_is_busy_and_not_lost(queue: Any, db: Database) -> None:
    queue.publish("a")
    (claimed,) = queue.poll()
    other = db.connect(autocommit=False)
    other.execute("select from headrace.leases for update")
    assert queue.extend(claimed).state == "busy"
    other.rollback()
    assert queue.extend(claimed).state == "held"


@pytest.mark.one_database("a transaction is one database's")
@requirement("G10")
def test_after_a_lost_commit_reply_the_truth_can_be_asked_for(client: Client) -> None:
    queue, connection = client.queue(), client.connection()
    queue.publish("a")
    (claimed,) = queue.poll(each=True)
    assert queue.resolve(claimed) is None
    queue.complete(claimed, connection=connection)
    client.call(connection.commit)
    assert queue.resolve(claimed) == "COMPLETED"
    assert queue.resolve(Claim(0, 1)) is None
    assert queue.resolve(Claim(2**63, 1)) is None


def test_a_claim_whose_token_is_another_is_lost(queue: Any) -> None:
    """Whoever knows the event, its attempt and its lease cannot end it."""
    queue.publish_many([("a", {}), ("a", {})])
    [mine] = queue.poll(each=True)
    [other] = queue.poll(each=True)
    for token in (other.lease_token, "no token", "", "\0"):
        forged = Claim(mine.id, mine.attempt, mine.lease, True, token)
        for end in (queue.complete, queue.release, queue.extend):
            with pytest.raises(LeaseLost):
                end(forged)
        with pytest.raises(LeaseLost):
            queue.save_progress(forged, 1)
        assert [one.state for one in queue.extend([forged, other])] == ["lost", "held"]
    assert queue.extend(Claim(mine.id, 1, mine.lease, True, mine.lease_token)).state == "held"
    queue.complete(Claim(mine.id, 1, mine.lease, True, mine.lease_token))


@pytest.mark.parametrize("each", [True, False])
def test_a_client_sends_the_tokens_of_its_claims(queue: Any, each: bool) -> None:
    queue.change_queue("main", require_lease_token=True)
    queue.publish_many([("a", {})] * 8)
    first, second, third, *rest = queue.poll(max_events=8, each=each)
    with pytest.raises(InvalidInput, match="requires the lease_token"):
        queue.complete(Claim(first.id, 1, first.lease, each))
    queue.complete(first)
    queue.fail(second, "no")
    queue.save_progress(third, 1)
    queue.extend(third)
    queue.finalize(third.id)
    queue.finalize(third.id)  # ended: what is stored is told without a token
    queue.complete(rest)
    queue.publish_many([("b", {})] * 4)
    queue.complete(queue.poll(max_events=4, each=each))
    assert queue.stats().processing == 0


def _fail(queue: Any, claim: Any) -> None:
    queue.fail(claim, "broken")


LATE = {
    "complete": (lambda queue, claim: queue.complete(claim), "COMPLETED"),
    "complete many": (lambda queue, claim: queue.complete([claim]), "COMPLETED"),
    "fail": (_fail, "PENDING"),
    "finalize": (lambda queue, claim: queue.finalize(claim), "COMPLETED"),
    "finalize by its id": (lambda queue, claim: queue.finalize(claim.id), "COMPLETED"),
    "finish": (lambda queue, claim: queue.finish([Completed(claim)]), "COMPLETED"),
}


@requirement("G6")
@pytest.mark.parametrize("each", [True, False], ids=["held", "batch"])
@pytest.mark.parametrize("way", LATE)
def test_an_end_after_the_lease_ran_out_counts_while_nobody_has_the_event(
    queue: Any, db: Database, way: str, each: bool
) -> None:
    end, status = LATE[way]
    event = queue.publish("a")
    (mine,) = queue.poll(each=each)
    db.advance(minutes=10)
    queue.tick()
    assert queue.event(event.id).status == "PENDING"
    end(queue, mine)
    stored = queue.event(event.id)
    assert (stored.status, stored.crashes, stored.reason) == (status, 0, None)
    assert [entry.action for entry in queue.log(event.id)][-2:] == [
        "ABANDONED",
        "FAILED" if way == "fail" else "COMPLETED",
    ]
    [attempt] = queue.story(event.id).attempts
    assert attempt.action == ("FAILED" if way == "fail" else "COMPLETED")


@requirement("G6")
@pytest.mark.parametrize("size", [2, 5])
def test_a_whole_batch_may_be_completed_late(queue: Any, db: Database, size: int) -> None:
    queue.publish_many([("a", {"n": n}) for n in range(size)])
    claimed = queue.poll(max_events=size)
    db.advance(minutes=10)
    queue.tick()
    queue.complete(claimed)
    assert set(map(tuple, db.placement().values())) == {("outcome",)}


@requirement("G9")
def test_an_event_whose_workers_died_says_why_it_is_dead(queue: Any, db: Database) -> None:
    event = queue.publish("a")
    for _ in range(4):
        queue.poll(worker="w")
        db.advance(seconds=61)
        queue.tick()
    dead = queue.event(event.id)
    assert (dead.status, dead.retry_count, dead.crashes) == ("FAILED", 0, 3)
    assert dead.reason == "Its workers crashed or lost their leases"
    assert [one.reason for one in queue.events(status=["FAILED"]).events] == [dead.reason]


@pytest.mark.parametrize("each", [True, False])
def test_used_up_attempts_of_a_claim_that_collects_end_with_errors(queue: Any, each: bool) -> None:
    queue.publish("x", max_retries=0)
    claimed = queue.poll_one(dispatch="collect", each=each)
    assert queue.fail(claimed, "x").action == "COMPLETED_WITH_ERRORS"
    assert queue.event(claimed.id).status == "COMPLETED_WITH_ERRORS"
    queue.publish("x", max_retries=0)
    claimed = queue.poll_one(dispatch="collect", each=each)
    assert queue.finalize(claimed, False).action == "FAILED", "what is said counts"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"errors": ["lost"], "success": True}, "errors, and success"),
        ({"errorResults": ["lost"], "success": True}, "errors, and success"),
        ({"errors": True, "errorResults": ["lost"]}, "errors, and success"),
        ({"errors": None}, "errors is"),
        ({"errors": 5}, "errors is"),
        ({"errorResults": None}, "errors is"),
        ({"success": "yes"}, "success is"),
    ],
)
@pytest.mark.parametrize("by_id", [True, False])
def test_a_finalize_that_makes_no_sense_is_refused(
    queue: Any, said: Any, message: str, by_id: bool
) -> None:
    queue.publish("x")
    claimed = queue.poll_one()
    with pytest.raises(InvalidInput, match=message):
        queue.finalize(claimed.id if by_id else claimed, **said)
    assert queue.event(claimed.id).status == "PROCESSING"
    assert queue.finalize(claimed, [], success=True).action == "COMPLETED"

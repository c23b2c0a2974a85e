"""Unique keys: while an event of a key is unfinished there is no second one."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace.errors import UniqueKeyHeld
from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused
from tests.engine.races_helpers import Background, Session
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def publish(engine: Engine, *events: Any) -> Any:
    [answer] = engine.call("publish", namespace=engine.namespace, events=json.dumps(events))
    return answer


def unique(name: str = "k", **fields: Any) -> dict[str, Any]:
    return {"unique": name, **fields}


def count(db: Database) -> int:
    return db.sql("select count(*) from headrace.events")[0][0]


def ready(engine: Engine) -> None: ...


def in_a_batch(engine: Engine) -> None:
    engine.publish({}, {})
    assert len(engine.poll(max_events=3)) == 3


def held(engine: Engine) -> None:
    engine.claim(each=True)


def waits_for_its_retry(engine: Engine) -> None:
    engine.end("fail", engine.claim())


def suspect(engine: Engine) -> None:
    engine.claim()
    engine.db.advance(minutes=2)
    engine.tick()


def ready_again(engine: Engine) -> None:
    engine.end("release", engine.claim())


UNFINISHED = [ready, in_a_batch, held, waits_for_its_retry, suspect, ready_again]


@pytest.mark.parametrize("fields", [{}, {"delay": 60}, {"key": "ordered"}], ids=str)
@pytest.mark.parametrize("reach", UNFINISHED, ids=lambda reach: reach.__name__)
@requirement("G26")
def test_while_an_event_of_the_key_is_unfinished_its_id_is_the_answer(
    engine: Engine, db: Database, reach: Callable[[Engine], None], fields: dict[str, Any]
) -> None:
    first = publish(engine, unique(payload=1, **fields))
    assert first.repeated is None
    if "delay" not in fields:
        reach(engine)
    before = contents(db)
    again = publish(engine, unique(payload=2))
    assert (again.ids, again.repeated, again.created_at) == (first.ids, [1], first.created_at)
    assert differences(before, contents(db)) == set()


def completed(engine: Engine) -> None:
    engine.end("complete", engine.claim())


def completed_in_a_batch(engine: Engine) -> None:
    engine.publish({}, {})
    claims = engine.poll(max_events=3)
    engine.finish([one for one in claims if one.details])


def cancelled(engine: Engine) -> None:
    engine.call("cancel", namespace="default", event_id=1)


def dead(engine: Engine) -> None:
    engine.end("finalize", engine.claim(), success=False)


def erased(engine: Engine) -> None:
    engine.call("erase", namespace="default", event_id=1)


def purged(engine: Engine) -> None:
    engine.call("purge", namespace="default", queue="main", what="ready")


ENDS = [completed, completed_in_a_batch, cancelled, dead, erased, purged]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_once_it_has_ended_the_key_is_free_at_once(
    engine: Engine, db: Database, end: Callable[[Engine], None]
) -> None:
    first = publish(engine, unique())
    assert first.ids == [1]
    end(engine)
    second = publish(engine, unique())
    assert second.repeated is None
    assert second.ids != first.ids
    assert publish(engine, unique()).ids == second.ids


def test_a_key_is_held_by_a_delivery_in_any_queue(engine: Engine) -> None:
    engine.call("create_queue", namespace="default", queue="other", types=["a"])
    first = publish(engine, unique(type="a"))
    engine.end("complete", engine.claim())
    assert publish(engine, unique(type="b")).ids == first.ids
    engine.end("complete", engine.claim(queue="other"), queue="other")
    assert publish(engine, unique(type="b")).repeated is None


def test_an_event_that_no_queue_takes_holds_nothing(engine: Engine, db: Database) -> None:
    switch(engine, takes=False)
    first, second = publish(engine, unique()), publish(engine, unique(), unique())
    assert (second.repeated, count(db)) == (None, 3)
    switch(engine, takes=True)
    third = publish(engine, unique())
    assert third.repeated is None
    switch(engine, takes=False)
    assert publish(engine, unique()).ids == third.ids
    assert first


def switch(engine: Engine, *, takes: bool) -> None:
    settings = json.dumps({"takes": takes})
    engine.call("change_queue", namespace="default", queue="main", settings=settings)


def test_of_several_in_a_batch_the_first_gets_the_key(engine: Engine, db: Database) -> None:
    answer = publish(engine, unique("a"), {}, unique("b"), unique("a"), unique("a", payload=9))
    one, other, third, *rest = answer.ids
    assert rest == [one, one]
    assert sorted(answer.repeated) == [4, 5]
    assert len({one, other, third}) == count(db) == 3


def test_keys_are_of_their_namespace(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="else")
    assert publish(engine, unique()).ids != publish(Engine(db, "else"), unique()).ids


def test_a_held_key_is_told_though_the_queue_is_full(engine: Engine, db: Database) -> None:
    first = publish(engine, unique())
    settings = '{"max_queue_depth": 1}'
    engine.call("change_queue", namespace="default", queue="main", settings=settings)
    assert publish(engine, unique()).ids == first.ids
    with refused("QU050"):
        publish(engine, unique("another"))


@requirement("G2")
def test_an_idempotency_key_answers_with_what_it_answered_before(
    engine: Engine, db: Database
) -> None:
    first = publish(engine, unique())
    again = publish(engine, unique(payload=2, idempotency_key="i"))
    assert again.ids == first.ids
    engine.end("complete", engine.claim())
    repeated = publish(engine, unique(payload=2, idempotency_key="i"))
    assert (repeated.ids, repeated.repeated) == (first.ids, [1])
    with refused("QU022"):
        publish(engine, unique(payload=3, idempotency_key="i"))
    assert count(db) == 1


def test_the_event_says_its_key_and_so_does_its_claim(engine: Engine, db: Database) -> None:
    queue = db.queue()
    event = queue.publish("a", unique="k")
    assert (event.unique, event.repeated) == ("k", False)
    again = queue.publish("b", 2, unique="k")
    assert (again.id, again.repeated, again.status) == (event.id, True, None)
    assert queue.publish_many([{"unique": "k"}, {"unique": "l"}, {"unique": "l"}])[0] == event.id
    assert queue.event(event.id).unique == "k"
    assert {claim.unique for claim in queue.poll(max_events=9)} == {"k", "l"}


@pytest.mark.parametrize("key", ["", "x" * 201, 1, [], {}, None])
def test_what_is_no_key_is_refused(engine: Engine, db: Database, key: Any) -> None:
    before = contents(db)
    with refused("QU001", match="unique key"):
        publish(engine, {}, {"unique": key})
    assert differences(before, contents(db)) == set()


def test_a_group_of_payloads_has_no_unique_key(engine: Engine) -> None:
    with refused("QU001", match="goes without an idempotency key, a unique key"):
        publish(engine, {"payloads": [1, 2], "unique": "k"})


class TestAgain:
    """An ended event is not delivered again while another one holds its key."""

    def two(self, engine: Engine, end: Callable[[Engine], None]) -> tuple[int, int]:
        [first] = publish(engine, unique()).ids
        end(engine)
        [second] = publish(engine, unique()).ids
        return first, second

    def test_a_rerun_is_refused_and_names_the_holder(self, engine: Engine, db: Database) -> None:
        first, second = self.two(engine, completed)
        with refused("QU026", match=f"event {second} holds its unique key 'k'"):
            engine.call("rerun", namespace="default", event_id=first)
        with pytest.raises(UniqueKeyHeld) as caught:
            db.queue().rerun(first)
        assert caught.value.event_id == second
        completed(engine)
        engine.call("rerun", namespace="default", event_id=first)
        assert publish(engine, unique()).ids == [first]

    @pytest.mark.parametrize("call", ["redrive", "reset"])
    def test_so_is_a_dead_letter_that_is_named(
        self, engine: Engine, db: Database, call: str
    ) -> None:
        first, second = self.two(engine, dead)
        named = {"ids": [first]} if call == "redrive" else {"event_id": first}
        before = contents(db)
        with refused("QU026", match=f"event {first} .* event {second} holds"):
            engine.call(call, namespace="default", **named)
        assert differences(before, contents(db)) == set()
        completed(engine)
        engine.call(call, namespace="default", **named)
        assert publish(engine, unique()).ids == [first]

    def test_a_redrive_of_all_passes_by_what_it_cannot(self, engine: Engine, db: Database) -> None:
        letters = []
        for _ in range(3):
            letters += publish(engine, unique()).ids
            dead(engine)
        [plain] = engine.publish({})
        dead(engine)
        step = engine.call("redrive", namespace="default", most=2)[0]
        assert (step.done, step.more) == (1, True)
        assert sorted(db.placement()[id][0] for id in letters) == ["dead", "dead", "ready"]
        assert db.queue().redrive() == 1
        assert db.placement()[plain] == ["ready"]
        assert db.queue().redrive() == 0
        assert publish(engine, unique()).ids == [letters[0]]

    def test_two_named_dead_letters_of_one_key_are_refused(self, engine: Engine) -> None:
        ids = []
        for _ in range(2):
            ids += publish(engine, unique()).ids
            dead(engine)
        with refused("QU026"):
            engine.call("redrive", namespace="default", ids=ids)


class TestRaces:
    """Two connections, and one key."""

    PUBLISH = "select ids, repeated from headrace.publish('default', '{\"unique\": \"k\"}')"

    @requirement("G20")
    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    def test_a_publisher_waits_for_one_of_the_same_key_and_then_knows(
        self, db: Database, ending: str
    ) -> None:
        one, other = Session(db), Session(db)
        one.begin()
        [first] = one.sql(self.PUBLISH)
        waiting = Background(other.sql, self.PUBLISH)
        db.wait_until_blocked(other.connection)
        getattr(one, ending)()
        [second] = waiting.result()
        if ending == "commit":
            assert (second.ids, second.repeated) == (first.ids, [1])
        else:
            assert second.repeated is None
        assert count(db) == 1

    def test_a_publisher_of_another_key_does_not_wait(self, db: Database) -> None:
        one, other = Session(db), Session(db).hurry()
        one.begin()
        one.sql(self.PUBLISH)
        assert other.sql(self.PUBLISH.replace('"k"', '"l"'))[0].repeated is None

    @pytest.mark.parametrize("each", [False, True])
    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    def test_neither_a_publish_nor_an_end_waits_for_the_other(
        self, db: Database, ending: str, each: bool
    ) -> None:
        worker, publisher = Session(db).hurry(), Session(db).hurry()
        [first] = publisher.sql(self.PUBLISH)
        claims = worker.poll(each=each)
        worker.begin()
        worker.finish(claims)
        # until the end is committed the event is unfinished
        assert publisher.sql(self.PUBLISH) == [(first.ids, [1])]
        getattr(worker, ending)()
        [second] = publisher.sql(self.PUBLISH)
        assert (second.ids == first.ids) is (ending == "rollback")

    def test_an_end_does_not_wait_for_an_open_publisher_of_its_key(self, db: Database) -> None:
        worker, publisher = Session(db).hurry(), Session(db)
        publisher.sql(self.PUBLISH)
        claims = worker.poll()
        publisher.begin()
        publisher.sql(self.PUBLISH)
        assert worker.finish(claims) == ["counted"]
        publisher.commit()
        assert publisher.sql(self.PUBLISH)[0].repeated is None

    @pytest.mark.patient
    @pytest.mark.parametrize("ending", ["commit", "rollback"])
    def test_a_rerun_waits_for_a_publisher_of_its_key(
        self, db: Database, engine: Engine, ending: str
    ) -> None:
        [first] = publish(engine, unique()).ids
        completed(engine)
        publisher, admin = Session(db), Session(db)
        publisher.begin()
        publisher.sql(self.PUBLISH)
        waiting = Background(admin.sql, "select headrace.rerun('default', %s)", [first])
        db.wait_until_blocked(admin.connection)
        getattr(publisher, ending)()
        if ending == "commit":
            with refused("QU026"):
                waiting.result()
        else:
            waiting.result()
        assert len(engine.poll(max_events=9)) == 1

    def test_batches_take_their_keys_in_one_order(self, db: Database) -> None:
        both = "select ids from headrace.publish('default', %s)"
        one, other = Session(db), Session(db)
        for _ in range(20):
            racing = [
                Background(one.sql, both, ['[{"unique": "a"}, {"unique": "b"}]']),
                Background(other.sql, both, ['[{"unique": "b"}, {"unique": "a"}]']),
            ]
            (ours,), (theirs,) = (each.result()[0] for each in racing)
            assert ours == theirs[::-1]
            one.finish(one.poll(9))


def test_upkeep_forgets_the_keys_of_ended_events_only(engine: Engine, db: Database) -> None:
    publish(engine, unique("ended"))
    completed(engine)
    [held] = publish(engine, unique("held")).ids
    db.advance(hours=2)
    while engine.tick(upkeep=True).more:
        pass
    assert db.sql("select key from headrace.unique_keys") == [("held",)]
    assert publish(engine, unique("held")).ids == [held]


def test_a_key_is_held_after_its_queue_has_moved(db: Database) -> None:
    here, there = db.queue(), db.queue(namespace="there")
    here.create_namespace("there")
    here.publish("a", unique="k")
    here.publish("b", debounce="d", settle=60)
    here.pause()
    there.import_state(here.export_state(move=True))
    there.resume()
    assert there.publish("a", unique="k").repeated


def test_erased_events_leave_no_key_behind(engine: Engine, db: Database) -> None:
    [id] = publish(engine, unique("a secret")).ids
    engine.call("erase", namespace="default", event_id=id)
    assert db.sql("select key from headrace.unique_keys") == []

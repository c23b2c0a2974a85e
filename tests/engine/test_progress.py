"""save_progress and progress: what an attempt leaves for the next one."""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused
from tests.engine.races_helpers import ISOLATION_LEVELS, Background, Session
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def save(engine: Engine, claim: Any, progress: Any, **arguments: Any) -> None:
    engine.call(
        "save_progress",
        namespace=engine.namespace,
        event=claim.id,
        attempt=claim.attempt,
        progress=Jsonb(progress),
        **arguments,
    )


def saved(engine: Engine, *ids: int, **arguments: Any) -> dict[int, Any]:
    rows = engine.call("progress", namespace=engine.namespace, events=list(ids), **arguments)
    return {row.event: row.progress for row in rows}


def is_kept(db: Database) -> bool:
    return bool(db.sql("select event from headrace.progress"))


def keep_up(engine: Engine, db: Database) -> None:
    db.advance(hours=2)
    assert engine.tick(upkeep=True).kept_up


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("with_lease", [False, True])
def test_the_next_attempt_finds_what_was_saved_last(
    engine: Engine, each: bool, with_lease: bool
) -> None:
    ids = engine.publish({}, {}, {})
    one, two, _ = engine.poll(max_events=3, each=each)
    lease = {"lease": one.lease} if with_lease else {}
    assert saved(engine, *ids) == {}
    save(engine, one, {"done": ["a"]}, **lease)
    save(engine, one, {"done": ["a", "b"]}, **lease)
    save(engine, two, [1, "ü", None], **lease)
    engine.finish([one], {"1": {"action": "fail", "retry_in": 0}})
    again = engine.claim()
    assert (again.id, again.attempt) == (one.id, 2)
    assert saved(engine, *ids) == {one.id: {"done": ["a", "b"]}, two.id: [1, "ü", None]}
    save(engine, again, None)
    assert saved(engine, one.id) == {one.id: None}


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("action", ["fail", "release"])
def test_what_ends_an_attempt_may_save(engine: Engine, each: bool, action: str) -> None:
    ids = engine.publish({}, {})
    claims = engine.poll(max_events=2, each=each)
    save(engine, claims[0], "before")
    save(engine, claims[1], "before")
    other = {"action": action, "progress": {"done": ["welcome"]}}
    engine.finish(claims, {"1": other, "2": {"action": action}})
    assert saved(engine, *ids) == {ids[0]: {"done": ["welcome"]}, ids[1]: "before"}


@requirement("G8")
def test_an_end_that_is_repeated_or_lost_saves_nothing(engine: Engine, db: Database) -> None:
    engine.publish({})
    claim = engine.claim()
    fail = {"action": "fail", "retry_in": 0}
    engine.finish([claim], {"1": fail | {"progress": 1}})
    for _ in range(2):
        engine.finish([claim], {"1": fail | {"progress": 2}})
        assert saved(engine, claim.id) == {claim.id: 1}
        again = engine.claim()
        engine.finish([again], {"1": {"action": "release"}})


@requirement("G6")
@pytest.mark.parametrize("each", [False, True])
def test_who_has_lost_the_lease_saves_nothing(engine: Engine, db: Database, each: bool) -> None:
    engine.publish({}, {})
    late, done = engine.poll(max_events=2, each=each)
    save(engine, late, "in time")
    engine.finish([done])
    with refused("QU020", "lost"):
        save(engine, done, "too late")
    db.advance(minutes=2)
    engine.tick()
    before = contents(db)
    for lease in (late.lease, None):
        with refused("QU020", "lost"):
            save(engine, late, "too late", lease=lease)
    again = engine.claim()
    with refused("QU020", "lost"):
        save(engine, late, "too late")
    assert differences(before, contents(db)) <= {"ready", "leases", "held"}
    save(engine, again, "the next one's")
    assert saved(engine, late.id) == {late.id: "the next one's"}


@pytest.mark.parametrize("lease", [None, 0, 2**63 - 1])
def test_who_has_claimed_nothing_saves_nothing(engine: Engine, db: Database, lease: Any) -> None:
    [waiting] = engine.publish({})
    for id in (waiting, 0, 2**63 - 1):
        with refused("QU020"):
            engine.call(
                "save_progress",
                namespace="default",
                event=id,
                attempt=1,
                progress="{}",
                lease=lease,
            )
    assert not is_kept(db)


def test_a_progress_has_at_most_64_kib_and_can_be_read_by_everybody(
    engine: Engine, db: Database
) -> None:
    engine.publish({})
    claim = engine.claim()
    save(engine, claim, "x" * (64 * 1024 - 2))
    for wrong, sqlstate in (
        (f'"{"x" * (64 * 1024 - 1)}"', "QU003"),
        ('{"a": 1e400}', "QU002"),
        ("[" * 200 + "]" * 200, "QU002"),
    ):
        with refused(sqlstate, "the progress"):
            engine.call(
                "save_progress", namespace="default", event=claim.id, attempt=1, progress=wrong
            )
        with refused(sqlstate, "the progress"):
            engine.connection.execute(
                "select headrace.finish('default', 'main', %s, '{1}', others => %s::jsonb)",
                [[claim.id], f'{{"1": {{"action": "fail", "progress": {wrong}}}}}'],
            )
    assert saved(engine, claim.id) == {claim.id: "x" * (64 * 1024 - 2)}


@requirement("G16")
def test_queues_and_namespaces_are_told_apart(engine: Engine, db: Database) -> None:
    engine.call("create_queue", namespace="default", queue="other")
    engine.call("create_namespace", namespace="elsewhere")
    [id] = engine.publish({})
    claim, there = engine.claim(), engine.claim(queue="other")
    save(engine, claim, "main")
    save(engine, there, "other", queue="other")
    assert saved(engine, id) == {id: "main"}
    assert saved(engine, id, queue="other") == {id: "other"}
    stranger = Engine(db, "elsewhere")
    assert saved(stranger, id) == {}
    with refused("QU020"):
        save(stranger, claim, "mine")
    for namespace, queue, sqlstate in (("no", "main", "QU010"), ("default", "no", "QU011")):
        with refused(sqlstate):
            saved(Engine(db, namespace), id, queue=queue)
        with refused(sqlstate):
            save(Engine(db, namespace), claim, 1, queue=queue)


class TestForgetting:
    @pytest.mark.parametrize("end", ["complete", "cancel", "purge"])
    def test_what_has_ended_is_forgotten(self, engine: Engine, db: Database, end: str) -> None:
        engine.publish({})
        claim = engine.claim()
        save(engine, claim, 1)
        if end == "complete":
            engine.end("complete", claim)
        elif end == "cancel":
            engine.call("cancel", namespace="default", event_id=claim.id)
        else:
            engine.end("finalize", claim, success=False)
            engine.call("purge", namespace="default", queue="main", what="dead_letters")
        assert is_kept(db), "which is not the work of who ends it"
        keep_up(engine, db)
        assert not is_kept(db)

    def test_what_lives_is_kept_wherever_it_is(self, engine: Engine, db: Database) -> None:
        engine.publish({}, {}, {}, {"key": "k"}, {"max_retries": 0})
        claims = engine.poll(max_events=5, each=True, lease="1 day")
        _, delayed, ready, keyed, dead = sorted(claims, key=lambda claim: claim.id)
        for claim in claims:
            save(engine, claim, claim.id)
        engine.end("fail", delayed, retry_in="1 day")
        engine.end("release", ready)
        engine.end("release", keyed)
        engine.end("fail", dead)
        for _ in range(3):
            keep_up(engine, db)
            assert saved(engine, *(claim.id for claim in claims)) == {c.id: c.id for c in claims}

    def test_who_is_redriven_goes_on_where_he_was(self, engine: Engine, db: Database) -> None:
        engine.publish({"max_retries": 0})
        claim = engine.claim()
        engine.finish([claim], {"1": {"action": "fail", "progress": {"done": ["a"]}}})
        keep_up(engine, db)
        engine.call("redrive", namespace="default")
        again = engine.claim()
        assert saved(engine, again.id) == {claim.id: {"done": ["a"]}}
        engine.end("complete", again)
        keep_up(engine, db)
        assert not is_kept(db)

    def test_it_goes_with_its_queue(self, engine: Engine, db: Database) -> None:
        engine.call("create_queue", namespace="default", queue="other")
        engine.publish({})
        save(engine, engine.claim(queue="other"), 1, queue="other")
        engine.call("delete_queue", namespace="default", queue="other", with_deliveries=True)
        keep_up(engine, db)
        while engine.tick().more:
            pass
        keep_up(engine, db)
        assert not is_kept(db)

    def test_it_is_erased_with_its_event_and_no_other(self, engine: Engine) -> None:
        ids = engine.publish({}, {})
        for claim in engine.poll(max_events=2):
            save(engine, claim, "their address")
        engine.call("erase", namespace="default", event_id=ids[0])
        assert saved(engine, *ids) == {ids[1]: "their address"}

    def test_upkeep_looks_at_a_bounded_number_at_each_once_an_hour(
        self, engine: Engine, db: Database
    ) -> None:
        engine.publish(*[{}] * 5)
        claims = engine.poll(max_events=5)
        for claim in claims:
            save(engine, claim, 1)
        engine.finish(claims[3:])

        def look() -> bool:
            return db.sql("select headrace._forget_progress(2)") == [(True,)]

        assert not look(), "an hour has not gone by"
        db.advance(hours=1)
        assert [look(), look(), look(), look()] == [True, True, False, False]
        assert saved(engine, *(c.id for c in claims)) == {c.id: 1 for c in claims[:3]}


class TestRaces:
    SAVE = "select headrace.save_progress('default', %s, %s, '{}', lease => %s)"

    @pytest.mark.parametrize("each", [False, True])
    @pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
    def test_who_ends_it_waits_until_it_is_saved(
        self, db: Database, each: bool, isolation: str
    ) -> None:
        saver, ender = Session(db), Session(db)
        ender.publish(2)
        claim, _ = ender.poll(2, each=each)
        saver.begin(isolation)
        saver.sql(self.SAVE, [claim.id, 1, claim.lease])
        ended = Background(ender.finish, [claim])
        db.wait_until_blocked(ender.connection)
        saver.commit()
        assert ended.result() == ["counted"]
        assert is_kept(db)

    @pytest.mark.parametrize("each", [False, True])
    def test_who_saves_while_it_is_being_ended_has_lost_it(self, db: Database, each: bool) -> None:
        saver, ender = Session(db), Session(db)
        ender.publish(2)
        claim, _ = ender.poll(2, each=each)
        ender.begin()
        ender.finish([claim])
        saving = Background(saver.sql, self.SAVE, [claim.id, 1, claim.lease])
        db.wait_until_blocked(saver.connection)
        ender.commit()
        with refused("QU020"):
            saving.result()
        assert not is_kept(db)

    @pytest.mark.parametrize("each", [False, True])
    def test_a_reaper_passes_by_who_is_saving(self, db: Database, each: bool) -> None:
        saver, reaper = Session(db), Session(db).hurry()
        reaper.publish(2)
        claim, _ = reaper.poll(2, each=each)
        db.advance(minutes=2)
        saver.begin()
        saver.sql(self.SAVE, [claim.id, 1, claim.lease])
        reaper.reap()
        saver.commit()
        assert is_kept(db)
        reaper.reap()
        assert set(map(tuple, db.placement().values())) == {("ready",)}

    def test_a_heartbeat_is_not_kept_waiting(self, db: Database) -> None:
        saver, heart = Session(db), Session(db).hurry()
        heart.publish(2)
        held, _ = heart.poll(2, each=True)
        saver.begin()
        saver.sql(self.SAVE, [held.id, 1, None])
        assert heart.extend(held.lease) == ["held"]
        saver.commit()

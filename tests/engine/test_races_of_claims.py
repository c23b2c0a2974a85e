"""Whoever races to publish, claim and tick: nothing twice, nothing lost, nobody waits."""

import random

import pytest
from psycopg.errors import SerializationFailure

from tests.database import Database
from tests.engine.races_helpers import (
    READ_COMMITTED,
    REPEATABLE_READ,
    SERIALIZABLE,
    Background,
    Session,
    everything_is_in_one_place,
)
from tests.requirements import requirement

batch_or_held = pytest.mark.parametrize("each", [False, True], ids=["batch", "held"])


@pytest.fixture
def one(db: Database) -> Session:
    return Session(db).hurry()


@pytest.fixture
def two(db: Database) -> Session:
    return Session(db).hurry()


def ids(claims: list) -> list[int]:
    return [claimed.id for claimed in claims]


class TestPollAndPoll:
    @batch_or_held
    @requirement("EQ-3", "EQ-9", "EB-2", "G5")
    def test_an_open_claim_is_passed_by_and_nobody_waits(
        self, db: Database, one: Session, two: Session, each: bool
    ) -> None:
        published = one.publish(5)
        one.begin()
        mine = one.poll(3, each=each)
        theirs = two.poll(5, each=each)
        one.commit()
        assert (ids(mine), ids(theirs)) == (published[:3], published[3:])
        assert two.poll(5) == []

    @batch_or_held
    @requirement("G4", "G9")
    def test_what_a_rolled_back_claim_had_is_claimed_by_the_next_as_a_first_attempt(
        self, db: Database, one: Session, two: Session, each: bool
    ) -> None:
        published = one.publish(3)
        one.begin()
        one.poll(3, each=each)
        assert two.poll(3) == []
        one.rollback()
        again = two.poll(3, each=each)
        assert ids(again) == published
        assert {claimed.attempt for claimed in again} == {1}
        assert db.sql("select count(*) from headrace.leases") == [(1,)]

    @requirement("G5", "G9")
    def test_a_suspect_that_another_is_claiming_is_passed_by(
        self, db: Database, one: Session, two: Session
    ) -> None:
        one.publish(2)
        one.poll(2)
        db.advance(seconds=61)
        one.reap()
        one.begin()
        [first] = one.poll(2)
        [second] = two.poll(2)
        one.commit()
        assert first.id != second.id
        assert first.held
        assert second.held

    @requirement("EQ-3", "G5", "EB-2")
    def test_many_pollers_share_a_backlog_without_getting_anything_twice_or_too_much(
        self, db: Database, one: Session
    ) -> None:
        published = [id for n in range(6) for id in one.publish(50, type=f"t{n}", priority=n % 3)]

        def drain(session: Session, seed: int) -> list[tuple[int, int]]:
            dice = random.Random(seed)
            got = []
            while True:
                wanted = dice.randint(1, 20)
                claims = session.poll(wanted, each=dice.random() < 0.5)
                if not claims:
                    return got
                assert len(claims) <= wanted
                got += [(claimed.id, claimed.attempt) for claimed in claims]

        drains = [Background(drain, Session(db).hurry().hush(), seed) for seed in range(4)]
        claimed = [claim for drained in drains for claim in drained.result()]
        assert sorted(claimed) == [(id, 1) for id in published]

    @requirement("G5")
    def test_more_pairs_than_wanted_never_give_more_than_wanted(
        self, db: Database, one: Session, two: Session
    ) -> None:
        for n in range(12):
            one.publish(3, type=f"t{n}")
        one.begin()
        assert len(one.poll(5)) == 5
        assert len(two.poll(7)) == 7
        one.commit()


class TestPollAndPublish:
    @requirement("G3", "G4")
    def test_an_open_publishers_event_is_found_once_committed_although_its_number_is_lower(
        self, db: Database, one: Session, two: Session
    ) -> None:
        publisher = Session(db)
        publisher.begin()
        late = publisher.publish(2)
        early = one.publish(2)
        assert late < early
        first = two.poll(9)
        assert ids(first) == early
        publisher.commit()
        assert ids(two.poll(9)) == late

    @requirement("G4", "G19")
    def test_a_late_commit_below_a_callers_hints_is_found_by_its_next_sweep(
        self, db: Database, one: Session, two: Session
    ) -> None:
        publisher = Session(db)
        publisher.begin()
        late = publisher.publish(4)
        hints = None
        for _ in range(3):
            one.publish(2)
            hints = two.poll(9, hints=hints)[0].hints
            db.advance(seconds=1)
        publisher.commit()
        found = two.poll(2, hints=hints, sweep=True)
        assert ids(found) == late[:2]
        # and the rest follows without another sweep
        assert ids(two.poll(9, hints=found[0].hints)) == late[2:]

    @requirement("G3")
    def test_what_a_publisher_rolls_back_never_appears(
        self, db: Database, one: Session, two: Session
    ) -> None:
        one.begin()
        [gone] = one.publish()
        one.rollback()
        [kept] = one.publish()
        assert gone < kept
        assert ids(two.poll(9)) == [kept]
        assert list(db.placement()) == [kept]

    def test_a_publisher_never_waits_for_an_open_claim_or_finish(
        self, db: Database, one: Session, two: Session
    ) -> None:
        one.publish(4)
        one.begin()
        claims = one.poll(2)
        one.finish(claims)
        one.poll(2, each=True)
        assert two.publish(3)
        one.commit()


class TestPublishAndPublish:
    @pytest.mark.parametrize("isolation", [READ_COMMITTED, REPEATABLE_READ])
    @pytest.mark.parametrize(
        "event", [{"type": "new"}, {"type": "new", "tags": ["a", "b"]}], ids=["plain", "tagged"]
    )
    @requirement("G3")
    def test_two_who_make_the_same_new_route_do_not_wait_for_each_other(
        self, db: Database, one: Session, two: Session, isolation: str, event: dict
    ) -> None:
        one.begin(isolation)
        first = one.publish(**event)
        two.begin(isolation)
        second = two.publish(**event)
        two.commit()
        assert ids(two.poll(9, types=["new"])) == second
        one.commit()
        assert ids(two.poll(9, types=["new"])) == first

    def test_serializable_makers_of_the_same_new_route_do_not_wait_and_the_loser_may_try_again(
        self, db: Database, one: Session, two: Session
    ) -> None:
        one.begin(SERIALIZABLE)
        one.publish(type="new")
        two.begin(SERIALIZABLE)
        two.publish(type="new")
        two.commit()
        with pytest.raises(SerializationFailure):
            one.commit()  # each has read that there is no such route
        one.begin(SERIALIZABLE)
        one.publish(type="new")
        one.commit()
        assert len(two.poll(9, types=["new"])) == 2

    @requirement("G5")
    def test_a_route_that_is_listed_twice_delivers_once(
        self, db: Database, one: Session, two: Session
    ) -> None:
        one.begin()
        first = one.publish(type="new")
        second = two.publish(type="new")
        one.commit()
        assert db.sql("select count(*) from headrace.routes") == [(2,)]
        claims = two.poll(9, types=["n*", "new"])
        assert sorted(ids(claims)) == sorted(first + second)

    @requirement("G3")
    def test_a_route_whose_maker_rolled_back_is_made_by_the_next(
        self, db: Database, one: Session, two: Session
    ) -> None:
        one.begin()
        one.publish(type="new")
        second = two.publish(type="new")
        one.rollback()
        assert ids(two.poll(9, types=["new"])) == second


class TestTickAndTick:
    @requirement("G5")
    def test_what_one_makes_ready_the_other_leaves(
        self, db: Database, one: Session, two: Session
    ) -> None:
        published = one.publish(3, delay=5)
        db.advance(seconds=6)
        one.begin()
        assert one.tick().due == 3
        assert two.tick().due == 0
        one.commit()
        assert two.tick().due == 0
        assert db.placement() == {id: ["ready"] for id in published}

    @requirement("G4")
    def test_what_one_rolls_back_the_other_does(
        self, db: Database, one: Session, two: Session
    ) -> None:
        one.publish(3, delay=5)
        one.publish(2)
        one.poll(2)
        db.advance(seconds=61)
        one.begin()
        tick = one.tick()
        assert (tick.due, tick.expired) == (3, 1)
        one.rollback()
        tick = two.tick()
        assert (tick.due, tick.expired) == (3, 1)
        assert everything_is_in_one_place(db)

    @batch_or_held
    @requirement("G5", "G9")
    def test_a_lease_that_one_ends_the_other_leaves(
        self, db: Database, one: Session, two: Session, each: bool
    ) -> None:
        one.publish(2)
        [claimed, _] = one.poll(2, each=each)
        db.advance(seconds=61)
        one.begin()
        assert one.tick().expired == 1
        assert two.tick().expired == 0
        one.commit()
        assert two.tick().expired == 0
        assert one.outcomes(claimed.id) == ["ABANDONED"]
        assert set(map(tuple, db.placement().values())) == {("ready",)}

    def test_counts_are_folded_once(self, db: Database, one: Session, two: Session) -> None:
        one.publish(7)
        one.begin()
        one.tick()
        two.publish(5)
        two.tick()  # leaves the folding to the other
        one.commit()
        two.tick()
        assert db.sql("select sum(published) from headrace.stats") == [(12,)]
        assert db.sql("select 1 from headrace.counts") == []
        assert db.sql("select published from headrace.stats('default')") == [(12,)]

    @requirement("G4", "G5")
    def test_ticks_polls_and_finishes_all_at_once_lose_and_double_nothing(
        self, db: Database, one: Session
    ) -> None:
        one.publish(150)
        one.publish(50, delay=1)
        one.publish(5)
        one.poll(5, lease="1 second")
        db.advance(seconds=2)

        def work(session: Session, seed: int) -> list[int]:
            dice = random.Random(seed)
            done: list[int] = []
            while claims := session.poll(dice.randint(1, 9), each=dice.random() < 0.5):
                assert session.finish(claims) == ["counted"] * len(claims)
                done += ids(claims)
            return done

        ticker = Session(db).hurry().hush()
        workers = [Background(work, Session(db).hurry().hush(), seed) for seed in range(3)]
        while not all(worker.over for worker in workers):
            ticker.tick()
        done = [id for worker in workers for id in worker.result()]
        done += work(ticker, 9)
        assert sorted(done) == sorted(db.placement())
        assert set(map(tuple, db.placement().values())) == {("outcome",)}

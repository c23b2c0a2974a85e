"""Keys with homes: each shard stores the events of its own keys, and a slot of keys moves in order."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headrace.engine.shards import SLOTS, slot_of
from headrace.testing.database import MOVABLE_CLOCK
from tests.database import Database, Server
from tests.engine.races_helpers import Background
from tests.engine.slots_helpers import Shard, slot

WRONG_SHARD, BUSY = "QU060", "QU023"
KEY = "customer-7"
SLOT = slot(KEY)


@pytest.fixture
def zero(server: Server) -> Iterator[Shard]:
    yield from shard(server, 0)


@pytest.fixture
def one(server: Server) -> Iterator[Shard]:
    yield from shard(server, 1)


def shard(server: Server, number: int) -> Iterator[Shard]:
    db = server.lend_shard(64, number, MOVABLE_CLOCK)
    yield Shard(db)
    db.give_back()


def refused(state: str, call: Any, *given: Any, **named: Any) -> str:
    with pytest.raises(psycopg.Error) as refusal:
        call(*given, **named)
    assert refusal.value.sqlstate == state
    return f"{refusal.value.diag.message_primary} ({refusal.value.diag.message_detail})"


def move(giver: Shard, taker: Shard, slots: list[int]) -> None:
    """Begin a move: from 0 to 1, or back."""
    numbers = [s.sql("select shard from headrace.shard()")[0][0] for s in (giver, taker)]
    assert taker.accept(numbers[0], giver.give(slots, numbers[1])) == len(slots)


@pytest.mark.parametrize(
    ("namespace", "key"),
    [
        ("default", "a"),
        ("default", KEY),
        ("shop", KEY),
        ("default", "ключ 鍵 🔑"),
        ("a", "b/c"),
        ("default", ""),
    ],
)
def test_sql_and_python_find_the_same_slot(db: Database, namespace: str, key: str) -> None:
    assert db.sql("select headrace._slot(%s, %s)", [namespace, key]) == [(slot_of(namespace, key),)]


def test_the_keys_are_spread_over_all_slots(db: Database) -> None:
    found = {slot_of("default", str(n)) for n in range(20_000)}
    assert (len(found), min(found), max(found)) == (SLOTS, 0, SLOTS - 1)


class TestHomes:
    def test_a_database_that_is_no_shard_takes_every_key(self, db: Database) -> None:
        session = Shard(db)
        session.publish_event(key=KEY, idempotency_key="i")
        assert db.sql("select sharded from headrace.namespaces") == [(False,)]
        assert db.sql("select headrace.shard_of('default', %s)", [KEY]) == [(0,)]
        assert db.sql("select * from headrace.slots()") == []

    def test_shard_0_is_the_home_of_all_keys_until_slots_move(
        self, zero: Shard, one: Shard
    ) -> None:
        zero.publish_event(key=KEY)
        assert zero.sql("select sharded from headrace.namespaces") == [(False,)]
        told = refused(WRONG_SHARD, one.publish_event, key=KEY)
        assert told == (
            f"the key '{KEY}' has its home on shard 0: publish there "
            f"(slot {SLOT[0]}, home 0, version 0, ask {{}})"
        )
        one.publish_event()  # without a key it may go anywhere
        assert refused(WRONG_SHARD, one.publish_event, idempotency_key="i")

    def test_a_namespace_that_is_made_later_knows_of_the_homes(self, one: Shard) -> None:
        one.sql("select headrace.create_namespace('shop')")
        assert one.sql("select sharded from headrace.namespaces where name = 'shop'") == [(True,)]

    def test_a_slot_that_moves_is_accepted_at_once_and_refused_where_it_was(
        self, zero: Shard, one: Shard
    ) -> None:
        move(zero, one, SLOT)
        assert "home 1, version 1" in refused(WRONG_SHARD, zero.publish_event, key=KEY)
        one.publish_event(key=KEY)
        for session in (zero, one):
            assert session.sql("select headrace.shard_of('default', %s)", [KEY]) == [(1,)]

    def test_the_refusal_reaches_into_the_transaction_of_a_caller(
        self, zero: Shard, one: Shard
    ) -> None:
        one.begin()
        assert refused(WRONG_SHARD, one.publish_event, key=KEY)
        one.rollback()

    def test_one_key_of_another_shard_refuses_the_whole_batch(
        self, zero: Shard, one: Shard
    ) -> None:
        move(zero, one, SLOT)
        mixed = [{}, {"key": KEY}, {"key": "other"}]
        refused(
            WRONG_SHARD,
            one.sql,
            "select headrace.publish('default', %s)",
            [psycopg.types.json.Jsonb(mixed)],
        )
        many = {"key": "other", "payloads": [1, 2, 3]}
        refused(WRONG_SHARD, one.publish_event, **many)
        assert one.sql("select count(*) from headrace.events") == [(0,)]

    def test_the_event_of_a_schedule_is_stored_where_it_fires(self, one: Shard) -> None:
        one.sql(
            "select headrace.schedule_task('default', 'nightly', '0 0 * * *', 'a',"
            " event => jsonb_build_object('key', %s::text))",
            [KEY],
        )
        [(id,)] = one.sql("select headrace.run_schedule('default', 'nightly')")
        assert id % 64 == 1


class TestMoving:
    def test_what_is_wrong_is_refused(self, zero: Shard, one: Shard) -> None:
        refused("QU001", zero.give, [1024], 1)
        refused("QU001", zero.give, [], 1)
        refused("QU001", zero.give, SLOT, 64)
        refused(WRONG_SHARD, one.give, SLOT, 2)  # it is not its own

    def test_repeated_calls_change_nothing(self, zero: Shard, one: Shard) -> None:
        given = zero.give(SLOT, 1)
        assert zero.give(SLOT, 1) == given
        assert one.accept(0, given) == 1
        assert one.accept(0, given) == 0
        one.open_to_the_end(SLOT)
        assert one.open(SLOT) == []
        log = "select action from headrace.admin_log where action like '%slots' order by id"
        assert zero.sql(log) == [("give_slots",)]
        assert one.sql(log) == [("accept_slots",), ("open_slots",)]

    def test_a_slot_that_is_on_its_way_does_not_move_on(self, zero: Shard, one: Shard) -> None:
        move(zero, one, SLOT)
        assert "still on its way from shard 0" in refused(BUSY, one.give, SLOT, 2)
        one.open_to_the_end(SLOT)
        one.give(SLOT, 2)

    def test_an_old_offer_is_refused(self, zero: Shard, one: Shard) -> None:
        given = zero.give(SLOT, 1)
        one.accept(0, given)
        one.open_to_the_end(SLOT)
        one.give(SLOT, 2)
        assert "has moved on to shard 2" in refused(WRONG_SHARD, one.accept, 0, given)

    def test_the_new_home_hands_nothing_out_before_the_old_one_has_nothing_left(
        self, zero: Shard, one: Shard
    ) -> None:
        first = zero.publish_event(key=KEY)
        move(zero, one, SLOT)
        second = one.publish_event(key=KEY)
        third = one.publish_event()
        assert [claim.id for claim in one.poll(10)] == [third]
        assert (zero.left(SLOT).waiting, zero.left(SLOT).knows_keys) == (1, None)
        [claim] = zero.poll()
        assert claim.id == first
        assert zero.left(SLOT).held == 1
        zero.finish([claim])
        left = zero.left(SLOT)
        assert (left.waits_for, left.waiting, left.held, left.delayed) == ([], 0, 0, 0)
        one.open_to_the_end(SLOT)
        assert [claim.id for claim in one.poll(10)] == [second]

    @pytest.mark.parametrize("order", ["fair", "oldest"])
    def test_keys_that_are_held_back_wait_in_every_order_of_a_queue(
        self, zero: Shard, one: Shard, order: str
    ) -> None:
        one.sql(
            "select headrace.change_queue('default', 'main', %s)",
            [psycopg.types.json.Jsonb({"order": order})],
        )
        move(zero, one, SLOT)
        ids = [one.publish_event(key=KEY) for _ in range(3)]
        assert one.poll(10) == []
        one.open_to_the_end(SLOT)
        for id in ids:
            [claim] = one.poll(10)
            assert claim.id == id
            one.finish([claim])

    def test_a_delayed_event_of_a_key_is_held_back_when_its_time_has_come(
        self, zero: Shard, one: Shard
    ) -> None:
        move(zero, one, SLOT)
        late = one.publish_event(key=KEY, delay=5)
        one.db.advance(seconds=6)
        one.sql("select headrace.tick()")
        assert one.poll() == []
        one.open_to_the_end(SLOT)
        assert [claim.id for claim in one.poll()] == [late]

    def test_a_retry_on_the_old_home_keeps_the_slot_waiting(self, zero: Shard, one: Shard) -> None:
        zero.publish_event(key=KEY)
        [claim] = zero.poll()
        zero.finish([claim], action="fail", error="x", retry_in=60)
        move(zero, one, SLOT)
        assert zero.left(SLOT).delayed == 1

    def test_upkeep_does_not_free_keys_that_are_held_back(self, zero: Shard, one: Shard) -> None:
        move(zero, one, SLOT)
        one.publish_event(key=KEY)
        one.sql("select headrace._mend_keys()")
        assert one.poll() == []

    def test_upkeep_frees_a_key_that_was_left_behind(self, zero: Shard, one: Shard) -> None:
        """The move ended, and whoever moved the slot did not call again for a late publisher."""
        move(zero, one, SLOT)
        one.publish_event(key=KEY)
        assert one.open(SLOT) is None
        assert one.poll() == []
        one.sql("select headrace._mend_keys()")
        assert len(one.poll()) == 1

    def test_a_slot_comes_back_when_its_deliveries_have_ended(
        self, zero: Shard, one: Shard
    ) -> None:
        zero.publish_event(key=KEY)
        move(zero, one, SLOT)
        one.open_to_the_end(SLOT)  # too early, and nobody but the caller knows
        given = one.give(SLOT, 0)
        assert "1 deliveries of these slots are left on shard 0" in refused(
            BUSY, zero.accept, 1, given
        )
        zero.finish(zero.poll())
        assert zero.accept(1, given) == 1
        assert zero.sql("select home, version from headrace.slots() where slot = %s", SLOT) == [
            (0, 2)
        ]

    def test_a_dead_letter_that_is_redriven_waits_too(self, zero: Shard, one: Shard) -> None:
        dead = zero.publish_event(key=KEY, max_retries=0)
        zero.finish(zero.poll(), action="fail", error="x")
        move(zero, one, SLOT)
        assert zero.left(SLOT)[3:5] == (0, 1)
        one.open_to_the_end(SLOT)
        move(one, zero, SLOT)
        zero.sql("select headrace.redrive('default')")
        assert zero.poll() == []
        zero.open_to_the_end(SLOT)
        assert [claim.id for claim in zero.poll()] == [dead]


class TestRaces:
    def test_a_publisher_that_did_not_know_of_the_move_is_waited_for(
        self, zero: Shard, one: Shard
    ) -> None:
        late = Shard(zero.db)
        late.begin()
        late.publish_event(key=KEY)
        move(zero, one, SLOT)
        left = zero.left(SLOT)
        assert (len(left.waits_for), left.waiting) == (1, 0)
        late.commit()
        left = zero.left(SLOT, left.waits_for)
        assert (left.waits_for, left.waiting) == ([], 1)

    def test_a_transaction_that_began_before_the_move_is_refused_after_it(
        self, zero: Shard, one: Shard
    ) -> None:
        late = Shard(zero.db)
        late.begin()
        move(zero, one, SLOT)
        assert refused(WRONG_SHARD, late.publish_event, key=KEY)

    def test_a_publisher_that_holds_its_key_back_while_the_slot_opens_is_waited_for(
        self, zero: Shard, one: Shard
    ) -> None:
        move(zero, one, SLOT)
        late = Shard(one.db)
        late.begin()
        id = late.publish_event(key=KEY)
        assert one.open(SLOT) is None
        waits_for = one.open(SLOT)
        assert len(waits_for) == 1
        late.commit()
        assert one.poll() == []
        assert one.open(SLOT, waits_for) == []
        assert [claim.id for claim in one.poll()] == [id]

    def test_two_publishers_of_a_new_key_of_an_arriving_slot_hold_it_back_once(
        self, zero: Shard, one: Shard
    ) -> None:
        move(zero, one, SLOT)
        first, second = Shard(one.db), Shard(one.db)
        first.begin()
        a = first.publish_event(key=KEY)
        background = Background(second.publish_event, key=KEY)
        one.db.wait_until_blocked(second.connection)
        first.commit()
        b = background.result()
        one.open_to_the_end(SLOT)
        [claim] = one.poll(10)
        assert claim.id == a
        one.finish([claim])
        assert [claim.id for claim in one.poll(10)] == [b]

    def test_a_namespace_is_not_made_while_a_slot_moves(self, zero: Shard) -> None:
        other = Shard(zero.db)
        zero.begin()
        zero.give(SLOT, 1)
        background = Background(other.sql, "select headrace.create_namespace('shop')")
        zero.db.wait_until_blocked(other.connection)
        zero.commit()
        background.result()
        assert zero.sql("select sharded from headrace.namespaces where name = 'shop'") == [(True,)]


class TestIdempotencyKeys:
    def test_the_old_home_answers_a_repeat_of_what_it_has(self, zero: Shard, one: Shard) -> None:
        first = zero.publish_event(key=KEY, idempotency_key="i")
        move(zero, one, SLOT)
        assert zero.publish_event(key=KEY, idempotency_key="i") == first
        refused("QU022", zero.publish_event, key=KEY, idempotency_key="i", payload=2)
        refused(WRONG_SHARD, zero.publish_event, key=KEY, idempotency_key="j")

    def test_the_new_home_refuses_a_key_that_the_old_one_may_know(
        self, zero: Shard, one: Shard
    ) -> None:
        move(zero, one, SLOT)
        told = refused(WRONG_SHARD, one.publish_event, key=KEY, idempotency_key="i")
        assert told.endswith("home 1, version 1, ask {0})")
        id = one.publish_event(key=KEY, idempotency_key="i", asked=True)
        assert one.publish_event(key=KEY, idempotency_key="i") == id  # it knows that itself

    def test_the_old_home_tells_whether_an_event_was_published_there(
        self, zero: Shard, one: Shard
    ) -> None:
        event = {"key": KEY, "idempotency_key": "i"}
        first = zero.publish_event(**event)
        move(zero, one, SLOT)
        ask = "select ids, created_at is not null from headrace.published_before('default', %s)"
        batch = psycopg.types.json.Jsonb([event, {**event, "idempotency_key": "j"}])
        assert zero.sql(ask, [batch]) == [([first, None], True)]
        assert zero.sql("select count(*) from headrace.events") == [(1,)]
        assert zero.sql("select count(*) from headrace.idempotency") == [(1,)]
        other = psycopg.types.json.Jsonb([{**event, "payload": 2}])
        refused("QU022", zero.sql, ask, [other])

    def test_a_question_waits_for_an_open_publisher_of_the_key(self, zero: Shard) -> None:
        late, asking = Shard(zero.db), Shard(zero.db)
        late.begin()
        id = late.publish_event(idempotency_key="i")
        zero.give(slot("i"), 1)
        ask = "select ids from headrace.published_before('default', %s)"
        batch = psycopg.types.json.Jsonb([{"idempotency_key": "i"}])
        background = Background(asking.sql, ask, [batch])
        zero.db.wait_until_blocked(asking.connection)
        late.commit()
        assert background.result() == [([id],)]

    def test_it_is_asked_for_a_week(self, zero: Shard, one: Shard) -> None:
        move(zero, one, slot("i"))
        one.open_to_the_end(slot("i"))
        refused(WRONG_SHARD, one.publish_event, idempotency_key="i")
        one.db.advance(days=8)
        one.publish_event(idempotency_key="i")

    def test_a_home_that_knows_no_key_of_the_slot_need_not_be_asked(
        self, zero: Shard, one: Shard
    ) -> None:
        zero.publish_event(key=KEY)
        zero.finish(zero.poll())
        move(zero, one, SLOT)
        assert zero.left(SLOT).knows_keys is False
        assert one.open(SLOT, asks=False) is None
        one.publish_event(key=KEY, idempotency_key="i")

    def test_the_keys_of_a_slot_are_those_of_its_events(self, zero: Shard) -> None:
        zero.publish_event(key=KEY, idempotency_key="i")
        zero.finish(zero.poll())
        zero.give(SLOT, 1)
        assert zero.left(SLOT).knows_keys is True
        elsewhere = slot("i")
        assert elsewhere != SLOT
        zero.give(elsewhere, 1)
        assert zero.left(elsewhere).knows_keys is False

    def test_all_earlier_homes_are_asked(self, zero: Shard, one: Shard) -> None:
        move(zero, one, SLOT)
        one.open_to_the_end(SLOT)
        [given] = one.give(SLOT, 2)
        assert (given["version"], given["asked"]) == (2, [0])

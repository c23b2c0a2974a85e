"""Events that no node handles: reported, and, where a namespace wants it, dead-lettered when their time is up."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, refused
from tests.requirements import requirement

GRACE = 300


class Shop(Engine):
    """A namespace with nodes."""

    def node(self, *handles: str, name: str = "a-node") -> UUID:
        instance = uuid4()
        self.call(
            "register_node",
            namespace=self.namespace,
            node_id=name,
            instance=instance,
            handles=list(handles),
        )
        return instance

    def stop(self, instance: UUID, name: str = "a-node") -> None:
        self.call("unregister_node", namespace=self.namespace, node_id=name, instance=instance)

    def change(self, settings: str) -> None:
        self.call("change_namespace", namespace=self.namespace, settings=settings)

    def unhandled(self) -> list[tuple[Any, ...]]:
        rows = self.call("unhandled_types", namespace=self.namespace)
        return [(row.queue, row.type, row.deliveries) for row in rows]

    def minutes(self, count: int) -> None:
        """Time goes by, and somebody ticks."""
        for _ in range(count):
            self.db.advance(minutes=1)
            while self.tick().more:
                pass

    def dead(self) -> dict[int, str]:
        letters = self.call("dead_letters", namespace=self.namespace, limit=1000)
        return {letter.id: letter.reason for letter in letters}


class OfUnhandled:
    @pytest.fixture
    def shop(self, db: Database) -> Iterator[Shop]:
        shop = Shop(db)
        yield shop
        shop.change('{"unhandled": null, "unhandled_after": null}')

    @pytest.fixture
    def burying(self, shop: Shop) -> Shop:
        """The namespace, which dead-letters what nobody handles."""
        shop.change('{"unhandled": "dead_letter"}')
        shop.tick()
        return shop


class TestReport(OfUnhandled):
    @requirement("PG-25")
    def test_types_that_nobody_handles_are_told_with_what_waits(
        self, shop: Shop, db: Database
    ) -> None:
        shop.node("order.*", "user.created")
        shop.publish({"type": "order.paid"}, {"type": "user.created"})
        assert shop.unhandled() == []
        [first, _] = shop.publish({"type": "user.deleted"}, {"type": "user.deleted", "tags": ["a"]})
        shop.publish({"type": "other"}, {"type": "user.deleted", "priority": 1})
        assert shop.unhandled() == [("main", "other", 1), ("main", "user.deleted", 3)]
        [_, deleted] = shop.call("unhandled_types", namespace="default")
        assert deleted.oldest_at == shop.event(first).created_at
        assert deleted.since is None

    def test_packs_are_counted_by_their_members(self, shop: Shop) -> None:
        shop.publish(*[{"type": "bulk"}] * 300)
        assert shop.unhandled() == [("main", "bulk", 300)]

    def test_of_an_ordering_key_one_waits_for_a_handler(self, shop: Shop) -> None:
        shop.publish(*[{"type": "step", "key": "k"}] * 3, {"type": "step", "key": "l"})
        assert shop.unhandled() == [("main", "step", 2)]
        shop.claim(types=["step"])
        assert shop.unhandled() == [("main", "step", 1)]

    def test_what_is_in_work_or_delayed_does_not_wait_for_a_handler(self, shop: Shop) -> None:
        shop.publish({"type": "a"}, {"type": "b", "delay": 60})
        shop.claim()
        assert shop.unhandled() == []

    @requirement("PG-24")
    def test_a_node_that_has_stopped_or_is_not_heard_of_handles_nothing(
        self, shop: Shop, db: Database
    ) -> None:
        shop.publish({"type": "a"}, {"type": "b"})
        instance = shop.node("a")
        shop.node("b", name="another")
        shop.stop(instance)
        assert shop.unhandled() == [("main", "a", 1)]
        db.advance(seconds=91)
        assert shop.unhandled() == [("main", "a", 1), ("main", "b", 1)]

    def test_signs_in_a_type_mean_themselves(self, shop: Shop) -> None:
        shop.node("a_c", "100%")
        shop.publish({"type": "abc"}, {"type": "a_c"}, {"type": "1000"})
        assert shop.unhandled() == [("main", "1000", 1), ("main", "abc", 1)]

    def test_a_namespace_that_is_not_there_is_told(self, shop: Shop) -> None:
        with refused("QU010"):
            shop.call("unhandled_types", namespace="nowhere")


class TestKeeping(OfUnhandled):
    def test_unless_it_is_wanted_they_wait_for_ever(self, shop: Shop) -> None:
        [event] = shop.publish({"type": "a"})
        shop.minutes(10)
        assert (shop.dead(), shop.event(event).status) == ({}, "PENDING")


class TestBurying(OfUnhandled):
    @requirement("PG-25", "PG-26")
    def test_after_a_while_they_are_dead_letters_and_say_why(self, burying: Shop) -> None:
        [event] = burying.publish({"type": "order.paid", "payload": {"n": 1}, "tags": ["a"]})
        burying.minutes(5)
        assert burying.event(event).status == "PENDING"
        burying.minutes(1)
        letter = burying.dead_letter(event)
        assert letter.reason == "No handler for event order.paid"
        assert (letter.status, letter.payload, letter.tags) == ("FAILED", {"n": 1}, ["a"])
        assert (letter.attempts, letter.failures, letter.crashes) == (0, 0, 0)
        *_, entry = burying.trail(event)
        assert (entry.action, entry.error_message, entry.worker_id) == (
            "DEAD_LETTERED",
            "No handler for event order.paid",
            "headrace",
        )
        assert burying.stats(period="1 hour").dead_lettered == 1

    def test_what_is_handled_stays(self, burying: Shop, db: Database) -> None:
        instance = burying.node("a")
        [kept, dead] = burying.publish({"type": "a"}, {"type": "b"})
        for _ in range(8):
            burying.minutes(1)
            burying.call(
                "touch_node_heartbeat", namespace="default", node_id="a-node", instance=instance
            )
        assert set(burying.dead()) == {dead}
        assert burying.event(kept).status == "PENDING"

    def test_a_handler_that_comes_in_time_saves_them(self, burying: Shop) -> None:
        [event] = burying.publish({"type": "a"})
        burying.minutes(4)
        instance = burying.node("*")
        burying.minutes(1)
        burying.stop(instance)
        burying.minutes(5)
        assert burying.event(event).status == "PENDING"
        burying.minutes(1)
        assert set(burying.dead()) == {event}

    def test_nodes_that_stop_for_a_moment_have_not_been_away(
        self, burying: Shop, db: Database
    ) -> None:
        [event] = burying.publish({"type": "a"})
        db.advance(hours=1)  # it waits long, because there is much to do
        for _ in range(10):
            instance = burying.node("a")
            burying.minutes(1)
            burying.stop(instance)
        assert burying.event(event).status == "PENDING"

    def test_an_outage_does_not_count(self, burying: Shop, db: Database) -> None:
        """The first tick after it comes before the first node."""
        [event] = burying.publish({"type": "a"})
        burying.minutes(3)
        db.advance(hours=2)
        burying.minutes(5)
        assert burying.event(event).status == "PENDING"
        burying.minutes(1)
        assert set(burying.dead()) == {event}

    @requirement("PG-25")
    def test_the_time_holds_to_the_tick(self, burying: Shop, db: Database) -> None:
        burying.change('{"unhandled_after": 90}')

        def tick() -> None:
            db.sql(
                "delete from headrace.upkeep where task = 'unhandled'"
            )  # the last look took no time
            burying.tick()

        db.advance(seconds=7)
        [event] = burying.publish({"type": "a"})
        tick()
        db.advance(seconds=45)
        tick()
        db.advance(seconds=40)
        tick()
        assert burying.event(event).status == "PENDING"
        db.advance(seconds=6)
        tick()
        assert burying.event(event).status == "FAILED"

    def test_looks_are_a_minute_apart_at_most(self, burying: Shop, db: Database) -> None:
        burying.publish({"type": "a"})
        burying.tick()
        pause = "select coalesce(max(next_at) - headrace._now(), '0') <= '1 minute' from headrace.upkeep where task = 'unhandled'"
        assert db.sql(pause) == [(True,)]

    def test_a_delivery_waits_as_long_as_its_type(self, burying: Shop) -> None:
        [first] = burying.publish({"type": "a"})
        burying.minutes(4)
        [second] = burying.publish({"type": "a"})
        burying.minutes(3)
        assert set(burying.dead()) == {first}
        burying.minutes(3)
        assert set(burying.dead()) == {first, second}

    def test_how_long_is_a_setting(self, burying: Shop) -> None:
        burying.change('{"unhandled_after": 60}')
        [event] = burying.publish({"type": "a"})
        burying.minutes(2)
        assert set(burying.dead()) == {event}
        [listed] = burying.call("namespaces")
        assert listed.unhandled_after.total_seconds() == 60

    @pytest.mark.parametrize("value", ['"1 minute"', "-1", "1e9", "true", "[]"])
    def test_what_is_no_time_is_refused(self, burying: Shop, value: str) -> None:
        with refused("QU001", match="unhandled_after"):
            burying.change(f'{{"unhandled_after": {value}}}')

    def test_packs_go_with_all_their_members(self, burying: Shop, db: Database) -> None:
        events = burying.publish(*[{"type": "bulk"}] * 2_600)
        burying.db.advance(minutes=1)
        burying.tick()
        burying.minutes(6)
        assert {place for [place] in db.placement().values()} == {"dead"}
        assert len(db.placement()) == len(events)

    def test_a_tick_buries_some_and_says_that_there_is_more(self, burying: Shop) -> None:
        for _ in range(6):
            burying.publish(*[{"type": "a"}] * 250)
        burying.minutes(5)
        burying.db.advance(minutes=1)
        assert burying.tick().more
        ready = burying.stats().ready
        assert 0 < ready < 1500
        assert not burying.tick().more
        assert burying.stats().ready == 0

    def test_keys_go_on_with_what_is_handled(self, burying: Shop, db: Database) -> None:
        instance = burying.node("done")
        steps = burying.publish(
            {"type": "lost", "key": "k"},
            {"type": "lost", "key": "k"},
            {"type": "done", "key": "k"},
            {"type": "lost", "key": "k"},
        )
        burying.minutes(8)
        assert set(burying.dead()) == set(steps[:2])
        [claimed] = burying.poll(10, types=["done"])
        assert claimed.id == steps[2]
        burying.end("complete", claimed)
        burying.stop(instance)
        burying.minutes(8)
        assert set(burying.dead()) == {*steps[:2], steps[3]}
        assert db.sql("select count(*) from headrace.active") == [(0,)]

    def test_one_that_came_back_keeps_its_counters(self, burying: Shop, db: Database) -> None:
        burying.publish({"type": "a"})
        claimed = burying.claim()
        burying.end("fail", claimed, retry_in="1 second")
        burying.minutes(8)
        letter = burying.dead_letter(claimed.id)
        assert (letter.attempts, letter.failures) == (1, 1)

    def test_a_suspect_is_buried_too(self, burying: Shop, db: Database) -> None:
        [event] = burying.publish({"type": "a"})
        burying.poll(lease="1 second")
        burying.minutes(8)
        assert set(burying.dead()) == {event}
        assert burying.dead_letter(event).crashes == 0

    def test_what_is_in_work_is_left_alone(self, burying: Shop) -> None:
        burying.publish({"type": "a"})
        claimed = burying.claim(lease="1 day")
        burying.minutes(8)
        assert burying.dead() == {}
        burying.end("complete", claimed)

    def test_what_is_paused_waits_on_purpose(self, burying: Shop) -> None:
        [event] = burying.publish({"type": "a"})
        burying.call("pause", namespace="default")
        burying.minutes(8)
        assert burying.dead() == {}
        burying.call("resume", namespace="default")
        burying.minutes(8)
        assert set(burying.dead()) == {event}

    def test_it_is_redriven_like_any_dead_letter(self, burying: Shop) -> None:
        [event] = burying.publish({"type": "a"})
        burying.minutes(6)
        burying.call("redrive", namespace="default")
        assert burying.claim().id == event

    def test_one_whose_event_was_deleted_by_hand_says_so(self, burying: Shop, db: Database) -> None:
        [event] = burying.publish({"type": "a"})
        db.sql("delete from headrace.events where id = %s", [event])
        burying.minutes(6)
        assert burying.dead() == {event: "Its event is no longer stored"}

    def test_what_a_claim_has_locked_is_passed_by(self, burying: Shop, db: Database) -> None:
        [held, free] = burying.publish({"type": "a"}, {"type": "a"})
        burying.minutes(5)
        other = db.connect(autocommit=False)
        other.execute("select from headrace.ready where event = %s for update", [held])
        burying.minutes(1)
        assert set(burying.dead()) == {free}
        other.rollback()
        burying.minutes(1)
        assert set(burying.dead()) == {held, free}

    def test_a_neighbour_that_keeps_them_keeps_them(self, burying: Shop, db: Database) -> None:
        burying.call("create_namespace", namespace="neighbour")
        neighbour = Shop(db, "neighbour")
        [event] = neighbour.publish({"type": "a"})
        burying.minutes(8)
        assert neighbour.event(event).status == "PENDING"
        assert neighbour.dead() == {}
        burying.call("delete_namespace", namespace="neighbour", with_deliveries=True)
        burying.minutes(1)

"""One client of several servers: each verb finds its shards."""

import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

import headrace
from headrace import InvalidInput, NewEvent, NotStored, QueueDraining
from headrace.driver.borrow import Borrowed, Borrows
from headrace.engine.shards import SLOTS, slot_of
from headrace.errors import PartlyStored, ShardMismatch, WrongShard
from headrace.install.migrate import migrate
from tests.client.clients import Client
from tests.client.shards import Shards, down, key_on, rename
from tests.database import Database, Server
from tests.engine.races_helpers import Background


@pytest.fixture
def db(server: Server) -> Iterator[Shards]:
    shards = Shards(server, 3)
    yield shards
    shards.close()


def shards_of(ids: list[int]) -> list[int]:
    return [id % 64 for id in ids]


def test_every_verb_of_the_list_says_how_it_finds_its_shards() -> None:
    routes = {n: one.route for n, one in vars(Borrows).items() if isinstance(one, Borrowed)}
    assert len(routes) > 60
    assert all(map(callable, routes.values()))
    for kind, sharded in (
        (headrace.EventQueue, headrace.client.ShardedQueue),
        (headrace.AsyncEventQueue, headrace.async_client.AsyncShardedQueue),
    ):
        own = {name for name in vars(kind) if not name.startswith("_")} - {"close"}
        asks_no_shard = {"decode"}
        assert own - asks_no_shard <= vars(sharded).keys()


class TestPublishing:
    def test_events_without_a_key_go_to_any_shard_and_are_found_by_their_ids(
        self, client: Client
    ) -> None:
        queue = client.queue()
        ids = [queue.publish("a", n).id for n in range(6)]
        assert Counter(shards_of(ids)) == {0: 2, 1: 2, 2: 2}
        assert [queue.event(id).payload for id in ids] == list(range(6))
        assert queue.cancel(ids[0]).status == "CANCELLED"
        assert [entry.action for entry in queue.log(ids[0])] == ["EMITTED", "CANCELLED"]

    def test_a_key_has_a_home(self, client: Client) -> None:
        queue = client.queue()
        for number in range(3):
            key = key_on(number)
            assert queue.shard_of(key) == number
            ids = [queue.publish("a", key=key).id for _ in range(3)]
            ids.append(queue.publish("a", idempotency_key=key).id)
            assert shards_of(ids) == [number] * 4
        assert queue.publish("a", idempotency_key=key_on(2)).id == ids[-1]

    def test_the_ordering_key_decides_before_the_idempotency_key(self, client: Client) -> None:
        queue = client.queue()
        event = queue.publish(NewEvent("a", key=key_on(1), idempotency_key=key_on(2)))
        assert event.id % 64 == 1

    def test_a_batch_without_keys_goes_to_one_shard(self, client: Client) -> None:
        queue = client.queue()
        ids = queue.publish_many(("a", n) for n in range(2000))
        assert len(set(shards_of(ids))) == 1
        assert queue.event(ids[1999]).payload == 1999

    def test_a_batch_with_keys_is_split_by_their_homes(self, client: Client) -> None:
        queue = client.queue()
        events = [{"payload": n, "key": key_on(n % 3)} for n in range(30)] + [("a", 30)]
        ids = queue.publish_many(events)
        assert shards_of(ids[:30]) == [n % 3 for n in range(30)]
        assert [queue.event(id).payload for id in ids] == list(range(31))

    def test_a_batch_of_which_a_part_fails_says_what_is_stored(self, client: Client) -> None:
        queue = client.queue()
        client.call(client.unwrapped(queue).shards[1].drain)
        events = [{"key": key_on(0)}, {"key": key_on(1)}, {"key": key_on(0)}]
        with pytest.raises(PartlyStored, match="2 of 3 events are stored") as error:
            queue.publish_many(events)
        assert isinstance(error.value.__cause__, QueueDraining)
        first, second, third = error.value.ids
        assert (first % 64, second, third % 64) == (0, None, 0)
        with pytest.raises(QueueDraining):  # nothing is stored, and the error is the shard's
            queue.publish_many(events[1:2])

    def test_the_position_of_what_is_wrong_is_that_in_the_whole_batch(self, client: Client) -> None:
        queue = client.queue()
        events: list[Any] = [
            {"key": key_on(1)},
            {"key": key_on(0)},
            {"key": key_on(1), "priority": 10},
        ]
        with pytest.raises(InvalidInput) as error:
            queue.publish_many(events)
        assert error.value.position == 2

    def test_a_connection_is_published_into_or_the_key_is_refused(
        self, client: Client, db: Shards
    ) -> None:
        queue, connection = client.queue(), client.connection(autocommit=True)
        assert queue.publish("a", connection=connection).id % 64 == 0
        assert queue.publish("a", key=key_on(0), connection=connection).id % 64 == 0
        with pytest.raises(WrongShard, match="its home on shard 1") as error:
            client.call(
                client.unwrapped(queue).shards[0].publish, "a", key=key_on(1), connection=connection
            )
        assert error.value.home == 1
        id = queue.publish_many([("a", 1)], connection=connection)[0]
        assert db.parts[0].sql("select true from headrace.events where id = %s", [id])


class TestClaims:
    def test_a_poll_takes_from_all_shards(self, client: Client) -> None:
        queue = client.queue()
        ids = {queue.publish("a").id for _ in range(9)}
        claimed = queue.poll(max_events=9)
        assert {one.id for one in claimed} == ids
        assert queue.poll(max_events=2) == []
        assert queue.poll_one() is None
        assert [state.state for state in queue.extend(claimed)] == ["held"] * 9
        queue.complete(claimed)
        assert queue.stats().completed == 9

    def test_verdicts_come_in_the_order_of_the_results(self, client: Client) -> None:
        queue = client.queue()
        for _ in range(6):
            queue.publish("a")
        claimed = queue.poll(max_events=6)
        queue.complete(claimed[1])
        results = [
            headrace.Failed(one, "x") if n % 2 else headrace.Completed(one)
            for n, one in enumerate(claimed)
        ]
        verdicts = queue.finish(results)
        assert [v.verdict for v in verdicts] == ["counted", "conflict", *["counted"] * 4]
        with pytest.raises(headrace.FinishConflict) as error:
            queue.complete(claimed)
        assert set(error.value.ids) == {claimed[n].id for n in (3, 5)}

    def test_a_claim_is_finalized_by_its_bare_id(self, client: Client) -> None:
        queue = client.queue()
        id = queue.publish("a").id
        queue.poll(max_events=5)
        assert queue.finalize(id).action == "COMPLETED"


class TestLooking:
    def test_pages_of_events_skip_nothing_and_tell_nothing_twice(self, client: Client) -> None:
        queue = client.queue()
        ids = [queue.publish("a", n).id for n in range(20)]
        page, found = queue.events(limit=6), []
        assert page.total == 20
        while page.events:
            found += [event.id for event in page.events]
            if page.cursor is None:
                break
            page = queue.events(limit=6, before=page.cursor)
        assert found == ids[::-1]
        by_id = queue.events(limit=6, before=found[5])
        assert [event.id for event in by_id.events] == found[6:12]
        oldest = queue.events(limit=6, oldest_first=True)
        assert [event.id for event in oldest.events] == ids[:6]
        more = queue.events(limit=6, oldest_first=True, after=oldest.cursor)
        assert [event.id for event in more.events] == ids[6:12]
        with pytest.raises(InvalidInput, match="not the cursor of a page"):
            queue.events(before="nonsense")

    def test_the_log_of_all_shards_is_followed(self, client: Client) -> None:
        queue = client.queue()
        ids = [queue.publish("a").id for _ in range(10)]
        found, page = [], queue.log_since(limit=4)
        while page.entries:
            found += [entry.event_id for entry in page.entries]
            page = queue.log_since(page.cursor, limit=4, mark=page.mark)
        assert sorted(found) == sorted(ids)
        last = queue.publish("a").id
        assert [e.event_id for e in queue.log_since(page.cursor).entries] == [last]
        with pytest.raises(InvalidInput, match="after the cursor of a page"):
            queue.log_since(7)

    def test_a_cursor_of_the_log_knows_no_shard_that_was_added(
        self, client: Client, db: Shards
    ) -> None:
        two = client.queue_at(db.dsn[:2])
        two.publish("a")
        page = two.log_since()
        queue = client.queue()
        client.call(client.unwrapped(queue).shards[2].publish, "b")
        assert [entry.type for entry in queue.log_since(page.cursor).entries] == ["b"]

    def test_events_are_read_again_in_the_order_of_time(self, client: Client) -> None:
        queue = client.queue()
        ids = [queue.publish("a").id for _ in range(9)]
        assert [event.id for event in queue.replay()] == ids
        queue.complete(queue.poll(max_events=9))
        checkpoint = queue.checkpoint()
        more = [queue.publish("a").id for _ in range(4)]
        assert [event.id for event in queue.replay(from_checkpoint=checkpoint)] == more

    def test_dead_letters_of_all_shards_are_told_by_kind_and_redriven(self, client: Client) -> None:
        queue = client.queue()
        for _ in range(6):
            queue.publish("a", max_retries=0)
        for one in queue.poll(max_events=6):
            queue.fail(one, "the same")
        [group] = queue.dead_letter_groups()
        assert group.letters == 6
        letters = queue.dead_letters(limit=4)
        rest = queue.dead_letters(limit=4, before=letters.cursor)
        assert len({letter.id for letter in [*letters, *rest]}) == 6
        told: list[int] = []
        assert queue.redrive([letters[0].id, letters[1].id], progress=told.append) == 2
        assert told[-1] == 2
        assert queue.redrive(fingerprint=group.fingerprint, rate=100) == 4

    def test_counts_are_summed(self, client: Client) -> None:
        queue = client.queue()
        for _ in range(5):
            queue.publish("a")
        assert (queue.stats().ready, queue.queue().depth, queue.state().total) == (5, 5, 5)
        assert queue.low_water().lag == 5
        assert [one.depth for one in queue.queues()] == [5]

    def test_what_several_shards_say_in_the_same_words_is_said_once(self, client: Client) -> None:
        queue = client.queue()
        for number in range(3):
            queue.publish("a", key=key_on(number))
        queue.pause()
        codes = [one.code for one in queue.attention()]
        assert codes.count("paused") == 1


class TestAsking:
    def test_who_spread_the_slots_of_new_shards_asks_nobody_about_keys(
        self, client: Client, db: Shards
    ) -> None:
        queue = client.queue()
        slots = [slot_of("default", key_on(number)) for number in range(3)]
        client.call(client.unwrapped(queue).move_slots, slots, 2)
        homes = client.unwrapped(queue).fleet.homes
        assert [homes.of_slot(slot).home for slot in slots] == [2, 2, 2]
        assert [homes.of_slot(slot).ask for slot in slots] == [(), (), ()]


class TestSettings:
    def test_the_bounds_of_limits_are_divided_among_the_shards(self, client: Client) -> None:
        queue = client.queue()
        limits = [{"scope": "queue", "at_once": 10, "rate": 5, "per": 60}]
        queue.create_queue("mail", limits=[*limits, {"scope": "key", "rate": 2, "per": 60}])
        parts = client.unwrapped(queue).shards.values()
        shares = [client.call(one.queue, "mail").limits for one in parts]
        assert [its[0].at_once for its in shares] == [4, 3, 3]
        assert [its[0].rate for its in shares] == [2, 2, 1]
        assert [its[1].rate for its in shares] == [2, 2, 2]  # a key has one home
        [whole, key] = queue.queue("mail").limits
        assert (whole.at_once, whole.rate, key.rate) == (10, 5, 2)
        with pytest.raises(InvalidInput, match="at_once 2, and it is divided among 3 shards"):
            queue.change_queue("mail", limits=[{"scope": "queue", "at_once": 2}])
        queue.change_queue("mail", limits=None)
        assert queue.queue("mail").limits is None

    def test_settings_go_to_all_shards(self, client: Client) -> None:
        queue = client.queue()
        assert queue.create_queue("mail", types=["mail.*"]) is True
        assert queue.create_queue("mail", types=["mail.*"]) is False
        queue.change_queue("mail", max_retries=7)
        parts = client.unwrapped(queue).shards.values()
        assert [client.call(one.queue, "mail").max_retries for one in parts] == [7, 7, 7]
        queue.pause()
        assert {client.call(one.queue).state for one in parts} == {"paused"}
        token = queue.create_token("ci", ["publish"])
        assert token.startswith("hr_")
        assert [one.name for one in queue.tokens()] == ["ci"]
        digests = [
            list(part.sql("select digest from headrace.api_tokens")) for part in client.db.parts
        ]
        assert digests[0] == digests[1] == digests[2]
        queue.revoke_token("ci")
        queue.delete_queue("mail")
        assert [one.name for one in queue.queues()] == ["main"]
        with pytest.raises(headrace.QueueNotFound):
            queue.queue("mail")

    def test_a_schedule_has_one_home_and_stays_there(self, client: Client) -> None:
        queue = client.queue()
        names = [f"nightly-{n}" for n in range(6)]
        for name in names * 2:
            queue.schedule_task(name, "0 3 * * *")
        assert [task.name for task in queue.schedules()] == names
        counts = [
            part.sql("select count(*) from headrace.scheduled_tasks")[0][0]
            for part in client.db.parts
        ]
        assert sum(counts) == 6
        assert sum(count > 0 for count in counts) > 1
        for name in names:
            assert queue.run_schedule(name).id
            queue.pause_schedule(name)
            queue.remove_schedule(name)
        with pytest.raises(headrace.ScheduleNotFound):
            queue.pause_schedule(names[0])
        with pytest.raises(InvalidInput, match="no ordering key"):
            queue.schedule_task("x", "0 3 * * *", key="k")

    def test_a_queue_leaves_one_shard_at_a_time(self, client: Client) -> None:
        queue = client.queue()
        with pytest.raises(InvalidInput, match="shard by shard"):
            list(queue.export_state())


class TestWhatDoesNotFit:
    def test_a_shard_that_is_named_twice_is_refused(self, client: Client, db: Shards) -> None:
        with pytest.raises(ShardMismatch, match="both shard 1"):
            client.queue_at([*db.dsn, db.dsn[1]])

    def test_a_database_that_is_no_shard_is_refused(
        self, client: Client, db: Shards, one_db: Database
    ) -> None:
        with pytest.raises(
            ShardMismatch, match="is no shard: `headrace migrate --stride 64` makes it shard 0"
        ):
            client.queue_at([db.dsn[0], one_db.dsn])

    def test_what_is_meant_for_one_server_is_refused(self, client: Client, db: Shards) -> None:
        with pytest.raises(InvalidInput, match="migrated one by one"):
            client.queue(migrate=True)
        with pytest.raises(InvalidInput, match="data folder"):
            client.queue(data="somewhere")
        with pytest.raises(InvalidInput, match="empty list"):
            client.queue_at([])

    def test_another_stride_is_refused(
        self, client: Client, db: Shards, empty_db: Database
    ) -> None:
        migrate(empty_db.connect(), stride=8, shard=3)
        with pytest.raises(ShardMismatch, match="different strides: 64 and 8"):
            client.queue_at([db.dsn[0], empty_db.dsn])

    def test_a_server_that_is_another_shard_after_a_while_is_refused(
        self, client: Client, db: Shards
    ) -> None:
        queue = client.queue(timeout=1)
        id = next(queue.publish("a", key=key_on(1)).id for _ in range(1))
        one, two = db.parts[1], db.parts[2]
        with psycopg.connect(one.server.dsn, autocommit=True) as admin:
            rename(admin, one.name, f"{one.name}_away")
            rename(admin, two.name, one.name)
            with pytest.raises((ShardMismatch, NotStored, headrace.OutcomeUnknown)):
                queue.event(id)
            with pytest.raises(ShardMismatch, match=r"was shard 1 of 64 .* now it is shard 2"):
                queue.event(id)
            with pytest.raises(ShardMismatch):
                queue.publish("a", key=key_on(1))
            rename(admin, one.name, two.name)
            rename(admin, f"{one.name}_away", one.name)
        one.wait_for(lambda: answers(lambda: queue.event(id).id == id))


def answers(question: Any) -> bool:
    try:
        return bool(question())
    except (headrace.Unavailable, ShardMismatch):
        return False


class TestAShardThatIsDown:
    def test_it_costs_its_keys_and_its_events_and_nothing_else(
        self, client: Client, db: Shards
    ) -> None:
        queue = client.queue(timeout=1)
        there = queue.publish("a", key=key_on(1)).id
        with down(db.parts[1]):
            for _ in range(6):
                answers(lambda: queue.publish("a"))  # one may be cut off in the middle
            assert set(shards_of([queue.publish("a").id for _ in range(6)])) == {0, 2}
            assert [missing.split()[:2] for missing in client.unwrapped(queue).missing] == [
                ["shard", "1"]
            ]
            with pytest.raises(NotStored):
                queue.publish("a", key=key_on(1))
            with pytest.raises(NotStored):
                queue.publish_many([{"key": key_on(1)}])
            with pytest.raises(NotStored):
                queue.event(there)
            assert queue.publish("a", key=key_on(2)).id % 64 == 2
            found = queue.events(limit=50)
            assert there not in [event.id for event in found.events]
            assert [missing.split()[:2] for missing in found.missing] == [["shard", "1"]]
            assert not found.total_is_exact
            assert queue.queues().missing == found.missing
            assert queue.poll()
            with pytest.raises(NotStored):
                queue.pause()
        db.wait_for(lambda: answers(lambda: queue.event(there)))
        db.wait_for(lambda: not queue.events().missing)
        queue.resume()

    def test_a_client_opens_without_it_and_finds_it_later(self, client: Client, db: Shards) -> None:
        with down(db.parts[1]):
            queue = client.queue(timeout=1)
            [missing] = client.unwrapped(queue).missing
            assert missing.endswith(f"/{db.parts[1].name}")
            queue.publish("a")
            assert queue.events().missing == (missing,)
            with pytest.raises(NotStored, match="no answer from"):
                queue.publish("a", key=key_on(1))
            with pytest.raises(NotStored, match="no answer from"):
                queue.event(1)
            with pytest.raises(NotStored, match="on all shards"):
                queue.pause()
        db.wait_for(lambda: not client.unwrapped(queue).missing)
        assert queue.publish("a", key=key_on(1)).id % 64 == 1

    def test_a_client_opens_only_if_one_answers(self, client: Client, db: Shards) -> None:
        with pytest.raises(psycopg.OperationalError):
            client.queue_at([f"{dsn} dbname=nowhere" for dsn in db.dsn[:2]])

    def test_a_schedule_is_not_made_while_a_shard_may_have_it(
        self, client: Client, db: Shards
    ) -> None:
        with down(db.parts[1]):
            queue = client.queue(timeout=1)
            with pytest.raises(NotStored, match="may have the schedule 'x'"):
                queue.schedule_task("x", "0 3 * * *")


class TestMovingSlots:
    def test_slots_are_spread_over_new_shards(self, client: Client, server: Server) -> None:
        names = [server.create_database() for _ in range(2)]
        parts = [Database(server, name) for name in names]
        for number, part in enumerate(parts):
            with part.connect() as connection:
                migrate(connection, stride=64, shard=number)
        queue = client.queue_at([part.dsn for part in parts])
        first = queue.publish("a", idempotency_key="i")
        raw = client.unwrapped(queue)
        assert [state.slots for state in client.call(raw.states)] == [SLOTS, 0]
        moves = client.call(raw.spread_slots)
        assert all(move.is_over for move in moves)
        assert [state.slots for state in client.call(raw.states)] == [SLOTS // 2] * 2
        assert client.call(raw.spread_slots) == []
        assert queue.publish("a", idempotency_key="i").id == first.id
        assert {queue.publish("a", key=f"k{n}").id % 64 for n in range(20)} == {0, 1}
        queue.close()
        for part in parts:
            part.close()
            server.drop_database(part.name)

    def test_an_old_map_is_corrected_by_the_refusal(self, client: Client) -> None:
        old, mover = client.queue(), client.queue()
        key = key_on(1)
        old.publish("a", key=key)
        [claimed] = old.poll(max_events=5)
        old.complete(claimed)
        raw = client.unwrapped(mover)
        client.call(raw.move_slots, [slot_of("default", key)], 2)
        assert (old.shard_of(key), mover.shard_of(key)) == (1, 2)
        assert old.publish("a", key=key).id % 64 == 2
        assert old.shard_of(key) == 2
        assert shards_of(old.publish_many([{"key": key}, {"key": key_on(0)}])) == [2, 0]

    def test_an_old_map_is_corrected_in_the_middle_of_a_batch(self, client: Client) -> None:
        old, mover = client.queue(), client.queue()
        key = key_on(1)
        client.call(client.unwrapped(mover).move_slots, [slot_of("default", key)], 2)
        ids = old.publish_many([{"key": key_on(n % 3), "payload": n} for n in range(6)])
        assert shards_of(ids) == [0, 2, 2] * 2
        assert [old.event(id).payload for id in ids] == list(range(6))

    def test_a_client_that_was_not_told_of_a_shard_publishes_none_of_its_keys(
        self, client: Client, db: Shards
    ) -> None:
        key = key_on(1)
        few = client.queue_at(db.dsn[1:])
        with pytest.raises(NotStored, match="shard 0, which was not named to this client"):
            few.publish("a", key=key_on(0))
        whole = client.unwrapped(client.queue())
        client.call(client.unwrapped(few).publish, "a", idempotency_key=key)
        client.call(whole.move_slots, [slot_of("default", key)], 2)
        lone = client.queue_at([db.dsn[0], db.dsn[2]])
        with pytest.raises(NotStored, match="may be one of shard 1, which was not named"):
            lone.publish("a", idempotency_key=key)

    @pytest.mark.parametrize("many", [False, True])
    def test_an_idempotency_key_is_looked_up_where_it_was_before(
        self, client: Client, many: bool
    ) -> None:
        old, mover = client.queue(), client.queue()
        key = key_on(1)
        first = old.publish("a", 1, idempotency_key=key)
        raw = client.unwrapped(mover)
        client.call(raw.move_slots, [slot_of("default", key)], 2)
        fresh = client.queue()
        for queue in (old, mover, fresh):
            if many:
                events = [{"type": "a", "payload": 1, "idempotency_key": key}]
                assert queue.publish_many(events) == [first.id]
            else:
                again = queue.publish("a", 1, idempotency_key=key)
                assert (again.id, again.repeated, again.created_at) == (
                    *(first.id, True, first.created_at),
                )
            with pytest.raises(headrace.IdempotencyConflict):
                queue.publish("a", 2, idempotency_key=key)
        assert len(fresh.events().events) == 1

    def test_a_move_waits_for_what_is_in_progress_and_goes_on_later(self, client: Client) -> None:
        queue = client.queue()
        key = key_on(1)
        first = queue.publish("a", key=key)
        [claimed] = queue.poll(max_events=5)
        raw = client.unwrapped(queue)
        told: list[Any] = []
        slots = [slot_of("default", key)]
        [moved] = client.call(raw.move_slots, slots, 2, timeout=0.05, progress=told.append)
        assert (moved.is_over, moved.left.held, told[0].left.held) == (False, 1, 1)
        second = queue.publish("a", key=key)
        assert second.id % 64 == 2
        assert queue.poll(max_events=5) == []
        assert [state.arriving for state in client.call(raw.states)] == [0, 0, 1]
        assert claimed.id == first.id
        queue.complete(claimed)
        [moved] = client.call(raw.move_slots, slots, 2)
        assert moved.is_over
        assert [one.id for one in queue.poll(max_events=5)] == [second.id]
        assert client.call(raw.move_slots, slots, 2) == []

    def test_a_move_that_was_cut_off_between_two_shards_goes_on(self, client: Client) -> None:
        queue = client.queue()
        key = key_on(1)
        slots = [slot_of("default", key)]
        raw = client.unwrapped(queue)
        client.db.parts[1].sql("select headrace.give_slots(%s, 2)", [slots])
        publishing = Background(queue.publish, "a", key=key)
        mover = client.queue()
        [moved] = client.call(client.unwrapped(mover).move_slots, slots, 2)
        assert moved.is_over
        assert publishing.result().id % 64 == 2
        assert client.call(raw.states)[2].slots > client.call(raw.states)[1].slots

    def test_slots_move_under_load_and_no_key_is_handed_out_of_order(self, db: Shards) -> None:
        """Publishers with maps of their own, workers, and slots that go round and round."""
        load = Load(db, [f"key-{n}" for n in range(12)])
        slots = sorted({slot_of("default", key) for key in load.keys})
        with load.running(), headrace.connect(db.dsn, pool_size=2) as mover:
            for round in range(6):
                if load.over.is_set():
                    break
                moves = mover.move_slots(slots, round % 3, timeout=30)
                assert all(move.is_over for move in moves)
        for key in load.keys:
            assert load.handled[key] == list(range(len(load.published[key]))), key
            assert len(set(load.published[key])) == len(load.published[key])
        assert len({id % 64 for ids in load.published.values() for id in ids}) == 3


class Load:
    """Publishers that number the events of each key, and workers that note what they get."""

    def __init__(self, db: Shards, keys: list[str]) -> None:
        self.db, self.keys = db, keys
        self.published: dict[str, list[int]] = defaultdict(list)
        self.handled: dict[str, list[int]] = defaultdict(list)
        self.over = threading.Event()
        self._faults: list[BaseException] = []
        self._noting = threading.Lock()
        half = len(keys) // 2
        self._publishers = [
            self._thread(self._publish, part) for part in (keys[:half], keys[half:])
        ]
        self._workers = [self._thread(self._work) for _ in range(2)]

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [*self._publishers, *self._workers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join(60)
        assert self._faults == []

    def _publish(self, keys: list[str]) -> None:
        with headrace.connect(self.db.dsn, pool_size=2) as queue:
            for n in itertools.takewhile(lambda _: not self.over.is_set(), itertools.count()):
                for key in keys:
                    payload = {"key": key, "n": n}
                    event = queue.publish("a", payload, key=key, idempotency_key=f"{key}/{n}")
                    self.published[key].append(event.id)

    def _work(self) -> None:
        with headrace.connect(self.db.dsn, pool_size=2) as queue:
            while not self._is_done(queue):
                for one in queue.poll(max_events=5):
                    with self._noting:
                        self.handled[one.payload["key"]].append(one.payload["n"])
                    queue.complete(one)

    def _is_done(self, queue: Any) -> bool:
        at_work = any(thread.is_alive() for thread in self._publishers)
        return self.over.is_set() and not at_work and queue.stats().ready == 0

    def _thread(self, target: Any, *given: Any) -> threading.Thread:
        def run() -> None:
            try:
                target(*given)
            except BaseException as error:
                self._faults.append(error)
                self.over.set()
                raise

        return threading.Thread(target=run)

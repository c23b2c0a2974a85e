"""The public client of pgmq, from PyPI, works with Headrace as it does with pgmq: sync and async."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from pgmq import PGMQueue
from pgmq.async_queue import PGMQueue as AsyncPGMQueue
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

from tests.database import Database
from tests.requirements import requirement

pytestmark = [
    requirement("PG-12"),
    pytest.mark.filterwarnings("ignore:list_queues"),  # the client's, about its own past
]


@pytest.fixture
def queue(db: Database) -> Iterator[PGMQueue]:
    with ConnectionPool(db.dsn, min_size=1, max_size=2) as pool:
        queue = PGMQueue(pool=pool, init_extension=False)
        queue.create_queue("orders")
        yield queue


def later(db: Database, **duration: float) -> datetime:
    [(now,)] = db.sql("select headrace._now()")
    return now + timedelta(**duration)


class TestTheSyncClient:
    def test_a_message_is_sent_read_and_deleted(self, queue: PGMQueue) -> None:
        id = queue.send("orders", {"order": 42})
        message = queue.read("orders", vt=30)
        assert (message.msg_id, message.message, message.read_ct, message.headers) == (
            id,
            {"order": 42},
            1,
            None,
        )
        assert message.vt - message.last_read_at == timedelta(seconds=30)
        assert message.enqueued_at <= message.last_read_at
        assert queue.read("orders") is None
        assert queue.delete("orders", id) is True
        assert queue.delete("orders", id) is False
        assert queue.metrics("orders").queue_length == 0

    def test_a_batch_keeps_its_order_and_its_headers(self, queue: PGMQueue) -> None:
        ids = queue.send_batch("orders", [{"n": n} for n in range(40)])
        assert ids == sorted(ids)
        [last] = queue.send_batch("orders", [{"n": 40}], headers=[{"trace": "x", "tries": 3}])
        messages = queue.read_batch("orders", batch_size=100)
        assert [m.msg_id for m in messages] == [*ids, last]
        assert [m.message["n"] for m in messages] == list(range(41))
        assert [m.headers for m in messages] == [None] * 40 + [{"trace": "x", "tries": 3}]
        assert queue.delete_batch("orders", [*ids, 1]) == ids

    def test_a_delayed_message_is_read_when_its_time_has_come(
        self, queue: PGMQueue, db: Database
    ) -> None:
        soon = queue.send("orders", {}, delay=30)
        at = queue.send("orders", {}, delay=later(db, seconds=90))
        batch = queue.send_batch("orders", [{}, {}], delay=200)
        assert queue.read("orders") is None
        assert queue.metrics("orders").queue_visible_length == 0
        db.advance(seconds=31)
        assert queue.read("orders", vt=1000).msg_id == soon
        assert queue.read("orders") is None
        db.advance(seconds=60)
        assert queue.read("orders", vt=1000).msg_id == at
        db.advance(seconds=120)
        assert [m.msg_id for m in queue.read_batch("orders", batch_size=9)] == batch

    @requirement("PG-19")
    def test_what_is_not_deleted_in_time_is_read_again_however_often(
        self, queue: PGMQueue, db: Database
    ) -> None:
        ids = queue.send_batch("orders", [{"n": 1}, {"n": 2}, {"n": 3}])
        for count in range(1, 12):
            messages = queue.read_batch("orders", vt=300, batch_size=10)
            assert sorted(m.msg_id for m in messages) == ids
            assert {m.read_ct for m in messages} == {count}
            db.advance(seconds=290)
            assert queue.read_batch("orders", batch_size=10) == []
            db.advance(seconds=11)
        assert db.sql("select from headrace.dead_letters") == []

    def test_a_visibility_timeout_is_changed_for_one_and_for_many(
        self, queue: PGMQueue, db: Database
    ) -> None:
        one, two, three = queue.send_batch("orders", [{"n": 1}, {"n": 2}, {"n": 3}])
        queue.read_batch("orders", vt=30, batch_size=3)
        least = later(db, seconds=100)
        changed = queue.set_vt("orders", one, 100)
        assert (changed.msg_id, changed.read_ct, changed.message) == (one, 1, {"n": 1})
        assert changed.vt >= least
        moved = queue.set_vt("orders", [two], later(db, seconds=50))
        assert [m.msg_id for m in moved] == [two]
        db.advance(seconds=40)
        assert [m.msg_id for m in queue.read_batch("orders", vt=1000, batch_size=3)] == [three]
        db.advance(seconds=20)
        assert [m.msg_id for m in queue.read_batch("orders", vt=1000, batch_size=3)] == [two]
        assert queue.set_vt("orders", one, 0).vt <= later(db)
        again = queue.read("orders")
        assert (again.msg_id, again.read_ct) == (one, 2)
        assert queue.set_vt("orders", 12345, 10) is None

    def test_a_waiting_message_is_hidden_and_shown(self, queue: PGMQueue, db: Database) -> None:
        id = queue.send("orders", {})
        assert queue.set_vt("orders", id, 60).read_ct == 0
        assert queue.read("orders") is None
        queue.set_vt("orders", id, 0)
        assert queue.read("orders").msg_id == id

    def test_a_conditional_read_gets_what_contains_it(self, queue: PGMQueue) -> None:
        _, second, third = queue.send_batch("orders", [{"n": 1}, {"n": 2, "m": 1}, {"n": 2}])
        assert queue.read("orders", conditional={"n": 2}).msg_id == second
        [last] = queue.read_with_poll("orders", qty=5, conditional={"n": 2})
        assert last.msg_id == third

    def test_pop_reads_and_deletes(self, queue: PGMQueue) -> None:
        ids = queue.send_batch("orders", [{"n": 1}, {"n": 2}, {"n": 3}])
        first = queue.pop("orders")
        assert (first.msg_id, first.read_ct, first.message) == (ids[0], 0, {"n": 1})
        assert [m.msg_id for m in queue.pop("orders", qty=5)] == ids[1:]
        assert queue.pop("orders") is None
        assert queue.metrics("orders").queue_length == 0

    def test_archived_messages_are_gone_from_the_queue_and_kept(
        self, queue: PGMQueue, db: Database
    ) -> None:
        ids = queue.send_batch("orders", [{"n": 1}, {"n": 2}, {"n": 3}])
        queue.read_batch("orders", batch_size=3)
        assert queue.archive("orders", ids[0]) is True
        assert queue.archive_batch("orders", ids) == ids[1:]
        assert queue.archive("orders", ids[0]) is False
        with db.queue(namespace="pgmq", queue="orders") as kept:
            event = kept.event(ids[0])
        assert (event.status, event.payload) == ("COMPLETED", {"n": 1})

    def test_purge_takes_everything_also_what_was_read(self, queue: PGMQueue) -> None:
        queue.send_batch("orders", [{"n": n} for n in range(30)])
        queue.send("orders", {}, delay=60)
        queue.read_batch("orders", batch_size=5)
        assert queue.purge("orders") == 31
        assert queue.purge("orders") == 0
        assert queue.metrics("orders").queue_length == 0

    def test_metrics_tell_how_many_and_how_old(self, queue: PGMQueue, db: Database) -> None:
        empty = queue.metrics("orders")
        assert (empty.queue_length, empty.total_messages, empty.oldest_msg_age_sec) == (0, 0, None)
        queue.send_batch("orders", [{"n": n} for n in range(20)])
        db.advance(seconds=100)
        queue.send("orders", {})
        queue.send("orders", {}, delay=60)
        queue.read_batch("orders", vt=60, batch_size=3)
        queue.pop("orders", qty=2)
        metrics = queue.metrics("orders")
        assert (metrics.queue_name, metrics.queue_length) == ("orders", 20)
        assert (metrics.queue_visible_length, metrics.total_messages) == (16, 22)
        assert metrics.newest_msg_age_sec < 90 <= metrics.oldest_msg_age_sec
        assert metrics.scrape_time >= later(db, seconds=-60)
        assert metrics.queue_length in {
            m.queue_length for m in queue.metrics_all() if m.queue_name == "orders"
        }

    def test_queues_are_made_listed_and_dropped(self, queue: PGMQueue) -> None:
        queue.create_queue("Second", unlogged=True)
        queue.create_queue("Second")
        queue.create_partitioned_queue("third")
        names = {str(q) for q in queue.list_queues()}
        assert names >= {"orders", "Second", "third"}
        id = queue.send("second", {"n": 1})
        assert queue.read("SECOND").msg_id == id
        assert queue.drop_queue("Second") is True
        assert queue.drop_queue("Second") is False
        assert "Second" not in {str(q) for q in queue.list_queues()}
        with pytest.raises(Exception, match="there is no pgmq queue 'Second'"):
            queue.send("Second", {})

    def test_a_read_that_polls_waits_for_a_message(self, queue: PGMQueue) -> None:
        assert queue.read_with_poll("orders", qty=2, max_poll_seconds=0, poll_interval_ms=10) == []
        ids = queue.send_batch("orders", [{"n": 1}, {"n": 2}, {"n": 3}])
        messages = queue.read_with_poll("orders", qty=2, max_poll_seconds=5)
        assert [m.msg_id for m in messages] == ids[:2]


class TestTheAsyncClient:
    @pytest.fixture
    async def queue(self, db: Database) -> AsyncIterator[Any]:
        parts = conninfo_to_dict(db.dsn)
        async with asyncpg.create_pool(
            host=parts["host"],
            port=parts.get("port"),
            user=parts["user"],
            database=parts["dbname"],
            min_size=1,
            max_size=2,
        ) as pool:
            queue = AsyncPGMQueue(pool=pool, init_extension=False)
            await queue.init()
            await queue.create_queue("orders")
            yield queue

    @pytest.mark.anyio
    async def test_it_does_all_of_it(self, queue: AsyncPGMQueue, db: Database) -> None:
        one = await queue.send("orders", {"n": 1}, headers={"a": [1]})
        two, three = await queue.send_batch("orders", [{"n": 2}, {"n": 3}])
        late = await queue.send("orders", {"n": 4}, delay=datetime.now(UTC) + timedelta(days=1))
        message = await queue.read("orders", vt=30)
        assert (message.msg_id, message.message, message.headers) == (one, {"n": 1}, {"a": [1]})
        assert (await queue.set_vt("orders", one, 100)).read_ct == 1
        assert (await queue.pop("orders")).msg_id == two
        assert [m.msg_id for m in await queue.read_batch("orders", vt=10, batch_size=5)] == [three]
        db.advance(seconds=11)
        [again] = await queue.read_with_poll("orders", qty=5)
        assert (again.msg_id, again.read_ct) == (three, 2)
        assert await queue.delete("orders", three)
        assert await queue.archive_batch("orders", [one, two]) == [one]
        metrics = await queue.metrics("orders")
        assert (metrics.queue_length, metrics.queue_visible_length) == (1, 0)
        assert metrics.total_messages == 4
        assert {m.queue_name for m in await queue.metrics_all()} > {"orders"}
        assert await queue.purge("orders") == 1
        assert not await queue.delete("orders", late)
        assert {q.queue_name for q in await queue.list_queues()} > {"orders"}
        assert await queue.drop_queue("orders")

"""pgmq's functions by themselves: what they are in Headrace's places, beside Headrace's own workers."""

from typing import Any

import psycopg
import pytest
from pgmq.install import get_embedded_install_sql
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine
from tests.requirements import requirement

ENVELOPE = {"eventType": "user.created", "payload": {"user": None}, "producerNodeId": "api-1"}


class Pgmq:
    """One session's calls; a message is a row of message_record."""

    def __init__(self, db: Database, **options: Any) -> None:
        self.connection = db.connect(**options)

    def __call__(self, function: str, *arguments: Any) -> list[Any]:
        places = ", ".join(["%s"] * len(arguments))
        cursor = self.connection.execute(f"select * from pgmq.{function}({places})", arguments)
        return [row if len(row) > 1 else row[0] for row in cursor.fetchall()]

    def send(self, queue: str, *messages: Any) -> list[int]:
        return self("send_batch", queue, [Jsonb(message) for message in messages])

    def read(self, queue: str, qty: int = 1, vt: int = 30) -> list[Any]:
        return self("read", queue, vt, qty)


@pytest.fixture
def pgmq(db: Database) -> Pgmq:
    pgmq = Pgmq(db)
    pgmq("create", "jobs")
    pgmq("create", "core_events_shop")
    return pgmq


@pytest.fixture
def jobs(db: Database) -> Engine:
    return Engine(db, "pgmq")


def places(db: Database) -> dict[str, int]:
    [row] = db.sql(
        "select (select count(*) from headrace.ready), (select count(*) from headrace.delayed),"
        " (select count(*) from headrace.held), (select count(*) from headrace.leases),"
        " (select count(*) from headrace.dead_letters)"
    )
    return dict(zip(("ready", "delayed", "held", "leases", "dead"), row, strict=True))


class TestInOurPlaces:
    def test_a_message_is_an_event_and_its_log_is_whole(
        self, pgmq: Pgmq, db: Database, jobs: Engine
    ) -> None:
        [id] = pgmq.send("jobs", {"n": 1})
        pgmq.read("jobs")
        db.advance(seconds=31)
        pgmq.read("jobs")
        event = jobs.call("event", namespace="pgmq", event_id=id, queue="jobs")[0]
        assert (event.type, event.status, event.attempts) == ("jobs", "PROCESSING", 2)
        assert (event.worker_id, event.retry_count, event.crashes) == ("pgmq", 0, 0)
        assert pgmq("delete", "jobs", id) == [True]
        assert jobs.actions(id) == ["EMITTED", "PICKED", "RELEASED", "PICKED", "COMPLETED"]
        assert places(db) == {"ready": 0, "delayed": 0, "held": 0, "leases": 0, "dead": 0}

    def test_a_batch_of_messages_leaves_nothing_behind(self, pgmq: Pgmq, db: Database) -> None:
        ids = pgmq.send("jobs", *[{"n": n} for n in range(300)])
        assert [m[0] for m in pgmq.read("jobs", 250)] == ids[:250]
        assert pgmq("delete", "jobs", ids[:200]) == ids[:200]
        assert places(db)["leases"] == places(db)["held"] == 50

    def test_what_waits_is_cancelled_by_a_delete_and_the_log_says_so(
        self, pgmq: Pgmq, db: Database, jobs: Engine
    ) -> None:
        waiting, delayed = pgmq.send("jobs", {"n": 1}) + pgmq("send", "jobs", Jsonb({}), 60)
        assert pgmq("delete", "jobs", [waiting, delayed, 7]) == [waiting, delayed]
        assert jobs.actions(waiting) == jobs.actions(delayed) == ["EMITTED", "CANCELLED"]
        assert pgmq.read("jobs") == []

    def test_a_late_reader_deletes_what_was_read_again(self, pgmq: Pgmq, db: Database) -> None:
        [id] = pgmq.send("jobs", {})
        pgmq.read("jobs")
        db.advance(seconds=31)
        second = Pgmq(db)
        assert [m[0] for m in second.read("jobs")] == [id]
        assert pgmq("delete", "jobs", id) == [True]
        assert second("delete", "jobs", id) == [False]

    def test_a_read_without_a_timeout_is_a_look(self, pgmq: Pgmq, db: Database) -> None:
        ids = pgmq.send("jobs", {"n": 1}, {"n": 2})
        assert [m[:2] for m in pgmq.read("jobs", 5, vt=0)] == [(id, 1) for id in ids]
        assert [m[:2] for m in pgmq.read("jobs", 5, vt=0)] == [(id, 2) for id in ids]
        assert places(db) == {"ready": 2, "delayed": 0, "held": 0, "leases": 0, "dead": 0}

    def test_what_is_rolled_back_was_not_read(self, pgmq: Pgmq) -> None:
        [id] = pgmq.send("jobs", {})
        with pgmq.connection.transaction(force_rollback=True):
            assert pgmq.read("jobs")[0][:2] == (id, 1)
            assert pgmq("delete", "jobs", id) == [True]
        assert pgmq.read("jobs")[0][:2] == (id, 1)

    def test_a_message_is_sent_when_its_transaction_commits(self, pgmq: Pgmq, db: Database) -> None:
        with pgmq.connection.transaction():
            [id] = pgmq.send("jobs", {})
            assert Pgmq(db).read("jobs") == []
        assert pgmq.read("jobs")[0][0] == id

    def test_two_readers_get_different_messages(self, pgmq: Pgmq, db: Database) -> None:
        ids = pgmq.send("jobs", {"n": 1}, {"n": 2}, {"n": 3})
        other = Pgmq(db)
        with pgmq.connection.transaction(), other.connection.transaction():
            mine = [m[0] for m in pgmq.read("jobs", 2)]
            yours = [m[0] for m in other.read("jobs", 2)]
        assert sorted(mine + yours) == ids

    def test_messages_that_are_visible_again_need_no_tick_and_no_empty_queue(
        self, pgmq: Pgmq, db: Database
    ) -> None:
        [first] = pgmq.send("jobs", {})
        pgmq.read("jobs")
        [late] = pgmq("send", "jobs", Jsonb({}), 20)
        db.advance(seconds=31)
        pgmq.send("jobs", *[{"n": n} for n in range(5)])
        assert {first, late} < {m[0] for m in pgmq.read("jobs", 7)}

    def test_no_queue_sees_anothers_messages(self, pgmq: Pgmq, db: Database) -> None:
        pgmq("create", "others")
        [id] = pgmq.send("jobs", {})
        assert pgmq.read("others") == []
        assert pgmq("delete", "others", id) == pgmq("archive", "others", id) == [False]
        assert pgmq("set_vt", "others", id, 60) == []
        assert pgmq("purge_queue", "others") == [0]
        assert pgmq.read("jobs")[0][0] == id
        assert pgmq("delete", "others", id) == [False]
        assert pgmq("purge_queue", "others") == [0]
        assert pgmq("delete", "jobs", id) == [True]


class TestConditions:
    def read(self, pgmq: Pgmq, queue: str, qty: int, vt: int = 30, **wanted: Any) -> list[Any]:
        return [(m[0], m[1]) for m in pgmq("read", queue, vt, qty, Jsonb(wanted))]

    def test_only_what_contains_it_is_read(self, pgmq: Pgmq, db: Database) -> None:
        ids = pgmq.send("jobs", *[{"kind": "ab"[n % 2], "n": n} for n in range(40)])
        odd = [(id, 1) for id in ids[1::2]]
        assert self.read(pgmq, "jobs", 3, kind="b") == odd[:3]
        assert self.read(pgmq, "jobs", 100, kind="b") == odd[3:]
        assert self.read(pgmq, "jobs", 100, kind="b") == []
        assert self.read(pgmq, "jobs", 1, kind="a", n=7) == []
        assert pgmq("set_vt", "jobs", ids[1], 60)[0][1] == 1
        assert pgmq("delete", "jobs", ids[1]) == [True]
        db.advance(seconds=31)
        assert self.read(pgmq, "jobs", 1, n=3) == [(ids[3], 2)]
        assert [m[0] for m in pgmq.read("jobs", 100)][:20] == ids[::2]
        assert places(db)["held"] == places(db)["leases"] == 39

    def test_a_look_leaves_it_visible(self, pgmq: Pgmq, db: Database) -> None:
        [id] = pgmq.send("jobs", {"n": 1})
        assert self.read(pgmq, "jobs", 1, vt=0, n=1) == [(id, 1)]
        assert self.read(pgmq, "jobs", 1, n=1) == [(id, 2)]

    def test_what_another_is_reading_is_passed_by(self, pgmq: Pgmq, db: Database) -> None:
        ids = pgmq.send("jobs", {"n": 1}, {"n": 1})
        other = Pgmq(db)
        with pgmq.connection.transaction():
            assert self.read(pgmq, "jobs", 1, n=1) == [(ids[0], 1)]
            assert self.read(other, "jobs", 2, n=1) == [(ids[1], 1)]

    def test_a_namespaces_events_and_dead_letters(self, pgmq: Pgmq, db: Database) -> None:
        with db.queue(namespace="shop") as queue:
            ordered = queue.publish("a", {"n": 1}, key="k")
            first = queue.publish("b", {"n": 1})
            assert self.read(pgmq, "core_events_shop", 5, payload={"n": 1}) == [(first.id, 1)]
            for claimed in queue.poll(max_events=5):
                queue.fail(claimed, reason="No good")
        assert self.read(pgmq, "core_events_shop_dlq", 5, reason="Another") == []
        assert self.read(pgmq, "core_events_shop_dlq", 5, reason="No good") == [(ordered.id, 1)]


class TestBesideHeadrace:
    def test_a_worker_of_headrace_handles_what_pgmq_sent(self, pgmq: Pgmq, db: Database) -> None:
        pgmq("send", "jobs", Jsonb({"n": 1}), Jsonb({"trace": "x"}))
        with db.queue(namespace="pgmq", queue="jobs") as queue:
            [claimed] = queue.poll()
            assert (claimed.type, claimed.payload) == ("jobs", {"n": 1})
            assert claimed.headers == {"trace": "x"}
            assert queue.event(claimed.id).headers == {"trace": "x"}
            assert pgmq.read("jobs") == []
            queue.complete(claimed)
            queue.publish("jobs", {"n": 2})
        assert pgmq.read("jobs")[0][5] == {"n": 2}

    @pytest.mark.parametrize("each", [True, False])
    def test_its_claim_is_ended_by_a_delete_and_not_moved_by_set_vt(
        self, pgmq: Pgmq, db: Database, jobs: Engine, each: bool
    ) -> None:
        ids = pgmq.send("jobs", {"n": 1}, {"n": 2})
        claims = jobs.poll(2, queue="jobs", each=each)
        assert pgmq("set_vt", "jobs", ids, 0) == []
        assert pgmq("purge_queue", "jobs") == [0]
        assert pgmq("delete", "jobs", ids[0]) == [True]
        verdicts = jobs.call(
            "finish",
            namespace="pgmq",
            queue="jobs",
            events=ids,
            attempts=[1, 1],
            others='{"1": {"action": "fail"}}',
        )
        assert [(v.item, v.verdict) for v in verdicts] == [(1, "conflict")]
        assert len(claims) == 2
        assert jobs.actions(ids[0]) == jobs.actions(ids[1]) == ["EMITTED", "PICKED", "COMPLETED"]

    def test_a_read_that_ran_out_makes_no_suspect_of_it(self, pgmq: Pgmq, db: Database) -> None:
        pgmq.send("jobs", {"n": 1}, {"n": 2})
        pgmq.read("jobs", 2)
        db.advance(seconds=31)
        db.sql("select headrace.tick()")
        assert db.sql("select suspect, crashes from headrace.ready") == [(False, 0)] * 2

    def test_a_suspect_is_read_as_any_other(self, pgmq: Pgmq, db: Database, jobs: Engine) -> None:
        ids = pgmq.send("jobs", *[{"n": n} for n in range(3)])
        jobs.poll(3, queue="jobs", worker="it dies")
        db.advance(seconds=61)
        for count in (2, 3, 4, 5, 6):
            messages = pgmq.read("jobs", 3)
            assert sorted(m[0] for m in messages) == ids
            assert {m[1] for m in messages} == {count}
            db.advance(seconds=31)
        assert places(db)["dead"] == 0


class TestLeaseTokens:
    """pgmq knows none: on a queue that requires them it neither claims nor ends anything."""

    @requirement("G6")
    @pytest.mark.parametrize("each", [True, False], ids=["held", "batch"])
    @pytest.mark.parametrize(
        "call",
        [
            ("read", "core_events_shop", 30, 1),
            ("pop", "core_events_shop"),
            ("set_vt", "core_events_shop", 1, 0),
            ("delete", "core_events_shop", 1),
            ("delete", "core_events_shop", [1]),
            ("archive", "core_events_shop", 1),
        ],
        ids=lambda call: f"{call[0]} {call[-1]}",
    )
    def test_such_a_queue_is_left_alone(
        self, pgmq: Pgmq, db: Database, each: bool, call: tuple[Any, ...]
    ) -> None:
        db.sql("select headrace.change_queue('shop', 'main', '{\"require_lease_token\": true}')")
        shop = Engine(db, "shop")
        db.sql("select setval('headrace.ids', 1, false)")
        pgmq.send("core_events_shop", ENVELOPE, ENVELOPE)
        [mine] = shop.poll(each=each)
        assert mine.id == 1
        with pytest.raises(psycopg.Error, match="requires lease tokens") as refusal:
            pgmq(*call)
        assert refusal.value.sqlstate == "QU001"
        shop.call("complete", namespace="shop", event=mine.id, attempt=1, lease=mine.lease,
                  lease_token=str(mine.lease_token))  # fmt: skip


class TestANamespace:
    @requirement("PG-12", "PG-13", "PG-17")
    def test_its_queue_is_read_as_envelopes(self, pgmq: Pgmq, db: Database) -> None:
        with db.queue(namespace="shop") as queue:
            event = queue.publish("order.paid", {"order": None}, priority=1)
        [message] = pgmq.read("core_events_shop")
        assert (message[0], message[1]) == (event.id, 1)
        assert message[5] == {
            "namespace": "shop",
            "eventType": "order.paid",
            "payload": {"order": None},
            "emittedAt": event.created_at.isoformat(timespec="milliseconds")[:-6] + "Z",
            "producerNodeId": None,
            "messageId": event.id,
            "redeliveryCount": 1,
        }
        assert pgmq("delete", "core_events_shop", event.id) == [True]

    @requirement("PG-14")
    def test_an_envelope_that_is_sent_is_the_event_it_says(self, pgmq: Pgmq, db: Database) -> None:
        [id] = pgmq.send("core_events_shop", {**ENVELOPE, "namespace": "shop", "messageId": 7})
        [plain] = pgmq.send("core_events_shop", ["no", "envelope"])
        with db.queue(namespace="shop") as queue:
            event = queue.event(id)
            assert (event.type, event.payload, event.producer) == (
                "user.created",
                {"user": None},
                "api-1",
            )
            assert (queue.event(plain).type, queue.event(plain).payload) == (
                "event",
                ["no", "envelope"],
            )

    @pytest.mark.parametrize(
        ("extra", "problem"),
        [({"colour": 1}, "has no field colour"), ({"namespace": "b"}, "namespace 'b' is not sent")],
    )
    def test_an_envelope_that_says_more_than_is_kept_is_refused(
        self, pgmq: Pgmq, extra: dict[str, Any], problem: str
    ) -> None:
        with pytest.raises(psycopg.Error, match=problem):
            pgmq.send("core_events_shop", {**ENVELOPE, **extra})

    def test_its_name_has_underscores(self, pgmq: Pgmq, db: Database) -> None:
        db.sql("select headrace.create_namespace('my-shop')")
        [id] = pgmq.send("core_events_my_shop", ENVELOPE)
        assert pgmq.read("core_events_my_shop")[0][0] == id
        names = {row[0] for row in pgmq("list_queues")}
        assert {"core_events_my_shop", "core_events_my_shop_dlq"} < names
        pgmq("create_queue", "core_events_my_shop_dlq")
        assert {row[0] for row in pgmq("list_queues")} == names

    def test_a_name_that_two_have_is_refused(self, pgmq: Pgmq, db: Database) -> None:
        db.sql("select headrace.create_namespace('shop-dlq')")
        with pytest.raises(psycopg.Error, match="which of them is not said"):
            pgmq.read("core_events_shop_dlq")
        names = {row[0] for row in pgmq("metrics_all")}
        assert names == {row[0] for row in pgmq("list_queues")}
        assert "core_events_shop_dlq" not in names

    def test_it_is_not_dropped_from_here(self, pgmq: Pgmq) -> None:
        for name in ("core_events_shop", "core_events_shop_dlq"):
            with pytest.raises(psycopg.Error, match="is of the namespace 'shop'"):
                pgmq("drop_queue", name)


@requirement("PG-26")
class TestDeadLetters:
    @pytest.fixture
    def dead(self, db: Database, pgmq: Pgmq) -> list[int]:
        with db.queue(namespace="shop") as queue:
            ids = queue.publish_many([{"type": "t", "payload": {"n": n}} for n in range(3)])
            for claimed in queue.poll(max_events=3):
                queue.fail(claimed, error="Traceback", reason="Handler error")
        return list(ids)

    def test_they_are_read_like_any_queue(self, pgmq: Pgmq, db: Database, dead: list[int]) -> None:
        messages = pgmq.read("core_events_shop_dlq", 2)
        assert [(m[0], m[1]) for m in messages] == [(id, 1) for id in dead[:2]]
        letter = messages[0][5]
        assert letter["originalEvent"]["payload"] == {"n": 0}
        assert letter["originalEvent"]["redeliveryCount"] == 1
        assert (letter["reason"], letter["error"]) == ("Handler error", "Traceback")
        assert letter["failedAt"].endswith("Z")
        assert [m[0] for m in pgmq.read("core_events_shop_dlq", 5)] == dead[2:]
        db.advance(seconds=31)
        again = pgmq.read("core_events_shop_dlq", 5)
        assert [(m[0], m[1]) for m in again] == [(dead[0], 2), (dead[1], 2), (dead[2], 2)]

    def test_they_are_hidden_counted_deleted_popped_and_purged(
        self, pgmq: Pgmq, db: Database, dead: list[int]
    ) -> None:
        assert [m[:2] for m in pgmq("set_vt", "core_events_shop_dlq", dead[0], 60)] == [
            (dead[0], 0)
        ]
        [metrics] = pgmq("metrics", "core_events_shop_dlq")
        assert (metrics[1], metrics[6], metrics[4]) == (3, 2, 3)
        assert [m[0] for m in pgmq("pop", "core_events_shop_dlq")] == [dead[1]]
        assert pgmq("delete", "core_events_shop_dlq", dead[2]) == [True]
        assert pgmq("delete", "core_events_shop_dlq", dead[2]) == [False]
        assert pgmq("purge_queue", "core_events_shop_dlq") == [1]
        assert db.sql("select from pgmq._letters_read") == []

    def test_two_readers_of_one_letter_do_not_both_get_it(
        self, pgmq: Pgmq, db: Database, dead: list[int]
    ) -> None:
        other = Pgmq(db)
        with pgmq.connection.transaction():
            assert [m[0] for m in pgmq.read("core_events_shop_dlq", 2)] == dead[:2]
            assert [m[0] for m in other.read("core_events_shop_dlq", 3)] == dead[2:]
        assert other.read("core_events_shop_dlq", 3) == []

    def test_what_is_redriven_is_no_letter_and_may_be_one_again(
        self, pgmq: Pgmq, db: Database, dead: list[int]
    ) -> None:
        pgmq.read("core_events_shop_dlq", 3)
        with db.queue(namespace="shop") as queue:
            queue.redrive(ids=dead[:1])
            [claimed] = queue.poll()
            queue.fail(claimed, error="again", reason="No good")
        assert [m[:2] for m in pgmq.read("core_events_shop_dlq", 3)] == [(dead[0], 1)]

    @requirement("PG-17", "PG-25")
    def test_a_consumer_moves_what_it_cannot_handle_there(self, pgmq: Pgmq, db: Database) -> None:
        pgmq.send("core_events_shop", ENVELOPE)
        [message] = pgmq.read("core_events_shop")
        [id] = pgmq.send(
            "core_events_shop_dlq",
            {"originalEvent": message[5], "reason": "Handler error", "error": "a stack"},
        )
        assert id == message[0]
        assert pgmq("delete", "core_events_shop", message[0]) == [False]
        [letter] = pgmq.read("core_events_shop_dlq")
        assert (letter[0], letter[5]["reason"], letter[5]["error"]) == (
            id,
            "Handler error",
            "a stack",
        )
        assert places(db) == {"ready": 0, "delayed": 0, "held": 0, "leases": 0, "dead": 1}

    def test_what_nobody_has_read_cannot_be_sent_there(self, pgmq: Pgmq) -> None:
        [id] = pgmq.send("core_events_shop", ENVELOPE)
        for letter in ({}, {"originalEvent": {"messageId": id}}, {"originalEvent": 7}):
            with pytest.raises(psycopg.Error, match="names no message"):
                pgmq.send("core_events_shop_dlq", letter)


class TestRefusals:
    @pytest.mark.parametrize(
        "name",
        [None, "", "a" * 48, "a;b", "a--b", "it's", "main", "MAIN", " a", "a,b", "a*", "a/b"],
    )
    def test_a_name_that_is_none(self, pgmq: Pgmq, name: str | None) -> None:
        with pytest.raises(psycopg.Error) as refusal:
            pgmq("create", name)
        assert refusal.value.sqlstate == "QU001"

    @pytest.mark.parametrize(
        "call",
        [
            ("send", "nobody", Jsonb({})),
            ("read", "nobody", 1, 1),
            ("pop", "nobody"),
            ("delete", "main", 1),
            ("archive", "nobody", [1]),
            ("set_vt", "nobody", 1, 1),
            ("purge_queue", "core_events_nobody"),
            ("metrics", "core_events_pgmq"),
        ],
    )
    def test_a_queue_that_is_not_there(self, pgmq: Pgmq, call: tuple[Any, ...]) -> None:
        with pytest.raises(psycopg.errors.UndefinedTable, match="there is no pgmq queue"):
            pgmq(*call)

    @pytest.mark.parametrize("vt", [None, "infinity", "9999-12-31 UTC"])
    def test_a_time_that_is_none(self, pgmq: Pgmq, vt: str | None) -> None:
        [id] = pgmq.send("jobs", {})
        with pytest.raises(psycopg.Error, match="a hundred years"):
            pgmq.connection.execute("select pgmq.set_vt('jobs', %s, %s::timestamptz)", [id, vt])
        assert pgmq.read("jobs")[0][0] == id

    def test_the_namespace_of_these_queues_is_no_queue_but_may_be_deleted(
        self, pgmq: Pgmq, db: Database
    ) -> None:
        with pytest.raises(psycopg.errors.UndefinedTable):
            pgmq("create", "core_events_pgmq")
        db.sql("select headrace.delete_namespace('pgmq', with_deliveries => true)")
        pgmq("create", "jobs")
        [id] = pgmq.send("jobs", {})
        assert [m[0] for m in pgmq.read("jobs")] == [id]

    def test_no_messages_and_headers_that_do_not_fit(self, pgmq: Pgmq) -> None:
        for arguments in ([], None), ([Jsonb({})], [Jsonb({}), Jsonb({})]):
            with pytest.raises(psycopg.Error) as refusal:
                pgmq.connection.execute(
                    "select pgmq.send_batch('jobs', %s::jsonb[], %s::jsonb[])", arguments
                )
            assert refusal.value.sqlstate == "QU001"
        with pytest.raises(psycopg.Error, match="headers of an event are an object"):
            pgmq("send", "jobs", Jsonb({}), Jsonb([1]))


class TestRoles:
    @pytest.fixture
    def roles(self, db: Database) -> dict[str, set[str]]:
        rows = db.sql(
            "select r.rolname, p.proname from pg_proc p cross join pg_roles r"
            " where p.pronamespace = 'pgmq'::regnamespace and r.rolname like 'headrace\\_%'"
            " and has_function_privilege(r.oid, p.oid, 'execute')"
        )
        granted: dict[str, set[str]] = {}
        for role, name in rows:
            granted.setdefault(role, set()).add(name)
        return granted

    def test_each_may_do_its_part_and_nobody_may_call_what_is_inside(
        self, roles: dict[str, set[str]], db: Database
    ) -> None:
        assert roles["headrace_publisher"] == {"send", "send_batch"}
        assert roles["headrace_worker"] >= {"send", "read", "pop", "delete", "set_vt"}
        assert "create" not in roles["headrace_worker"] | roles["headrace_reader"]
        public = {
            name
            for (name,) in db.sql(
                "select proname from pg_proc where pronamespace = 'pgmq'::regnamespace and proname not like '\\_%'"
            )
        }
        assert roles["headrace_admin"] == public


SIGNATURES = """
select p.proname::text, p.proargnames::text, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid)
from pg_proc p where p.pronamespace = 'pgmq'::regnamespace and p.proname not like '\\_%%'
"""
COLUMNS = """
select t.typname::text, a.attname::text, format_type(a.atttypid, a.atttypmod)
from pg_type t join pg_attribute a on a.attrelid = t.typrelid and a.attnum > 0
where t.typnamespace = 'pgmq'::regnamespace and t.typname in ('message_record', 'queue_record', 'metrics_result')
order by t.typname, a.attnum
"""


def test_names_arguments_and_columns_are_pgmqs(db: Database, empty_db: Database) -> None:
    with empty_db.connect() as real:
        real.execute(get_embedded_install_sql())
    ours, theirs = set(db.sql(SIGNATURES)), set(empty_db.sql(SIGNATURES))
    own = {row for row in ours if row[0] == "create_queue"}  # document 004's name for create
    assert ours - own <= theirs
    names = {row[0] for row in ours}
    assert {row for row in theirs if row[0] in names} == ours - own
    assert db.sql(COLUMNS) == empty_db.sql(COLUMNS)


def test_every_function_is_safe_to_call_and_what_is_inside_belongs_to_nobody(db: Database) -> None:
    functions = db.sql(
        "select p.proname, p.prosecdef, p.proconfig from pg_proc p where p.pronamespace = 'pgmq'::regnamespace"
    )
    assert functions
    for name, definer, settings in functions:
        assert "search_path=pg_catalog, pg_temp" in settings, name
        assert definer is not name.startswith("_"), name

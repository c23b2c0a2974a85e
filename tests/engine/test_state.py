"""state, save_state, checkpoint, low_water: what a queue is like, how far it has come, and that it is kept."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from tests.database import Database
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine, refused
from tests.requirements import requirement

COLUMNS = """
select a.attname::text, format_type(a.atttypid, a.atttypmod) from pg_attribute a
where a.attrelid = %s::regclass and a.attnum > 0 order by a.attnum
"""
INDEXES = "select indexname::text, indexdef from pg_indexes where schemaname = 'headrace' and tablename = %s"


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def state(engine: Engine, **arguments: Any) -> dict[str, Any]:
    [told] = engine.call("state", namespace=engine.namespace, **arguments)
    document: dict[str, Any] = told.document
    return document


def low_water(engine: Engine, **arguments: Any) -> Any:
    [told] = engine.call("low_water", namespace=engine.namespace, **arguments)
    return told


def checkpoint(engine: Engine, **arguments: Any) -> Any:
    [told] = engine.call("checkpoint", namespace=engine.namespace, **arguments)
    return told


def saved(engine: Engine) -> dict[str, Any]:
    """What is kept of the states of all queues, by their ids."""
    rows = engine.connection.execute("select * from headrace.event_queue_state").fetchall()
    return {row.id: row for row in rows}


def history(engine: Engine) -> list[Any]:
    return engine.call("checkpoints", namespace=engine.namespace)


def save_at_the_next_tick(db: Database, engine: Engine) -> None:
    engine.tick()  # the first of all puts it off
    db.advance(minutes=10)  # more than the pause that a slow machine makes after it
    engine.tick()


# --- the tables, as they are documented


@requirement("QS-14", "QS-15")
def test_the_tables_have_the_documented_columns(db: Database) -> None:
    moment, text = "timestamp with time zone", "character varying(255)"
    assert db.sql(COLUMNS, ["headrace.event_queue_state"]) == [
        ("id", text), ("events", "jsonb"), ("checkpoint_id", text), ("queue_metrics", "jsonb"), ("config", "jsonb"),
        ("status", "character varying(50)"), ("created_at", moment), ("updated_at", moment),
    ]  # fmt: skip
    assert db.sql(COLUMNS, ["headrace.queue_checkpoints"]) == [
        ("id", "uuid"), ("queue_id", text), ("checkpoint_id", text), ("event_count", "bigint"), ("created_at", moment),
    ]  # fmt: skip


@requirement("QS-16")
def test_the_tables_have_the_documented_indexes(db: Database) -> None:
    of_states = dict(db.sql(INDEXES, ["event_queue_state"]))
    of_checkpoints = dict(db.sql(INDEXES, ["queue_checkpoints"]))
    assert re.match(r"CREATE UNIQUE INDEX .* \(id\)", of_states["event_queue_state_id_idx"])
    assert of_states["event_queue_state_status_idx"].endswith("(status)")
    assert of_checkpoints["queue_checkpoints_queue_id_idx"].endswith("(queue_id)")
    assert of_checkpoints["queue_checkpoints_created_at_idx"].endswith("(created_at)")


@requirement("QS-2", "QS-15")
def test_a_checkpoint_belongs_to_a_state_and_a_state_to_a_queue(
    engine: Engine, db: Database
) -> None:
    engine.call("create_queue", namespace="default", queue="other")
    checkpoint(engine, queue="other")
    engine.call("save_state", namespace="default")
    assert set(saved(engine)) == {"default/main", "default/other"}
    engine.call("delete_queue", namespace="default", queue="other")
    assert set(saved(engine)) == {"default/main"}
    assert db.sql("select * from headrace.queue_checkpoints") == []


# --- the document


@requirement("QS-3", "QS-4", "QS-5", "QS-6", "QS-7", "QS-8", "QS-9")
def test_the_document_is_the_documented_one(engine: Engine, db: Database) -> None:
    engine.call(
        "change_queue",
        namespace="default",
        queue="main",
        settings=json.dumps(
            {
                "max_queue_depth": 10000,
                "batch_size": 100,
                "processing_interval": 1000,
                "persistence_threshold": 500,
                "high_watermark": 8000,
            }
        ),
    )
    source = {"type": "integration", "id": "xero_main", "name": "Xero Accounting"}
    ids = engine.publish(
        {"type": "done"},
        {
            "type": "invoice.created",
            "payload": {"invoice_id": "INV-001", "amount": 1500.5},
            "version": "2.1.0",
            "source": source,
            "correlation_id": "corr_xyz789",
            "causation_id": "cause",
            "trace_id": "trace",
        },
        {"type": "payment.received", "payload": {"payment_id": "PAY-002"}},
    )
    done, invoice, payment = (engine.claim(types=[type]) for type in ("done", "invoice.created", "payment.received"))  # fmt: skip
    engine.end("complete", done, ms=42)
    engine.end("fail", payment, error="Connection timeout", ms=43)
    document = state(engine)
    assert list(document) == ["id", "events", "checkpointId", "queueMetrics", "config", "status", "created_at", "updated_at"]  # fmt: skip
    times = [document.pop("created_at"), document.pop("updated_at")]
    first, second = document.pop("events")
    assert document == {
        "id": "default/main",
        "checkpointId": str(ids[0]),
        "queueMetrics": {"totalProcessed": 1, "totalErrors": 1, "avgProcessingTimeMs": 42.5},
        "config": {
            "maxQueueDepth": 10000,
            "batchSize": 100,
            "processingInterval": 1000,
            "persistenceThreshold": 500,
            "highWatermark": 8000,
        },
        "status": "active",
    }
    assert list(first) == ["eventId", "pattern", "version", "source", "timestamp", "payload", "metadata"]  # fmt: skip
    times += [first.pop("timestamp"), second.pop("timestamp")]
    times += [first["metadata"].pop("processingStartTime"), second["metadata"].pop("lastErrorTime")]
    assert first == {
        "eventId": str(invoice.id),
        "pattern": "invoice.created",
        "version": "2.1.0",
        "source": source,
        "payload": {"invoice_id": "INV-001", "amount": 1500.5},
        "metadata": {
            "correlationId": "corr_xyz789",
            "causationId": "cause",
            "traceId": "trace",
            "retryCount": 0,
        },
    }
    assert second["metadata"] == {"retryCount": 1, "lastError": "Connection timeout"}
    assert (second["version"], second["source"]) == ("1.0.0", {"type": "external", "id": "", "name": ""})  # fmt: skip
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time) for time in times)


@requirement("QS-9")
def test_it_says_what_the_queue_does(engine: Engine) -> None:
    engine.publish({})
    told = []
    for change in ("pause", "resume", "drain"):
        engine.call(change, namespace="default")
        told.append(state(engine)["status"])
    assert told == ["paused", "active", "draining"]


@requirement("QS-8")
def test_there_is_no_limit_unless_one_is_set(engine: Engine) -> None:
    assert state(engine)["config"] == {
        "maxQueueDepth": None,
        "batchSize": None,
        "processingInterval": 1000,
        "persistenceThreshold": None,
        "highWatermark": None,
    }


@requirement("QS-18")
def test_what_is_dead_is_a_dead_letter_and_no_part_of_the_state(engine: Engine) -> None:
    [dead] = engine.publish({"type": "a", "payload": {"n": 1}, "version": "3.0.0"})
    engine.end("finalize", engine.claim(), errors=["no"])
    assert state(engine)["events"] == []
    [letter] = engine.call("dead_letter", namespace="default", event_id=dead)
    assert (letter.type, letter.payload, letter.details) == ("a", {"n": 1}, {"version": "3.0.0"})


def test_every_place_is_told_of_in_the_order_of_ids_and_page_by_page(
    engine: Engine, db: Database
) -> None:
    ids = engine.publish(*[{"type": "pack"}] * 30, {"delay": 60}, *[{"key": "k"}] * 3, {"priority": 1})  # fmt: skip
    ended = engine.poll(types=["pack"], max_events=3)
    engine.end("complete", ended[1])
    engine.poll(types=["pack"], max_events=2, each=True)
    unfinished = [str(id) for id in ids if id != ended[1].id]
    told: list[str] = []
    while page := state(engine, limit=10, after=int(told[-1]) if told else 0)["events"]:
        told += [event["eventId"] for event in page]
    assert told == unfinished
    [whole] = engine.call("state", namespace="default", limit=0)
    assert (whole.document["events"], whole.total, whole.is_exact) == ([], 34, True)


def test_what_cannot_be_told_is_refused(engine: Engine) -> None:
    for wrong in ({"limit": 1001}, {"limit": -1}, {"after": -1}, {"after": None}):
        with refused("QU001"):
            state(engine, **wrong)
    with refused("QU011"):
        state(engine, queue="nowhere")


# --- how far it has come


@requirement("QS-6", "QS-12")
def test_everything_up_to_a_checkpoint_is_finished(engine: Engine) -> None:
    ids = engine.publish(*[{}] * 5)
    assert low_water(engine).checkpoint_id is None
    claims = {claim.id: claim for claim in engine.poll(max_events=5)}
    engine.end("complete", claims[ids[2]])
    engine.end("complete", claims[ids[0]])
    assert low_water(engine).checkpoint_id == str(ids[0])
    engine.end("complete", claims[ids[1]])
    low = low_water(engine)
    assert (low.checkpoint_id, low.event_count, low.lag) == (str(ids[2]), 3, 2)
    engine.end("finalize", claims[ids[3]], errors=["dead"])
    engine.end("complete", claims[ids[4]])
    assert low_water(engine) == (str(ids[4]), 5, 0, True, None, None)


def test_it_is_an_event_that_the_queue_had(engine: Engine) -> None:
    engine.call("create_queue", namespace="default", queue="a", types=["a"])
    [mine] = engine.publish({"type": "a"})
    engine.publish(*[{"type": "b"}] * 3)
    [claim] = engine.poll(queue="a")
    engine.end("complete", claim, queue="a")
    assert low_water(engine, queue="a").checkpoint_id == str(mine)


def test_what_is_redriven_takes_it_back(engine: Engine) -> None:
    ids = engine.publish(*[{}] * 3)
    claims = engine.poll(max_events=3)
    engine.end("complete", claims[0])
    engine.end("finalize", claims[1], errors=["dead"])
    engine.end("complete", claims[2])
    assert checkpoint(engine).checkpoint_id == str(ids[2])
    engine.call("redrive", namespace="default", ids=[ids[1]])
    assert low_water(engine).checkpoint_id == str(ids[0])
    assert state(engine)["checkpointId"] == str(ids[0])


def test_it_says_which_delivery_it_waits_for(engine: Engine, db: Database) -> None:
    [first] = engine.publish({"key": "k"})
    engine.publish({"key": "k"})
    assert low_water(engine).reason == f"event {first} waits for its turn in the order of its key"
    claim = engine.claim(worker="host:1")
    assert re.match(
        rf"event {first} is in progress at host:1 since \d{{4}}-", low_water(engine).reason
    )
    engine.end("fail", claim)
    assert re.match(rf"event {first} waits for \d{{4}}-", low_water(engine).reason)
    engine.call("purge", namespace="default", queue="main", what="delayed")
    engine.end("complete", engine.claim())
    assert low_water(engine).reason is None
    [plain] = engine.publish({})
    engine.call("pause", namespace="default")
    low = low_water(engine)
    assert low.reason == f"event {plain} waits to be claimed, and the queue is paused"
    assert low.oldest_at == engine.event(plain).created_at


@requirement("QS-12")
def test_no_open_transaction_can_commit_below_it(engine: Engine, db: Database) -> None:
    late = db.connect(autocommit=False, application_name="importer")
    [(early,)] = late.execute("select unnest(ids) from headrace.publish('default', '{}')").fetchall()  # fmt: skip
    [later] = engine.publish({})
    engine.end("complete", engine.claim())
    low = low_water(engine)
    assert low.checkpoint_id is None
    assert f"process {late.info.backend_pid} has a transaction open since" in low.reason
    assert "importer" not in low.reason  # another tenant's program
    assert "postgres" not in low.reason
    late.commit()
    assert low_water(engine).reason == f"event {early} waits to be claimed"
    engine.end("complete", engine.claim())
    assert low_water(engine).checkpoint_id == str(later)


def test_somebody_always_writes_and_it_goes_on_all_the_same(engine: Engine, db: Database) -> None:
    writers = [db.connect(autocommit=False) for _ in range(2)]
    publish = "select unnest(ids) from headrace.publish('default', '{}')"
    writers[0].execute(publish)
    marks = []
    for n in range(1, 5):
        writers[n % 2].execute(publish)
        writers[1 - n % 2].commit()
        engine.end("complete", engine.claim())
        marks.append(int(checkpoint(engine).checkpoint_id or 0))
    assert marks == sorted(marks)
    assert marks[-1] > 0


def test_a_queue_that_is_being_filled_has_not_come_far(engine: Engine, db: Database) -> None:
    [past] = engine.publish({})
    engine.call("create_queue", namespace="default", queue="late", after=0)
    low = low_water(engine, queue="late")
    assert (low.checkpoint_id, low.reason) == (None, "the queue is being filled with what was published before it")  # fmt: skip
    while engine.tick().more or not (claims := engine.poll(queue="late")):
        pass
    engine.end("complete", claims[0], queue="late")
    assert low_water(engine, queue="late").checkpoint_id == str(past)


def test_thousands_of_kinds_wait_and_the_oldest_is_found(engine: Engine) -> None:
    ids = engine.publish(*({"type": f"t{n}", "priority": n % 10} for n in range(1100)))
    assert low_water(engine).reason == f"event {ids[0]} waits to be claimed"


def test_old_events_end_late_and_a_checkpoint_that_is_asked_for_finds_them(
    engine: Engine, db: Database
) -> None:
    [early] = engine.publish({"type": "a"})
    claim = engine.claim(types=["a"])
    db.sql("select setval('headrace.ids', headrace._id_at(50000))")
    engine.call("create_namespace", namespace="busy")
    busy = Engine(db, "busy")
    for _ in range(3):
        busy.publish(*[{}] * 50)
        busy.finish(busy.poll(max_events=50))
    engine.end("complete", claim)
    assert checkpoint(engine).checkpoint_id == str(early)


@pytest.mark.new_database
def test_where_nothing_was_finished_nobody_looks_through_all_that_others_did(
    engine: Engine, db: Database
) -> None:
    """The oldest event of a queue is in work for long: whoever saves its state does not look for what is not there."""
    db.sql(
        "insert into headrace.outcomes (id, at, bucket, namespace, queue, action, events, attempts)"
        " select n, headrace._now(), n >> 10, 0, 0, 'COMPLETED', '{}', '{}' from generate_series(1, 30000) n"
    )
    db.sql("select setval('headrace.ids', headrace._id_at(30000))")
    first, second = engine.publish({"type": "a"}, {"type": "b"})
    claim = engine.claim(types=["a"])
    engine.end("complete", engine.claim(types=["b"]))
    for document in range(2):
        _, touched = footprint(engine.connection, "select * from headrace.state('default')")
        entries = sum(its.entries for name, its in touched.relations.items() if name.startswith("outcomes"))  # fmt: skip
        assert entries < 25_000, document
    assert state(engine)["checkpointId"] is None
    engine.end("complete", claim)
    assert state(engine)["checkpointId"] == str(second) > str(first)


# --- that it is kept


@requirement("QS-1", "QS-10")
def test_a_checkpoint_that_is_asked_for_keeps_state_and_history(
    engine: Engine, db: Database
) -> None:
    ids = engine.publish(*[{"type": "a", "payload": {"secret": 1}, "correlation_id": "c"}] * 3)
    engine.end("complete", engine.claim())
    engine.claim()
    told = checkpoint(engine)
    assert (told.queue_id, told.checkpoint_id, told.event_count, told.lag) == ("default/main", str(ids[0]), 1, 2)  # fmt: skip
    kept = saved(engine)["default/main"]
    assert (kept.checkpoint_id, kept.status, kept.updated_at) == (str(ids[0]), "active", told.created_at)  # fmt: skip
    assert kept.queue_metrics["totalProcessed"] == 1
    assert kept.config == state(engine)["config"]
    assert [(event["eventId"], event["pattern"]) for event in kept.events] == [(str(id), "a") for id in ids[1:]]  # fmt: skip
    in_work, waiting = (event["metadata"] for event in kept.events)
    assert in_work.pop("processingStartTime")
    assert in_work == waiting == {"correlationId": "c", "retryCount": 0}
    assert not any("payload" in event for event in kept.events)
    db.advance(seconds=1)
    again = checkpoint(engine)
    assert [row.id for row in history(engine)] == [again.id, told.id]
    assert history(engine)[0] == again[:5]


@requirement("QS-10", "QS-17")
def test_tick_saves_what_has_changed_and_nothing_else(engine: Engine, db: Database) -> None:
    engine.call("create_queue", namespace="default", queue="idle", types=["never"])
    engine.publish({})
    save_at_the_next_tick(db, engine)
    first = saved(engine)
    assert set(first) == {"default/main", "default/idle"}
    engine.end("complete", engine.claim())
    engine.tick()
    assert saved(engine) == first  # not every second
    save_at_the_next_tick(db, engine)
    second = saved(engine)
    assert second["default/idle"] == first["default/idle"]
    assert second["default/main"].updated_at > first["default/main"].updated_at
    assert second["default/main"].events == []
    save_at_the_next_tick(db, engine)
    assert saved(engine) == second


def test_an_open_transaction_ends_and_the_checkpoint_follows(engine: Engine, db: Database) -> None:
    late = db.connect(autocommit=False)
    late.execute("select headrace.publish('default', '{\"type\": \"late\"}')")
    [last] = engine.publish({})
    engine.end("complete", engine.claim())
    save_at_the_next_tick(db, engine)
    assert saved(engine)["default/main"].checkpoint_id is None
    late.rollback()
    save_at_the_next_tick(db, engine)
    assert saved(engine)["default/main"].checkpoint_id == str(last)


@requirement("QS-10")
def test_a_queue_that_reaches_its_threshold_is_saved_at_once(engine: Engine, db: Database) -> None:
    engine.call("change_queue", namespace="default", queue="main", settings='{"persistence_threshold": 5}')  # fmt: skip
    engine.call("configure", name="state_interval", value="99999 minutes")
    engine.publish(*[{}] * 4)
    save_at_the_next_tick(db, engine)
    assert len(saved(engine)["default/main"].events) == 4
    engine.publish({})
    save_at_the_next_tick(db, engine)
    assert len(saved(engine)["default/main"].events) == 5
    engine.publish({})
    save_at_the_next_tick(db, engine)  # above it, it is saved from time to time again
    assert len(saved(engine)["default/main"].events) == 5


@requirement("QS-17")
def test_the_saved_state_stays_small_however_much_waits(engine: Engine, db: Database) -> None:
    ids = [id for _ in range(3) for id in engine.publish(*[{"payload": "x" * 500}] * 1000)]
    checkpoint(engine)
    kept = saved(engine)["default/main"]
    assert [event["eventId"] for event in kept.events] == [str(id) for id in ids[:1000]]
    [(size,)] = db.sql("select pg_column_size(events) from headrace.event_queue_state")
    assert size < 64 * 1024
    [told] = engine.call("state", namespace="default", limit=1)
    assert told.total == 3000


@requirement("QS-17")
def test_saving_can_be_switched_off(engine: Engine, db: Database) -> None:
    engine.call("configure", name="state_interval", value="off")
    engine.publish({})
    save_at_the_next_tick(db, engine)
    assert saved(engine) == {}
    for wrong in ("0 seconds", "often", "1 day"):
        with refused("QU001"):
            engine.call("configure", name="state_interval", value=wrong)
    engine.call("configure", name="state_interval", value="1 minute")
    save_at_the_next_tick(db, engine)
    assert set(saved(engine)) == {"default/main"}


@requirement("QS-12")
def test_tick_keeps_checkpoints_while_work_goes_on(engine: Engine, db: Database) -> None:
    ids = engine.publish(*[{}] * 3)
    for _ in range(3):
        engine.end("complete", engine.claim())
        save_at_the_next_tick(db, engine)
    assert [row.checkpoint_id for row in history(engine)] == [str(id) for id in reversed(ids)]
    save_at_the_next_tick(db, engine)
    assert len(history(engine)) == 3  # it has not moved


@requirement("QS-17")
def test_what_is_old_is_thinned_out(engine: Engine, db: Database) -> None:
    for _ in range(6):
        checkpoint(engine)
        db.advance(minutes=20)
    db.advance(days=1)
    assert len(history(engine)) == 6
    engine.tick(upkeep=True)
    hours = {row.created_at.replace(minute=0, second=0, microsecond=0) for row in history(engine)}
    assert len(hours) == len(history(engine)) in (2, 3)
    db.advance(days=40)
    engine.tick(upkeep=True)
    assert len(history(engine)) == 1  # the last one of all


def test_what_is_erased_is_erased_from_the_saved_state_too(engine: Engine, db: Database) -> None:
    secret, other = engine.publish({"correlation_id": "a person"}, {"correlation_id": "nobody"})
    checkpoint(engine)
    engine.call("erase", namespace="default", event_id=secret)
    [left] = saved(engine)["default/main"].events
    assert left["eventId"] == str(other)


def test_it_waits_for_nobody_who_saves(engine: Engine, db: Database) -> None:
    other = db.connect(autocommit=False)
    other.execute("select headrace.checkpoint('default')")
    engine.publish({})
    save_at_the_next_tick(db, engine)
    assert saved(engine) == {}
    other.commit()
    save_at_the_next_tick(db, engine)
    assert len(saved(engine)["default/main"].events) == 1


def test_an_old_snapshot_is_no_place_to_save_from(engine: Engine) -> None:
    engine.publish({})
    for function in ("checkpoint", "save_state"):
        with refused("QU030"), engine.connection.transaction():
            engine.connection.execute("set transaction isolation level repeatable read")
            engine.call(function, namespace="default")
    with engine.connection.transaction():
        engine.connection.execute("set transaction isolation level repeatable read")
        assert low_water(engine).lag == 1


def test_a_failure_keeps_nobody_from_ticking(engine: Engine, db: Database) -> None:
    db.sql("alter table headrace.event_queue_state add constraint broken check (false) not valid")
    engine.publish({"delay": 1})
    db.advance(seconds=11)
    assert engine.tick().due == 1


def test_checkpoints_are_told_page_by_page(engine: Engine, db: Database) -> None:
    ids = []
    for _ in range(3):
        ids.append(checkpoint(engine).id)
        db.advance(seconds=1)
    [newest] = engine.call("checkpoints", namespace="default", limit=1)
    older = engine.call("checkpoints", namespace="default", before=newest.created_at)
    assert [newest.id, *(row.id for row in older)] == ids[::-1]
    with refused("QU001"):
        engine.call("checkpoints", namespace="default", limit=0)
    assert newest.created_at - older[-1].created_at >= timedelta(seconds=2)

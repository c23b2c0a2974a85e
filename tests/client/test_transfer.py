"""export_state and import_state: a queue as a file, and a queue made of one."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

import headrace
from headrace import InvalidInput, LeaseLost, QueueFull, QueueNotPaused
from tests.client.clients import Client
from tests.database import Database, Server
from tests.engine.functions_helpers import contents

pytestmark = pytest.mark.one_database("a queue leaves and enters one shard at a time")

COUNTERS = """
select coalesce(e.payload ->> 'n', e.id::text), d.attempts, d.failures, d.crashes, d.suspect, d.due_at, d.lease is not null
from headrace.deliveries d join headrace.queues q on q.id = d.queue join headrace.events e on e.id = d.event
where q.name = %s order by e.id
"""
BODIES = """
select e.payload, e.type, e.tags, e.details, e.priority, e.max_retries, e.key, e.created_at from headrace.events e
join headrace.queues q on q.name = %(queue)s
where e.id in (select d.event from headrace.deliveries d where d.queue = q.id union all select x.event from headrace.dead_letters x where x.queue = q.id)
order by e.id
"""
DEAD = """
select x.payload, x.status, x.reason, x.error, x.fingerprint, x.attempts, x.failures, x.crashes, x.created_at, x.died_at
from headrace.dead_letters x join headrace.queues q on q.id = x.queue where q.name = %s order by x.event
"""


@pytest.fixture
def other(server: Server) -> Iterator[Database]:
    """Another database, which is no copy of the first."""
    database = server.lend()
    database.sql("update headrace.identity set id = gen_random_uuid()")
    yield database
    database.give_back()


def live(db: Database, name: str = "work", count: int = 40) -> "headrace.EventQueue":
    """A queue with something in every place: ready, in packs and alone, delayed, keyed, held, in batches, dead."""
    admin = db.queue()
    admin.create_queue(name, max_retries=5, high_watermark=1000, metadata={"team": None})
    admin.change_queue("main", takes=False)
    queue = db.queue(queue=name, worker="w")
    admin.publish_many([("plain", {"n": f"plain {n}", "nothing": None}) for n in range(count)])
    full = {
        "tags": ["b", "a"], "priority": 2, "max_retries": 7, "title": "T", "version": "2.0", "correlation_id": "c",
        "source": {"type": "integration", "id": "xero_main", "name": "Xero"}, "headers": {"x": None}, "idempotency_key": "once",
    }  # fmt: skip
    admin.publish("full", {"n": "full", "big": 10**30}, **full)
    admin.publish("late", {"n": "late"}, delay=3600)
    for n in range(5):
        admin.publish("keyed", {"n": f"keyed {n}"}, key="k")
    admin.publish("retried", {"n": "retried"})
    queue.fail(queue.poll(types=["retried"])[0], "Connection timeout", retry_in=600)
    admin.publish("blocking", {"n": "blocking 0"}, key="b")
    admin.publish("blocking", {"n": "blocking 1"}, key="b")
    queue.fail(queue.poll(types=["blocking"])[0], "not yet", retry_in=600)
    admin.publish("dead", {"n": "dead"}, max_retries=0)
    queue.fail(queue.poll(types=["dead"])[0], "broken")
    admin.publish_many([("batch", {"n": f"batch {n}"}) for n in range(3)])
    claims = queue.poll(types=["batch"], max_events=3)
    queue.complete(claims[0])
    admin.publish("held", {"n": "held"})
    [held] = queue.poll(types=["held"], each=True)
    queue.save_progress(held, {"step": 3})
    return queue


def file_of(client: Client, queue: Any, **options: Any) -> bytes:
    return b"".join(queue.export_state(**options))


def in_all(file: bytes) -> list[dict[str, Any]]:
    """The events of a file."""
    lines = [json.loads(line) for line in file.splitlines()]
    return [event for line in lines[1:-1] for event in line["events"]]


def payloads(db: Database, name: str = "work") -> list[Any]:
    return [row[0] for row in db.sql(BODIES, {"queue": name})]


def as_ready(rows: list[Any]) -> list[Any]:
    """What was in work is ready where it arrives."""
    return [row[:-1] for row in rows]


def test_everything_arrives_as_it_was(client: Client, db: Database, other: Database) -> None:
    live(db)
    file = file_of(client, client.queue(queue="work"))
    other.queue().publish("something", {})  # so that ids are not kept
    done = client.queue_at(other.dsn, queue="work").import_state([file])
    before, after = db.sql(COUNTERS, ["work"]), other.sql(COUNTERS, ["work"])
    assert as_ready(after) == as_ready(before)
    assert not any(row[-1] for row in after)
    assert other.sql(BODIES, {"queue": "work"}) == db.sql(BODIES, {"queue": "work"})
    assert other.sql(DEAD, ["work"]) == db.sql(DEAD, ["work"]) != []
    assert done.is_new
    assert not done.kept_ids
    assert done.already == 0
    assert (done.delayed, done.dead) == (3, 1)
    assert done.ready + done.delayed + done.dead == done.stored == len(in_all(file))
    made, old = other.queue().queue("work"), db.queue().queue("work")
    assert (made.max_retries, made.high_watermark, made.metadata) == (5, 1000, {"team": None})
    assert made.state == old.state
    [progress] = other.sql("select value from headrace.progress")
    assert progress == ({"step": 3},)
    state = other.queue(queue="work").state(limit=1000)
    [retried] = [event for event in state["events"] if event["pattern"] == "retried"]
    assert retried["metadata"]["retryCount"] == 1
    assert retried["metadata"]["lastError"] == "Connection timeout"


def test_what_arrives_is_worked_off_in_the_order_of_its_keys(
    client: Client, db: Database, other: Database
) -> None:
    live(db)
    target = other.queue(queue="work")
    target.import_state([file_of(client, client.queue(queue="work"))])
    seen = []
    for _ in range(3):
        while claims := target.poll(max_events=50):
            seen += [claim.payload["n"] for claim in claims]
            target.complete(claims)
        other.advance(hours=2)
        target.tick()
    assert sorted(seen) == sorted(set(seen))
    assert [one for one in seen if one.startswith("keyed")] == [f"keyed {n}" for n in range(5)]
    assert [one for one in seen if one.startswith("blocking")] == ["blocking 0", "blocking 1"]
    assert {"full", "late", "retried", "held", "batch 1", "batch 2"} < set(seen)
    assert other.sql("select count(*) from headrace.deliveries") == [(0,)]


def test_a_database_that_never_held_an_event_keeps_the_ids(
    client: Client, db: Database, other: Database
) -> None:
    live(db)
    file = file_of(client, client.queue(queue="work"))
    done = client.queue_at(other.dsn, queue="work").import_state([file])
    assert done.kept_ids
    ids = [event["id"] for event in in_all(file)]
    assert other.sql("select id from headrace.events order by id") == [(id,) for id in ids]
    new = other.queue().publish("new", {})
    assert new.id > max(ids)
    again = client.queue_at(other.dsn, queue="work").import_state([file])
    assert (again.stored, again.already, again.kept_ids) == (0, len(ids), False)


def test_a_role_of_some_namespaces_does_not_take_the_numbers_of_all(
    db: Database, other: Database, server: Server
) -> None:
    db.queue().publish("t", {})
    file = list(db.queue().export_state())
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute("create role importer login in role headrace_admin")
        try:
            other.queue().bind_role("importer", ["default"])
            done = headrace.EventQueue(other.connect(user="importer")).import_state(file)
            assert (done.ready, done.kept_ids) == (1, False)
        finally:
            other.sql("select headrace.unbind_role('importer')")
            other.close()
            admin.execute("drop role importer")


def test_the_settings_of_main_come_too_where_no_event_ever_was(
    db: Database, other: Database
) -> None:
    db.queue().change_queue("main", max_retries=9)
    db.queue().publish("a", {})
    assert not other.queue().import_state(db.queue().export_state()).is_new
    assert other.queue().queue().max_retries == 9


FAIR = {"fair_by": {"tag": "t:"}, "aging": 60}


@pytest.mark.parametrize("turns", [{"order": "oldest"}, FAIR], ids=["oldest", "fair"])
def test_a_queue_is_made_with_every_setting_that_it_had(
    db: Database, other: Database, turns: dict[str, Any]
) -> None:
    settings = {
        **{"types": ["a.*"], "tags": ["x"], "all_tags": True, "max_retries": 5},
        **{"backoff": {"kind": "fixed", "delay": 7}, "max_queue_depth": 10_000, "high_watermark": 900},
        **{"batch_size": 10, "processing_interval": 2, "persistence_threshold": 50, "max_snoozes": 3},
        **{"limits": [{"scope": "queue", "at_once": 7}], **turns},
        **{"require_lease_token": True, "lease": 600.5, "metadata": {"team": None}},
    }  # fmt: skip
    db.queue().create_queue("work", **settings)
    given = db.queue().queue("work")
    unset = db.queue().queue()
    same = [
        name for name in given.__struct_fields__ if getattr(given, name) == getattr(unset, name)
    ]
    others = ({"order", *FAIR} - turns.keys()) | {"state", "takes", "depth", "filling"}
    assert set(same) <= others, "a setting that is not in the test"
    other.queue(queue="work").import_state(db.queue(queue="work").export_state())
    made = other.queue().queue("work")
    assert replace(made, created_at=given.created_at) == given


def test_a_second_import_changes_nothing(client: Client, db: Database, other: Database) -> None:
    live(db)
    file = file_of(client, client.queue(queue="work"))
    other.queue().publish("something", {})
    target = client.queue_at(other.dsn, queue="work")
    first = target.import_state([file])
    worker = other.queue(queue="work")
    worker.complete(worker.poll(max_events=10))
    places = other.sql(COUNTERS, ["work"])
    again = target.import_state([file])
    assert (again.stored, again.ready, again.delayed, again.dead) == (0, 0, 0, 0)
    assert again.already == first.ready + first.delayed + first.dead
    assert other.sql(COUNTERS, ["work"]) == places


def test_an_event_of_two_queues_is_stored_once_and_delivered_to_each(
    client: Client, db: Database, other: Database
) -> None:
    admin = db.queue()
    admin.create_queue("a")
    admin.create_queue("b")
    admin.publish_many([("t", {"n": n}) for n in range(20)])
    other.queue().publish("something", {})
    made = [
        client.queue_at(other.dsn, queue=name).import_state(
            [file_of(client, client.queue(queue=name))]
        )
        for name in ("a", "b")
    ]
    assert [(one.stored, one.ready, one.already) for one in made] == [(20, 20, 0), (0, 20, 0)]
    assert other.sql("select count(*) from headrace.events where type = 't'") == [(20,)]
    assert [len(other.queue(queue=name).poll(max_events=100)) for name in ("a", "b", "main")] == [20, 20, 1]  # fmt: skip


def test_no_other_queue_gets_anything(client: Client, db: Database, other: Database) -> None:
    db.queue().publish_many([("t", {})] * 20)
    other.queue().create_queue("everything")
    other.queue().publish("something", {})
    file = file_of(client, client.queue())
    client.queue_at(other.dsn, queue="here").import_state([file])
    depths = {queue.name: queue.depth for queue in other.queue().queues()}
    assert depths == {"main": 1, "everything": 1, "here": 20}
    other.queue().tick()
    assert {queue.name: queue.depth for queue in other.queue().queues()} == depths


def test_a_file_comes_back_into_its_own_database(client: Client, db: Database) -> None:
    queue = live(db)
    file = file_of(client, client.queue(queue="work"))
    before = db.sql(COUNTERS, ["work"])
    same = client.queue(queue="work").import_state([file])
    assert (same.stored, same.ready, same.already) == (0, 0, len(in_all(file)))
    assert db.sql(COUNTERS, ["work"]) == before
    beside = client.queue(queue="beside").import_state([file])
    assert (beside.stored, beside.already) == (0, 0)
    assert as_ready(db.sql(COUNTERS, ["beside"])) == as_ready(before)
    queue.delete_queue("work", with_deliveries=True)
    assert client.queue(queue="work").import_state([file]).already == 0


def test_an_event_that_was_erased_does_not_come_back(
    client: Client, db: Database, other: Database
) -> None:
    db.queue().create_queue("b")
    own = db.queue().publish("t", {"secret": 1}).id
    first, second = (file_of(client, client.queue(queue=name)) for name in ("main", "b"))
    other.queue().publish("something", {})
    client.queue_at(other.dsn, queue="a").import_state([first])
    [(there,)] = other.sql("select id from headrace.imported")
    other.queue().erase(there)
    done = client.queue_at(other.dsn, queue="b").import_state([second])
    assert (done.stored, done.ready, done.already) == (0, 0, 1)
    assert client.queue_at(other.dsn, queue="a").import_state([first]).already == 1
    db.queue().erase(own)
    assert client.queue(queue="c").import_state([first]).already == 1
    assert db.queue(queue="c").poll() == other.queue(queue="b").poll() == []


def test_two_copies_of_a_database_do_not_hide_each_others_events(
    client: Client, db: Database, server: Server, other: Database
) -> None:
    """They have one identity and give the same numbers to different events."""
    copy = server.lend()
    try:
        for one in (db, copy):
            one.queue().publish("t", {"in": one.name})
        other.queue().publish("something", {})
        for one in (db, copy):
            file = b"".join(one.queue().export_state())
            assert client.queue_at(other.dsn, queue="all").import_state([file]).stored == 1
    finally:
        copy.give_back()
    found = [one.payload["in"] for one in other.queue(queue="all").poll(max_events=5)]
    assert found == [db.name, copy.name]


@pytest.mark.parametrize("part", ["cut", "changed"])
def test_a_file_that_is_not_whole_is_refused_and_nothing_is_left(
    client: Client, db: Database, other: Database, part: str
) -> None:
    live(db, count=1500)
    file = file_of(client, client.queue(queue="work"))
    assert file.count(b"\n") >= 4  # several parts
    target = client.queue_at(other.dsn, queue="work")
    before = contents(other)
    lines = [0]
    for line in file.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    places = sorted({*range(0, len(file), len(file) // 37), *lines[:-1], *(end - 1 for end in lines[1:]), *range(len(file) - 90, len(file))})  # fmt: skip
    for place in places:
        if part == "cut":
            damaged = file[:place]
        else:
            damaged = file[:place] + bytes([file[place] ^ 1]) + file[place + 1 :]
        with pytest.raises(InvalidInput):
            target.import_state([damaged])
    for longer in (file + b"\n", file + file, file + b" "):
        with pytest.raises(InvalidInput):
            target.import_state([longer])
    assert contents(other) == before
    assert target.import_state([file]).stored > 1500


def test_a_file_that_was_made_up_is_refused_and_nothing_is_left(
    db: Database, other: Database
) -> None:
    """With a digest that is right: what is in it is looked at like what anybody publishes."""
    from headrace.engine import transfer

    db.queue().publish("t", {"n": 1})
    header, _, _ = b"".join(db.queue().export_state()).splitlines()
    good = {
        "id": 1,
        "created_at": "2026-01-01T00:00:00Z",
        "type": "t",
        "place": "ready",
        "payload": {},
    }
    before = contents(other)
    wrong: list[Any] = [
        *({**good, "id": id} for id in (0, -1, "1", 1.5, 10**18, None)),
        *({**good, "created_at": at} for at in ("1999-01-01T00:00:00Z", "2999-01-01T00:00:00Z", "soon", None)),
        *({**good, "place": place} for place in ("somewhere", None)),
        *({**good, "attempts": n} for n in (-1, 10**10, "x")),
        *({**good, "type": type} for type in ("", "a*", 7)),
        *({**good, name: value} for name, value in (("priority", 12), ("tags", "x"), ("details", []), ("details", {"unknown": 1}), ("suspect", "x"), ("last_error", {}), ("last_error", "x"))),
        *({**good, "place": "dead"}, {**good, "place": "dead", "died_at": "x", "reason": "", "status": "FAILED"}),
        *([], "x", None, {}),
    ]  # fmt: skip
    for one in wrong:
        export = transfer.Export("default", "main", move=False)
        lines = [export.line(header.decode())]
        made = transfer.ExportedPart(json.dumps([good, one]), 2, 2, {})
        lines += [export.line(made), export.line(transfer.ExportedPart("[]", 0, None, {}))]
        with pytest.raises(InvalidInput):
            other.queue().import_state(lines)
    twice = transfer.Export("default", "main", move=False)
    lines = [twice.line(header.decode()), twice.line(transfer.ExportedPart(json.dumps([good, good]), 2, 2, {}))]  # fmt: skip
    with pytest.raises(InvalidInput):
        other.queue().import_state([*lines, twice.line(transfer.ExportedPart("[]", 0, None, {}))])
    assert contents(other) == before


def test_a_backup_fences_nothing_and_is_of_one_moment(client: Client, db: Database) -> None:
    queue = client.queue()
    queue.publish_many([("t", {"n": n}) for n in range(2500)])
    [held] = queue.poll(each=True)
    lines = queue.export_state()
    header = next(lines)
    db.queue().publish("late", {})
    worker = db.queue()
    while claims := worker.poll(max_events=500):
        worker.complete(claims)
    file = b"".join([header, *lines])
    assert [event["payload"]["n"] for event in in_all(file)] == list(range(2500))
    queue.complete(held)


def test_a_move_wants_a_queue_that_is_paused_and_takes_back_what_is_claimed(
    client: Client, db: Database, other: Database
) -> None:
    work = live(db)
    batch = db.queue(queue="work", worker="late").poll(max_events=7)
    [held] = db.queue(queue="work", worker="held").poll(each=True)
    queue = client.queue(queue="work")
    with pytest.raises(QueueNotPaused, match="is active"):
        file_of(client, queue, move=True)
    assert sum(one.holds for one in work.workers()) == 11
    work.pause()
    file = file_of(client, queue, move=True)
    assert not any(row[-1] for row in db.sql(COUNTERS, ["work"]))
    assert [entry.action for entry in work.log(held.id)][-1] == "RESET"
    for claim in (*batch, held):
        with pytest.raises(LeaseLost):
            work.complete(claim)
    assert not [event for event in in_all(file) if event["place"] == "in_progress"]
    other.queue(queue="work").import_state([file])
    assert other.sql(COUNTERS, ["work"]) == db.sql(COUNTERS, ["work"])
    assert work.queue().state == "paused"


def test_a_move_pauses_a_queue_that_is_draining(client: Client, db: Database) -> None:
    work = live(db)
    work.drain()
    file = file_of(client, client.queue(queue="work"), move=True)
    assert work.queue().state == "paused"
    assert json.loads(file.splitlines()[0])["move"] is True
    assert work.poll() == []


def test_what_was_published_into_the_paused_queue_meanwhile_comes_with_the_next_file(
    client: Client, db: Database, other: Database
) -> None:
    work = live(db)
    work.pause()
    first = file_of(client, client.queue(queue="work"), move=True)
    db.queue().publish("late", {"n": "came late"})
    second = file_of(client, client.queue(queue="work"), move=True)
    target = client.queue_at(other.dsn, queue="work")
    target.import_state([first])
    assert target.import_state([second]).stored == 1
    assert payloads(other)[-1] == {"n": "came late"}


def test_a_move_waits_for_a_claim_that_is_not_committed(db: Database) -> None:
    queue = db.queue()
    queue.publish("t", {})
    open_claim = db.connect(autocommit=False)
    open_claim.execute("select * from headrace.poll('default')")
    queue.pause()
    from headrace.driver.run import run
    from headrace.engine.transfer import fence

    connection = db.connect()
    step = run(connection, fence("default", "main", None, "me"), prepare=False)
    assert step.waits_for
    assert str(open_claim.info.backend_pid) in (step.held_by or "")
    open_claim.commit()
    step = run(connection, fence("default", "main", step.waits_for, "me"), prepare=False)
    assert (step.fenced, step.is_busy, step.waits_for) == (1, False, [])


def test_a_file_is_a_path_an_open_file_or_its_lines(
    client: Client, db: Database, tmp_path: Path
) -> None:
    db.queue().publish_many([("t", {"n": n}) for n in range(3)])
    path = tmp_path / "state.jsonl"
    path.write_bytes(file_of(client, client.queue()))
    told: list[int] = []
    into = [client.queue(queue=name) for name in ("a", "b", "c")]
    assert into[0].import_state(path, progress=told.append).ready == 3
    with path.open("rb") as file:
        assert into[1].import_state(file).ready == 3
    assert into[2].import_state(path.read_bytes().splitlines(keepends=True)).ready == 3
    assert told == [3]


def test_an_import_that_is_not_ended_cannot_be_committed(db: Database, other: Database) -> None:
    db.queue().publish("t", {})
    header, part, _ = b"".join(db.queue().export_state()).splitlines()
    events = json.dumps(json.loads(part)["events"])
    before = contents(other)
    connection = other.connect(autocommit=False)

    def call(**arguments: Any) -> Any:
        given = {"namespace": "default", "import": id, **arguments}
        named = ", ".join(f"{name} => %({name})s" for name in given)
        query = f"select stored, ready, already from headrace.import_state({named})"
        return connection.execute(query, given).fetchone()

    id = uuid.uuid4()
    call(header=header.decode(), events=events)
    with pytest.raises(
        psycopg.errors.ForeignKeyViolation, match="the last call of an import has the total"
    ):
        connection.commit()
    assert contents(other) == before
    call(header=header.decode())
    with pytest.raises(psycopg.Error, match="is not whole: it has 1 events, and 0 were imported"):
        call(total=1)
    connection.rollback()
    with pytest.raises(psycopg.Error, match="the first call of an import has the header"):
        call(events=events)
    connection.rollback()
    assert contents(other) == before
    assert call(header=header.decode(), events=events, total=1) == (1, 1, 0)
    connection.commit()
    assert other.queue().poll()[0].type == "t"


def test_an_import_goes_past_a_limit_and_into_a_queue_that_drains(
    db: Database, other: Database
) -> None:
    db.queue().publish_many([("t", {"n": n}) for n in range(3)])
    file = list(db.queue().export_state())
    queue = other.queue()
    queue.create_queue("small", max_queue_depth=1)
    small = other.queue(queue="small")
    small.drain()
    done = small.import_state(file)
    assert (done.is_new, done.ready) == (False, 3)
    assert small.stats().ready == 3
    assert other.sql("select state from headrace.queues where name = 'small'") == [("draining",)]
    small.resume()
    with pytest.raises(QueueFull):
        queue.publish("t", {})


def test_what_an_export_gives_in_sql_an_import_takes(db: Database) -> None:
    db.queue().publish("t", {"n": 1})
    copy = """
        select i.is_new, i.ready
        from headrace.export_queue('default', 'main') header,
             headrace.export_events('default', 'main') part,
             headrace.import_state('default', 'copy', header => header, events => part.events, total => part.size) i
    """
    assert db.sql(copy) == [(True, 1)]
    assert [event.payload for event in db.queue(queue="copy").poll()] == [{"n": 1}]


def test_events_of_past_months_are_found_by_their_ids(db: Database, other: Database) -> None:
    for month in range(3):
        db.queue().publish("t", {"month": month})
        db.advance(days=31)
    db.queue().tick(upkeep=True)
    other.queue().publish("something", {})
    other.queue().tick(upkeep=True)
    other.step(days=93)  # the clocks of both agree
    other.queue().import_state(db.queue().export_state())
    other.queue().tick(upkeep=True)
    for event in other.queue().events(types=["t"]).events:
        assert other.queue().event(event.id).payload is not None
    worker = other.queue()
    claims = worker.poll(types=["t"], max_events=10)
    assert [claim.payload["month"] for claim in claims] == [0, 1, 2]
    worker.complete(claims)
    assert {worker.event(claim.id).status for claim in claims} == {"COMPLETED"}


def test_an_export_in_a_transaction_of_the_callers_is_of_that_moment(db: Database) -> None:
    db.queue().publish_many([("t", {})] * 1001)
    connection = db.connect(autocommit=False)
    queue = headrace.EventQueue(connection)
    with pytest.raises(headrace.WrongIsolation):
        list(queue.export_state())
    connection.rollback()
    connection.execute("set transaction isolation level repeatable read")
    assert len(list(queue.export_state())) == 4
    with pytest.raises(InvalidInput, match="transactions of its own"):
        list(queue.export_state(move=True))

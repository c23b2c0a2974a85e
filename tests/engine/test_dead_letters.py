"""dead_letters, dead_letter and dead_letter_groups: what died, and why."""

from datetime import timedelta
from typing import Any

import pytest

from tests.database import Database
from tests.engine.footprint import footprint
from tests.engine.functions_helpers import Engine, refused, stop_the_clock
from tests.requirements import requirement

TRACE = """Traceback (most recent call last):
  File "/app/worker.py", line {line}, in run
    handler(event)
    ~~~~~~~^^^^^^^
  File "/app/{module}.py", line 7, in handler
    raise ValueError(f"no customer {{id}}")
ValueError: no customer {id}
and a second line of {id}"""

# A great many letters of twenty kinds.
MANY = """
insert into headrace.dead_letters (event, queue, namespace, created_at, died_at, status, reason, error, fingerprint, attempts,
                                   failures, crashes, route, priority, type, payload)
select g, q.id, q.namespace, now(), now(), 'FAILED', 'no', 'kind ' || chr(65 + g % 20), chr(65 + g % 20), 1, 1, 0, 1, 5, 't' || g % 3,
       to_jsonb(repeat('x', 300))
from headrace.queues q, generate_series(1, 20000) g where q.space = 'default'
"""


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def die(engine: Engine, error: str | None = "no", **event: Any) -> int:
    """The id of a new dead letter."""
    [id] = engine.publish({"max_retries": 0, **event})
    [claim] = engine.poll()
    assert claim.id == id
    engine.finish([claim], {"1": {"action": "fail", **({"error": error} if error else {})}})
    return id


def letters(engine: Engine, **filter: Any) -> list[int]:
    return [row.id for row in engine.call("dead_letters", namespace="default", **filter)]


def fingerprint(db: Database, error: str | None, reason: str = "Max retries exceeded") -> str:
    [(told,)] = db.sql("select headrace._fingerprint(%s, %s)", [reason, error])
    return told


@requirement("PG-26", "PG-25")
def test_a_dead_letter_tells_why_and_what_it_came_from(engine: Engine, db: Database) -> None:
    details = {"title": "Hello", "correlation_id": "c", "causation_id": "b", "producer": "p"}
    created_at = engine.now()
    id = die(engine, "boom", type="order", tags=["x"], payload={"a": 1}, **details)
    [letter] = engine.call("dead_letter", namespace="default", event_id=id)
    assert (letter.type, letter.tags, letter.payload) == ("order", ["x"], {"a": 1})
    assert letter.details == details
    assert (letter.status, letter.reason, letter.error) == (
        "FAILED",
        "Max retries exceeded",
        "boom",
    )
    assert (letter.attempts, letter.retry_count, letter.crashes, letter.max_retries) == (1, 1, 0, 0)
    assert letter.created_at == letter.died_at == created_at
    [listed] = engine.call("dead_letters", namespace="default")
    assert listed == letter._replace(payload=None)
    assert engine.call("dead_letters", namespace="default", payload=True) == [letter]


def test_dead_letters_are_listed_by_type_error_and_time(engine: Engine, db: Database) -> None:
    first = die(engine, "timeout after 3 s", type="order.new")
    start = engine.now()
    db.advance(minutes=1)
    second = die(engine, "timeout after 17 s", type="order.old")
    third = die(engine, "no such host", type="mail")
    assert letters(engine) == [third, second, first]
    assert letters(engine, types=["order.*"]) == [second, first]
    assert letters(engine, types=["order.new", "mail"]) == [third, first]
    assert letters(engine, fingerprint=fingerprint(db, "timeout after 5 s")) == [second, first]
    assert letters(engine, since=start + timedelta(seconds=1)) == [third, second]
    assert letters(engine, until=start + timedelta(minutes=1)) == [first]
    assert letters(engine, limit=2) == [third, second]
    assert letters(engine, limit=2, before=second) == [first]
    engine.call("reset", namespace="default", event_id=second)
    assert letters(engine) == [third, first]


@requirement("PG-26")
def test_dead_letters_are_grouped_by_kind_of_error(engine: Engine, db: Database) -> None:
    start = engine.now()
    ids = []
    for n in range(4):
        ids.append(die(engine, TRACE.format(line=n, module="m", id=n), type=f"t{n % 2}"))
        db.advance(seconds=1)
    other = die(engine, "no such host")
    groups = engine.call("dead_letter_groups", namespace="default")
    assert [group.letters for group in groups] == [4, 1]
    assert groups[0].message == "ValueError: no customer 3"
    assert groups[0].types == ["t0", "t1"]
    assert groups[0].first_died_at == start
    assert groups[0].last_died_at == start + timedelta(seconds=3)
    assert groups[0].sample_ids == ids[:0:-1]
    assert groups[1].sample_ids == [other]
    assert letters(engine, fingerprint=groups[0].fingerprint) == ids[::-1]
    assert len(engine.call("dead_letter_groups", namespace="default", limit=1)) == 1


@pytest.mark.parametrize(
    ("one", "another"),
    [
        ("took 3.5 s", "took 17 s"),
        ("no user 'ann'", "no user 'bob'"),
        ('key "a b" is missing', 'key "" is missing'),
        ("cannot open /var/lib/a-b/c.txt", "cannot open /tmp/x"),
        (r"cannot open C:\a\b.txt", r"cannot open D:\c\d"),
        ("at 0x7f3a2b", "at 0xdeadbeef"),
        ("id 3b241101-e2bb-4255-8caf-4136c566a962", "id 00000000-0000-0000-0000-000000000000"),
        ("digest 9f86d081884c7d65", "digest 2c26b46b68ffc68f"),
        (TRACE.format(line=1, module="a", id=1), TRACE.format(line=2, module="b", id="22")),
        ("\n\n  TypeError: x is 1\n    at a.js:1:2", "TypeError: x is 2\n    at b.js:99:1"),
        (None, ""),
    ],
)
def test_what_differs_between_events_does_not_make_another_kind(
    db: Database, one: str | None, another: str | None
) -> None:
    if one and one.startswith("\n"):
        another = "\n  " + str(another)
    assert fingerprint(db, one) == fingerprint(db, another)


def test_what_is_not_the_same_error_is_another_kind(db: Database) -> None:
    errors = ["no user 'a'", "no host 'a'", "ValueError: 1", "KeyError: 1", "it can't be", "it can be",
              TRACE.format(line=1, module="a", id=1), "took 1 s", "took 1 m", None]  # fmt: skip
    assert len({fingerprint(db, error) for error in errors}) == len(errors)
    assert fingerprint(db, None, "Crashed") != fingerprint(db, None, "No handler")


def test_an_error_of_any_size_and_shape_has_a_fingerprint(engine: Engine, db: Database) -> None:
    for error in (
        "x" * 65536,
        "'" * 65536,
        "\n" * 65536,
        "/" * 65536,
        '  File "\n' * 7000,
        "1" * 65536,
    ):
        assert len(fingerprint(db, error)) == 12
    die(engine, "y" * 70000)
    [group] = engine.call("dead_letter_groups", namespace="default")
    assert len(group.message) == 1000


@pytest.mark.new_database
def test_groups_are_read_from_an_index(engine: Engine, db: Database) -> None:
    db.sql(MANY)
    db.connect().execute("vacuum analyze headrace.dead_letters")
    groups, touched = footprint(
        engine.connection, "select * from headrace.dead_letter_groups('default')"
    )
    assert [(group.letters, len(group.sample_ids)) for group in groups] == [(1000, 3)] * 20
    assert touched["dead_letters"].blocks <= 20 + 5, str(touched)
    page, touched = footprint(engine.connection, "select * from headrace.dead_letters('default')")
    assert len(page) == 20
    assert touched.total.entries < 100, str(touched)


def test_what_is_not_there_or_cannot_be_asked_is_refused(engine: Engine) -> None:
    [id] = engine.publish({})
    with refused("QU012"):
        engine.call("dead_letter", namespace="default", event_id=id)
    for function in ("dead_letters", "dead_letter_groups"):
        with refused("QU010"):
            engine.call(function, namespace="nowhere")
        with refused("QU011"):
            engine.call(function, namespace="default", queue="other")
        for wrong in (0, 1001, None):
            with refused("QU001"):
                engine.call(function, namespace="default", limit=wrong)
    with refused("QU001"):
        letters(engine, types=[])


@requirement("G16")
def test_namespaces_are_told_apart(engine: Engine, db: Database) -> None:
    id = die(engine)
    engine.call("create_namespace", namespace="other")
    other = Engine(db, "other")
    assert other.call("dead_letters", namespace="other") == []
    assert other.call("dead_letter_groups", namespace="other") == []
    with refused("QU012"):
        other.call("dead_letter", namespace="other", event_id=id)

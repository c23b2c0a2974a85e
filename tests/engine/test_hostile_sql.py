"""What a hostile or unlucky caller sends through SQL: refused with nothing stored, or back as it was."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import psycopg
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.database import Database, Server
from tests.engine.functions_helpers import Engine, contents, differences, refused
from tests.requirements import requirement
from tests.values import JSON, acceptable, same

MIB = 1024 * 1024
DEEPEST = 149  # brackets around a value that publish accepts
TEXTS = [
    "O'Brien; drop table headrace.events; --",
    '"quoted" and \\escaped\\',
    "$1 %s %(x)s {0} ${jndi} <script>",
    "👩‍👩‍👧 🏴‍☠️",
    "שלום עולם \u202e abc",
    "\uffff\ufffe\ufdd0\U0010ffff",
    "\u200b\ufeff",
    "e\u0301 é ﷺ",
    "null",
    "NaN",
    "\\u0000 spelled out",
]


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def event(payload: str) -> str:
    """An event as text, with a payload as it stands."""
    return f'{{"type": "a", "payload": {payload}}}'


def nested(depth: int, inner: str = "1") -> str:
    return "[" * depth + inner + "]" * depth


def text_of(size: int) -> str:
    """A payload that is exactly so many bytes long as PostgreSQL writes it."""
    return '"' + "x" * (size - 2) + '"'


# --- payloads that somebody could not read

UNREADABLE: dict[str, tuple[str, str]] = {
    "a number no double can hold": (event('{"a": 1e4400}'), "QU002"),
    "its negative": (event("-1e4400"), "QU002"),
    "one just too large": (event("1.8e308"), "QU002"),
    "one too near to nothing": (event('{"a": [1e-4400]}'), "QU002"),
    "its negative, too": (event("-1e-4400"), "QU002"),
    "one just too near": (event("2e-324"), "QU002"),
    "the same, digit for digit": (event("1" + "0" * 309), "QU002"),
    "deep in the payload": (event('{"a": [{"b": [0, 1e4400]}]}'), "QU002"),
    "81 kB that print as more than a gigabyte": (
        event("[" + ",".join(["1e131071"] * 9000) + "]"),
        "QU002",
    ),
    "60 numbers that print as 8 MB": (event("[" + ",".join(["1e131071"] * 60) + "]"), "QU002"),
    "151 brackets": (event(nested(DEEPEST + 2)), "QU002"),
    "as many braces": (event('{"a":' * 152 + "1" + "}" * 152), "QU002"),
    "10,000 brackets": (event(nested(10_000)), "QU002"),
    "1 MiB and a byte": (event(text_of(MIB + 1)), "QU003"),
    "1 MiB of two-byte letters and one": (event('"' + "é" * (MIB // 2) + '"'), "QU003"),
    "1 MiB of small numbers": (event("[" + ",".join(["7"] * 350_000) + "]"), "QU003"),
    "10 MiB": (event(text_of(10 * MIB)), "QU003"),
    "NUL": (event('"\\u0000"'), "22P05"),
    "NUL in a key": (event('{"a\\u0000b": 1}'), "22P05"),
    "a lone surrogate": (event('"\\ud800"'), "22P02"),
    "a lone low surrogate": (event('"\\udc00 x"'), "22P02"),
    "surrogates the wrong way round": (event('"\\udc00\\ud800"'), "22P02"),
    "no JSON": ("{", "22P02"),
    "a half": ("{]", "22P02"),
    "two values": ("{} {}", "22P02"),
    "NaN": (event("NaN"), "22P02"),
    "Infinity": (event("-Infinity"), "22P02"),
    "a comment": ("{} // x", "22P02"),
}


@requirement("G18")
def test_what_somebody_could_not_read_is_refused_alone_or_in_a_batch(
    engine: Engine, db: Database
) -> None:
    before = contents(db)
    wrong = []
    for name, (text, sqlstate) in UNREADABLE.items():
        ways = [text, f"[{event('1')}, {text}]", text.replace('"type": "a"', '"title": "T"')]
        for events in ways if len(text) < MIB else ways[:1]:
            try:
                with refused(sqlstate):
                    engine.publish_json(events)
            except (AssertionError, pytest.fail.Exception) as failure:
                wrong.append(f"{name}: {events[:60]}: {failure}"[:300])
    assert not wrong, "\n".join(wrong)
    assert differences(before, contents(db)) == set()


@requirement("G18")
def test_a_hundred_thousand_brackets_are_refused_by_postgresql_itself(
    engine: Engine, db: Database
) -> None:
    with refused("54001"):  # its parser's stack, before anything of ours is called
        engine.publish_json(event(nested(100_000)))
    assert db.placement() == {}


@requirement("G18", "API-22")
def test_a_payload_of_exactly_a_mebibyte_is_accepted(engine: Engine) -> None:
    [alone] = engine.publish_json(event(text_of(MIB)))
    _, batched = engine.publish_json(f"[{event('1')}, {event(text_of(MIB))}]")
    [braced] = engine.publish_json(event(f'{{"k": {text_of(MIB - 7)}}}'))

    assert engine.event(alone).payload == "x" * (MIB - 2)
    assert engine.event(batched).payload == "x" * (MIB - 2)
    assert engine.event(braced).payload == {"k": "x" * (MIB - 9)}
    assert sum(len(str(claim.payload)) >= MIB - 9 for claim in engine.poll(max_events=10)) == 3


@requirement("G18")
def test_what_is_just_within_the_limits_comes_back_as_it_was(engine: Engine) -> None:
    for text in (
        nested(DEEPEST),
        nested(120),
        '{"a":' * DEEPEST + "1" + "}" * DEEPEST,
        "1.7976931348623157e308",
        "-1.7976931348623157e308",
        "5e-324",
        "2.2250738585072014e-308",
        "[0, 0.0, -0.0, 0e10, 0e-400]",
        "9007199254740993",
        "123456789012345678901234567890",
    ):
        [id] = engine.publish_json(event(text))
        [described] = engine.publish_json(event(text).replace('"type": "a"', '"title": "T"'))
        for received in (engine.event(id).payload, engine.event(described).payload):
            assert same(json.loads(text), received), text[:40]


@requirement("G18")
def test_a_number_too_near_to_nothing_breaks_no_policy(engine: Engine, db: Database) -> None:
    with refused("QU001"):
        engine.publish_json('{"delay": 1e-4400}')
    for kind in ("fixed", "linear", "exponential"):
        for part in ("delay", "step", "factor", "max_delay", "jitter"):
            with refused("QU001"):
                engine.publish_json(
                    f'{{"backoff": {{"kind": "{kind}", "delay": 1, "{part}": 1e-4400}}}}'
                )
    assert db.placement() == {}


# --- texts


@requirement("G18")
def test_every_text_comes_back_as_it_was(engine: Engine, db: Database) -> None:
    for text in TEXTS:
        name = text.replace("*", "")
        [id] = engine.publish(
            {
                "type": name,
                "tags": [name],
                "payload": {text: [text]},
                "title": text,
                "source": {text: text},
                "max_retries": 0,
            }
        )
        told = engine.event(id)
        assert (told.type, told.tags, told.payload) == (name, [name.strip()], {text: [text]})
        assert told.details == {"title": text, "source": {text: text}}
        claim = engine.claim(worker=text, types=[name], tags=[name.strip()])
        assert (claim.id, claim.payload) == (id, {text: [text]})
        engine.end("fail", claim, error=text)
        assert (engine.dead_letter(id).error, engine.dead_letter(id).type) == (text, name)
        assert [entry.worker_id for entry in engine.trail(id)[1:]] == [text] * 3
        assert engine.trail(id)[2].error_message == text
    assert db.sql("select count(*) from headrace.dead_letters") == [(len(TEXTS),)]


@requirement("G18")
def test_a_text_that_postgresql_cannot_hold_is_refused(engine: Engine) -> None:
    for call in (
        lambda: engine.poll(worker="a\x00b"),
        lambda: engine.publish_json("\x00"),
        lambda: engine.call("create_namespace", namespace="\x00"),
    ):
        with pytest.raises(psycopg.DataError):
            call()
    for invalid in (b"\xff", b"\xed\xa0\x80", b"\xc0\x80"):
        with refused("22021"):
            engine.connection.execute(
                "select * from headrace.poll('default', worker => convert_from(%s, 'UTF8'))",
                [invalid],
            )


@requirement("G18")
def test_a_namespace_or_queue_that_is_not_there_is_only_not_there(
    engine: Engine, db: Database
) -> None:
    before = contents(db)
    arguments: dict[str, dict[str, Any]] = {
        "publish": {"events": "{}"},
        "publish_one": {"type": "a", "payload": "1"},
        "publish_many": {"type": "a", "payloads": "[1]"},
        "poll": {},
        "poll_batch": {},
        "finish": {"queue": "main", "events": [1], "attempts": [1]},
        "extend": {"queue": "main", "leases": [1]},
        "resolve": {"queue": "main", "event": 1, "attempt": 1},
        "event": {"event_id": 1},
        "event_log": {"event_id": 1},
        "stats": {},
        "history": {},
        "lineage": {"event_id": 1},
        "why": {"event_id": 1},
        "find_events": {"word": "1"},
        "complete": {"event": 1, "attempt": 1},
        "complete_lease": {"queue": "main", "lease": 1, "size": 1},
        "complete_held": {"queue": "main", "event": 1, "attempt": 1},
        "fail": {"event": 1, "attempt": 1, "error": "x"},
        "release": {"event": 1, "attempt": 1},
        "finalize": {"event": 1, "attempt": 1},
        "finalized": {"event": 1},
    }
    names = ("x" * 300, "'; drop schema headrace; --", '"', "\\", "👻", "")
    for name, (function, others) in product(names, arguments.items()):
        with refused("QU010", "there is no namespace"):
            engine.call(function, namespace=name, **others)
        if function not in ("publish", "publish_one", "publish_many", "event_log"):
            with refused("QU011", "there is no queue"):
                engine.call(function, namespace="default", **{**others, "queue": name})
    assert differences(before, contents(db)) == set()


@requirement("G18")
def test_a_long_namespace_is_not_made(engine: Engine, db: Database) -> None:
    with refused("QU001", "at most 100"):
        engine.call("create_namespace", namespace="x" * 300)
    assert db.sql("select count(*) from headrace.namespaces") == [(1,)]


# --- numbers


@requirement("G18", "EQ-20")
def test_ids_that_are_none_end_nothing_and_are_not_found(engine: Engine, db: Database) -> None:
    engine.publish({})
    engine.claim()
    before = contents(db)
    for id in (0, -1, 2**63 - 1, -(2**63)):
        with refused("QU012"):
            engine.event(id)
        assert engine.trail(id) == []
        for attempt in (0, -1, 1, 2**31 - 1):
            [verdict] = engine.call(
                "finish", namespace="default", queue="main", events=[id], attempts=[attempt], leases=[id]
            )  # fmt: skip
            assert verdict.verdict == "lost"
            with refused("QU020"):
                engine.call("complete", namespace="default", event=id, attempt=attempt)
        answers = engine.call("extend", namespace="default", queue="main", leases=[id])
        assert [answer.state for answer in answers] == ["lost"]
    assert differences(before, contents(db)) == set()


@requirement("G18", "EQ-20")
def test_ids_and_attempts_beyond_their_range_are_refused_as_data(engine: Engine) -> None:
    for call in (
        "event('default', %s::bigint)",
        "event_log('default', %s::bigint)",
        "complete('default', %s::bigint, 1)",
        "complete('default', 1, %s::int)",
        "finish('default', 'main', array[%s]::bigint[], '{1}')",
        "finish('default', 'main', '{1}', array[%s]::int[])",
        "extend('default', 'main', array[%s]::bigint[])",
        "poll('default', max_events => %s::int)",
    ):
        for number in (2**63, -(2**63) - 1, 10**400):
            with refused("22003"):
                engine.connection.execute(f"select * from headrace.{call}", [number])


@requirement("G18")
def test_intervals_out_of_bounds_are_refused(engine: Engine, db: Database) -> None:
    engine.publish({})
    before = contents(db)
    for interval in ("infinity", "-infinity", "178000000 years", "1 month"):
        for call in (
            "poll('default', lease => %s::text::interval)",
            "extend('default', 'main', '{1}', %s::text::interval)",
        ):
            with pytest.raises(psycopg.Error) as caught:
                engine.connection.execute(f"select * from headrace.{call}", [interval])
            assert caught.value.sqlstate == "QU001" or caught.value.sqlstate.startswith("22")
    assert differences(before, contents(db)) == set()


@requirement("G18")
def test_times_that_do_not_exist_are_refused(engine: Engine, db: Database) -> None:
    for at in (
        "2030-02-31T12:00:00Z",
        "2030-13-01T12:00:00Z",
        "2030-01-01T25:00:00Z",
        "2030-01-01T12:00:00+99:00",
        "0000-01-01T00:00:00Z",
    ):
        with pytest.raises(psycopg.Error) as caught:
            engine.publish({}, {"at": at})
        assert caught.value.sqlstate == "QU001" or caught.value.sqlstate.startswith("22")
    assert db.placement() == {}


# --- anything


# Shrinking what fails takes a minute in a database; every example here is small as it is.
QUICKLY = (Phase.explicit, Phase.generate)


@pytest.fixture(scope="module")
def shared(server: Server) -> Iterator[Engine]:
    """One database for all the examples."""
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    yield Engine(database)
    database.close()
    server.drop_database(database.name)


def forget(engine: Engine) -> None:
    """Leave no delivery of an earlier example."""
    for place in ("ready", "delayed", "held", "leases"):
        engine.connection.execute(f"delete from headrace.{place}")


@requirement("G18")
@settings(max_examples=60, phases=QUICKLY)
@given(payload=JSON)
@example(payload={"": {"": [""]}})
@example(payload=[1e308, -1e308, 5e-324, -5e-324, 1e22, 0.1, -0.0, 10**300, 2**64])
@example(payload={"a" * 300: "b" * 3000})
@example(payload=["x" * 400, [[0, 1], [1, 0]], [[None, 0]], [[0, "1"]], {"a": [[0.5, 0]]}])
@example(payload="\uffff\U0010ffff\u202e\u2028")
def test_any_json_that_publish_accepts_comes_back_equal(shared: Engine, payload: Any) -> None:
    forget(shared)
    large = ["x" * 300, payload]  # what is small is not looked at as thoroughly
    alone = json.dumps({"type": "a", "payload": payload}, ensure_ascii=False)
    batch = json.dumps(
        [{"payload": payload}, {"title": "T", "payload": payload}, {"payload": large}]
    )
    if not acceptable(payload):
        for text in (alone, batch):
            with refused("22P05"):
                shared.publish_json(text)
        return
    ids = shared.publish_json(alone) + shared.publish_json(batch)
    sent = dict(zip(ids, [payload, payload, payload, large], strict=True))
    claims = shared.poll(max_events=10)
    assert sorted(claim.id for claim in claims) == ids
    assert all(same(sent[claim.id], claim.payload) for claim in claims)
    assert all(same(sent[id], shared.event(id).payload) for id in ids)


FIELDS = (
    *("type", "payload", "tags", "priority", "delay", "at", "max_retries", "backoff", "title"),
    *("description", "version", "source", "correlation_id", "producer", "headers", "unknown"),
    *("unique", "debounce", "settle", "at_latest"),
)
POLICY = st.fixed_dictionaries(
    {"kind": st.sampled_from(["fixed", "linear", "exponential"]) | JSON, "delay": JSON},
    optional={"step": JSON, "factor": JSON, "max_delay": JSON, "jitter": JSON},
)
EVENT = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3) | st.fixed_dictionaries(
    {}, optional={"backoff": POLICY, "tags": st.lists(JSON), "delay": JSON, "max_retries": JSON}
)


@requirement("G18")
@settings(max_examples=150, phases=QUICKLY)
@given(events=st.lists(EVENT | JSON, min_size=1, max_size=3))
def test_whatever_is_sent_is_refused_whole_or_can_be_worked_with(
    shared: Engine, events: list[Any]
) -> None:
    forget(shared)
    try:
        ids = shared.publish_json(json.dumps(events))
    except psycopg.Error as error:
        refusal = error.sqlstate or ""
    else:
        refusal = None
    if refusal is not None:
        assert refusal.startswith(("QU00", "22")), refusal
        assert shared.poll() == []
        return
    assert len(ids) == len(events)
    assert {shared.event(id).status for id in ids} == {"PENDING"}
    # It is claimed, it fails by its own policy, and it is told.
    for claim in shared.poll(max_events=10):
        shared.end("fail", claim)
        assert shared.actions(claim.id)[:3] == ["EMITTED", "PICKED", "FAILED"]
        assert shared.event(claim.id).retry_count == 1

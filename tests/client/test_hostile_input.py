"""What is thrown at a client: it is refused with a sentence, or it comes back exactly."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace import Completed, EventQueue, InvalidInput, InvalidPayload, NewEvent, PayloadTooLarge
from headrace.engine.encoding import encode_payload
from tests.database import Database
from tests.requirements import requirement

Raw = msgspec.Raw


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def itself() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


class Word(Enum):
    A = "a"


@dataclass
class Record:
    words: dict[Any, int]


class Struct(msgspec.Struct):
    raw: msgspec.Raw
    number: float = math.nan


REFUSED = {
    "NUL": {"a": "x\0y"},
    "NUL in a key": {"x\0y": 1},
    "NUL after backslashes": {"a": "\\\\\0"},
    "a lone surrogate": {"a": "\ud800"},
    "a lone surrogate in a key": {"\udfff": 1},
    "NaN": {"a": [1, math.nan]},
    "Infinity": {"a": math.inf},
    "NaN in a struct beside raw JSON": {"a": Struct(Raw(b"null"))},
    "a number of 4,400 digits": 10**4400,
    "raw: a number of 4,400 digits": Raw(b"1e4400"),
    "raw: 81 kB of 1e131071": Raw(b"[" + b",".join([b"1e131071"] * 9000) + b"]"),
    "raw: NUL": Raw(rb'"\u0000"'),
    "raw: a lone surrogate": Raw(rb'"\ud800"'),
    "raw: not UTF-8": Raw(b'"\xff"'),
    "raw: not JSON": Raw(b"{nonsense}"),
    "raw: nothing": Raw(b""),
    "raw: two values": Raw(b"1 2"),
    "raw: another event": Raw(b'1},{"type":"evil"'),
    "raw: another field": Raw(b'1,"priority":0'),
    "raw inside: another event": {"a": Raw(b'1}},{"type":"evil","payload":{"a":1')},
    "raw inside: another field": {"a": Raw(b'1},"priority":0,"title":{"a":"x"')},
    "200 deep": nested(200),
    "10,000 deep": nested(10_000),
    "raw: 10,000 deep": Raw(b"[" * 10_000 + b"]" * 10_000),
    "containing itself": itself(),
    "an object": {"a": object()},
    "a function": print,
    "keys that are not strings": {(1, 2): 3},
    "a number and a string as the same key": {1: "a", "1": "b"},
    "the same key further in": {"a": [{"b": ({1.5: "a", "1.5": "b"},)}]},
    "a date and a string as the same key": {date(2026, 1, 2): 1, "2026-01-02": 2},
    "an enum and a string as the same key": Record({Word.A: 1, "a": 2}),
}


@requirement("G18")
@pytest.mark.parametrize("payload", REFUSED.values(), ids=REFUSED)
def test_a_payload_that_not_everybody_can_read_back_is_refused(
    asked: EventQueue, shared: Database, payload: Any
) -> None:
    before = shared.placement()
    with pytest.raises(InvalidPayload) as raised:
        asked.publish("a", payload)
    assert len(str(raised.value)) < 400
    for event in [("a", payload), NewEvent("a", payload)]:
        with pytest.raises(InvalidPayload):
            asked.publish_many([("a", {}), event, ("a", {})])
    assert shared.placement() == before


@pytest.mark.parametrize("size", [1024 * 1024, 1024 * 1024 + 1])
def test_a_payload_may_have_a_mebibyte_and_not_a_byte_more(asked: EventQueue, size: int) -> None:
    text = "x" * (size - 2)  # and two quotation marks
    if size <= 1024 * 1024:
        event = asked.publish("a", text)
        assert asked.event(event.id).payload == text
    else:
        with pytest.raises(PayloadTooLarge):
            asked.publish("a", text)
        with pytest.raises(PayloadTooLarge):
            asked.publish_many([("a", text)])
        with pytest.raises(PayloadTooLarge):
            asked.publish("a", Raw(b'"%b"' % text.encode()))


ACCEPTED = {
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈",
    "right to left": "مرحبا \u202eabc\u202c שלום",
    "the last of its plane": "\uffff\U0010ffff",
    "combining": "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘",
    "a backslash before u0000": "\\u0000 \\\\u0000",
    "the words": ["null", "NaN", "Infinity", "\\u0000", None, True],
    "SQL": "'; drop table headrace.events; -- $$ %s %(x)s {0}",
    "64-bit numbers": [2**63 - 1, -(2**63), 2**64 - 1, 2**53 + 1],
    "floats": [0.1, -0.0, 5e-324, 1.5e22],
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x80\x9f\u2028",
    "100 deep": nested(100),
    "empty things": [{}, [], "", 0, False, None],
    "odd keys": {"": 1, " ": 2, '"': 3, "\\": 4, "$": 5},
}


@requirement("G18")
@pytest.mark.parametrize("payload", ACCEPTED.values(), ids=ACCEPTED)
def test_what_is_accepted_comes_back_exactly(asked: EventQueue, payload: Any) -> None:
    event = asked.publish("a", payload)
    asked.publish_many([("b", payload), NewEvent("b", payload)])
    assert asked.event(event.id).payload == payload
    assert [one.payload for one in asked.poll(types=["b"], max_events=2)] == [payload] * 2


NUMBERED = {"numbers": {1: "a", 2: {3: "b"}}, "mixed": {1: "a", "b": "c"}}


@pytest.mark.parametrize("payload", NUMBERED.values(), ids=NUMBERED)
def test_keys_that_stay_apart_are_taken(asked: EventQueue, payload: dict[Any, Any]) -> None:
    ids = [asked.publish("a", payload).id, *asked.publish_many([("b", payload)])]
    shown = msgspec.json.decode(msgspec.json.encode(payload))
    assert [asked.event(id).payload for id in ids] == [shown, shown]


TIMES = {
    "before the zones": datetime(
        1890, 1, 1, 12, tzinfo=timezone(timedelta(minutes=53, seconds=28))
    ),
    "west": datetime(2026, 1, 1, 0, 0, 0, 7, tzinfo=timezone(-timedelta(seconds=75))),
    "a few seconds": datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=28))),
    "hours": datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-5))),
    "UTC": datetime(2026, 1, 1, tzinfo=UTC),
}


@pytest.mark.parametrize("at", TIMES.values(), ids=TIMES)
def test_a_time_in_a_payload_stays_the_same_instant(asked: EventQueue, at: datetime) -> None:
    """Also where the offset of its zone has seconds, which JSON cannot say."""
    for payload in ({"at": at}, {"a": [(at,)], "number": 1}):
        ids = [asked.publish("a", payload).id, *asked.publish_many([("b", payload)] * 2)]
        for id in ids:
            [found] = re.findall(r"\d{4}-[^']*", str(asked.event(id).payload))
            assert datetime.fromisoformat(found) == at
    [key] = asked.event(asked.publish("a", {at: 1}).id).payload
    assert datetime.fromisoformat(key) == at


NAMES = ["'; drop table x; --", '"quoted"', "$$", "%s %(a)s", "ünï¢ødé 🦆", "a\\b", "{a}", "NULL"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_data(shared: Database, name: str) -> None:
    queue = shared.queue(namespace=name, worker=name)
    event = queue.publish(name, {}, tags=[name, "x"], title=name, source={name: name})
    (claimed,) = queue.poll(types=[name], tags=[name])
    assert (claimed.id, claimed.type, claimed.tags) == (event.id, name, (name, "x"))
    assert (claimed.title, claimed.source) == (name, {name: name})
    assert queue.event(event.id).worker_id == name
    queue.complete(claimed)
    assert queue.stats().completed == 1


SENSELESS: list[dict[str, Any]] = [
    {"type": ""},
    {"type": "\0"},
    {"type": "\ud800"},
    {"type": "x" * 201},
    {"type": "a*"},
    {"type": None},
    {"type": 5},
    {"type": ["a"]},
    {"type": Raw(b'"a","priority":0')},
    {"tags": "high"},
    {"tags": [""]},
    {"tags": ["a,b"]},
    {"tags": ["\0"]},
    {"tags": [None]},
    {"tags": 5},
    {"tags": ["x"] * 51},
    {"priority": 10},
    {"priority": -1},
    {"priority": 1.5},
    {"priority": math.nan},
    {"priority": 10**30},
    {"delay": -1},
    {"delay": math.nan},
    {"delay": math.inf},
    {"delay": 1e300},
    {"delay": "5"},
    {"delay": timedelta.max},
    {"at": datetime(2030, 1, 1)},  # noqa: DTZ001
    {"at": "2030-01-01T00:00:00Z"},
    {"at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))},
    {"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 5},
    {"unique": ""},
    {"unique": 5},
    {"debounce": "k"},
    {"debounce": "k", "settle": 0},
    {"debounce": "k", "settle": -1},
    {"debounce": "k", "settle": math.nan},
    {"debounce": "k", "settle": timedelta.max},
    {"debounce": "k", "settle": 2, "at_latest": 1},
    {"debounce": "k", "settle": 2, "delay": 5},
    {"debounce": "k", "settle": 2, "unique": "k"},
    {"settle": 2},
    {"max_retries": -1},
    {"max_retries": 1001},
    {"max_retries": 1.5},
    {"max_retries": 2**40},
    {"backoff": {"kind": "odd", "delay": 1}},
    {"backoff": {"kind": "fixed"}},
    {"backoff": {"kind": "fixed", "delay": math.nan}},
    {"title": 5},
    {"title": "\0"},
    {"title": Raw(b'"x","priority":0')},
    {"source": {"a": 1}},
    {"source": "a"},
    {"description": "x" * 70_000},
    {"trace_id": print},
]


@requirement("G18")
@pytest.mark.parametrize("fields", SENSELESS)
def test_an_event_that_makes_no_sense_is_refused(
    asked: EventQueue, shared: Database, fields: Any
) -> None:
    before = shared.placement()
    with pytest.raises(InvalidInput):
        asked.publish(**fields)
    with pytest.raises(InvalidInput) as raised:
        asked.publish_many([{}, fields])
    assert raised.value.position == 1
    assert shared.placement() == before


@pytest.mark.parametrize("name", ["\0", "\ud800", "", "x" * 101, "a/b", " a"])
def test_a_name_that_is_none_is_refused(shared: Database, name: str) -> None:
    with pytest.raises(InvalidInput):
        shared.queue(namespace=name)


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(-1e15, 1e15)  # larger ones come back as the whole numbers they are
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(payloads=st.lists(json, min_size=1, max_size=5))
@example(payloads=[["x" * 300, [0, 5e-263], [None, -10_000, 9e-261]]])
def test_every_json_comes_back_exactly(asked: EventQueue, payloads: list[Any]) -> None:
    ids = asked.publish_many([("json", Raw(msgspec.json.encode(payload))) for payload in payloads])
    claimed = asked.poll(types=["json"], max_events=10)
    assert [one.id for one in claimed] == ids
    assert [one.payload for one in claimed] == payloads
    assert {one.verdict for one in asked.finish([Completed(one) for one in claimed])} == {"counted"}


@given(
    payload=st.recursive(st.floats() | st.text() | st.none(), lambda x: st.lists(x), max_leaves=5)
)
def test_a_payload_is_written_exactly_or_refused(payload: Any) -> None:
    try:
        encoded = encode_payload(payload)
    except InvalidPayload:
        return
    assert msgspec.json.decode(encoded) == (payload if payload is not None else {})
    assert b"\0" not in encoded

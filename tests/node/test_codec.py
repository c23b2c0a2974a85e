"""Payloads that are stored in another form than handlers get them in."""

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import headrace
from headrace import Claimed, Codec, Context, InvalidInput, InvalidPayload, Node, Retry
from tests.database import Database
from tests.node.nodes import node, running, settled, until

pytestmark = pytest.mark.anyio


def squeeze(payload: Any) -> str:
    return base64.b64encode(zlib.compress(json.dumps(payload).encode())).decode()


def stretch(stored: str, event: Any) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(stored)))


ZLIB = Codec("zlib", squeeze, stretch)
SECRET = {"number": 7}


class Order(msgspec.Struct):
    number: int


def register(one: Node, kind: str, seen: list[Any]) -> None:  # noqa: C901
    match kind:
        case "async":

            @one.on_event("a")
            async def handle(event: Claimed) -> None:
                seen.append(event.payload)

        case "plain":

            @one.on_event("a")
            def handle_plainly(event: Claimed) -> None:
                seen.append(event.payload)

        case "typed":

            @one.on_event("a")
            async def handle_typed(event: Order) -> None:
                seen.append({"number": event.number})

        case "transactional":

            @one.on_event("a")
            def handle_within(event: Claimed, connection: Any) -> None:
                seen.append(event.payload)

        case "batch":

            @one.on_batch("a")
            async def handle_all(events: list[Claimed]) -> None:
                seen.extend(event.payload for event in events)

        case "typed batch":

            @one.on_batch("a")
            def handle_orders(events: list[Order]) -> None:
                seen.extend({"number": event.number} for event in events)


KINDS = ["async", "plain", "typed", "transactional", "batch", "typed batch"]
kinds = pytest.mark.parametrize("kind", KINDS)


@kinds
@pytest.mark.parametrize("is_surrounded", [False, True])
async def test_a_handler_gets_the_payload_and_the_database_has_it_encoded(
    db: Database, kind: str, is_surrounded: bool
) -> None:
    one, seen, around = node(db, codec=ZLIB), list[Any](), list[Any]()
    register(one, kind, seen)
    if is_surrounded:

        @one.around
        def layer(events: list[Claimed]) -> Iterator[None]:
            around.extend(event.payload for event in events)
            yield

    with headrace.connect(db.dsn, codec=ZLIB) as queue:
        ids = [queue.publish("a", SECRET, headers={"mine": 1}).id]
        ids += queue.publish_many([("a", SECRET), {"type": "a", "payload": SECRET}])
        plain = db.queue().publish("a", SECRET).id  # of a publisher that has no codec
        async with running(one):
            await until(lambda: queue.stats().completed == 4)
        assert seen == [SECRET] * 4
        assert around == [SECRET] * 4 * is_surrounded
        for id in ids:
            event = queue.event(id)
            assert event.payload == squeeze(SECRET)
            assert (event.headers or {})["headrace-codec"] == "zlib"
            assert queue.decode(event) == SECRET
        assert queue.event(ids[0]).headers == {"mine": 1, "headrace-codec": "zlib"}
        assert queue.event(plain).payload == queue.decode(queue.event(plain)) == SECRET


@kinds
async def test_what_names_an_unknown_codec_is_dead_lettered_and_says_so(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    one, seen = node(db), list[Any]()
    register(one, kind, seen)
    good = queue.publish("a", SECRET, headers={"mine": "headrace-codec"}).id
    with headrace.connect(db.dsn, codec=ZLIB) as encoding:
        id = encoding.publish("a", SECRET).id
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
        await until(lambda: queue.event(good).status == "COMPLETED")
    assert seen == [SECRET]
    letter = queue.dead_letter(id)
    assert letter.reason == (
        "Payload not decoded: the payload is encoded by zlib, and no such codec is here"
    )
    assert letter.payload == squeeze(SECRET)
    assert letter.attempts == 1


@kinds
async def test_a_codec_that_fails_is_a_failure_of_the_attempt(db: Database, kind: str) -> None:
    queue = db.queue()

    def locked(stored: Any, event: Any) -> Any:
        raise LookupError("the key is not here yet")

    one, seen = node(db, codec=Codec("zlib", squeeze, locked)), list[Any]()
    register(one, kind, seen)
    with headrace.connect(db.dsn, codec=ZLIB) as encoding:
        id = encoding.publish("a", SECRET, max_retries=2, backoff=3600).id
    async with running(one):
        await until(lambda: queue.event(id).retry_count == 1)
    assert seen == []
    error = queue.log(id)[-1].error_message or ""
    assert "LookupError: the key is not here yet" in error
    assert f"In the codec zlib, of event {id}" in error


async def test_what_a_handler_emits_is_encoded(db: Database) -> None:
    queue = db.queue()
    one = node(db, codec=ZLIB)

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        await one.emit("b", SECRET)

    @one.on_event("a")
    def handle_plainly(event: Claimed, context: Context, connection: Any) -> None:
        context.emit("b", SECRET)
        assert context.event.payload == squeeze(SECRET)  # as it is stored

    with headrace.connect(db.dsn, codec=ZLIB) as encoding:
        encoding.publish("a", SECRET)
    async with running(one):
        await one.queue.publish("b", SECRET)
        await until(lambda: queue.stats().completed == 1)
        await settled(one)
    assert (
        db.sql("select payload #>> '{}' from headrace.events where type = 'b'")
        == [(squeeze(SECRET),)] * 3
    )


async def test_a_codec_without_a_name_gets_every_payload_after_the_one_that_is_named(
    db: Database,
) -> None:
    queue = db.queue()

    def upcast(payload: Any, event: Any) -> Any:
        return {"number": payload["no"]} if event.version is None else payload

    one, seen = node(db, codec=[ZLIB, Codec(decode=upcast)]), list[Any]()
    register(one, "typed", seen)
    queue.publish("a", {"no": 1})
    queue.publish("a", {"number": 2}, version="2")
    with headrace.connect(db.dsn, codec=[ZLIB]) as encoding:
        encoding.publish("a", {"no": 3})
        encoding.publish("a", {"number": 4}, version="2")
    async with running(one):
        await until(lambda: queue.stats().completed == 4)
    assert sorted(one["number"] for one in seen) == [1, 2, 3, 4]


def test_the_first_that_encodes_writes_and_each_reads_its_own(db: Database) -> None:
    def reverse(payload: Any) -> Any:
        return payload[::-1]

    newer = Codec("reversed", reverse, lambda stored, event: stored[::-1])
    with headrace.connect(db.dsn, codec=ZLIB) as before:
        old = before.publish("a", "payload")
    with headrace.connect(db.dsn, codec=[newer, ZLIB]) as queue:
        new = queue.publish("a", "payload")
        assert queue.event(new.id).payload == "daolyap"
        assert [queue.decode(claimed) for claimed in queue.poll(max_events=2)] == ["payload"] * 2
        assert queue.decode(queue.event(old.id)) == "payload"
        with pytest.raises(InvalidPayload, match="encoded by reversed, and no such codec is here"):
            before.decode(queue.event(new.id))


async def test_an_async_client_encodes_too(db: Database) -> None:
    async with headrace.connect_async(db.dsn, codec=ZLIB) as queue:
        one = await queue.publish("a", SECRET)
        await queue.publish_many([("a", SECRET)] * 2)
        for claimed in await queue.poll():
            assert claimed.payload == squeeze(SECRET)
            assert queue.decode(claimed) == SECRET
        assert one.payload == squeeze(SECRET)


def test_what_is_encoded_is_not_encoded_again(db: Database) -> None:
    with headrace.connect(db.dsn, codec=ZLIB) as queue:
        first = queue.publish("a", SECRET)
        again = queue.publish("a", first.payload, headers=first.headers)
        assert queue.decode(queue.event(again.id)) == SECRET


def test_a_repeated_idempotency_key_is_the_same_event_however_it_is_encoded(db: Database) -> None:
    count = iter(range(10))
    salted = Codec("salted", lambda payload: [next(count), payload], lambda stored, _: stored[1])
    with headrace.connect(db.dsn, codec=salted) as queue:
        first = queue.publish("a", SECRET, idempotency_key="one")
        second = queue.publish("a", SECRET, idempotency_key="one")
        assert (second.id, second.repeated) == (first.id, True)
        with pytest.raises(headrace.IdempotencyConflict):
            queue.publish("b", SECRET, idempotency_key="one")
    with pytest.raises(headrace.IdempotencyConflict):
        db.queue().publish("a", SECRET, idempotency_key="one")


def test_a_client_of_several_shards_encodes_too(shard: Callable[[int, int], Database]) -> None:
    count = iter(range(100))
    salted = Codec("salted", lambda payload: [next(count), payload], lambda stored, _: stored[1])
    with headrace.connect([shard(4, 0).dsn, shard(4, 1).dsn], codec=salted) as queue:
        first = queue.publish("a", SECRET, idempotency_key="one")
        assert queue.publish("a", SECRET, idempotency_key="one").id == first.id
        keyed = [{"type": "a", "payload": SECRET, "key": str(n)} for n in range(8)]
        ids = [first.id, queue.publish("a", SECRET).id]
        ids += queue.publish_many(keyed) + queue.publish_many([("a", SECRET)] * 3)
        assert len(set(ids)) == 13
        for id in ids:
            event = queue.event(id)
            assert event.payload != SECRET
            assert queue.decode(event) == SECRET


def test_events_without_a_codec_are_published_as_before(db: Database) -> None:
    with headrace.connect(db.dsn, codec=Codec(decode=lambda payload, event: payload)) as queue:
        assert queue.publish("a", SECRET).headers is None
        with pytest.raises(InvalidInput) as refused:
            queue.publish_many([("a", 1), {"type": "b", "paylod": 2}])
        assert refused.value.position == 1
    with headrace.connect(db.dsn, codec=ZLIB) as queue:
        with pytest.raises(InvalidInput, match="paylod") as refused:
            queue.publish_many([("a", 1), {"type": "b", "paylod": 2}])
        assert refused.value.position == 1


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Codec("zlib", squeeze), "needs a function decode"),
        (lambda: Codec(None, squeeze, stretch), "a codec that encodes needs a name"),
        (lambda: Codec("", squeeze, stretch), "has 1 to 200 characters"),
        (lambda: Node(codec=[ZLIB, ZLIB]), "each codec needs a name of its own"),
        (lambda: Node(codec=squeeze), "codec must be a Codec or a list of them"),  # type: ignore[arg-type]
        (lambda: Node(codec=Retry()), "codec must be a Codec"),  # type: ignore[arg-type]
    ],
)
def test_a_codec_that_cannot_work_is_refused(make: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        make()

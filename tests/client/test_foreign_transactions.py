"""Publishing and finishing inside callers' transactions, whatever library those are of."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from anyio.from_thread import start_blocking_portal

from headrace import Claimed, Completed, InvalidInput, InvalidPayload, LeaseLost, NamespaceNotFound
from tests.client.callers import LIBRARIES, Caller, Library
from tests.client.clients import AsyncClient, Client
from tests.database import Database
from tests.requirements import requirement

pytestmark = pytest.mark.one_database("a transaction is one database's")


@pytest.fixture(params=LIBRARIES.values(), ids=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    return request.param


@pytest.fixture
def db(shared: Database) -> Database:
    """One database for all of them, because there are many: each has a namespace of its own."""
    shared.sql("drop table if exists orders")
    shared.sql("create table orders (id int)")
    return shared


@pytest.fixture
def namespace(db: Database) -> str:
    return f"namespace {db.sql('select count(*) from headrace.namespaces')[0][0]}"


@pytest.fixture
def client(library: Library, db: Database) -> Iterator[Client]:
    if library.client == "plain":
        client = Client(db)
        yield client
        client.close()
    else:
        with start_blocking_portal("asyncio") as portal:
            client = AsyncClient(db, portal)
            yield client
            client.close()


@pytest.fixture
def queue(client: Client, namespace: str) -> Any:
    return client.queue(namespace=namespace)


@pytest.fixture
def caller(library: Library, client: Client, db: Database) -> Iterator[Caller]:
    with client.within(library.open(db)) as connection:
        yield Caller(library, client, connection)


@pytest.fixture
def held(queue: Any) -> Claimed:
    queue.publish("order", {"order": 1})
    (claimed,) = queue.poll(each=True)
    return claimed


def orders(db: Database) -> list[int]:
    return [id for (id,) in db.sql("select id from orders order by id")]


PUBLISHED = """
select (e.payload ->> 'order')::int, d.event is not null
from headrace.events e
join headrace.namespaces n on n.id = e.namespace
left join headrace.deliveries d on d.event = e.id
where n.name = %s
order by e.id
"""


def published(db: Database, queue: Any) -> list[int]:
    """The orders whose events are there, each with its delivery."""
    found = db.sql(PUBLISHED, [queue.verbs.namespace])
    assert all(is_delivered for _, is_delivered in found)
    return [order for order, _ in found]


@requirement("G3")
def test_an_event_is_there_when_the_transaction_has_committed_and_not_before(
    queue: Any, caller: Caller, db: Database
) -> None:
    with caller.begin():
        caller.order(1)
        event = queue.publish("order", {"order": 1}, tags=["x"], connection=caller.connection)
        assert (orders(db), published(db, queue)) == ([], [])
    assert (orders(db), published(db, queue)) == ([1], [1])
    assert queue.event(event.id).created_at == event.created_at
    assert [claimed.id for claimed in queue.poll(tags=["x"])] == [event.id]


@requirement("G3")
def test_a_rollback_leaves_nothing(queue: Any, caller: Caller, db: Database) -> None:
    with caller.rolled_back():
        caller.order(1)
        queue.publish("order", {"order": 1}, connection=caller.connection)
    assert (orders(db), published(db, queue)) == ([], [])


@requirement("G3")
def test_an_event_may_come_before_everything_else_in_the_transaction(
    queue: Any, caller: Caller, db: Database
) -> None:
    with caller.rolled_back():
        queue.publish("order", {"order": 1}, connection=caller.connection)
    with caller.begin():
        queue.publish("order", {"order": 2}, connection=caller.connection)
    assert published(db, queue) == [2]


@requirement("G3")
def test_what_is_rolled_back_to_a_savepoint_leaves_the_rest(
    queue: Any, caller: Caller, db: Database
) -> None:
    with caller.begin():
        caller.order(1)
        queue.publish("order", {"order": 1}, connection=caller.connection)
        with caller.rolled_back():
            caller.order(2)
            queue.publish("order", {"order": 2}, connection=caller.connection)
        with caller.begin():
            caller.order(3)
            queue.publish("order", {"order": 3}, connection=caller.connection)
    assert (orders(db), published(db, queue)) == ([1, 3], [1, 3])


@requirement("G3")
def test_thousands_join_as_well(queue: Any, caller: Caller, db: Database) -> None:
    def order(first: int) -> list[int]:
        caller.order(first)
        events = [("order", {"order": first + n}) for n in range(2_500)]
        return queue.publish_many(events, connection=caller.connection)

    with caller.rolled_back():
        order(1)
    with caller.begin():
        ids = order(10_000)
        assert published(db, queue) == []
    assert ids == sorted(ids)
    assert published(db, queue) == list(range(10_000, 12_500))
    assert orders(db) == [10_000]


@requirement("G3")
def test_what_is_refused_inside_a_savepoint_is_told_in_our_words_and_leaves_the_rest(
    queue: Any, caller: Caller, db: Database
) -> None:
    events: list[Any] = [("order", {"order": n}) for n in range(1_500)]
    events[1_234] = ("a,b", {})
    with caller.begin():
        caller.order(1)
        with pytest.raises(InvalidInput, match="comma") as raised, caller.begin():
            queue.publish("a,b", connection=caller.connection)
        assert raised.value.__cause__ is not None
        with pytest.raises(InvalidInput, match="comma") as raised, caller.begin():
            queue.publish_many(events, connection=caller.connection)
        assert raised.value.position == 1_234
    assert (orders(db), published(db, queue)) == ([1], [])


def test_the_servers_refusals_have_their_types(queue: Any, caller: Caller) -> None:
    # What the engine has to say against a payload, and what PostgreSQL says before it.
    for payload in (msgspec.Raw(b"1e4400"), msgspec.Raw(rb'"\ud800"')):
        with pytest.raises(InvalidPayload) as raised, caller.begin():
            queue.publish("a", payload, connection=caller.connection)
        assert raised.value.__cause__ is not None
        assert "asyncpg" not in str(raised.value)


def test_names_that_are_none_are_refused(client: Client, caller: Caller) -> None:
    elsewhere = client.queue_on(caller.connection, namespace="nowhere")
    with pytest.raises(NamespaceNotFound, match="nowhere"), caller.begin():
        elsewhere.publish("a")
    for name in ("\0", "\ud800"):
        with pytest.raises(InvalidInput), caller.begin():
            client.queue_on(caller.connection, namespace=name).publish("a")


@requirement("G10")
def test_a_finish_counts_when_and_only_when_the_transaction_commits(
    queue: Any, caller: Caller, db: Database
) -> None:
    queue.publish_many([("order", {})] * 5)
    held = one, two, three, four, five = queue.poll(max_events=5, each=True)

    def finish_all() -> None:
        queue.complete(one, execution_time_ms=12, connection=caller.connection)
        queue.fail(two, "broken", connection=caller.connection)
        queue.release(three, connection=caller.connection)
        queue.finalize(four.id, ["broken"], connection=caller.connection)
        queue.finish([Completed(five, 12, 200)], connection=caller.connection)

    def statuses() -> list[str]:
        return [queue.event(claimed.id).status for claimed in held]

    with caller.rolled_back():
        caller.order(1)
        finish_all()
    assert (statuses(), orders(db)) == (["PROCESSING"] * 5, [])
    with caller.begin():
        caller.order(2)
        finish_all()
        assert statuses() == ["PROCESSING"] * 5
    assert orders(db) == [2]
    assert statuses() == [
        "COMPLETED", "PENDING", "PENDING", "COMPLETED_WITH_ERRORS", "COMPLETED"
    ]  # fmt: skip


@requirement("G10", "G6")
def test_who_has_lost_the_lease_is_told_and_rolls_back(
    queue: Any, caller: Caller, db: Database, held: Claimed
) -> None:
    db.advance(seconds=61)
    queue.tick()
    (current,) = queue.poll()

    def finish_with_the_order() -> None:
        caller.order(1)
        queue.complete(held, connection=caller.connection)

    with pytest.raises(LeaseLost) as raised, caller.begin():
        finish_with_the_order()
    assert raised.value.ids == (held.id,)
    assert orders(db) == []
    queue.complete(current)


def test_a_failure_says_when_it_is_tried_again(queue: Any, caller: Caller, held: Claimed) -> None:
    with caller.begin():
        verdict = queue.fail(
            held, ValueError("'; -- %s $1 \0"), retry_in=7, connection=caller.connection
        )
    assert (verdict.retry_at - verdict.at).total_seconds() == 7
    assert queue.event(held.id).next_retry_at == verdict.retry_at


PAYLOAD = {
    "text": "'; -- %s %(a)s $1 {} \\ \u2028 👩‍👩‍👧‍👦",
    "numbers": [2**63 - 1, 0.1, None, True],
}


def test_a_payload_comes_back_exactly(queue: Any, caller: Caller) -> None:
    with caller.begin():
        one = queue.publish("a", PAYLOAD, connection=caller.connection)
        (many,) = queue.publish_many([("a", PAYLOAD)], connection=caller.connection)
    assert [queue.event(id).payload for id in (one.id, many)] == [PAYLOAD] * 2


def test_a_client_may_live_on_the_connection_alone(
    client: Client, caller: Caller, queue: Any, namespace: str
) -> None:
    alone = client.queue_on(caller.connection, namespace=namespace, worker="%s $1")
    with caller.begin():
        event = alone.publish("a", PAYLOAD, tags=["x", "y"], delay=0)
        alone.publish_many([("b", {})] * 1_500)
        (claimed,) = alone.poll(types=["a"], tags=["y", 'z"'], each=True, lease=5)
        assert (claimed.payload, claimed.tags) == (PAYLOAD, ("x", "y"))
        assert alone.extend(claimed, 90).state == "held"
        assert alone.event(event.id).worker_id == "%s $1"
        alone.complete(claimed, execution_time_ms=3)
        assert alone.resolve(claimed) == "COMPLETED"
        assert [entry.action for entry in alone.log(event.id)][-1] == "COMPLETED"
        assert alone.stats(period=60).completed == 1
        alone.tick()
    assert queue.event(event.id).status == "COMPLETED"


def test_a_schedule_is_made_with_its_instants_if_the_transaction_commits(
    queue: Any, client: Client, caller: Caller, namespace: str
) -> None:
    pytest.importorskip("cronsim")
    theirs = client.queue_on(caller.connection, namespace=namespace)
    with caller.rolled_back():
        theirs.schedule_task("a", "0 2 * * *", "b", {"%s": 1}, timezone="Europe/Berlin")
    assert queue.schedules() == []
    with caller.begin():
        made = theirs.schedule_task("a", "0 2 * * *", "b", {"%s": 1}, timezone="Europe/Berlin")
        assert theirs.schedules() == [made]
        assert theirs.nodes() == []
    assert queue.schedules() == [made]
    assert len(made.next_fires) == 20

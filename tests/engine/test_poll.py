"""poll: claims deliveries for the length of a lease, the most urgent and oldest first."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, refused, stop_the_clock
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def ids(claims: list[Any]) -> list[int]:
    return [claimed.id for claimed in claims]


def types(claims: list[Any]) -> list[str]:
    return [claimed.type for claimed in claims]


# --- the claim


@requirement("EQ-7", "EB-6")
def test_a_poll_of_an_empty_queue_gives_nothing(engine: Engine, db: Database) -> None:
    assert engine.poll() == []
    assert engine.poll(max_events=1000, each=True, types=["a*"], tags=["x"]) == []
    assert db.sql("select count(*) from headrace.leases") == [(0,)]


@requirement("EQ-7", "EQ-10", "EB-6", "EB-8", "G13")
def test_a_claim_is_processing_from_now_on_with_its_attempt_counted(
    engine: Engine, db: Database
) -> None:
    [id] = engine.publish({"payload": 1})
    before = engine.now()
    claimed = engine.claim(worker="host:7")
    after = engine.now()

    event = engine.event(id)
    assert (claimed.id, claimed.attempt) == (id, 1)
    assert (event.status, event.attempts, event.worker_id) == ("PROCESSING", 1, "host:7")
    assert before <= event.processing_started_at <= after
    assert event.updated_at == event.processing_started_at
    assert db.placement() == {id: ["lease"]}
    assert engine.poll() == []


@requirement("EQ-10", "EB-8", "G9")
def test_every_claim_counts_one_attempt_more(engine: Engine) -> None:
    engine.publish({"payload": 1})
    for attempt in (1, 2, 3, 4):
        claimed = engine.claim()
        assert claimed.attempt == attempt
        engine.end("release", claimed)
        come_back(engine)


@requirement("G9")
@pytest.mark.parametrize("each", [False, True])
def test_a_batch_of_retries_carries_what_each_was_charged(engine: Engine, each: bool) -> None:
    engine.publish(*({"backoff": {"kind": "fixed", "delay": 0}} for _ in range(4)))
    for failures in (0, 1, 2):
        claims = engine.poll(max_events=10, each=each)
        assert [(c.attempt, c.retry_count) for c in claims] == [(failures + 1, failures)] * 4
        engine.finish(claims, {str(n): {"action": "fail"} for n in (1, 2, 3, 4)})
    assert engine.stats().dead_letters == 4


def test_a_claim_carries_everything_a_handler_needs(engine: Engine) -> None:
    [id] = engine.publish(
        {
            "type": "order.created",
            "payload": {"total": 12},
            "tags": ["b", "a"],
            "priority": 3,
            "max_retries": 7,
            "title": "An order",
            "backoff": {"kind": "fixed", "delay": 0},
        }
    )
    engine.end("fail", engine.claim())
    before = engine.now()
    claimed = engine.claim(worker="host:7", lease=timedelta(seconds=90))

    told_below = ("created_at", "lease", "lease_expires_at", "hints", "lease_token")
    told_below += ("processing_started_at",)
    assert claimed._replace(**dict.fromkeys(told_below)) == (
        *(id, 2, "order.created", ["b", "a"], {"total": 12}),
        {"title": "An order", "backoff": {"kind": "fixed", "delay": 0}},
        *(3, 1, 0, 7, None, None, False, None, None, None, None),
    )
    assert engine.db.sql("select token from headrace.leases") == [(claimed.lease_token,)]
    assert claimed.processing_started_at == engine.event(id).processing_started_at
    assert claimed.created_at == engine.event(id).created_at
    assert claimed.lease > id
    assert claimed.lease_expires_at == engine.event(id).lease_expires_at
    assert claimed.lease_expires_at >= before + timedelta(seconds=90)


@requirement("EQ-16")
def test_a_lease_lasts_a_minute_unless_it_is_asked_otherwise(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    engine.publish({}, {})
    assert engine.claim().lease_expires_at == engine.now() + timedelta(minutes=1)
    assert engine.claim(lease=timedelta(hours=2)).lease_expires_at == engine.now() + timedelta(
        hours=2
    )


def test_a_lease_lasts_from_a_tenth_of_a_second_to_seven_days(engine: Engine) -> None:
    engine.publish({}, {})
    for lease in ("0", "-1 second", "1 ms", "99 ms", "7 days 1 microsecond", "1 month"):
        with refused("QU001", "from 0.1 seconds to 7 days"):
            engine.poll(lease=lease)
    engine.claim(lease="7 days")
    engine.claim(lease="0.1 seconds")


def test_max_events_is_a_number_from_1_to_1000(engine: Engine) -> None:
    for wrong in (0, -1, 1001, 2**31 - 1, None):
        with refused("QU001", "from 1 to 1000"):
            engine.poll(max_events=wrong)


def test_a_worker_has_a_name_of_at_most_200_characters(engine: Engine) -> None:
    [id] = engine.publish({})
    with refused("QU001", "200 characters"):
        engine.poll(worker="é" * 201)
    engine.claim(worker="é" * 200)
    assert engine.event(id).worker_id == "é" * 200


def test_an_unknown_namespace_or_queue_is_refused(engine: Engine) -> None:
    for namespace in ("nowhere", "", None):
        with refused("QU010"):
            engine.call("poll", namespace=namespace)
    for queue in ("other", "", None):
        with refused("QU011"):
            engine.poll(queue=queue)


@requirement("G5")
def test_a_poll_gives_no_more_than_was_asked_for(engine: Engine) -> None:
    engine.publish(*({"type": f"t{n % 5}", "priority": n % 3} for n in range(60)))
    assert [len(engine.poll(max_events=n)) for n in (1, 7, 50, 50)] == [1, 7, 50, 2]


@requirement("G5", "G4")
def test_polls_page_through_a_backlog_under_a_lease_each(engine: Engine, db: Database) -> None:
    published = engine.publish(*({"payload": n} for n in range(2300)))
    pages = [engine.poll(max_events=1000) for _ in range(4)]

    assert [len(page) for page in pages] == [1000, 1000, 300, 0]
    assert [id for page in pages for id in ids(page)] == published
    assert [len({claimed.lease for claimed in page}) for page in pages] == [1, 1, 1, 0]
    assert db.sql("select size from headrace.leases order by id") == [(1000,), (1000,), (300,)]
    assert set(map(tuple, db.placement().values())) == {("lease",)}


def test_a_batch_is_one_lease_with_arrays(engine: Engine, db: Database) -> None:
    lease = "select id, size, worker, events, attempts, failures, done from headrace.leases"
    published = engine.publish({}, {}, {})
    claims = engine.poll(max_events=10, worker="w")

    # of those that were never claimed before, there is nothing to remember
    assert db.sql(lease) == [(claims[0].lease, 3, "w", published, None, None, None)]
    engine.finish(claims, {str(n): {"action": "release"} for n in (1, 2, 3)})
    claims = engine.poll(max_events=10, worker="w")
    assert db.sql(lease) == [(claims[0].lease, 3, "w", published, [2, 2, 2], [0, 0, 0], None)]
    assert db.sql("select created_at from headrace.leases") == [
        ([claimed.created_at for claimed in claims],)
    ]
    assert db.sql("select count(*) from headrace.held") == [(0,)]
    assert {claimed.held for claimed in claims} == {False}


def test_each_makes_one_lease_and_a_held_row_for_every_delivery(
    engine: Engine, db: Database
) -> None:
    published = engine.publish({"priority": 1}, {"type": "b"}, {})
    claims = engine.poll(max_events=10, worker="w", each=True)

    assert ids(claims)[0] == published[0]
    assert {claimed.held for claimed in claims} == {True}
    assert {claimed.lease for claimed in claims} == {claims[0].lease}
    assert db.sql("select id, size, worker, events, done from headrace.leases") == [
        (claims[0].lease, 3, "w", None, None)
    ]
    assert db.sql(
        "select event, attempt, priority, suspect, lease from headrace.held order by priority, event"
    ) == [(claimed.id, 1, claimed.priority, False, claimed.lease) for claimed in claims]
    assert db.sql("select position from headrace.held order by position") == [(0,), (1,), (2,)]
    assert set(map(tuple, db.placement().values())) == {("held",)}


def test_each_and_batch_return_the_same(engine: Engine) -> None:
    events = [{"type": "a", "payload": n, "tags": ["x"], "title": str(n)} for n in range(4)]
    engine.publish(*events)
    engine.publish(*events)

    def comparable(claims: list[Any]) -> list[Any]:
        return [
            (c.type, c.tags, c.payload, c.details, c.attempt, c.retry_count, c.crashes, c.priority, c.max_retries)
            for c in claims
        ]  # fmt: skip

    batch = engine.poll(max_events=4)
    held = engine.poll(max_events=4, each=True)
    single = [engine.publish(event) and engine.claim() for event in events]
    assert comparable(batch) == comparable(held) == comparable(single)


# --- order


def test_the_most_urgent_and_oldest_come_first(engine: Engine) -> None:
    priorities = [5, 0, 9, 3, 0, 5, 3, 9, 1]
    published = engine.publish(
        *({"type": f"t{n % 3}", "priority": priority} for n, priority in enumerate(priorities))
    )
    expected = [id for _, id in sorted(zip(priorities, published, strict=True))]
    assert ids(engine.poll(max_events=100)) == expected


def test_priorities_are_outermost_across_routes(engine: Engine) -> None:
    """However many routes wait at lesser priorities, what is more urgent is claimed before them."""
    late = engine.publish(*({"type": f"t{n}", "priority": 6} for n in range(30)))
    usual = engine.publish(*({"type": f"t{n}"} for n in range(20)))
    urgent = engine.publish(*({"type": f"t{n % 10}", "priority": 0} for n in range(15)))

    drained = [ids(engine.poll(max_events=5)) for _ in range(13)]
    flat = [id for page in drained for id in page]
    assert set(flat[:15]) == set(urgent)
    assert set(flat[15:35]) == set(usual)
    assert set(flat[35:]) == set(late)


def test_within_a_route_the_oldest_is_first_whatever_is_asked_for(engine: Engine) -> None:
    published = engine.publish(*({"payload": n} for n in range(30)))
    claimed = [id for size in (1, 2, 4, 1, 8, 14) for id in ids(engine.poll(max_events=size))]
    assert claimed == published


def test_what_comes_back_joins_at_the_tail(engine: Engine, db: Database) -> None:
    failed, released, third = engine.publish(
        {"backoff": {"kind": "fixed", "delay": 0}}, {"payload": 2}, {"payload": 3}
    )
    first, second = engine.poll(max_events=2)
    engine.end("fail", first)
    engine.end("release", second)
    [last] = engine.publish({"payload": 4})

    assert ids(engine.poll(max_events=10)) == [third, failed, released, last]


def test_a_due_event_joins_at_the_tail(engine: Engine, db: Database) -> None:
    [delayed] = engine.publish({"delay": 5})
    [waiting] = engine.publish({"payload": 1})
    db.advance(seconds=6)
    engine.tick()
    [last] = engine.publish({"payload": 2})
    assert ids(engine.poll(max_events=10)) == [waiting, delayed, last]


# --- fairness


def test_a_backlog_of_one_route_does_not_hold_up_the_others(engine: Engine) -> None:
    engine.publish(*({"type": "backlog"} for _ in range(500)))
    engine.publish(*({"type": f"small{n}"} for n in range(20)))

    claims = engine.poll(max_events=100)
    assert len(claims) == 100
    assert len(set(types(claims))) == 21  # every route has its share, and the rest is filled up


def test_routes_share_a_poll_fairly(engine: Engine) -> None:
    engine.publish(*({"type": f"t{n % 4}"} for n in range(400)))
    assert Counter(types(engine.poll(max_events=100))) == {f"t{n}": 25 for n in range(4)}


def test_no_route_waits_long_when_there_are_more_routes_than_are_asked_for(engine: Engine) -> None:
    engine.publish(*({"type": "backlog"} for _ in range(500)))
    engine.publish(*({"type": f"small{n}"} for n in range(20)))

    # Ten routes have a turn in each poll: after three of them nobody small is left.
    claimed = [type for _ in range(3) for type in types(engine.poll(max_events=10))]
    assert set(claimed) >= {f"small{n}" for n in range(20)}


def close_neighbours(db: Database) -> tuple[str, str]:
    """Two types whose routes are next to each other on the number line of routes."""
    [row] = db.sql("""
        select type, next from (
            select type, route, lead(type) over w as next, lead(route) over w - route as distance
            from (select 't' || n as type, headrace._route('t' || n, null) as route
                  from generate_series(1, 5000) n) t
            window w as (order by route)
        ) t
        order by distance limit 1
    """)
    return row


@pytest.mark.parametrize("filtered", [False, True])
def test_routes_share_polls_for_one_event_fairly(
    engine: Engine, db: Database, filtered: bool
) -> None:
    neighbours = close_neighbours(db)
    engine.publish(*({"type": type} for type in neighbours for _ in range(80)))

    filters = {"types": ["t*"]} if filtered else {}
    shares = Counter(engine.claim(**filters).type for _ in range(80))
    # By chance alone, less than 15 of 80 happens once in a hundred million times.
    assert min(shares[type] for type in neighbours) >= 15, shares


def test_routes_share_polls_for_one_event_by_hints_fairly(engine: Engine) -> None:
    engine.publish(*({"type": type} for type in "ab" for _ in range(90)))
    hints = engine.poll(max_events=10)[0].hints
    shares = Counter(engine.claim(hints=hints).type for _ in range(80))
    assert min(shares["a"], shares["b"]) >= 15, shares  # as above


# --- filters

ROUTES: list[dict[str, Any]] = [
    {"type": "order.created", "tags": ["eu", "vip"]},
    {"type": "order.paid", "tags": ["eu"]},
    {"type": "order", "tags": ["us", "vip"]},
    {"type": "invoice.created"},
    {"type": "orders"},
]


PATTERNS: list[tuple[str, set[str]]] = [
    ("order.created", {"order.created"}),
    ("order", {"order"}),
    ("order.*", {"order.created", "order.paid"}),
    ("order*", {"order.created", "order.paid", "order", "orders"}),
    ("*.created", {"order.created", "invoice.created"}),
    ("*o*.*a*d", {"order.created", "order.paid", "invoice.created"}),
    ("*", {event["type"] for event in ROUTES}),
    ("**", {event["type"] for event in ROUTES}),
    ("ORDER", set()),
    ("order.", set()),
    ("rder*", set()),
    ("", set()),
]


def selected(engine: Engine, **filters: Any) -> list[str]:
    """The types that a filter selects; they are handed back."""
    claims = engine.poll(max_events=100, **filters)
    engine.finish(claims, {str(n): {"action": "release"} for n in range(1, len(claims) + 1)})
    come_back(engine)
    return sorted(types(claims))


def come_back(engine: Engine) -> None:
    """Events that were released several times in a row are ready again after a minute at most."""
    engine.db.advance(minutes=1)
    engine.db.sql("select headrace.tick()")


def test_a_type_may_hold_asterisks(engine: Engine) -> None:
    engine.publish(*ROUTES)
    for pattern, expected in PATTERNS:
        assert selected(engine, types=[pattern]) == sorted(expected), pattern


def test_percent_underscore_backslash_and_brackets_stand_for_themselves(engine: Engine) -> None:
    plain = ["axb", "a%b", "a_b", "a\\b", "a\\\\b", "a[x]b", "a.b", "a'b", 'a"b', "a|b", "a+"]
    engine.publish(*({"type": type} for type in plain))
    for type in plain:
        assert selected(engine, types=[type]) == [type]
        assert selected(engine, types=[type + "*"]) == [type]
        ending = type[1:]
        assert selected(engine, types=["*" + ending]) == sorted(
            type for type in plain if type.endswith(ending)
        )


def test_types_are_alternatives_and_name_nothing_twice(engine: Engine) -> None:
    engine.publish(*ROUTES)
    claims = engine.poll(max_events=100, types=["order", "order*", "order.paid", "nothing"])
    assert Counter(types(claims)) == Counter(["order.created", "order.paid", "order", "orders"])


TAGS: list[tuple[list[str], bool, set[str]]] = [
    (["eu"], False, {"order.created", "order.paid"}),
    (["vip"], False, {"order.created", "order"}),
    (["eu", "vip"], False, {"order.created", "order.paid", "order"}),
    (["eu", "vip"], True, {"order.created"}),
    (["vip", "eu"], True, {"order.created"}),
    (["eu", "us"], True, set()),
    (["eu", "eu"], True, {"order.created", "order.paid"}),
    (["asia"], False, set()),
    (["e"], False, set()),
]


def test_tags_select_any_or_all(engine: Engine) -> None:
    engine.publish(*ROUTES)
    for tags, all_tags, expected in TAGS:
        assert selected(engine, tags=tags, all_tags=all_tags) == sorted(expected), tags


def test_types_and_tags_narrow_each_other(engine: Engine) -> None:
    engine.publish(*ROUTES)
    assert types(engine.poll(max_events=100, types=["order"], tags=["eu", "vip"])) == ["order"]
    assert types(engine.poll(max_events=100, types=["order*"], tags=["us"])) == []


def test_a_filter_leaves_alone_what_it_does_not_select(engine: Engine, db: Database) -> None:
    published = engine.publish(*ROUTES)
    engine.poll(max_events=100, types=["invoice.*"])
    assert [db.placement()[id] for id in published] == [
        ["ready"], ["ready"], ["ready"], ["lease"], ["ready"]
    ]  # fmt: skip


def test_a_filter_names_something_or_is_null(engine: Engine) -> None:
    for wrong in ([], ["a", None], [None], ["a"] * 1001):
        with refused("QU001", "1 to 1000"):
            engine.call("poll", namespace="default", types=wrong)
        with refused("QU001", "1 to 1000"):
            engine.call("poll", namespace="default", tags=wrong)


def test_a_filter_keeps_the_order_of_the_claim(engine: Engine) -> None:
    published = engine.publish(
        *({"type": f"a{n % 4}", "priority": n % 2} for n in range(20)), {"type": "b", "priority": 0}
    )
    expected = published[0:20:2] + published[1:20:2]
    assert ids(engine.poll(max_events=100, types=["a*"])) == expected


# --- hints


class Consumer:
    """Polls as a client does: it keeps the last hints and passes them back."""

    def __init__(self, engine: Engine, **filters: Any) -> None:
        self.engine = engine
        self.filters = filters
        self.hints: str | None = None

    def poll(self, max_events: int = 1, **arguments: Any) -> list[int]:
        claims = self.engine.poll(max_events, hints=self.hints, **self.filters, **arguments)
        if claims:
            self.hints = claims[0].hints
            assert self.hints is not None
            assert {claimed.hints for claimed in claims[1:]} <= {None}
        return ids(claims)


@requirement("G4")
def test_hints_that_are_passed_back_drain_the_queue_in_order(engine: Engine, db: Database) -> None:
    published = engine.publish(*({"payload": n} for n in range(40)))
    consumer = Consumer(engine)
    claimed = []
    for _ in range(10):
        claimed += consumer.poll(max_events=4)
        db.advance(seconds=1)  # so that the hints move on
    assert claimed == published


@requirement("G4")
def test_with_hints_a_pair_that_is_published_to_again_is_found(
    engine: Engine, db: Database
) -> None:
    consumer = Consumer(engine)
    for _ in range(5):
        published = engine.publish({"type": "a"}, {"type": "a"})
        assert [*consumer.poll(), *consumer.poll()] == published
        db.advance(seconds=1)


@requirement("G4")
def test_new_pairs_are_found_by_a_sweep(engine: Engine) -> None:
    consumer = Consumer(engine)
    engine.publish({"type": "a"})
    consumer.poll()
    new_route, new_priority = engine.publish({"type": "b"}, {"type": "a", "priority": 2})

    assert consumer.poll(max_events=10) == []  # hints are blind to what they do not name
    assert consumer.poll(max_events=10, sweep=True) == [new_priority, new_route]
    more = engine.publish({"type": "b"}, {"type": "a", "priority": 2})
    assert set(consumer.poll(max_events=10)) == set(more)


@requirement("G4")
def test_what_commits_late_is_found_by_a_sweep_and_the_rest_of_it_at_full_speed(
    engine: Engine, db: Database
) -> None:
    slow = Engine(db)
    consumer = Consumer(engine)
    with slow.connection.transaction():
        late = slow.publish({}, {}, {})
        early = engine.publish({}, {}, {})
        assert consumer.poll() == early[:1]
        db.advance(seconds=1)
        assert consumer.poll() == early[1:2]
    assert consumer.poll() == early[2:]  # the bound has passed what was not yet committed
    assert consumer.poll() == []
    assert consumer.poll(sweep=True) == late[:1]
    assert consumer.poll() == late[1:2]
    assert consumer.poll() == late[2:]


@requirement("G4")
def test_what_was_rolled_back_by_another_claimer_is_found_by_a_sweep(
    engine: Engine, db: Database
) -> None:
    published = engine.publish(*({"payload": n} for n in range(4)))
    other = Engine(db)
    consumer = Consumer(engine)
    with other.connection.transaction(force_rollback=True):
        assert ids(other.poll()) == published[:1]
        for id in published[1:]:
            assert consumer.poll() == [id]
            db.advance(seconds=1)
    assert consumer.poll() == []
    assert consumer.poll(sweep=True) == published[:1]


@requirement("G4")
def test_a_delivery_that_comes_back_is_found_with_hints(engine: Engine) -> None:
    engine.publish(*({"payload": n} for n in range(4)))
    consumer = Consumer(engine)
    for _ in range(12):
        [claimed] = engine.poll(hints=consumer.hints)
        consumer.hints = claimed.hints
        engine.end("release", claimed)
        come_back(engine)


def test_hints_of_a_filtered_poll_keep_to_the_filter(engine: Engine) -> None:
    engine.publish({"type": "a"}, {"type": "b"})
    consumer = Consumer(engine, types=["a"])
    assert len(consumer.poll()) == 1
    engine.publish({"type": "b"}, {"type": "a"})
    assert len(consumer.poll(max_events=10)) == 1
    assert consumer.poll(max_events=10, sweep=True) == []


def test_hints_that_are_none_are_refused_as_data(engine: Engine) -> None:
    engine.publish({})
    for wrong in ("x", "{x}", '{"(1,2)"}', '{"(a,b,c,d,e,f)"}', "{{{{"):
        with refused("22P02"):
            engine.poll(hints=wrong)
    for useless in ("{}", "{NULL}", '{"(,,,,,)"}', '{"(f,9,1,5,5,infinity)"}'):
        assert engine.poll(hints=useless) == []
        assert len(engine.poll(hints=useless, sweep=True)) == 1
        engine.publish({})


# --- time


@requirement("EQ-7", "EQ-8", "EQ-15", "EB-7", "EB-8", "EQ-5", "EB-4", "G4", "G13")
def test_an_abandoned_delivery_is_claimed_again_by_polling_alone(
    engine: Engine, db: Database
) -> None:
    stop_the_clock(db)
    [id] = engine.publish({"payload": 1})
    engine.claim(worker="dead:1")
    db.advance(minutes=1)
    assert engine.poll() == []  # not before it is older than the timeout
    db.advance(microseconds=1)

    again = engine.claim(worker="alive:2")
    event = engine.event(id)
    assert (again.id, again.attempt, again.crashes) == (id, 2, 0)
    assert (event.status, event.worker_id, event.attempts) == ("PROCESSING", "alive:2", 2)
    assert event.updated_at == event.processing_started_at == engine.now()
    engine.end("complete", again)
    assert engine.event(id).status == "COMPLETED"


@requirement("EB-11", "EQ-16")
def test_the_timeout_of_a_claim_is_the_callers(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    engine.publish({"payload": 1})
    engine.claim(lease=timedelta(minutes=5))
    db.advance(minutes=5)
    assert engine.poll() == []
    db.advance(seconds=1)
    assert engine.claim(lease=timedelta(seconds=1)).attempt == 2
    db.advance(seconds=1.001)
    assert engine.claim().attempt == 3


@requirement("EQ-8", "G4", "G19")
def test_a_due_delivery_is_claimed_by_polling_alone(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    delayed, failed = engine.publish(
        {"delay": 300, "type": "later"}, {"backoff": {"kind": "fixed", "delay": 300}}
    )
    engine.end("fail", engine.claim())
    db.advance(seconds=299.999999)
    assert engine.poll(max_events=10) == []
    db.advance(microseconds=1)
    assert set(ids(engine.poll(max_events=10))) == {delayed, failed}


def test_a_poll_that_finds_work_leaves_the_clock_to_tick(engine: Engine, db: Database) -> None:
    delayed, ready = engine.publish({"delay": 5}, {})
    db.advance(seconds=6)
    assert ids(engine.poll()) == [ready]
    assert db.placement()[delayed] == ["delayed"]


@requirement("G13")
def test_a_lease_begins_when_it_is_claimed_not_when_the_transaction_did(
    engine: Engine, db: Database
) -> None:
    engine.publish({})
    with engine.connection.transaction():
        engine.connection.execute("select 1")
        db.advance(minutes=10)
        claimed = engine.claim()
    assert engine.event(claimed.id).lease_expires_at > engine.now()
    assert engine.tick().expired == 0


# --- suspects


def make_suspects(engine: Engine, *events: dict[str, Any]) -> list[int]:
    """Events whose worker died with all of them: now they are suspects."""
    published = engine.publish(*events)
    assert sorted(ids(engine.poll(max_events=len(events), lease="1 second"))) == published
    engine.db.advance(seconds=2)
    engine.tick()
    return published


@requirement("G9")
def test_a_suspect_is_claimed_alone_and_held(engine: Engine, db: Database) -> None:
    suspects = make_suspects(engine, {}, {}, {})
    usual = engine.publish({}, {})

    for id in suspects:
        claimed = engine.claim(max_events=100)
        assert (claimed.id, claimed.attempt, claimed.held) == (id, 2, True)
        assert (claimed.retry_count, claimed.crashes) == (0, 0)
    assert ids(engine.poll(max_events=100)) == usual
    assert db.sql("select size, count(*) from headrace.leases group by size order by size") == [
        (1, 3),
        (2, 1),
    ]


@requirement("G9")
def test_a_suspect_waits_its_turn_and_gets_it(engine: Engine) -> None:
    engine.publish({}, {})
    first, second = ids(engine.poll(max_events=2, lease="1 second"))
    [before] = engine.publish({})
    engine.db.advance(seconds=2)
    engine.tick()
    [after] = engine.publish({})

    assert [engine.claim().id for _ in range(4)] == [before, first, second, after]


@requirement("G9")
def test_suspects_take_turns_by_priority(engine: Engine) -> None:
    low, high = make_suspects(engine, {"priority": 7}, {"priority": 2})
    urgent, usual, last = engine.publish({"priority": 1}, {"priority": 5}, {"priority": 9})
    assert [engine.claim().id for _ in range(5)] == [urgent, high, usual, low, last]


@requirement("G9")
def test_suspects_are_left_alone_on_request(engine: Engine, db: Database) -> None:
    suspects = make_suspects(engine, {}, {})
    [usual] = engine.publish({})

    assert ids(engine.poll(max_events=100, suspects=False)) == [usual]
    assert engine.poll(max_events=100, suspects=False) == []
    assert [db.placement()[id] for id in suspects] == [["ready"], ["ready"]]
    assert engine.claim(max_events=100).id == suspects[0]


@requirement("G9")
def test_a_filter_selects_among_suspects_too(engine: Engine) -> None:
    a, b, _ = make_suspects(engine, {"type": "a"}, {"type": "b", "tags": ["x"]}, {"type": "c"})
    assert engine.claim(types=["b*"]).id == b
    assert engine.poll(tags=["x"]) == []
    assert engine.claim(types=["a", "b"]).id == a


@requirement("G9")
def test_a_sweep_finds_suspects_and_its_hints_the_rest_of_them(engine: Engine) -> None:
    consumer = Consumer(engine)
    engine.publish({})
    consumer.poll()
    suspects = make_suspects(engine, {}, {})
    assert consumer.poll() == [], "hints do not know of them yet"
    assert [consumer.poll(sweep=True), consumer.poll()] == [[id] for id in suspects]


@requirement("G9")
def test_once_suspected_a_delivery_is_claimed_alone_for_ever(engine: Engine, db: Database) -> None:
    make_suspects(
        engine,
        {"backoff": {"kind": "fixed", "delay": 0}},
        {"backoff": {"kind": "fixed", "delay": 60}},
    )
    engine.end("fail", engine.claim())
    engine.end("fail", engine.claim(types=["event"]))
    db.advance(minutes=2)
    assert len(engine.poll(max_events=100)) == 1
    assert len(engine.poll(max_events=100)) == 1
    assert set(map(tuple, db.placement().values())) == {("held",)}


# --- what a session may be like


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_poll_refuses_a_transaction_that_would_not_see_what_others_commit(
    engine: Engine, db: Database, level: str
) -> None:
    [id] = engine.publish({})
    with refused("QU030", "READ COMMITTED"), engine.connection.transaction():
        engine.connection.execute(f"set transaction isolation level {level}")
        engine.poll()
    engine.connection.execute(f"set default_transaction_isolation = '{level}'")
    with refused("QU030", "READ COMMITTED"):
        engine.poll()
    assert db.placement() == {id: ["ready"]}


@requirement("G5", "G9")
def test_a_claim_is_committed_to_disk_although_the_session_does_not_wait_for_it(
    engine: Engine,
) -> None:
    engine.publish({})
    engine.connection.execute("set synchronous_commit = off")
    with engine.connection.transaction():
        engine.claim()
        assert engine.connection.execute("show synchronous_commit").fetchone() == ("on",)
    assert engine.connection.execute("show synchronous_commit").fetchone() == ("off",)


def test_poll_leaves_a_stronger_synchronous_commit_as_it_is(engine: Engine) -> None:
    engine.publish({}, {}, {})
    for setting in ("local", "remote_write", "remote_apply"):
        engine.connection.execute(f"set synchronous_commit = {setting}")
        with engine.connection.transaction():
            engine.claim()
            assert engine.connection.execute("show synchronous_commit").fetchone() == (setting,)


@requirement("G5")
def test_a_claim_that_is_rolled_back_was_none(engine: Engine, db: Database) -> None:
    published = engine.publish({}, {})
    for each in (False, True):
        with engine.connection.transaction(force_rollback=True):
            assert ids(engine.poll(max_events=2, each=each)) == published
        assert set(map(tuple, db.placement().values())) == {("ready",)}
    assert [claimed.attempt for claimed in engine.poll(max_events=2)] == [1, 1]


def test_an_event_may_be_claimed_in_the_transaction_that_publishes_it(engine: Engine) -> None:
    with engine.connection.transaction():
        [id] = engine.publish({"payload": 1})
        assert engine.claim().id == id


# --- bodies that are not where they were


@requirement("G18")
@pytest.mark.parametrize("each", [False, True])
def test_a_body_that_was_deleted_by_hand_is_dead_lettered_alone(
    engine: Engine, db: Database, each: bool
) -> None:
    first, lost, last = engine.publish({}, {"type": "x"}, {})
    db.sql("delete from headrace.events where id = %s", [lost])

    claims = engine.poll(max_events=10, each=each, worker="w")
    assert ids(claims) == [first, last]
    assert engine.finish(claims) == []
    letter = engine.dead_letter(lost)
    assert (letter.status, letter.reason) == ("FAILED", "Its event is no longer stored")
    assert (letter.attempts, letter.type, letter.payload) == (1, "event", None)
    assert db.placement() == {first: ["outcome"], last: ["outcome"]}
    assert engine.event(lost).status == "FAILED"
    assert engine.actions(lost)[-1] == "DEAD_LETTERED"
    assert engine.stats().dead_lettered == 1
    assert engine.poll(max_events=10) == []
    db.advance(minutes=2)
    engine.tick()
    assert db.sql("select count(*) from headrace.leases") == [(0,)]


@requirement("G18")
@pytest.mark.parametrize("each", [False, True])
def test_bodies_that_were_all_deleted_stop_nobody(engine: Engine, db: Database, each: bool) -> None:
    lost = engine.publish({}, {}, {})
    db.sql("delete from headrace.events")
    for size in (1, 10):
        assert engine.poll(max_events=size, each=each) == []
    assert db.sql("select event from headrace.dead_letters order by event") == [
        (id,) for id in lost
    ]
    [id] = engine.publish({})
    assert engine.claim(each=each).id == id


@requirement("G18")
def test_a_suspect_whose_body_was_deleted_is_dead_lettered(engine: Engine, db: Database) -> None:
    first, second = make_suspects(engine, {}, {})
    db.sql("delete from headrace.events where id = %s", [first])
    assert engine.poll() == []
    assert engine.dead_letter(first).reason == "Its event is no longer stored"
    assert engine.claim().id == second


@requirement("G18")
@pytest.mark.parametrize("each", [False, True])
def test_a_body_that_was_deleted_while_claimed_stops_neither_fail_nor_tick(
    engine: Engine, db: Database, each: bool
) -> None:
    failed, abandoned, neighbour, completed = engine.publish({}, {}, {}, {})
    claims = engine.poll(max_events=10, each=each)
    db.sql("delete from headrace.events where id = any(%s)", [[failed, abandoned, completed]])

    engine.finish([claims[0], claims[3]], {"1": {"action": "fail", "error": "boom"}})
    db.advance(minutes=2)
    assert engine.tick().expired == 1
    assert engine.claim().id == neighbour
    letters = db.sql("select event, reason from headrace.dead_letters order by event")
    assert letters == [
        (failed, "Its event is no longer stored"),
        (abandoned, "Its event is no longer stored"),
    ]


@requirement("G4", "G18")
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("tags", [["x"], []], ids=["route of its own", "route of others"])
def test_a_body_that_retention_has_carried_over_is_found(
    engine: Engine, db: Database, each: bool, tags: list[str]
) -> None:
    for size in (1, 10):
        old = {"payload": "old", "tags": tags, "max_retries": 9, "title": "T"}
        before, after = ({"priority": 4}, {"priority": 6}) if tags else ({}, {})
        _, carried, _ = published = engine.publish(before, old, after)
        db.sql(
            "insert into headrace.events_carried select * from headrace.events where id = %s",
            [carried],
        )
        db.sql("delete from headrace.events where id = %s", [carried])

        claims = [claimed for _ in range(3) for claimed in engine.poll(max_events=size, each=each)]
        assert ids(claims) == published, "each in its turn"
        claimed = claims[1]
        assert (claimed.payload, claimed.tags, claimed.max_retries) == ("old", tags or None, 9)
        assert (claimed.details, claimed.priority) == ({"title": "T"}, 5)
        assert (claimed.attempt, claimed.held) == (1, each)
        assert engine.finish(claims) == []
        assert db.sql("select count(*) from headrace.dead_letters") == [(0,)]

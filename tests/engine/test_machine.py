"""Programs of calls that Hypothesis makes up, and shrinks to the shortest that shows a fault: after every call the
engine must say and hold what the specification does."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg.rows import namedtuple_row

from tests.database import Database
from tests.engine.functions_helpers import refused, stop_the_clock
from tests.engine.specification import (
    QUEUES,
    Claim,
    End,
    Ended,
    Finish,
    Limit,
    NewEvent,
    Specification,
)
from tests.places import check_places
from tests.requirements import requirement

# One program leaves nothing to the next, and each begins at the same number, not far from the end of a bucket.
BEGIN = """
create function headrace_test.begin() returns void language sql as $$
    delete from headrace.events; delete from headrace.ready; delete from headrace.delayed;
    delete from headrace.keyed; delete from headrace.active; delete from headrace.leases;
    delete from headrace.held; delete from headrace.interruptions; delete from headrace.progress;
    delete from headrace.outcomes; delete from headrace.errors;
    delete from headrace.dead_letters; delete from headrace.counts; delete from headrace.stats;
    delete from headrace.limit_slots; delete from headrace.limit_groups; delete from headrace.limit_keys;
    delete from headrace.unique_keys; delete from headrace.debounce_keys;
    update headrace.queues set state = 'active', limits = null;
    update headrace_test.clock set shift = '0';
    update headrace.namespaces set floor = 0 where floor > 0;
    select setval('headrace.ids', headrace._id_at(1985), false);
    select setseed(0);
$$
"""
PUBLISH = "select ids from headrace.publish('default', %s)"
POLL = """
select * from headrace.poll('default', %s, %s, worker => %s, max_events => %s, "each" => %s)
"""
POLL_BATCH = """
select m.id, b.type, b.attempt, b.priority, b.retry_count, b.crashes, b.max_retries, b.lease, b.held, b.lease_expires_at
from (
    select *, max(cardinality(ids)) over () > 1 as together, row_number() over () as n
    from headrace.poll_batch('default', %s, %s, worker => %s, max_events => %s, "each" => %s)
) b cross join unnest(b.ids) as m(id)
order by case when b.together then b.priority end, case when b.together then m.id end, b.n
"""
FINISH = """
select v.item, v.verdict, v.action, extract(epoch from v.at - s.at)::int as at,
       extract(epoch from v.retry_at - s.at)::int as retry_at, v.retry_count, v.max_retries
from headrace.finish('default', %s, %s, %s, %s, others => %s) v cross join headrace_test.stopped s
"""
IS_DUE = """
select exists (select from headrace.deliveries d, headrace._now() t where d.due_at <= t or d.until < t)
"""
WORK = """
with claimed as materialized (select * from headrace.poll('default', %s, max_events => 1000))
select headrace.finish('default', %s, array_agg(id), array_agg(attempt), array_agg(lease)) from claimed having count(*) > 0
"""
EXTEND = "select state from headrace.extend('default', %s, %s, make_interval(secs => %s))"
ADVANCE = "update headrace_test.clock set shift = shift + make_interval(secs => %s)"

# What the engine holds and tells, to be compared with what it must.
LIVE = """
select q.name, d.event, d.attempts, d.failures, d.crashes, d.suspect, d.lease,
       extract(epoch from d.due_at - s.at)::int as due, extract(epoch from d.until - s.at)::int as until
from headrace.deliveries d join headrace.queues q on q.id = d.queue cross join headrace_test.stopped s
"""
EVENTS = """
select d.queue, e.id, e.status, e.attempts, e.retry_count
from unnest(%s::text[], %s::bigint[]) as d(queue, event)
cross join lateral headrace.event('default', d.event, d.queue) e
"""
LOGS = """
select l.event_id, l.queue, array_agg(concat_ws(' ', l.action, l.attempt) order by l.id) as entries
from headrace.event_log l group by l.event_id, l.queue
"""

LEASE = 60
FINALIZE = "select headrace.finalize(%s, %s, %s, '{It did not work}', null, %s)"
SINGLE = {  # the calls that end one attempt, by what they say
    Finish(): "select headrace.complete(%s, %s, %s, %s)",
    Finish("release"): "select headrace.release(%s, %s, %s, %s)",
    Finish("release", delay=30): "select headrace.release(%s, %s, %s, %s, delay => '30 s')",
    Finish("fail"): "select headrace.fail(%s, %s, %s, 'It did not work', %s)",
    Finish("fail", reason="Handler error", status="COMPLETED_WITH_ERRORS"):
    FINALIZE,
}  # fmt: skip
REFUSALS = {"lost": "QU020", "conflict": "QU021"}
ADMINISTRATION = {
    "reset": "select headrace.reset('default', queue => %s, event_id => %s)",
    "cancel": "select headrace.cancel('default', queue => %s, event_id => %s)",
    "rerun": "select headrace.rerun('default', queue => %s, event_id => %s) is not null",
    "redrive": "select done = 1 from headrace.redrive('default', %s, array[%s])",
}
NOT_THERE, ENDED, NOT_ENDED, KEY_IS_HELD = "QU012", "QU024", "QU025", "QU026"

SIZES = st.sampled_from([2, 1, 5, 30])
TYPES = st.sampled_from([None, None, ["b"]])
PACK = 20  # so many that were published together stand in `ready` as one row
QUEUE = st.sampled_from([*QUEUES])
WORKERS = st.sampled_from(["one", "two"])
POLLS = st.sampled_from([POLL, POLL_BATCH])  # which claim alike
NEW_EVENT: dict[str, Any] = {
    "type": st.sampled_from(["a", "b"]),
    "priority": st.sampled_from([5, 5, 1]),
    "delay": st.sampled_from([0, 0, 0, 30]),
    "max_retries": st.sampled_from([None, None, 0, 1, 2]),
}
NEITHER = dict.fromkeys(("unique", "debounce", "settle", "at_latest"), st.none())
PLAIN = st.builds(NewEvent, **NEW_EVENT, **NEITHER, key=st.none())
KEYED = st.builds(NewEvent, **NEW_EVENT, **NEITHER, key=st.sampled_from(["k", "l", None]))
UNIQUE = st.builds(
    NewEvent, **NEW_EVENT, **{**NEITHER, "unique": st.sampled_from("uv")}, key=st.none()
)
DEBOUNCED = st.builds(
    NewEvent,
    **{**NEW_EVENT, "delay": st.just(0)},
    key=st.none(),
    unique=st.none(),
    debounce=st.sampled_from("de"),
    settle=st.sampled_from([20, 40]),
    at_latest=st.sampled_from([50, 300]),
)
FINISHES = st.sampled_from([*SINGLE, Finish("abandon")]) | st.builds(
    Finish,
    st.just("fail"),
    retry_in=st.sampled_from([None, 0, 30]),
    max_retries=st.sampled_from([None, 1]),
    reason=st.sampled_from([None, None, "It is no use"]),
    status=st.sampled_from([None, "COMPLETED_WITH_ERRORS"]),
    delay=st.none(),
)


CHANGE = "select headrace.change_queue('default', %s, %s)"
LIMITS = st.lists(
    st.builds(
        Limit,
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([1, 2, 4, None]),
        st.sampled_from([None, 1, 2, 120]),
        st.sampled_from([0, 2]),
    ).filter(lambda limit: limit.at_once or limit.rate),
    max_size=2,
    unique_by=lambda limit: limit.type,
).map(tuple)


def step(**strategies: Any) -> Callable[[Callable[..., Any]], Any]:
    """A rule after which everything is looked at. (An invariant would be printed after every line.)"""

    def decorate(function: Callable[..., Any]) -> Any:
        @wraps(function)
        def then_check(self: "Machine", *arguments: Any, **options: Any) -> Any:
            result = function(self, *arguments, **options)
            self.check()
            return result

        return rule(**strategies)(then_check)

    return decorate


class Machine(RuleBasedStateMachine):
    events = Bundle("events")
    claims = Bundle("claims")

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__()
        self.connection = connection
        self.sql("select headrace_test.begin()")
        self.specification = Specification()
        self.packed = False

    def sql(self, query: str, params: Any = None) -> list[Any]:
        cursor = self.connection.execute(query, params)
        return cursor.fetchall() if cursor.description else []

    @initialize(target=events, new=st.lists(PLAIN, min_size=1, max_size=4))
    def begin(self, new: list[NewEvent]) -> Any:
        return self._publish(new)

    @step(target=events, new=st.lists(PLAIN, min_size=1, max_size=3))
    def publish(self, new: list[NewEvent]) -> Any:
        return self._publish(new)

    @step(target=events, new=st.lists(UNIQUE | DEBOUNCED, min_size=1, max_size=3))
    def publish_once(self, new: list[NewEvent]) -> Any:
        return self._publish(new)

    @precondition(lambda self: not self.packed)
    @step(target=events, event=PLAIN)
    def publish_pack(self, event: NewEvent) -> Any:
        self.packed = True  # once in a program: it is slow to look at
        return self._publish([event] * PACK)

    def _publish(self, new: list[NewEvent]) -> Any:
        [(ids,)] = self.sql(PUBLISH, [json.dumps([given(event) for event in new])])
        assert ids == sorted(ids) or any(event.unique for event in new)
        # A debounced event joins the queue behind those that it is published with, if it is due.
        told = sorted(zip(ids, new, strict=True), key=lambda one: one[1].debounce is not None)
        for id, event in told:
            self.specification.publish(id, event)
        return multiple(*ids)

    @step(target=claims, query=POLLS, queue=QUEUE, worker=WORKERS, types=TYPES, most=SIZES)
    def poll(self, query: str, queue: str, worker: str, types: list[str] | None, most: int) -> Any:
        return self._poll(query, queue, worker, types, most, each=False)

    @step(target=claims, query=POLLS, queue=QUEUE, worker=WORKERS, types=TYPES, most=SIZES)
    def poll_each(
        self, query: str, queue: str, worker: str, types: list[str] | None, most: int
    ) -> Any:
        return self._poll(query, queue, worker, types, most, each=True)

    def _poll(
        self, query: str, queue: str, worker: str, types: list[str] | None, most: int, each: bool
    ) -> Any:
        rows = self.sql(query, [queue, types, worker, most, each])
        ticked = self.specification.is_due() and self.sql(IS_DUE) == [(False,)]
        self.specification.poll(queue, worker, types, most, LEASE, each, rows, ticked)
        return multiple(*(Claim(queue, row.id, row.attempt, row.lease) for row in rows))

    @precondition(lambda self: self.specification.leases)
    @step(
        results=st.lists(st.tuples(claims, FINISHES), min_size=1, max_size=4), named=st.booleans()
    )
    def finish(self, results: list[tuple[Claim, Finish]], named: bool) -> None:
        queue = results[0][0].queue
        results = [result for result in results if result[0].queue == queue]
        events, attempts, leases = zip(
            *((claim.event, claim.attempt, claim.lease) for claim, _ in results), strict=True
        )
        others = {str(n): given(how) for n, (_, how) in enumerate(results, 1) if how != Finish()}
        rows = self.sql(
            FINISH,
            [queue, [*events], [*attempts], [*leases] if named else None, json.dumps(others)],
        )
        told = {item: (verdict, End(*end)) for item, verdict, *end in rows}
        for item, how, (verdict, end) in self.specification.finish_together(results):
            if (verdict, how.action) != ("counted", "complete"):  # of which nothing is said
                assert told.pop(item) == (verdict, end or End())
        assert not told

    @step(claim=claims, how=st.sampled_from([*SINGLE]))
    def end(self, claim: Claim, how: Finish) -> None:
        verdict, end = self.specification.finish(claim, how)
        if SINGLE[how] == FINALIZE and end and verdict in ("repeated", "conflict"):
            verdict = "repeated" if end.is_final else "conflict"
        with refused(REFUSALS[verdict]) if verdict in REFUSALS else nullcontext():
            self.sql(SINGLE[how], ["default", claim.event, claim.attempt, claim.queue])

    @step(claim=claims, by=st.sampled_from([LEASE, 600]))
    def extend(self, claim: Claim, by: int) -> None:
        [row] = self.sql(EXTEND, [claim.queue, [claim.lease], by])
        assert self.specification.extend(claim, by) in (row.state, None)

    @step(queue=QUEUE, event=events, action=st.sampled_from([*ADMINISTRATION]))
    def administer(self, queue: str, event: int, action: str) -> None:
        delivery = self.specification.deliveries.get((queue, event))
        if delivery:
            did = getattr(self.specification, action)(delivery)
        else:
            did = (
                False if action == "redrive" else None
            )  # which takes many, and passes by what it cannot
        is_over = isinstance(delivery.state, Ended) if delivery else False
        why = (
            NOT_THERE if not delivery else NOT_ENDED if not is_over and action == "rerun" else ENDED
        )
        if did == "held":
            did, why = None, KEY_IS_HELD
        with refused(why) if did is None else nullcontext():
            [(said,)] = self.sql(ADMINISTRATION[action], [queue, event])
            assert said is did

    @step(queue=QUEUE)
    def pause_or_resume(self, queue: str) -> None:
        self.specification.paused ^= {queue}
        action = "pause" if queue in self.specification.paused else "resume"
        self.sql(f"select headrace.{action}('default', %s)", [queue])

    @step(seconds=st.sampled_from([LEASE + 1, LEASE, 30, 300]), ticks=st.integers(0, 2))
    def advance(self, seconds: int, ticks: int) -> None:
        """Time passes, and perhaps somebody ticks: polls alone must do, and two ticks are as one."""
        self.sql(ADVANCE, [seconds])
        self.specification.now += seconds
        for _ in range(ticks):
            self.sql("select headrace.tick()")
            self.specification.tick()

    def check(self) -> None:
        """Every delivery is in exactly one place, and what lives is as the specification says."""
        check_places(self.sql)
        assert set(self.sql(LIVE)) == set(self.specification.live())

    def teardown(self) -> None:
        """At the end, each event and its whole log."""
        deliveries = self.specification.deliveries
        queues, events = [queue for queue, _ in deliveries], [event for _, event in deliveries]
        told = {(queue, id): rest for queue, id, *rest in self.sql(EVENTS, [queues, events])}
        assert told == {key: [d.status, d.attempts, d.failures] for key, d in deliveries.items()}
        logs = {(queue, event): entries for event, queue, entries in self.sql(LOGS)}
        assert logs == {
            **{(None, event): ["EMITTED"] for event in events},
            **{key: d.log for key, d in deliveries.items() if d.log},
        }
        self.drain()

    def drain(self) -> None:
        """Whatever has happened, everything comes to an end once somebody works."""
        for queue in self.specification.paused:
            self.sql("select headrace.resume('default', %s)", [queue])
        for _ in range(10 * len(self.specification.deliveries) + 1):
            self.sql(ADVANCE, [1000])
            for queue in QUEUES:
                self.sql(WORK, [queue, queue])
            if not self.sql(LIVE):
                return
        raise AssertionError(f"stuck: {self.sql(LIVE)}")


class KeyedMachine(Machine):
    """The same, and some events have an ordering key."""

    @step(target=Machine.events, new=st.lists(KEYED, min_size=1, max_size=4))
    def publish(self, new: list[NewEvent]) -> Any:
        return self._publish(new)


class LimitedMachine(Machine):
    """The same, and queues get limits, others, and none."""

    @initialize(queue=st.just("main"), limits=LIMITS)
    def begin_limited(self, queue: str, limits: tuple[Limit, ...]) -> None:
        self._limit(queue, limits)

    @step(queue=QUEUE, limits=LIMITS)
    def limit(self, queue: str, limits: tuple[Limit, ...]) -> None:
        self._limit(queue, limits)

    def _limit(self, queue: str, limits: tuple[Limit, ...]) -> None:
        self.specification.limits[queue] = limits
        self.sql(CHANGE, [queue, json.dumps({"limits": [*map(as_setting, limits)]})])


class KeyedLimitedMachine(LimitedMachine, KeyedMachine):
    """Both."""


def as_setting(limit: Limit) -> dict[str, Any]:
    whose = {"scope": "queue"} if limit.type is None else {"scope": "type", "match": limit.type}
    rate = {} if limit.rate is None else {"rate": limit.rate, "per": 60, "burst": limit.burst}
    return {**whose, "at_once": limit.at_once, **rate}


def given(value: NewEvent | Finish) -> dict[str, Any]:
    """As the engine takes it."""
    told = {name: one for name, one in value._asdict().items() if one is not None}
    if "debounce" in told:
        del told["delay"]
    return told


SHORT = pytest.mark.timeout(300)
REST = (pytest.mark.rest, SHORT)
LONG = (pytest.mark.long, pytest.mark.matrix, pytest.mark.timeout(3600))


@requirement("G5", "G6", "G7", "G8", "G9", "G11", "EQ-3", "EQ-5", "EB-4")
@pytest.mark.parametrize(
    ("machine", "programs", "steps"),
    [
        pytest.param(Machine, 50, 25, id="plain", marks=SHORT),
        pytest.param(KeyedMachine, 60, 20, id="keyed", marks=SHORT),
        pytest.param(LimitedMachine, 30, 25, id="limited", marks=SHORT),
        pytest.param(KeyedLimitedMachine, 25, 20, id="keyed-limited", marks=SHORT),
        pytest.param(Machine, 100, 25, id="plain-more", marks=REST),
        pytest.param(KeyedMachine, 500, 20, id="keyed-more", marks=REST),
        pytest.param(LimitedMachine, 500, 25, id="limited-more", marks=REST),
        pytest.param(KeyedLimitedMachine, 300, 20, id="keyed-limited-more", marks=REST),
        pytest.param(Machine, 300, 60, id="plain-long", marks=LONG),
        pytest.param(KeyedMachine, 1000, 40, id="keyed-long", marks=LONG),
    ],
)
def test_whatever_is_called_the_engine_does_what_the_specification_says(
    db: Database, machine: type[Machine], programs: int, steps: int
) -> None:
    stop_the_clock(db)
    db.sql(BEGIN)
    for queue, types in QUEUES.items():
        if queue != "main":
            db.sql("select headrace.create_queue('default', %s, %s)", [queue, [*types]])
    connection = db.connect(row_factory=namedtuple_row, options="-c statement_timeout=60s")
    connection.prepare_threshold = 0
    run_state_machine_as_test(
        lambda: machine(connection),
        settings=settings(
            max_examples=programs,
            stateful_step_count=steps,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )

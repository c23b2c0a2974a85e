"""What a call costs does not grow with what it is not about.

The cost is what the call touches, per delivery (see footprint.py): a time would say more about the
machine than about the engine.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.database import Database, Server
from tests.engine.backlog import ATTEMPT, Consumer, fill, leave_alone
from tests.engine.footprint import Footprint, Touched, altogether, footprint
from tests.requirements import requirement

REST = pytest.mark.rest
LONG = (pytest.mark.long, pytest.mark.matrix, pytest.mark.timeout(600))


def claims(db: Database, *, polls: int = 5, sweep: bool = False, **arguments: Any) -> Footprint:
    """What a consumer's claims touch once it knows its way: the first finds out where work is."""
    consumer = Consumer(db, **arguments)
    calls = []
    for number in range(polls + 2):
        calls.append(consumer.poll(sweep=sweep and number >= 2))
        consumer.complete()
    return altogether(calls[2:])


def no_dearer(now: Footprint, before: Footprint, factor: float) -> None:
    said = f"now, {now}\nbefore, {before}"
    assert now.deliveries == before.deliveries > 0, said
    assert now.blocks_each <= factor * before.blocks_each, said
    # A handful of entries is a look-up or two, however few deliveries it was for.
    assert now.total.entries <= factor * before.total.entries + 20, said


# Beside a backlog ------------------------------------------------------------------------------

PUBLISH = """
select unnest(ids) from headrace.publish('deep', (
    select jsonb_agg('{"type": "work.0", "payload": {}}'::jsonb) from generate_series(1, 500)))
"""


def measure(db: Database, fresh: str) -> dict[str, Footprint]:
    """What each call touches. Some begin where nothing was ever claimed: a sweep sees the dead."""
    db.sql("select headrace.create_namespace(%s)", [fresh])
    fill(db, 1_000, namespace=fresh)
    fill(db, 1_000, kind=fresh)
    consumer = Consumer(db, namespace="deep")
    finishes, publishes, ticks, idle_polls = [], [], [], []
    for _ in range(5):
        consumer.poll()
        finishes.append(consumer.finish())
        publishes.append(footprint(consumer.connection, PUBLISH)[1])
        ticks.append(footprint(consumer.connection, "select * from headrace.tick()")[1])
        idle_polls.append(
            footprint(consumer.connection, "select count(*) from headrace.poll('idle')")[1]
        )
    rare = {"max_events": 40, "types": [f"{fresh}.*"]}
    other = {"max_events": 40, "namespace": fresh}
    return {
        "claim": claims(db, namespace="deep"),
        "finish": altogether(finishes[1:]),
        "publish": altogether(publishes[1:]),
        "tick": altogether(ticks[1:]),
        "idle poll": altogether(idle_polls[1:]),
        "rare type": claims(db, **rare),
        "rare type, sweeping": claims(db, **rare, sweep=True),
        "other namespace": claims(db, **other),
        "other namespace, sweeping": claims(db, **other, sweep=True),
        "many routes": claims(db, namespace="wide", polls=3),
        "many routes, sweeping": claims(db, namespace="wide", polls=3, sweep=True),
    }


Measured = dict[str, list[Footprint]]


@pytest.fixture(
    scope="module",
    params=[30_000, pytest.param(100_000, marks=REST), pytest.param(1_000_000, marks=LONG)],
)
def measured(server: Server, request: pytest.FixtureRequest) -> Iterator[Measured]:
    """By call: what it touched with little ready, with much, and with much that is analysed."""
    db = Database(server, server.create_database(template=Server.TEMPLATE))
    try:
        results = list(with_little_and_much(db, request.param))
        yield {call: [result[call] for result in results] for call in results[0]}
    finally:
        db.close()
        server.drop_database(db.name)


def with_little_and_much(db: Database, backlog: int) -> Iterator[dict[str, Footprint]]:
    for namespace in ("deep", "wide", "idle"):
        db.sql("select headrace.create_namespace(%s)", [namespace])
    leave_alone(db)
    fill(db, 10_000, namespace="deep")
    fill(db, 10_000, namespace="wide", routes=1000)
    yield measure(db, "first")
    fill(db, backlog, namespace="deep")
    fill(db, backlog // 2, namespace="wide", routes=1000)
    fill(db, backlog, kind="common")
    fill(db, backlog // 2, kind="later", delay="1 hour")
    yield measure(db, "second")
    db.sql("analyze")
    yield measure(db, "third")


@pytest.mark.new_database
@pytest.mark.parametrize("call", ["claim", "finish", "publish"])
def test_a_call_costs_the_same_however_much_is_ready(measured: Measured, call: str) -> None:
    before, *now = measured[call]
    for one in now:
        no_dearer(_a_level_shallower(one), before, 1.2)


def _a_level_shallower(one: Footprint) -> Footprint:
    """Before PostgreSQL 17 every body is a look-up of its own, and each is one level of its index deeper in a table
    that is a hundred times as long. From 17 on a batch's bodies are one scan, and nothing is taken off."""
    (bodies,) = [
        name for name in one.relations if name.startswith("events_2") and name.endswith("_pkey")
    ] or [""]
    looked_up = one[bodies].scans
    if looked_up < one.deliveries:
        return one
    shallower = one[bodies] - Touched(blocks=looked_up)
    return Footprint(one.relations | {bodies: shallower}, one.deliveries)


@pytest.mark.new_database
def test_looking_for_what_is_due_costs_the_same_however_much_is_delayed(measured: Measured) -> None:
    for call in ("tick", "idle poll"):
        before, *now = measured[call]
        for one in now:
            # These calls are nothing but look-ups; each may be one level of its index deeper.
            assert one.total.blocks <= before.total.blocks + one.total.scans, f"{one}\n{before}"
            assert one["delayed_due"].scans > 0
            assert one["delayed_due"].entries == 0


@pytest.mark.new_database
@pytest.mark.parametrize("call", ["rare type", "rare type, sweeping"])
def test_a_rare_type_costs_the_same_behind_a_backlog_of_another(
    measured: Measured, call: str
) -> None:
    before, *now = measured[call]
    for one in now:
        no_dearer(one, before, 1.5)


@pytest.mark.new_database
@requirement("G16")
@pytest.mark.parametrize("call", ["other namespace", "other namespace, sweeping"])
def test_a_claim_costs_the_same_beside_the_backlog_of_another_namespace(
    measured: Measured, call: str
) -> None:
    before, *now = measured[call]
    for one in now:
        no_dearer(one, before, 1.2)


@pytest.mark.new_database
@pytest.mark.parametrize("call", ["many routes", "many routes, sweeping"])
def test_a_thousand_routes_cost_the_same_however_much_is_ready(
    measured: Measured, call: str
) -> None:
    # A look-up or two for every delivery, each of them one level of its index deeper.
    before, *now = measured[call]
    for one in now:
        no_dearer(one, before, 1.3)


SUSPECTS = pytest.mark.parametrize(
    "suspects", [pytest.param(20_000, marks=REST), pytest.param(200_000, marks=LONG)]
)


@pytest.mark.new_database
@requirement("G9")
@SUSPECTS
def test_a_suspect_costs_the_same_however_many_wait(db: Database, suspects: int) -> None:
    fill(db, 2_000, suspect=True)
    few = claims(db)
    fill(db, suspects, suspect=True)
    for statistics in ("select 'none'", "analyze"):
        db.sql(statistics)
        # A claim of one is little but look-ups, each of them one level of its index deeper.
        no_dearer(claims(db), few, 1.4)


@pytest.mark.new_database
@requirement("G9")
@pytest.mark.parametrize("backlog", [20_000, pytest.param(200_000, marks=LONG)])
def test_a_suspect_costs_the_same_however_much_waits_behind_it(db: Database, backlog: int) -> None:
    fill(db, 2_000, suspect=True)
    fill(db, 2_000)
    few = claims(db)
    fill(db, backlog)
    for statistics in ("select 'none'", "analyze"):
        db.sql(statistics)
        no_dearer(claims(db), few, 1.4)


@pytest.mark.new_database
@SUSPECTS
def test_others_cost_the_same_however_many_suspects_wait_behind_them(
    db: Database, suspects: int
) -> None:
    fill(db, 24_000)
    fill(db, 100, kind="feared", suspect=True)
    filters = (None, ["work.*"])
    few = [claims(db, types=types) for types in filters]
    fill(db, suspects, kind="feared", suspect=True)
    for statistics in ("select 'none'", "analyze"):
        db.sql(statistics)
        for types, before in zip(filters, few, strict=True):
            no_dearer(claims(db, types=types), before, 1.2)


# While a snapshot is held, no dead row can be removed ------------------------------------------

# A clock that stands still until the session that asks moves it: what is touched depends on how
# much is claimed in a quarter of a second, and here that must not be the machine's choice.
OWN_CLOCK = """
create or replace function headrace._now() returns timestamptz
language plpgsql stable security definer
as $$ begin
    return timestamptz '{start}' + coalesce(current_setting('headrace_test.elapsed', true), '0')::interval;
end $$
"""


def stop_the_clock(db: Database) -> None:
    [(start,)] = db.sql("select headrace._now()")
    db.sql(OWN_CLOCK.format(start=start))


def set_the_clock(connection: psycopg.Connection[Any], seconds: float) -> None:
    connection.execute("select set_config('headrace_test.elapsed', %s, false)", [f"{seconds} s"])


def hold_a_snapshot(db: Database) -> None:
    """As a long report does, or somebody's forgotten psql."""
    report = db.connect(autocommit=False)
    report.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    report.execute("select from headrace.queues")


@pytest.mark.new_database
@pytest.mark.parametrize(
    ("backlog", "pace"),
    [
        (10_000, 1 / 6),
        pytest.param(30_000, 1 / 6, marks=REST),
        pytest.param(500_000, 0.01, marks=LONG),
    ],
)
def test_the_end_of_a_drain_under_a_held_snapshot_costs_what_the_beginning_did(
    db: Database, backlog: int, pace: float
) -> None:
    """A poll every `pace` seconds and a sweep every second; the sweeps count, too."""
    stop_the_clock(db)
    fill(db, backlog)
    hold_a_snapshot(db)
    consumer = Consumer(db)
    polls, finishes = [], []
    for number in range(backlog // 500):
        set_the_clock(consumer.connection, number * pace)
        polls.append(consumer.poll(sweep=number % round(1 / pace) == 0))
        finishes.append(consumer.finish())
    tenth = len(polls) // 10
    for calls in (polls, finishes):
        first, last = altogether(calls[:tenth]), altogether(calls[-tenth:])
        print(f"{last.blocks_each:.3f} blocks against {first.blocks_each:.3f}")
        assert last.blocks_each <= 1.3 * first.blocks_each, f"{last}\n{first}"
    # A sweep walks what is dead; between sweeps nobody does. Once the hints have settled:
    settled = round(0.6 / pace)
    between = [call for n, call in enumerate(polls) if n > settled and n % round(1 / pace)]
    no_dearer(altogether(between[-tenth:]), altogether(between[:tenth]), 1.3)


@pytest.mark.new_database
@REST
def test_the_last_of_many_single_finishes_under_a_held_snapshot_costs_what_the_first_did(
    db: Database,
) -> None:
    fill(db, 10_000)
    hold_a_snapshot(db)
    consumer = Consumer(db, each=True)

    def one_by_one() -> Footprint:
        consumer.poll()
        calls = [
            footprint(
                consumer.connection,
                "select headrace.complete('default', %s, %s)",
                row[: ATTEMPT + 1],
            )[1]
            for row in consumer.claimed[:50]
        ]
        return altogether(calls[10:])

    first = one_by_one()
    for _ in range(18):
        consumer.poll()
        consumer.finish()
    no_dearer(one_by_one(), first, 1.3)


@pytest.mark.new_database
@REST
def test_the_last_of_many_suspects_under_a_held_snapshot_costs_what_the_first_did(
    db: Database,
) -> None:
    """A hundred claims of one a second, each ended at once, and a sweep every second."""
    stop_the_clock(db)
    fill(db, 1_500, suspect=True)
    hold_a_snapshot(db)
    consumer = Consumer(db, lease="1 s")
    first, last = [], []
    for number in range(1_500):
        set_the_clock(consumer.connection, number / 100)
        sweep = number % 100 == 0
        if 200 <= number < 300:
            first.append(consumer.poll(sweep=sweep))
        elif number >= 1_400:
            last.append(consumer.poll(sweep=sweep))
        else:
            consumer.claim(sweep=sweep)
        consumer.complete()
    no_dearer(altogether(last[1:]), altogether(first[1:]), 1.3)  # the sweep walks what is dead


ROUNDS = {
    "publishes": "perform headrace.publish('default', '[{}]') from generate_series(1, 200);",
    "ended claims": """
        for n in 1..40 loop
            perform headrace.publish('default', '[{"payload": {}}]');
            perform headrace.complete('default', p.id, p.attempt) from headrace.poll('default') p;
        end loop;""",
    "claims that ran out": """
        for n in 1..20 loop
            perform headrace.publish('default', '[{}, {}]');
            perform headrace.poll('default', max_events => 2, lease => '0.5 s', suspects => false);
        end loop;""",
    "delays": """
        perform headrace.publish('default', '[{"delay": 0.5}]') from generate_series(1, 200);""",
}


@pytest.mark.new_database
@pytest.mark.parametrize(
    "what",
    ["publishes", *(pytest.param(what, marks=REST) for what in ROUNDS if what != "publishes")],
)
def test_a_tick_under_a_held_snapshot_costs_the_same_after_many(db: Database, what: str) -> None:
    """Every second the same happens, and a tick that is told when the last but one was."""
    stop_the_clock(db)
    leave_alone(db)
    hold_a_snapshot(db)
    connection = db.connect()
    ticks = []
    for second in range(1, 21):
        connection.execute(f"do $$ begin {ROUNDS[what]} end $$")
        set_the_clock(connection, second)
        ticks.append(
            footprint(connection, "select * from headrace.tick(headrace._now() - interval '2.5 s')")
        )
    (early, first), (late, last) = ticks[4], ticks[-1]
    assert early[0][:2] == late[0][:2], "the same was due"
    no_dearer(last, first, 1.3)

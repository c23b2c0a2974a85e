"""Namespaces: made, listed, changed and deleted, the names they take, and that one knows nothing of another."""

from datetime import timedelta
from itertools import product
from typing import Any

import psycopg
import pytest

from tests.database import Database
from tests.engine.every_function import CALLS, Life, arguments, functions_of_a_namespace, live
from tests.engine.functions_helpers import Engine, contents, differences, refused, stop_the_clock
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def create(engine: Engine, namespace: Any, **arguments: Any) -> bool:
    [row] = engine.call("create_namespace", namespace=namespace, **arguments)
    return row[0]


# --- making one


def test_default_is_there_from_the_start(engine: Engine, db: Database) -> None:
    assert db.sql("select n.name, q.name, q.space from headrace.namespaces n"
                  " join headrace.queues q on q.namespace = n.id") == [("default", "main", "default")]  # fmt: skip
    assert create(engine, "default") is False


def test_a_namespace_is_made_once_with_its_queue(engine: Engine, db: Database) -> None:
    assert create(engine, "shop", metadata='{"team": "billing"}') is True
    before = contents(db)
    assert create(engine, "shop", metadata='{"team": "other"}') is False
    assert differences(before, contents(db)) == set()
    assert db.sql("select metadata from headrace.namespaces where name = 'shop'") == [
        ({"team": "billing"},)
    ]
    assert db.sql("select name from headrace.queues where space = 'shop'") == [("main",)]
    assert Engine(db, "shop").publish({}) != []


GOOD_NAMES = [
    "a",
    "x" * 100,
    "é" * 100,
    "shop-eu_1.test",
    "O'Brien; drop table headrace.events; --",
    'say "hello"',
    "$$ || $1 %s {} \\",
    "日本語",
    "👩‍👩‍👧",
    "שלום",
    "two words",
    "null",
    "0",
    "'",
    "*",
]


@requirement("G18")
def test_a_name_is_data_and_may_hold_what_it_likes(engine: Engine, db: Database) -> None:
    assert [create(engine, name) for name in GOOD_NAMES] == [True] * len(GOOD_NAMES)
    assert [create(engine, name) for name in GOOD_NAMES] == [False] * len(GOOD_NAMES)
    for name in GOOD_NAMES:
        there = Engine(db, name)
        [id] = there.publish({"payload": name})
        assert there.event(id).payload == name
        assert there.claim(worker=name).payload == name
        assert db.sql("select namespace, worker_id from headrace.event_queue where id = %s", [id]) == [
            (name, name)
        ]  # fmt: skip
        there.connection.close()


BAD_NAMES = [None, "", " ", " a", "a ", "a/b", "/", "a\nb", "a\tb", "a\x7f", "a\x01", "x" * 101]


@requirement("G18")
def test_a_name_that_cannot_be_shown_or_typed_is_refused(engine: Engine, db: Database) -> None:
    before = contents(db)
    for name in BAD_NAMES:
        with refused("QU001"):
            create(engine, name)
    assert differences(before, contents(db)) == set()


def test_metadata_are_an_object(engine: Engine, db: Database) -> None:
    for wrong in ("5", "[]", '"text"', "null"):
        with refused("QU001", "metadata"):
            create(engine, "shop", metadata=wrong)
    assert create(engine, "shop", metadata=None) is True
    assert db.sql("select metadata from headrace.namespaces where name = 'shop'") == [({},)]


@requirement("PG-9")
def test_a_namespace_has_the_queue_name_of_the_documents(engine: Engine) -> None:
    for namespace, queue in (
        ("demo", "core_events_demo"),
        ("a-b-c", "core_events_a_b_c"),
        ("a_b", "core_events_a_b"),
    ):
        assert engine.call("queue_name_for_namespace", p_namespace=namespace) == [(queue,)]


def test_a_namespace_whose_queue_name_another_has_is_refused(engine: Engine, db: Database) -> None:
    create(engine, "shop-eu")
    before = contents(db)
    with refused("QU001", "core_events_shop_eu"):
        create(engine, "shop_eu")
    assert create(engine, "shop-eu") is False
    assert differences(before, contents(db)) == set()
    assert create(engine, "shop_us") is True
    with refused("QU001", "core_events_shop_us"):
        create(engine, "shop-us")
    assert create(engine, "Shop_us") is True  # another name


def test_a_namespace_exists_when_its_maker_commits(engine: Engine, db: Database) -> None:
    with engine.connection.transaction(force_rollback=True):
        assert create(engine, "shop") is True
        assert engine.call("publish", namespace="shop", events="{}") != []
    with refused("QU010"):
        engine.call("publish", namespace="shop", events="{}")


# --- isolation


class Pair:
    """Two namespaces that do the same things."""

    def __init__(self, db: Database) -> None:
        self.here = Engine(db)
        create(self.here, "there")
        self.there = Engine(db, "there")


@pytest.fixture
def pair(db: Database) -> Pair:
    return Pair(db)


@requirement("G16")
def test_an_event_is_claimed_only_in_its_own_namespace(pair: Pair) -> None:
    mine = pair.here.publish({"type": "a", "tags": ["x"]}, {"type": "a", "tags": ["x"]})
    theirs = pair.there.publish({"type": "a", "tags": ["x"]})

    claims = pair.there.poll(max_events=100)
    assert [claim.id for claim in claims] == theirs
    assert pair.there.poll(max_events=100, types=["*"]) == []
    assert pair.there.poll(max_events=100, tags=["x"], hints=claims[0].hints) == []
    claims = pair.here.poll(max_events=100, hints=claims[0].hints)  # even with the hints of another
    assert [claim.id for claim in claims] == mine


@requirement("G16")
@pytest.mark.parametrize("each", [False, True])
def test_a_claim_is_ended_only_in_its_own_namespace(pair: Pair, db: Database, each: bool) -> None:
    pair.here.publish({}, {})
    claims = pair.here.poll(max_events=2, each=each)
    before = contents(db)
    for leases in (True, False):
        for action in ("complete", "fail", "release"):
            verdicts = pair.there.finish(
                claims, {"1": {"action": action}, "2": {"action": action}}, leases=leases
            )
            assert [verdict.verdict for verdict in verdicts] == ["lost", "lost"]
        assert [v.verdict for v in pair.there.finish(claims, leases=leases)] == ["lost", "lost"]
    for call in ("complete", "fail", "release", "finalize"):
        with refused("QU020"):
            pair.there.end(call, claims[0])
    answers = pair.there.call(
        "extend", namespace="there", queue="main", leases=[claims[0].lease], by=timedelta(days=1)
    )
    assert [answer.state for answer in answers] == ["lost"]
    assert differences(before, contents(db)) == set()

    pair.here.finish(claims)
    before = contents(db)
    verdicts = pair.there.finish(claims)  # how it ended is not told there either
    assert [(verdict.verdict, verdict.action) for verdict in verdicts] == [("lost", None)] * 2
    answer = pair.there.call(
        "resolve", namespace="there", queue="main", event=claims[0].id, attempt=1
    )
    assert answer == [(None,)]
    assert differences(before, contents(db)) == set()


@requirement("G16")
def test_an_event_is_told_only_in_its_own_namespace(pair: Pair, db: Database) -> None:
    waiting, completed, dead = pair.here.publish({}, {"priority": 0}, {"priority": 1})
    pair.here.end("complete", pair.here.claim())
    pair.here.end("finalize", pair.here.claim(), success=False)

    for id in (waiting, completed, dead):
        assert pair.here.trail(id) != []
        assert pair.there.trail(id) == []
        with refused("QU012"):
            pair.there.event(id)
    assert pair.there.stats() == (0, 0, 0, 0, 0, None, 0, 0, 0, 0, 0, 0, None, True)
    for view in ("event_queue", "event_log"):
        assert db.sql(f"select distinct namespace from headrace.{view}") == [("default",)]
    db.sql("delete from headrace.events")
    with refused("QU012"):
        pair.there.event(dead)
    db.sql("""insert into headrace.events_carried
              select event, created_at, route, namespace, 1, priority, max_retries, type, tags, payload, details, key
              from headrace.dead_letters""")
    with refused("QU012"):
        pair.there.event(dead)


@requirement("G16")
def test_a_suspect_is_claimed_only_in_its_own_namespace(pair: Pair, db: Database) -> None:
    pair.here.publish({}, {})
    pair.here.poll(max_events=2)
    db.advance(minutes=2)
    assert pair.there.poll() == []  # it ends the lease, and finds nothing of its own
    assert len(pair.here.poll()) == 1


@requirement("G16")
def test_the_same_life_in_two_namespaces_leaves_the_same_in_each(pair: Pair, db: Database) -> None:
    def live(engine: Engine) -> list[tuple[Any, ...]]:
        ids = engine.publish(*({"type": f"t{n % 2}", "tags": ["x"]} for n in range(6)))
        claims = engine.poll(max_events=4)
        engine.finish(
            claims, {"1": {"action": "fail"}, "2": {"action": "release"}}, ms=[1, 2, 3, 4]
        )
        return [
            (event.status, event.attempts, event.retry_count, engine.actions(id))
            for id in ids
            for event in [engine.event(id)]
        ]

    here, there = live(pair.here), live(pair.there)
    assert sorted(map(str, here)) == sorted(map(str, there))
    assert pair.here.stats()[:5] == pair.there.stats()[:5] == (3, 1, 0, 0, 0)
    assert pair.here.stats()[6:] == pair.there.stats()[6:]
    assert db.sql("""select n.name, count(*) from headrace.routes r
                     join headrace.namespaces n on n.id = r.namespace group by 1 order by 1""") == [
        ("default", 2),
        ("there", 2),
    ]  # fmt: skip


# --- isolation, function by function

A_QUEUE = "(select q.id from headrace.queues q where q.namespace = n.id)"
A_TASK = "(select k.task_id from headrace.scheduled_tasks k where k.namespace = n.id)"
OF_NOBODY = {
    *("migrations", "release", "settings", "upkeep", "api_tokens", "bound_roles", "optional", "samplings", "horizons", "marks"),
    *("clock_readings", "busy_ticks", "identity", "locks", "shard", "slots"),
}  # fmt: skip
COLUMNS = """
select c.relname::text, array_agg(a.attname::text)
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
where c.relnamespace = 'headrace'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
group by c.relname
"""
# has_capacity counts, and keeps what it has counted; create_namespace finds it there, save_state that tick has done it.
CHANGE_NOTHING = {
    *("resolve", "event", "event_log", "deliveries", "events", "count_events", "log_since", "dead_letter", "finalized"),
    *("dead_letters", "dead_letter_groups", "workers", "stats", "queue", "queues", "nodes", "unhandled_types", "schedules"),
    *("tasks_to_plan", "create_namespace", "progress", "fall_asleep", "published_before", "shard_of"),
    *("admin_log", "history", "attention", "lineage", "why", "find_events", "limits"),
    *("state", "low_water", "checkpoints", "recoveries", "replay", "save_state", "export_queue", "export_events", "fence"),
}  # fmt: skip

HAVE_NONE = {"limits"}  # no queue of theirs is limited


def ownership(table: str, columns: list[str]) -> str:
    """What makes a row `t` of a table one of the namespace `n`."""
    if table == "namespaces":
        return "t.id = n.id"
    if table in ("event_queue_state", "queue_checkpoints"):
        id = "id" if table == "event_queue_state" else "queue_id"
        return f"t.{id} in (select q.space || '/' || q.name from headrace.queues q where q.namespace = n.id)"
    if "namespace" in columns:
        return "t.namespace = n.id"
    return f"t.queue in {A_QUEUE}" if "queue" in columns else f"t.task_id in {A_TASK}"


class Neighbours:
    """Two namespaces with the same names in them; of what counts there is more than here."""

    def __init__(self, db: Database) -> None:
        stop_the_clock(db)
        self.here, self.there = live(db, "here"), live(db, "there", times=3)
        self.engine = Engine(db)
        for seconds in (1, 11):  # a state is saved for the first time after ten seconds
            db.advance(seconds=seconds)
            while self.engine.tick().more:
                pass
        self.owned = {
            table: ownership(table, columns)
            for table, columns in db.sql(COLUMNS)
            if table not in OF_NOBODY
        }

    def rows(self, life: Life) -> dict[str, list[str]]:
        """Every row of a namespace, by its table."""
        query = " union all ".join(
            f"select '{table}', array(select t::text from headrace.{table} t where {owned} order by 1)"
            " from n" for table, owned in self.owned.items()
        )  # fmt: skip
        n = "with n as (select id from headrace.namespaces where name = %s) "
        return dict(self.engine.connection.execute(n + query, [life.namespace]).fetchall())

    def forget(self, life: Life) -> None:
        """As if the namespace had never been."""
        run = self.engine.connection.execute
        run("set local session_replication_role = replica")
        run("create temp table n on commit drop as select id from headrace.namespaces"
            " where name = %s", [life.namespace])  # fmt: skip
        last = ("fires", "scheduled_tasks", "queues", "namespaces")  # by which others are found
        for table in sorted(self.owned, key=lambda table: table in last and last.index(table) + 1):
            run(f"delete from headrace.{table} t using n where {self.owned[table]}")
        run("set local session_replication_role = origin")

    def answer(self, function: str, life: Life) -> Any:
        """What is said here when it is called with what belongs to a life; an error is an answer."""
        run = self.engine.connection.execute
        run("select setval('headrace.ids', headrace._id_at(100000)), setseed(0)")
        try:
            with self.engine.connection.transaction():
                told = self.engine.call(
                    function, **arguments(function, life) | {"namespace": "here"}
                )
                # A checkpoint's own id is random, and so is a claim's token.
                if function == "checkpoint":
                    return [row[1:] for row in told]
                if function.startswith("poll"):
                    return [row._replace(lease_token=None) for row in told]
                return told
        except psycopg.Error as error:
            return error.sqlstate, str(error)


@pytest.fixture
def neighbours(db: Database) -> Neighbours:
    return Neighbours(db)


@requirement("G16")
def test_whatever_is_called_a_neighbour_is_neither_changed_nor_told_of(
    neighbours: Neighbours, db: Database
) -> None:
    public = functions_of_a_namespace(db)
    assert public - set(CALLS) == set(), "CALLS in every_function.py needs an example of these"
    assert set(CALLS) - public == set(), "CALLS in every_function.py has these, and roles.sql not"
    here, there = neighbours.here, neighbours.there
    mine, theirs = neighbours.rows(here), neighbours.rows(there)
    nothing_to_lose = {table for table in theirs if not theirs[table]}
    assert nothing_to_lose == {
        *("events_carried", "chores", "counts", "fires", "sent", "unhandled", "interruptions"),
        *("imports", "open_imports", "imported"),
        *("limit_groups", "limit_slots", "limit_keys", "limit_changes"),
    }
    transaction = neighbours.engine.connection.transaction
    for function, life in product(CALLS, (here, there)):
        with transaction():
            with transaction(force_rollback=True):
                answer = neighbours.answer(function, life)
                assert neighbours.rows(there) == theirs, function
                changed = neighbours.rows(here) != mine
            with transaction(force_rollback=True):
                neighbours.forget(there)
                assert neighbours.answer(function, life) == answer, function
        if life is here:
            assert isinstance(answer, list), (function, answer)
            assert answer or function in HAVE_NONE, function
            assert changed is (function not in CHANGE_NOTHING), function


@requirement("G16")
@pytest.mark.parametrize("function", ["purge", "create_queue", "delete_queue", "delete_namespace"])
def test_what_is_left_to_the_upkeep_leaves_a_neighbour_alone(
    neighbours: Neighbours, function: str
) -> None:
    theirs = neighbours.rows(neighbours.there)
    neighbours.engine.call(function, **arguments(function, neighbours.here))
    for _ in range(3):
        while neighbours.engine.tick().more:
            pass
    assert neighbours.rows(neighbours.there) == theirs


# --- listing and changing them


def test_they_are_listed_with_their_settings(engine: Engine) -> None:
    create(engine, "shop", metadata='{"team": "billing"}')
    engine.call("create_queue", namespace="shop", queue="invoices")
    listed = engine.call("namespaces")
    assert [row[:4] for row in listed] == [
        ("default", "keep", {}, 1),
        ("shop", "keep", {"team": "billing"}, 2),
    ]
    assert abs(listed[1].created_at - engine.now()) < timedelta(minutes=1)


def change(engine: Engine, namespace: Any, settings: Any) -> None:
    engine.call("change_namespace", namespace=namespace, settings=settings)


def test_settings_that_are_named_are_changed_and_null_brings_the_default_back(
    engine: Engine,
) -> None:
    change(engine, "default", '{"unhandled": "dead_letter"}')
    change(engine, "default", '{"metadata": {"a": 1}}')
    assert engine.call("namespaces")[0][1:3] == ("dead_letter", {"a": 1})
    change(engine, "default", "{}")
    change(engine, "default", '{"unhandled": null, "metadata": null}')
    assert engine.call("namespaces")[0][1:3] == ("keep", {})


@pytest.mark.parametrize(
    "settings",
    [
        None,
        "null",
        "[]",
        '{"name": "other"}',
        '{"unhandled": "drop"}',
        '{"unhandled": true}',
        '{"metadata": []}',
        '{"metadata": "x"}',
        '{"metadata": {"a": "%s"}}' % ("0123456789abcdef" * 5000),
    ],
)
def test_what_is_no_setting_is_refused(engine: Engine, db: Database, settings: str | None) -> None:
    before = contents(db)
    with refused("QU001"):
        change(engine, "default", settings)
    with refused("QU010"):
        change(engine, "nowhere", "{}")
    assert differences(before, contents(db)) == set()


# --- deleting one


def delete(engine: Engine, namespace: Any, **arguments: Any) -> None:
    engine.call("delete_namespace", namespace=namespace, **arguments)


def test_an_empty_one_is_gone_for_everybody_who_names_it(engine: Engine, db: Database) -> None:
    create(engine, "shop")
    shop = Engine(db, "shop")
    [id] = shop.publish({})
    shop.end("complete", shop.claim())
    delete(engine, "shop")
    assert [row.name for row in engine.call("namespaces")] == ["default"]
    for call in (
        lambda: shop.publish({}),
        lambda: shop.poll(),
        lambda: shop.event(id),
        lambda: shop.trail(id),
        lambda: delete(engine, "shop"),
    ):
        with refused("QU010"):
            call()


def test_its_name_may_be_taken_again_and_nothing_comes_back(engine: Engine, db: Database) -> None:
    create(engine, "shop-eu")
    shop = Engine(db, "shop-eu")
    [id] = shop.publish({})
    delete(engine, "shop-eu", with_deliveries=True)
    assert create(engine, "shop-eu") is True
    assert shop.poll(10) == []
    with refused("QU012"):
        shop.event(id)
    engine.tick()
    [new] = shop.publish({})
    assert [claim.id for claim in shop.poll(10)] == [new]


@pytest.mark.parametrize("place", ["ready", "delayed", "claimed", "dead"])
def test_one_that_has_something_to_lose_is_deleted_only_if_asked_to(
    engine: Engine, db: Database, place: str
) -> None:
    create(engine, "shop")
    shop = Engine(db, "shop")
    shop.publish({"max_retries": 0, **({"delay": 60} if place == "delayed" else {})})
    if place in ("claimed", "dead"):
        claim = shop.claim(each=True)
        if place == "dead":
            shop.end("fail", claim)
    before = contents(db)
    with refused("QU054", match="'shop' has unfinished deliveries or dead letters.* in: main"):
        delete(engine, "shop")
    assert differences(before, contents(db)) == set()

    delete(engine, "shop", with_deliveries=True, actor="bob")
    for _ in range(3):
        db.advance(seconds=61)
        while engine.tick().more:
            pass
    for table in ("ready", "delayed", "held", "leases", "dead_letters", "chores"):
        assert db.sql(f"select 1 from headrace.{table}") == []
    assert Engine(db).publish({}) != []


@requirement("G16")
def test_other_namespaces_are_left_alone(engine: Engine, db: Database) -> None:
    create(engine, "shop")
    Engine(db, "shop").publish({}, {})
    [id] = engine.publish({})
    delete(engine, "shop", with_deliveries=True)
    engine.tick()
    assert engine.claim().id == id


def test_what_an_open_publisher_still_brings_is_cancelled(engine: Engine, db: Database) -> None:
    create(engine, "shop")
    late = Engine(db, "shop")
    late.connection.execute("begin")
    late.publish({})
    delete(engine, "shop")
    engine.tick()
    late.connection.execute("commit")
    for _ in range(3):
        engine.tick()
    assert db.sql("select 1 from headrace.ready") == db.sql("select 1 from headrace.chores") == []
    assert db.sql("select action, actor is not null from headrace.outcomes") == [
        ("CANCELLED", True)
    ]


def test_an_actor_whose_name_is_too_long_is_refused(engine: Engine) -> None:
    create(engine, "shop")
    with refused("QU001"):
        delete(engine, "shop", actor="x" * 201)
    assert len(engine.call("namespaces")) == 2

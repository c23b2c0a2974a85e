"""Nodes: registered, heard of, replaced, gone, and of no importance to what is recovered."""

from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, refused
from tests.engine.races_helpers import Session, blocked
from tests.requirements import requirement

ONE, TWO = UUID(int=1), UUID(int=2)


def register(engine: Engine, node_id: str = "api-1", instance: UUID = ONE, **options: Any) -> str:
    [(kept,)] = engine.call(
        "register_node", namespace=engine.namespace, node_id=node_id, instance=instance, **options
    )
    return kept


def touch(engine: Engine, node_id: str = "api-1", instance: UUID = ONE) -> str:
    [(state,)] = engine.call(
        "touch_node_heartbeat", namespace=engine.namespace, node_id=node_id, instance=instance
    )
    return state


def unregister(engine: Engine, node_id: str = "api-1", instance: UUID = ONE) -> bool:
    [(did,)] = engine.call(
        "unregister_node", namespace=engine.namespace, node_id=node_id, instance=instance
    )
    return did


def nodes(engine: Engine) -> list[Any]:
    return engine.call("nodes", namespace=engine.namespace)


def the_node(engine: Engine) -> Any:
    [node] = nodes(engine)
    return node


class TestRegistry:
    @pytest.fixture
    def engine(self, db: Database) -> Engine:
        return Engine(db)

    @requirement("PG-4", "PG-22")
    def test_a_node_registers_with_all_it_says_of_itself(self, engine: Engine) -> None:
        kept = register(
            engine,
            display_name="The API",
            description="Answers",
            metadata='{"zone": "a"}',
            handles=["order.*", "user.created"],
            worker="host:17",
        )
        node = the_node(engine)
        assert (kept, node.node_id, node.alive) == ("api-1", "api-1", True)
        assert (node.display_name, node.description) == ("The API", "Answers")
        assert node.metadata == {"zone": "a"}
        assert node.handles == ["order.*", "user.created"]
        assert (node.worker, node.instance, node.stopped_at) == ("host:17", ONE, None)
        assert node.registered_at == node.last_heartbeat

    @requirement("PG-22")
    def test_the_same_instance_again_changes_what_it_says_and_stays_registered(
        self, engine: Engine, db: Database
    ) -> None:
        register(engine, handles=["a"])
        before = the_node(engine)
        db.advance(seconds=10)
        register(engine, handles=["a", "b"], display_name="Now")
        node = the_node(engine)
        assert (node.handles, node.display_name) == (["a", "b"], "Now")
        assert node.registered_at == before.registered_at < node.last_heartbeat
        assert node.started_at == before.started_at

    def test_a_later_instance_takes_the_id_over_and_the_earlier_one_is_told(
        self, engine: Engine, db: Database
    ) -> None:
        register(engine)
        before = the_node(engine)
        db.advance(seconds=10)
        register(engine, instance=TWO)
        node = the_node(engine)
        assert node.started_at > before.started_at
        assert node.registered_at == before.registered_at, "it is when the id was first registered"
        assert (touch(engine), touch(engine, instance=TWO)) == ("replaced", "alive")
        assert unregister(engine) is False
        assert the_node(engine).stopped_at is None

    @requirement("PG-7", "PG-23")
    def test_a_node_is_alive_for_90_seconds_after_its_last_heartbeat(
        self, engine: Engine, db: Database
    ) -> None:
        register(engine)
        db.advance(seconds=60)
        assert the_node(engine).alive
        assert touch(engine) == "alive"
        db.advance(seconds=60)
        assert the_node(engine).alive
        db.advance(seconds=31)
        assert not the_node(engine).alive
        assert touch(engine) == "alive"
        assert the_node(engine).alive

    def test_one_that_was_killed_is_known_at_once_and_one_that_is_back_is_alive(
        self, engine: Engine, db: Database
    ) -> None:
        def connected() -> psycopg.Connection[Any]:
            session = db.connect()
            session.execute("select headrace.stay(%s)", [ONE])
            session.execute("select headrace.touch_node_heartbeat('default', 'api-1', %s)", [ONE])
            return session

        register(engine)
        register(engine, "quiet", TWO)  # behind a pooler it has no lock
        session = connected()
        assert [node.alive for node in nodes(engine)] == [True, True]
        session.close()
        db.wait_for(lambda: [node.alive for node in nodes(engine)] == [False, True])
        [counted] = engine.call("count_nodes")
        assert (counted.alive, counted.lost, counted.stopped) == (1, 1, 0)
        session = connected()
        assert [node.alive for node in nodes(engine)] == [True, True]
        session.close()
        db.wait_for(lambda: [node.alive for node in nodes(engine)] == [False, True])
        # Who held it under another start of the server may not have come back yet.
        db.sql("update headrace.instances set locked_under = locked_under - interval '1 day'")
        assert [node.alive for node in nodes(engine)] == [True, True]

    @requirement("PG-24")
    def test_who_stops_says_goodbye_and_is_still_listed(self, engine: Engine, db: Database) -> None:
        register(engine)
        assert [unregister(engine), unregister(engine)] == [True, False]
        node = the_node(engine)
        assert (node.alive, node.stopped_at is None) == (False, False)
        register(engine)
        assert (the_node(engine).alive, the_node(engine).stopped_at) == (True, None)

    def test_a_node_that_nobody_knows_is_told_so(self, engine: Engine) -> None:
        assert touch(engine) == "missing"
        assert unregister(engine) is False

    @requirement("PG-22")
    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ("host.example:17", "host.example:17"),
            ("  my node / 1 ", "my-node-1"),
            ("a--b", "a-b"),
            ("a - b", "a-b"),
            ("'; drop table x", "drop-table-x"),
            ("knöten_1", "kn-ten_1"),
            ("x" * 150, "x" * 100),
            ("a\n\tb", "a-b"),
        ],
    )
    def test_an_id_is_made_plain(self, engine: Engine, given: str, kept: str) -> None:
        assert register(engine, given) == kept
        assert touch(engine, given) == touch(engine, kept) == "alive"
        assert unregister(engine, given)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"node_id": " /// é"},
            {"node_id": None},
            {"instance": None},
            {"metadata": "[]"},
            {"metadata": '{"a": "' + "x" * 1_000_000 + '"}'},
            {"handles": [""]},
            {"handles": [None]},
            {"handles": ["a"] * 1001},
            {"display_name": "x" * 201},
            {"worker": "x" * 201},
            {"description": "x" * 10_001},
        ],
        ids=str,
    )
    def test_what_is_no_node_is_refused(self, engine: Engine, wrong: dict[str, Any]) -> None:
        with refused("QU001"):
            register(engine, **wrong)
        assert nodes(engine) == []

    def test_a_namespace_must_be_there(self, db: Database) -> None:
        for call in (register, touch, unregister, nodes):
            with refused("QU010"):
                call(Engine(db, "nowhere"))

    def test_who_is_not_heard_of_for_a_month_is_forgotten(
        self, engine: Engine, db: Database
    ) -> None:
        register(engine, "old")
        db.advance(days=20)
        register(engine, "young")
        db.advance(days=12)
        db.sql("select headrace._forget()")
        assert [node.node_id for node in nodes(engine)] == ["young"]

    def test_two_that_register_under_one_id_take_turns(self, db: Database) -> None:
        first, second = Session(db), Session(db)
        sql = "select headrace.register_node('default', 'a', %s)"
        first.begin()
        first.sql(sql, [ONE])
        waiting = blocked(db, second, second.sql, sql, [TWO])
        first.commit()
        waiting.result()
        assert the_node(Engine(db)).instance == TWO


def test_nodes_are_of_their_namespace_and_go_with_it(db: Database) -> None:
    mine, theirs = Engine(db), Engine(db, "theirs")
    db.sql("select headrace.create_namespace('theirs')")
    register(mine)
    register(theirs, instance=TWO)
    assert (the_node(mine).instance, the_node(theirs).instance) == (ONE, TWO)
    db.sql("select headrace.delete_namespace('theirs')")
    assert db.sql("select count(*) from headrace.nodes") == [(1,)]


@pytest.mark.new_database
def test_heartbeats_rewrite_their_row_in_place(db: Database) -> None:
    engine = Engine(db)
    register(engine, handles=["a"] * 20)
    for _ in range(50):
        touch(engine)
    engine.connection.execute("select pg_stat_force_next_flush()")
    engine.connection.close()

    def updates() -> tuple[int, int]:
        [row] = db.sql(
            "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'headrace.nodes'::regclass"
        )
        return row

    db.wait_for(lambda: updates()[0] == 50)
    assert updates() == (50, 50)


def test_a_node_that_is_gone_keeps_its_leases_and_one_that_is_there_does_not(db: Database) -> None:
    engine = Engine(db)
    register(engine, worker="w")
    engine.publish({}, {})
    [kept] = engine.poll(worker="w", lease="2 minutes")
    [lost] = engine.poll(worker="w", lease="10 seconds")
    unregister(engine)
    db.advance(seconds=60)
    register(engine, worker="w")
    engine.call("tick")
    [again] = engine.poll(worker="another")
    assert again.id == lost.id
    engine.end("complete", kept)
    with pytest.raises(psycopg.Error, match="lease is lost"):
        engine.end("complete", lost)

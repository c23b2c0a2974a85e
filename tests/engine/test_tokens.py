"""Tokens of the HTTP API, and the log of what was done on purpose."""

from datetime import timedelta
from hashlib import sha256

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, refused
from tests.requirements import requirement

DIGEST = sha256(b"a token").digest()


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def create(engine: Engine, name: str = "deploy", **arguments: object) -> int:
    defaults = {"digest": sha256(name.encode()).digest(), "scopes": ["publish"]}
    [row] = engine.call("create_token", **{"name": name, **defaults, **arguments})
    return row[0]


def live(engine: Engine) -> list[str]:
    return sorted(row.name for row in engine.call("live_tokens"))


class TestTokens:
    def test_a_token_is_told_by_its_digest_and_by_nothing_else(self, engine: Engine) -> None:
        create(engine, digest=DIGEST, scopes=["read", "publish", "read"], namespaces=["b", "a"])
        assert engine.call("live_tokens") == [
            (DIGEST, "deploy", ["publish", "read"], ["a", "b"]),
        ]
        [listed] = engine.call("tokens")
        assert "digest" not in listed._fields
        assert (listed.name, listed.live, listed.created_by) == ("deploy", True, "postgres")

    def test_one_that_is_revoked_is_not_live_and_its_name_is_free(self, engine: Engine) -> None:
        create(engine)
        engine.call("revoke_token", name="deploy", actor="ann")
        assert live(engine) == []
        create(engine, digest=DIGEST, actor="bob")
        old, new = engine.call("tokens")
        assert (old.live, old.revoked_by, new.live, new.created_by) == (False, "ann", True, "bob")
        with refused("QU014", "there is no token 'other'"):
            engine.call("revoke_token", name="other")

    def test_one_that_has_expired_is_not_live(self, engine: Engine, db: Database) -> None:
        create(engine, expires_at=engine.now() + timedelta(hours=1))
        assert live(engine) == ["deploy"]
        db.advance(hours=1)
        assert live(engine) == []
        assert [token.live for token in engine.call("tokens")] == [False]

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            ({"name": ""}, "a token needs a name"),
            ({"name": "a/b"}, "no slash"),
            ({"digest": b"short"}, "its SHA-256"),
            ({"digest": None}, "its SHA-256"),
            ({"scopes": []}, "publish, consume, read and admin"),
            ({"scopes": ["publish", "root"]}, "publish, consume, read and admin"),
            ({"scopes": [None]}, "publish, consume, read and admin"),
            ({"namespaces": []}, "one namespace or more"),
            ({"namespaces": ["a", None]}, "a namespace needs a name"),
            ({"namespaces": ["a "]}, "no blank at its ends"),
            ({"namespaces": ["a"] * 1001}, "at most 1000"),
            ({"expires_at": "2001-01-01"}, "expires in the future"),
            ({"actor": "a" * 201}, "at most 200 characters"),
        ],
    )
    def test_what_is_no_token_is_refused(
        self, engine: Engine, arguments: dict[str, object], problem: str
    ) -> None:
        with refused("QU001", problem):
            create(engine, **arguments)
        assert engine.call("tokens") == []

    def test_there_is_one_of_a_name(self, engine: Engine) -> None:
        create(engine)
        with refused("QU001", "there is a token 'deploy' already"):
            create(engine, digest=DIGEST)


def entries(engine: Engine, **arguments: object) -> list[tuple[str, str, str | None]]:
    found = engine.call("admin_log", **{"limit": 1000, **arguments})
    return [(entry.actor, entry.action, entry.target) for entry in reversed(found)]


class TestLog:
    def test_whoever_changes_something_is_named(self, engine: Engine) -> None:
        def do(function: str, **arguments: object) -> None:
            engine.call(function, namespace="shop", actor=function, **arguments)

        do("create_namespace")
        do("change_namespace", settings='{"unhandled": "dead_letter"}')
        do("create_queue", queue="mail", types=["mail.*"])
        do("change_queue", queue="mail", settings='{"max_retries": 1}')
        do("pause", queue="mail")
        do("resume", queue="mail")
        do("drain", queue="mail")
        do("delete_queue", queue="mail")
        do("schedule_task", name="nightly", cron_expression="0 2 * * *")
        do("pause_schedule", name="nightly")
        do("resume_schedule", name="nightly")
        do("run_schedule", name="nightly")
        do("remove_schedule", name="nightly")
        do("purge", queue="main", what="ready")
        do("delete_namespace")
        engine.call("configure", name="retention", value="3 months", actor="configure")
        create(engine, actor="create_token")
        engine.call("revoke_token", name="deploy", actor="revoke_token")

        written = [entry for entry in entries(engine) if entry[2] != "default"]
        targets = {
            **dict.fromkeys(("create_namespace", "change_namespace", "delete_namespace"), "shop"),
            **dict.fromkeys(("create_queue", "change_queue", "delete_queue"), "mail"),
            **dict.fromkeys(("pause", "resume", "drain"), "mail"),
            "schedule_task": "nightly",
            **{f"{verb}_schedule": "nightly" for verb in ("pause", "resume", "run", "remove")},
            **{"purge": "main", "configure": "retention"},
            **dict.fromkeys(("create_token", "revoke_token"), "deploy"),
        }
        assert {action: target for _, action, target in written} == targets
        assert len(written) == len(targets)
        assert all(actor == action for actor, action, _ in written)

    @requirement("API-21")
    def test_what_is_done_to_events_is_there_with_its_reason(self, engine: Engine) -> None:
        one, two, three = engine.publish(*({"type": f"t{n}", "max_retries": 0} for n in range(3)))
        engine.poll(types=["t0"])
        said = {"namespace": "default", "reason": "worker_timeout", "actor": "ann"}
        engine.call("reset", event_id=one, **said)
        engine.call("cancel", event_id=two, **said)
        engine.end("fail", engine.claim(types=["t2"]))
        engine.call("redrive", **said)
        engine.call("erase", event_id=three, **said)
        done = engine.call("admin_log", namespace="default", limit=4)
        assert [(entry.action, entry.target, entry.details.get("reason")) for entry in done] == [
            ("erase", str(three), "worker_timeout"),
            ("redrive", "main", "worker_timeout"),
            ("cancel", str(two), "worker_timeout"),
            ("reset", str(one), "worker_timeout"),
        ]

    def test_what_changes_nothing_leaves_no_entry(self, engine: Engine) -> None:
        [event] = engine.publish({})
        for queue in ("main", "mail"):
            engine.call("create_queue", namespace="default", queue=queue)
        engine.call("schedule_task", namespace="default", name="a", cron_expression="* * * * *")
        before = entries(engine)
        engine.call("create_namespace", namespace="default")
        engine.call("create_queue", namespace="default", queue="mail")
        engine.call("resume", namespace="default")
        engine.call("schedule_task", namespace="default", name="a", cron_expression="* * * * *")
        engine.call("resume_schedule", namespace="default", name="a")
        engine.call("reset", namespace="default", event_id=event)
        engine.call("redrive", namespace="default")
        assert entries(engine) == before

    def test_what_is_rolled_back_was_not_done(self, engine: Engine, db: Database) -> None:
        before = entries(engine)
        with engine.connection.transaction(force_rollback=True):
            engine.call("pause", namespace="default")
            assert entries(engine) != before
        assert entries(engine) == before

    @requirement("G16")
    def test_a_namespace_has_its_own_entries(self, engine: Engine) -> None:
        for name in ("a", "b"):
            engine.call("create_namespace", namespace=name, actor=name)
            engine.call("pause", namespace=name, actor=name)
        assert entries(engine, namespace="a") == [
            ("a", "create_namespace", "a"),
            ("a", "pause", "main"),
        ]
        assert {actor for actor, *_ in entries(engine)} >= {"a", "b"}
        with refused("QU010", "there is no namespace 'c'"):
            entries(engine, namespace="c")

    def test_a_new_namespace_does_not_inherit_the_entries_of_one_that_had_its_name(
        self, engine: Engine
    ) -> None:
        for actor in ("one", "two"):
            engine.call("create_namespace", namespace="a", actor=actor)
            if actor == "one":
                engine.call("delete_namespace", namespace="a", actor=actor)
        assert entries(engine, namespace="a") == [("two", "create_namespace", "a")]

    def test_it_is_paged(self, engine: Engine) -> None:
        for state in ("pause", "resume", "drain"):
            engine.call(state, namespace="default")
        [newest] = engine.call("admin_log", limit=1)
        [older] = engine.call("admin_log", limit=1, before=newest.id)
        assert (newest.action, older.action) == ("drain", "resume")
        for limit in (0, 1001, None):
            with refused("QU001", "from 1 to 1000"):
                engine.call("admin_log", limit=limit)

    @requirement("G17")
    def test_it_is_kept_as_long_as_months_are(self, engine: Engine, db: Database) -> None:
        engine.call("pause", namespace="default")
        db.advance(days=170)
        engine.tick(upkeep=True)
        assert ("postgres", "pause", "main") in entries(engine)
        db.advance(days=20)
        engine.tick(upkeep=True)
        assert ("postgres", "pause", "main") not in entries(engine)


def test_what_a_caller_says_stands_beside_its_role_and_not_in_its_place(
    engine: Engine, db: Database
) -> None:
    """But for the owner's rights: who has them can write the log itself, and a server that names a token has."""
    [ready, waiting] = engine.publish({}, {})
    said = {"namespace": "default", "actor": "the chief"}
    db.sql("create role clerk in role headrace_admin")
    try:
        engine.connection.execute("set role clerk")
        engine.call("pause", **said, queue="main")
        engine.call("cancel", **said, event_id=ready)
        engine.call("resume", **said, queue="main")
        engine.connection.execute("reset role")
        engine.call("cancel", **said, event_id=waiting)
    finally:
        engine.connection.execute("reset role")
        db.sql("drop role clerk")
    told = [(one.actor, one.action, (one.details or {}).get("on_behalf_of"))
            for one in reversed(engine.call("admin_log"))]  # fmt: skip
    assert told[1:] == [
        ("clerk", "pause", "the chief"),
        ("clerk", "cancel", "the chief"),
        ("clerk", "resume", "the chief"),
        ("the chief", "cancel", None),
    ]
    assert db.sql("select actor from headrace.outcomes order by id") == [("clerk",), ("the chief",)]

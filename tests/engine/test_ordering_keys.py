"""Deliveries of one ordering key: one at a time, in the order of publication, and none is ever left behind."""

import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.database import Database, Server
from tests.engine.functions_helpers import Engine
from tests.engine.races_helpers import (
    ISOLATION_LEVELS,
    READ_COMMITTED,
    REPEATABLE_READ,
    SERIALIZABLE,
    Background,
    Session,
)
from tests.places import check_places
from tests.requirements import requirement


@pytest.fixture
def session(db: Database) -> Session:
    session = Session(db)
    session.sql("set statement_timeout = '60s'")
    return session


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


@pytest.fixture(autouse=True)
def _everything_is_in_its_place(db: Database) -> Iterator[None]:
    yield
    check_places(db.sql)


def ids(claims: list[Any]) -> list[int]:
    return [claim.id for claim in claims]


def drained(session: Session, **options: Any) -> list[int]:
    """The events in the order in which one worker gets and completes them, one by one."""
    done: list[int] = []
    while claims := session.poll(**options):
        session.finish(claims)
        done += ids(claims)
    return done


def tokens(db: Database) -> int:
    return db.sql("select count(*) from headrace.ready where key is not null")[0][0]


@requirement("G11")
class TestOneAtATime:
    def test_the_next_comes_when_the_one_before_has_ended(
        self, session: Session, db: Database
    ) -> None:
        published = (
            session.publish(2, key="k") + session.publish(key="k") + session.publish(key="k")
        )
        for id in published:
            [claim] = session.poll(10)
            assert (claim.id, claim.attempt, claim.held) == (id, 1, True)
            assert session.poll(10) == []
            check_places(db.sql)
            assert session.finish([claim]) == ["counted"]
        assert session.poll(10) == []

    def test_keys_do_not_wait_for_each_other_nor_others_for_them(self, session: Session) -> None:
        [a, _] = session.publish(2, key="a")
        [b, _] = session.publish(2, key="b")
        plain = session.publish(2)
        assert ids(session.poll(10)) == [a, b, *plain]

    def test_a_batch_of_many_keys_is_in_its_order_within_each(self, session: Session) -> None:
        events = [{"key": f"k{n % 7}", "payload": n} for n in range(70)]
        [(published,)] = session.sql(
            "select ids from headrace.publish('default', %s)", [Jsonb(events)]
        )
        order: dict[int, list[int]] = defaultdict(list)
        for id in drained(session):
            order[published.index(id) % 7].append(id)
        assert all(order[k] == published[k::7] for k in range(7))

    def test_a_group_of_payloads_is_in_its_order(self, session: Session) -> None:
        [(published,)] = session.sql(
            """select ids from headrace.publish('default', '[{"key": "k", "payloads": [1, 2, 3, 4]}]')"""
        )
        assert drained(session, max_events=10) == published

    def test_a_key_is_of_its_namespace(self, session: Session, db: Database) -> None:
        db.sql(
            "select headrace.create_namespace('other') where not exists (select from headrace.namespaces where name = 'other')"
        )
        session.publish(key="k")
        db.sql("""select headrace.publish('other', '[{"key": "k"}]')""")
        assert len(session.poll(10)) == 1
        [claim] = session.sql("select * from headrace.poll('other')")
        db.sql("select headrace.complete('other', %s, 1)", [claim.id])

    def test_it_is_among_the_others_of_its_type_by_its_age(self, session: Session) -> None:
        [first] = session.publish(key="k")
        [second] = session.publish()
        [third] = session.publish(key="l")
        assert ids(session.poll(10)) == [first, second, third]

    def test_what_was_claimed_before_is_among_the_others_by_its_age(self, session: Session) -> None:
        [keyed] = session.publish(key="k")
        plain = session.publish(2)
        claims = session.poll(2)
        session.finish(claims, action="release")
        assert ids(session.poll(10)) == [keyed, plain[1], plain[0]]

    def test_one_that_commits_later_comes_later_though_its_number_is_lower(
        self, session: Session, db: Database
    ) -> None:
        late = Session(db)
        late.begin()
        [low] = late.publish(key="k")
        [high] = session.publish(key="k")
        [claim] = session.poll(10)
        late.commit()
        assert session.poll(10) == []
        session.finish([claim])
        assert [claim.id, *drained(session)] == [high, low]


@requirement("G11")
class TestAcrossTypes:
    def test_one_key_orders_types_tags_and_priorities(self, session: Session) -> None:
        published = [
            session.publish(key="k", **event)[0]
            for event in (
                {"type": "a", "priority": 9},
                {"type": "b", "priority": 0},
                {"type": "a", "priority": 5, "tags": ["x"]},
                {"type": "c"},
                {"type": "a", "priority": 9},
            )
        ]
        assert drained(session) == published

    @pytest.mark.parametrize("hinted", [False, True])
    def test_workers_with_filters_take_turns(self, session: Session, hinted: bool) -> None:
        types = [random.choice("ab") for _ in range(30)]
        published = [session.publish(key="k", type=type)[0] for type in types]
        hints: dict[str, str | None] = {"a": None, "b": None}
        done: list[int] = []
        idle = 0
        while idle < 3:
            for type in "ab":
                claims = session.poll(
                    10, types=[type], hints=hints[type] if hinted else None, sweep=True
                )
                if claims:
                    idle = 0
                    hints[type] = claims[0].hints
                    assert len(claims) == 1
                    assert claims[0].type == type
                    done += ids(claims)
                    session.finish(claims)
            idle += 1
        assert done == published

    def test_what_nobody_watches_holds_up_its_key_and_no_other(self, session: Session) -> None:
        [first] = session.publish(key="k", type="a")
        [second] = session.publish(key="k", type="b")
        [other] = session.publish(key="l", type="b")
        assert drained(session, types=["b"]) == [other]
        assert drained(session, types=["a"]) == [first]
        assert drained(session, types=["b"]) == [second]

    def test_a_worker_that_knows_only_the_tokens_pair_finds_the_first_elsewhere(
        self, session: Session
    ) -> None:
        session.publish(type="b")
        hints = session.poll()[0].hints
        [first] = session.publish(key="k", type="a")
        session.sql("delete from headrace.ready")  # so that only the second leaves a token
        [second] = session.publish(key="k", type="b")
        [claim] = session.poll(10, hints=hints)
        assert claim.id == first
        session.finish([claim])
        assert drained(session) == [second]


def complete(session: Session, claim: Any) -> None:
    session.finish([claim])


def release(session: Session, claim: Any) -> None:
    session.finish([claim], action="release")


def bury(session: Session, claim: Any) -> None:
    session.finish([claim], action="fail", reason="It is no use")


def fail_at_once(session: Session, claim: Any) -> None:
    session.finish([claim], action="fail", retry_in=0)


def put_off(session: Session, claim: Any) -> None:
    session.finish([claim], action="fail", retry_in=100)


def cancel(session: Session, claim: Any) -> None:
    session.sql("select headrace.cancel('default', %s)", [claim.id])


def reset(session: Session, claim: Any) -> None:
    session.sql("select headrace.reset('default', %s)", [claim.id])


def erase(session: Session, claim: Any) -> None:
    session.sql("select headrace.erase('default', %s)", [claim.id])


def purge_delayed(session: Session, claim: Any) -> None:
    session.sql("select headrace.purge('default', 'main', 'delayed')")


def expire(session: Session, claim: Any) -> None:
    session.sql("update headrace_test.clock set shift = shift + '2 minutes'")
    session.tick()


def later(session: Session, claim: Any) -> None:
    session.sql("update headrace_test.clock set shift = shift + '101 seconds'")
    session.tick()


GONE: list[list[Callable[[Session, Any], None]]] = [
    [complete], [bury], [cancel], [erase],
    [put_off, cancel], [put_off, erase], [put_off, purge_delayed],
]  # fmt: skip
BACK: list[list[Callable[[Session, Any], None]]] = [
    [release], [fail_at_once], [reset], [put_off, reset], [put_off, later], [expire],
]  # fmt: skip


def named(steps: list[Callable[..., None]]) -> str:
    return ", ".join(step.__name__ for step in steps)


@requirement("G11", "G9")
class TestEnds:
    @pytest.mark.parametrize("steps", GONE, ids=named)
    def test_the_next_has_its_turn(
        self, session: Session, db: Database, steps: list[Callable[[Session, Any], None]]
    ) -> None:
        [_, second] = session.publish(2, key="k")
        [claim] = session.poll()
        for step in steps:
            assert session.poll(10) == []
            step(session, claim)
            check_places(db.sql)
        assert drained(session) == [second]
        assert db.sql("select count(*) from headrace.active") == [(0,)]

    @pytest.mark.parametrize("steps", BACK, ids=named)
    def test_it_comes_again_before_the_next(
        self, session: Session, db: Database, steps: list[Callable[[Session, Any], None]]
    ) -> None:
        published = session.publish(3, key="k")
        [claim] = session.poll()
        for step in steps:
            assert session.poll(10) == []
            step(session, claim)
            check_places(db.sql)
        assert drained(session, max_events=10) == published

    def test_a_retry_holds_up_its_key_until_it_is_due(self, session: Session, db: Database) -> None:
        published = session.publish(2, key="k") + session.publish(key="k")
        session.finish(session.poll(), action="fail", retry_in=100)
        db.advance(seconds=60)
        session.tick()
        assert session.poll(10, sweep=True) == []
        db.advance(seconds=41)
        assert drained(session) == published

    def test_one_that_waits_for_its_turn_is_cancelled(self, session: Session) -> None:
        [first, second, third] = session.publish(3, key="k")
        [claim] = session.poll()
        assert session.sql("select headrace.cancel('default', %s)", [second]) == [(True,)]
        assert session.sql("select headrace.reset('default', %s)", [third]) == [(False,)]
        assert session.poll(10) == []
        session.finish([claim])
        assert [first, *drained(session)] == [first, third]

    def test_the_first_is_cancelled_before_its_turn(self, session: Session) -> None:
        [first, second] = session.publish(2, key="k")
        session.sql("select headrace.cancel('default', %s)", [first])
        assert drained(session) == [second]

    def test_a_purge_takes_all_that_wait_and_leaves_what_is_in_work(
        self, session: Session, db: Database
    ) -> None:
        session.publish(20, key="k")
        session.publish(20, key="l")
        [claim] = session.poll()
        assert [
            row[1]
            for row in session.sql("select * from headrace.purge('default', 'main', 'ready')")
        ] == [39]
        check_places(db.sql)
        session.finish([claim])
        [last] = session.publish(key="k")
        assert drained(session) == [last]
        assert tokens(db) == 0

    def test_a_redriven_one_comes_when_no_other_is_in_work(self, session: Session) -> None:
        [first, second, third] = session.publish(3, key="k")
        [claim] = session.poll()
        bury(session, claim)
        [claim] = session.poll()
        session.sql("select headrace.redrive('default')")
        assert session.poll(10) == []
        session.finish([claim])
        assert (claim.id, drained(session)) == (second, [first, third])

    def test_redriven_slowly_each_comes_in_its_time(self, session: Session, db: Database) -> None:
        published = session.publish(3, key="k")
        for _ in published:
            bury(session, session.poll()[0])
        session.sql("select headrace.redrive('default', rate => 0.1)")
        assert drained(session) == published[:1]
        db.advance(seconds=11)
        assert drained(session, sweep=True) == published[1:2]
        db.advance(seconds=11)
        assert drained(session, sweep=True) == published[2:]

    def test_with_a_delay_it_is_in_line_from_when_it_is_due(
        self, session: Session, db: Database
    ) -> None:
        [first] = session.publish(key="k", delay=20)
        [second, third] = session.publish(2, key="k")
        [claim] = session.poll(10)
        db.advance(seconds=21)
        session.tick()
        assert session.poll(10) == []
        session.finish([claim])
        assert [claim.id, *drained(session)] == [second, first, third]


@requirement("G9", "G11")
class TestSuspects:
    def test_its_key_waits_for_the_suspect(self, session: Session, db: Database) -> None:
        [first, second] = session.publish(2, key="k")
        others = session.publish(2)
        session.poll(10, worker="w")
        expire(session, None)
        check_places(db.sql)
        done = []
        for _ in range(3):  # the suspects, one by one
            [claim] = session.poll(10)
            assert claim.attempt == 2
            assert db.sql("select suspect from headrace.leases where id = %s", [claim.lease]) == [
                (True,)
            ]
            session.finish([claim])
            done += [claim.id]
        assert sorted(done) == [first, *others]
        assert drained(session, max_events=10) == [second]

    def test_it_is_charged_until_it_is_dead_and_then_the_next_comes(
        self, session: Session, db: Database
    ) -> None:
        [first, second] = session.publish(2, key="k")
        starts = 0
        while (claim := session.poll()[0]).id == first:
            starts += 1
            expire(session, claim)
            check_places(db.sql)
        assert (starts, claim.id) == (4, second)
        assert db.sql("select suspect from headrace.held") == [(False,)]

    def test_a_suspects_token_that_is_good_for_nothing_makes_no_suspects(
        self, session: Session, db: Database
    ) -> None:
        [first, _] = session.publish(2, key="k")
        expire(session, session.poll())
        session.sql("select headrace.cancel('default', %s)", [first])
        plain = session.publish(3, type="plain", priority=9)
        session.sql("delete from headrace.ready where not suspect and key is not null")
        claims = session.poll(10)
        assert db.sql("select distinct suspect from headrace.leases") == [(False,)]
        assert {*plain} <= {*ids(claims), *ids(session.poll(10))}
        session.finish(claims)
        drained(session)

    def test_nobody_waits_for_who_is_just_claiming_the_suspect(
        self, session: Session, db: Database
    ) -> None:
        [first] = session.publish(key="k")
        expire(session, session.poll())
        session.sql(  # another token of the same suspect
            "insert into headrace.ready select event, created_at, route, seq + 1000, queue, attempts, priority,"
            " failures, crashes, suspect, pack, key from headrace.ready"
        )
        other = Session(db)
        other.begin()
        [claim] = other.poll(worker="a")
        assert claim.id == first
        assert session.poll(10, worker="b") == []
        other.rollback()
        assert ids(session.poll(10, worker="b")) == [first]


def interleavings(*actors: list[str]) -> Iterator[list[str]]:
    """Every order of the actors' steps that keeps each actor's own."""
    if not any(actors):
        yield []
        return
    for n, (actor, *_) in [(n, a) for n, a in enumerate(actors) if a]:
        rest = [a[1:] if m == n else a for m, a in enumerate(actors)]
        for following in interleavings(*rest):
            yield [actor, *following]


@requirement("G11", "G4")
class TestNothingIsLeftBehind:
    """Publisher, finisher and claimer in every order of their steps."""

    @pytest.mark.parametrize(
        "isolation",
        [
            READ_COMMITTED,
            pytest.param(REPEATABLE_READ, marks=pytest.mark.rest),
            pytest.param(SERIALIZABLE, marks=pytest.mark.rest),
        ],
    )
    def test_whoever_comes_first(self, db: Database, isolation: str) -> None:
        self._run_all(
            db,
            interleavings(
                ["publish", "p.commit"], ["begin", "finish", "f.commit"], ["poll", "c.commit"]
            ),
            isolation,
        )

    @pytest.mark.parametrize("who", ["p", "f", "c"])
    def test_whoever_rolls_back(self, db: Database, who: str) -> None:
        steps = [["publish", "p.commit"], ["finish", "f.commit"], ["poll", "c.commit"]]
        undone = [[s.replace(f"{who}.commit", f"{who}.rollback") for s in a] for a in steps]
        self._run_all(db, interleavings(*undone), READ_COMMITTED)

    def _run_all(self, db: Database, orders: Iterator[list[str]], isolation: str) -> None:
        race = Race(db, isolation)
        for n, order in enumerate(orders):
            race.run(f"k{n}", order)
        check_places(db.sql)


class Race:
    """One publishes, one finishes what is in work, one claims; a worker does the rest."""

    def __init__(self, db: Database, isolation: str) -> None:
        self.isolation = isolation
        self.worker = Session(db)
        self.actors = {name: Session(db) for name in "pfc"}
        for session in self.actors.values():
            session.sql("set statement_timeout = '60s'")

    def run(self, key: str, order: list[str]) -> None:
        self.key, self.order = key, order
        self.expected = self.worker.publish(key=key)
        [self.first] = self.worker.poll()
        self.claims: list[Any] = []
        self.actors["p"].begin()
        self.actors["c"].begin()
        if "begin" not in order:
            self.begin()
        for step in order:
            actor, _, end = step.partition(".")
            if end:
                self.actors[actor].sql(end)
            else:
                getattr(self, step)()
        assert self.outcome() == self.expected, order

    def publish(self) -> None:
        published = self.actors["p"].publish(key=self.key)
        if "p.commit" in self.order:
            self.expected += published

    def begin(self) -> None:
        self.actors["f"].begin(self.isolation)

    def finish(self) -> None:
        assert self.actors["f"].finish([self.first]) == ["counted"]

    def poll(self) -> None:
        self.claims = self.actors["c"].poll(10)
        is_free = "f.commit" in self.order[: self.order.index("poll")]
        assert is_free or not self.claims, self.order

    def outcome(self) -> list[int]:
        """The events in the order in which they ended, those too that are left for the worker."""
        done = [self.first.id]
        if "f.rollback" in self.order:
            assert self.worker.poll(10) == [], self.order
            self.worker.finish([self.first])
        if "c.commit" in self.order and self.claims:
            self.worker.finish(self.claims)
            done += ids(self.claims)
        return done + drained(self.worker)


@requirement("G11")
class TestWhileSomebodyClaims:
    def test_nobody_waits_and_what_is_behind_is_found(self, session: Session, db: Database) -> None:
        published = session.publish(key="k") + session.publish(key="k")
        plain = session.publish(3)
        other = Session(db)
        other.begin()
        assert ids(other.poll()) == published[:1]
        assert ids(session.poll(1)) == plain[:1]
        assert ids(session.poll(10)) == plain[1:]
        assert session.poll(10) == []
        assert session.poll(1) == []
        other.rollback()
        assert ids(session.poll(10)) == published[:1]

    def test_nobody_waits_for_who_is_cancelling_the_first(
        self, session: Session, db: Database
    ) -> None:
        [first, second] = session.publish(2, key="k")
        other = Session(db)
        other.begin()
        other.sql("select headrace.cancel('default', %s)", [first])
        assert session.poll(10) == []
        other.rollback()
        assert drained(session) == [first, second]

    @pytest.mark.parametrize("end", ["commit", "rollback"])
    def test_nobody_waits_for_who_is_claiming_what_was_the_first(
        self, session: Session, db: Database, end: str
    ) -> None:
        """A publisher that commits late brings what comes before a delivery that is just being claimed."""
        late = Session(db)
        late.begin()
        [first] = late.publish(key="k")
        [second] = session.publish(key="k")
        other = Session(db)
        other.begin()
        [claim] = other.poll(10)
        assert claim.id == second
        late.commit()
        [free] = session.publish(key="l")
        session.sql("set statement_timeout = '10s'")
        assert [one.id for one in session.poll(10)] == [free]
        getattr(other, end)()
        if end == "commit":
            assert session.poll(10) == []
            session.finish([claim])
        assert first in drained(session)

    def test_what_comes_back_while_a_claim_looks_goes_first(
        self, session: Session, db: Database
    ) -> None:
        """As if the first had been in work when the claim looked for the first that waits, and was released then."""
        [first, second] = session.publish(2, key="k")
        db.sql(f"create table in_work as select * from headrace.keyed where event = {first}")
        db.sql(f"delete from headrace.keyed where event = {first}")
        back = "with back as (delete from public.in_work returning *) insert into headrace.keyed select * from back"
        db.sql(
            f"create function public.come_back() returns trigger language plpgsql as $$ begin {back}; return new; end $$"
        )
        db.sql(
            "create trigger come_back before insert on headrace.active for each row execute function public.come_back()"
        )
        assert session.poll(10) == []
        assert db.sql("select * from headrace.active") == []
        assert drained(session) == [first, second]

    def test_many_keys_take_few_locks(self, session: Session, db: Database) -> None:
        session.sql(
            "select headrace.publish('default', jsonb_agg(jsonb_build_object('key', 'k' || n, 'type', 't' || n % 3)))"
            " from generate_series(1, 1000) n"
        )
        session.begin()
        claims = session.poll(1000)
        [(locks,)] = session.sql(
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        )
        session.commit()
        assert 60 <= len(claims) <= 70
        assert locks == 0
        session.finish(claims)
        assert len(drained(session, max_events=1000)) == 1000 - len(claims)

    def test_beside_few_keys_a_claim_is_filled(self, session: Session) -> None:
        session.publish(key="k")
        session.publish(500)
        session.publish(key="l")
        assert len(session.poll(502)) >= 480


MANY = 3000


@pytest.fixture(scope="module")
def heated(server: Server) -> Iterator[str]:
    """A database with many events of a key that were published one by one: each test has a copy."""
    name = server.create_database(template=Server.TEMPLATE)
    publish = (
        "select headrace.publish('default', '[{\"key\": \"hot\"}]') from generate_series(1, %s)"
    )
    with Database(server, name).connect() as connection:
        connection.execute(publish, [MANY])
    yield name
    server.drop_database(name)


@requirement("G11")
class TestHotKeys:
    @pytest.fixture
    def db(self, server: Server, heated: str) -> Iterator[Database]:
        database = Database(server, server.create_database(template=heated))
        yield database
        database.close()
        server.drop_database(database.name)

    @pytest.fixture
    def hot(self, session: Session) -> int:
        """The first of those events."""
        [(first,)] = session.sql("select min(event) from headrace.keyed")
        return first

    def test_its_tokens_go_when_they_are_met(
        self, session: Session, db: Database, hot: int
    ) -> None:
        assert tokens(db) == MANY
        [claim] = session.poll(10)
        assert claim.id == hot
        assert session.poll() == []
        assert tokens(db) == 0
        session.finish([claim])
        assert tokens(db) == 1
        assert ids(session.poll(10)) == [hot + 1]

    def test_others_do_not_starve_behind_it(self, session: Session, hot: int) -> None:
        [other] = session.publish(key="other")
        [plain] = session.publish()
        assert ids(session.poll(3)) == [hot, other, plain]

    @pytest.mark.parametrize("n", [1, 2, 10])
    def test_others_get_through_whatever_a_claim_asks_for(
        self, session: Session, hot: int, n: int
    ) -> None:
        others = [session.publish(key=f"k{n}")[0] for n in range(20)]
        claimed: list[int] = []
        while claims := session.poll(n):
            claimed += ids(claims)
        assert claimed == [hot, *others]

    @pytest.mark.new_database
    def test_a_look_at_its_turn_reads_no_more_than_a_few_rows(
        self, session: Session, db: Database, hot: int
    ) -> None:
        session.finish(session.poll(10))
        db.sql("vacuum analyze headrace.ready, headrace.keyed")
        session.sql("set enable_seqscan = off")
        lines = session.sql(
            "explain (analyze, buffers) select from headrace.keyed"
            " where queue = (select min(queue) from headrace.keyed) and key = 'hot' order by event limit 1"
        )
        assert "Seq Scan" not in str(lines)


@requirement("G11")
class TestTheNet:
    def test_a_key_that_lost_its_tokens_gets_one(self, session: Session, db: Database) -> None:
        published = session.publish(2, key="k") + session.publish(key="l")
        [sound] = session.publish(key="m")
        db.sql("delete from headrace.ready where key in ('k', 'l')")
        assert ids(session.poll(10)) == [sound]
        assert session.sql("select headrace._mend_keys()") == [(2,)]
        assert session.sql("select headrace._mend_keys()") == [(0,)]
        assert sorted(drained(session)) == published

    def test_a_key_that_is_active_for_nothing_is_freed(
        self, session: Session, db: Database
    ) -> None:
        published = session.publish(2, key="k")
        db.sql("insert into headrace.active select queue, key, 1 from headrace.keyed limit 1")
        assert session.poll(10) == []
        session.tick(upkeep=True)
        assert drained(session) == published

    def test_what_is_sound_stays(self, session: Session, db: Database) -> None:
        session.publish(2, key="held")
        session.publish(2, key="delayed")
        session.publish(2, key="waiting")
        held, delayed, *_ = session.poll(2)
        put_off(session, delayed)
        session.tick(upkeep=True)
        assert db.sql("select event from headrace.active order by 1") == [(held.id,), (delayed.id,)]
        assert [claim.id for claim in session.poll(10)] == [delayed.id + 2]
        assert session.poll(10) == []


class TestQueues:
    @requirement("G11", "PG-1")
    def test_each_queue_has_its_own_turns(self, engine: Engine, db: Database) -> None:
        engine.call("create_queue", namespace="default", queue="second")
        published = engine.publish({"key": "k"}, {"key": "k"})
        [first] = engine.poll(10)
        [same] = engine.poll(10, queue="second")
        assert first.id == same.id == published[0]
        engine.end("complete", same, queue="second")
        assert engine.poll(10) == []
        assert [claim.id for claim in engine.poll(10, queue="second")] == published[1:]

    def test_a_queue_from_the_past_has_the_keys_order(self, engine: Engine, db: Database) -> None:
        published = engine.publish(*[{"key": "k"}] * 3)
        engine.call("create_queue", namespace="default", queue="late", since="2000-01-01Z")
        while engine.tick().more:
            pass
        done = []
        while claims := engine.poll(10, queue="late"):
            assert len(claims) == 1
            done += [claims[0].id]
            engine.end("complete", claims[0], queue="late")
        assert done == published

    def test_a_deleted_queue_leaves_nothing(self, engine: Engine, db: Database) -> None:
        engine.call("create_queue", namespace="default", queue="second")
        engine.publish(*[{"key": "k"}] * 3)
        engine.poll(queue="second", lease="1 second")
        engine.call("delete_queue", namespace="default", queue="second", with_deliveries=True)
        db.advance(seconds=2)
        for _ in range(5):
            engine.tick()
        assert db.sql("select count(*) from headrace.active") == [(0,)]
        assert db.sql("select count(*) from headrace.keyed") == [(3,)]


class Storm:
    """Publishers and workers at once, at every isolation level; what is released comes again."""

    KEYS = "abc"

    def __init__(self, db: Database) -> None:
        self.db = db
        self.sent: dict[str, list[int]] = {key: [] for key in self.KEYS}
        self.seen: dict[str, list[int]] = {key: [] for key in self.KEYS}
        self.working = dict.fromkeys(self.KEYS, 0)
        self.overlaps = 0
        self.lock = threading.Lock()
        self.is_over = threading.Event()

    def publish(self, key: str) -> None:
        session = Session(self.db)
        for _ in range(60):
            self.sent[key] += session.publish(key=key, type=random.choice("xy"), payload=key)

    def work(self, n: int) -> None:
        session = Session(self.db)
        idle = 0
        while idle < 3:
            claims = session.poll(random.choice([1, 2, 10]), types=[["x"], ["y"], None][n % 3])
            idle = 0 if claims or not self.is_over.is_set() else idle + 1
            for claim in claims:
                self.handle(session, claim, ISOLATION_LEVELS[n % 3])

    def handle(self, session: Session, claim: Any, isolation: str) -> None:
        with self.lock:
            self.working[claim.payload] += 1
            self.overlaps += self.working[claim.payload] > 1
        ending = {"action": "release"} if random.random() < 0.1 else {}
        with self.lock:
            self.working[claim.payload] -= 1
            if not ending:
                self.seen[claim.payload].append(claim.id)
        try:
            session.begin(isolation)
            session.finish([claim], **ending)
            session.commit()
        except psycopg.errors.SerializationFailure:
            session.rollback()
            session.finish([claim], **ending)


@requirement("G11", "G4", "G5")
def test_a_storm_on_few_keys_loses_nothing_and_keeps_the_order(db: Database) -> None:
    storm = Storm(db)
    publishers = [Background(storm.publish, key) for key in storm.KEYS]
    workers = [Background(storm.work, n) for n in range(6)]
    for publisher in publishers:
        publisher.result()
    storm.is_over.set()
    for worker in workers:
        worker.result()
    last = Session(db)
    for _ in range(1000):  # what was released several times in a row comes back later
        for claim in last.poll():
            storm.handle(last, claim, READ_COMMITTED)
        if all(place == ["outcome"] for place in db.placement().values()):
            break
        db.advance(minutes=1)
        db.sql("select headrace.tick()")
    assert storm.overlaps == 0
    assert storm.seen == storm.sent


def test_every_order_of_steps_is_tried() -> None:
    orders = list(interleavings(["a", "b"], ["c", "d"]))
    assert len(orders) == len({tuple(order) for order in orders}) == 6
    assert all(order.index("a") < order.index("b") for order in orders)
    assert list(itertools.islice(interleavings([]), 2)) == [[]]

"""Bulkheads: one tenant takes its share of a server, and the others do not notice."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import psycopg
import pytest

from headrace.driver.async_pool import AsyncSessions
from headrace.driver.async_session import AsyncSession
from headrace.driver.explain import NoConnection
from headrace.server import bulkheads, clients, feed
from headrace.server.bulkheads import Pace, SharedSessions, Shares, charge
from headrace.server.clients import sizes
from headrace.server.limits import Limits, ShareUsedUp
from tests.database import Database
from tests.requirements import requirement
from tests.server.running import Running, running

LOCK = "lock table headrace.recoveries in access exclusive mode"
WAITING = (
    "select count(*) from pg_locks where not granted and relation = 'headrace.recoveries'::regclass"
)
WORKER = {"tags": "*", "worker_id": "w:1"}
LOOK = "/queues/a/main/recoveries"
"""A look-up that waits for the lock, as nothing else here does."""


@dataclass
class Tenants:
    """Two of them, each with a namespace and a token for all but administration."""

    house: Running
    tokens: dict[str, str]

    def client(self, name: str, namespace: str | None = None) -> httpx.Client:
        token = {"Authorization": f"Bearer {self.tokens[name]}"}
        return self.house.client(namespace, headers=token)


@contextmanager
def tenants(db: Database, **options: object) -> Iterator[Tenants]:
    tokens = {}
    for name in ("a", "b"):
        db.sql("select headrace.create_namespace(%s)", [name])
        tokens[name] = db.queue().create_token(
            name, ["publish", "consume", "read"], namespaces=[name]
        )
    with running(db, **options) as house:
        yield Tenants(house, tokens)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


class TestConnections:
    @requirement("G16")
    def test_look_ups_that_hang_take_nothing_of_others(self, db: Database) -> None:
        with (
            tenants(db) as both,
            ThreadPoolExecutor(12) as pool,
            psycopg.connect(db.dsn) as locker,
            both.client("b", "b") as b,
        ):
            locker.execute(LOCK)

            def look() -> httpx.Response:
                with both.client("a") as a:
                    return a.get(LOOK)

            looks: list[Future[httpx.Response]] = [pool.submit(look) for _ in range(12)]
            db.wait_for(lambda: db.sql(WAITING) == [(1,)])  # its share; the others wait for that
            before = db.sql("select last_at from headrace.ticking()")
            for _ in range(20):
                assert b.post("/events", json={}).status_code == 201
                assert b.get("/events/subscribe", params=WORKER).status_code == 200
                assert b.get("/events").status_code == 200
            db.wait_for(lambda: db.sql("select last_at from headrace.ticking()") != before)
            refused = {code(one.result()) for one in looks}
            assert (429, "share_used_up") in refused
            assert refused <= {(429, "share_used_up"), (503, "overloaded")}
            assert "retry-after" in looks[-1].result().headers
            locker.rollback()
            db.wait_for(lambda: db.sql(WAITING) == [(0,)])
            with both.client("a") as a:  # it rests for a moment: its look-ups took long
                db.wait_for(lambda: a.get(LOOK).status_code == 200)

    def test_a_look_up_that_takes_too_long_is_cut_and_that_is_said(
        self, db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(clients, "LOOK_SECONDS", 1)
        with tenants(db) as both, psycopg.connect(db.dsn) as locker, both.client("a") as a:
            locker.execute(LOCK)
            answer = a.get(LOOK)
            assert code(answer) == (422, "look_up_too_long")
            assert "ask for less" in answer.json()["error"]

    @requirement("G16")
    def test_a_look_for_everybody_is_charged_to_nobody(self, db: Database) -> None:
        everybody = {"Authorization": f"Bearer {db.queue().create_token('operator', ['read'])}"}
        with (
            tenants(db) as both,
            both.client("a") as a,
            both.house.client(headers=everybody) as operator,
        ):
            shares = both.house.server.directory.pools["look"]._alone
            takes = shares.enter(("token a",), 60)
            asyncio.run_coroutine_threadsafe(takes, both.house.loop).result(60)
            assert code(a.get(LOOK)) == (429, "share_used_up")
            for client in (a, operator):  # who is told what was found when a asked
                assert "headrace_database_up 1" in client.get("/metrics").text.splitlines()

    @pytest.mark.parametrize("connections", [4, 5, 6, 10, 50])
    def test_all_kinds_of_work_have_some(self, connections: int) -> None:
        shared = sizes(connections)
        assert sum(shared.values()) == connections
        assert min(shared.values()) >= 1


class TestRest:
    """Who used a connection for long, while others are at work, does not get the next one at once."""

    @pytest.fixture
    async def pool(
        self, db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[SharedSessions]:
        monkeypatch.setattr(bulkheads, "LONG", -1.0)
        monkeypatch.setattr(bulkheads, "LATELY", 3600.0)
        monkeypatch.setattr(bulkheads, "REST", 1e9)
        monkeypatch.setattr(bulkheads, "LONGEST_REST", 3600.0)
        async with SharedSessions(db.dsn, min_size=1, max_size=4, open=False) as pool:
            yield pool

    async def use(self, pool: SharedSessions, *names: str) -> None:
        bulkheads.charge(*names)
        await pool.putconn(await pool.getconn(0.5))

    @pytest.mark.anyio
    async def test_while_others_are_at_work(self, pool: SharedSessions) -> None:
        await self.use(pool, "token b", "namespace b")
        await self.use(pool, "token a", "namespace a")
        with pytest.raises(ShareUsedUp):
            await self.use(pool, "token a", "namespace a")
        with pytest.raises(ShareUsedUp):
            await self.use(pool, "token a", "namespace c")

    @pytest.mark.anyio
    async def test_alone_nobody_rests(self, pool: SharedSessions) -> None:
        for names in (("token a", "namespace a"), ("token a", "namespace c")):
            for _ in range(5):
                await self.use(pool, *names)

    @pytest.mark.anyio
    async def test_what_is_short_is_not_rested_from(
        self, pool: SharedSessions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bulkheads, "LONG", 3600.0)
        for _ in range(5):
            await self.use(pool, "token a", "namespace a")
            await self.use(pool, "token b", "namespace b")

    @pytest.mark.anyio
    async def test_a_rest_ends(self, pool: SharedSessions, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(bulkheads, "LONGEST_REST", 0.001)
        for _ in range(5):
            await self.use(pool, "token a", "namespace a")
            await self.use(pool, "token b", "namespace b")

    @pytest.mark.anyio
    async def test_among_others_a_quarter_at_once(
        self, pool: SharedSessions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(bulkheads, "LONG", 3600.0)
        await self.use(pool, "token b", "namespace b")
        bulkheads.charge("token a", "namespace a")
        one = await pool.getconn(0.5)
        with pytest.raises(ShareUsedUp):
            await pool.getconn(0.01)
        await pool.putconn(one)
        await self.use(pool, "token a", "namespace a")


class TestShares:
    @pytest.mark.anyio
    async def test_who_has_his_share_waits_and_others_do_not(self) -> None:
        shares = Shares(2)
        for _ in range(2):
            await shares.enter(("token a", "namespace a"), 1)
        with pytest.raises(ShareUsedUp):
            await shares.enter(("token a", "namespace b"), 0.01)
        with pytest.raises(ShareUsedUp):
            await shares.enter(("token b", "namespace a"), 0.01)
        for _ in range(2):  # of which the failures have taken nothing
            await shares.enter(("token b", "namespace b"), 1)
        waiting = asyncio.create_task(shares.enter(("token a", "namespace a"), 60))
        await asyncio.sleep(0)
        assert not waiting.done()
        shares.leave(("token a", "namespace a"))
        await waiting

    @pytest.mark.anyio
    async def test_who_waited_for_his_share_waits_for_a_connection_the_rest_of_the_time(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waited: list[float] = []

        async def none_is_free(pool: AsyncSessions, seconds: float) -> AsyncSession:
            waited.append(seconds)
            raise NoConnection(f"within {seconds} s")

        monkeypatch.setattr(AsyncSessions, "getconn", none_is_free)
        pool = SharedSessions("", min_size=1, max_size=2, timeout=60, open=False)
        charge("token a")
        await pool._alone.enter(("token a",), 60)
        for given, patience in ((None, 60), (30, 30)):
            asking = asyncio.create_task(pool.getconn(given))
            await asyncio.sleep(0.05)
            assert not asking.done()  # it waits for its share
            pool._alone.leave(("token a",))
            with pytest.raises(NoConnection, match=f"within {patience} s"):
                await asking
            assert 0 < waited.pop() <= patience - 0.05
            await pool._alone.enter(("token a",), 1)  # which is not lost

    @pytest.mark.anyio
    async def test_a_caller_who_leaves_takes_nothing_along(self) -> None:
        shares = Shares(1)
        await shares.enter(("namespace a",), 1)
        waiting = asyncio.create_task(shares.enter(("token a", "namespace a"), 60))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await shares.enter(("token a",), 1)

    def test_a_pace_is_kept_by_each_for_himself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [1000.0]
        monkeypatch.setattr("headrace.server.bulkheads.time.monotonic", lambda: now[0])
        pace = Pace(10)
        assert [pace.take(("token a",)) for _ in range(11)] == [True] * 10 + [False]
        assert not pace.take(("token b", "token a"))
        assert all(pace.take(("token b",)) for _ in range(10))
        now[0] += 0.5
        assert [pace.take(("token a",)) for _ in range(6)] == [True] * 5 + [False]


class TestRequests:
    def test_a_token_sends_so_many_a_second_and_no_more(self, db: Database) -> None:
        with (
            tenants(db, limits=Limits(requests=1)) as both,
            both.client("a") as a,
            both.client("b") as b,
        ):
            answers = [a.get("/whoami") for _ in range(10)]
            refused = [one for one in answers if one.status_code == 429]
            assert {code(one) for one in refused} == {(429, "too_many_requests")}
            assert {one.headers["retry-after"] for one in refused} == {"1"}
            assert b.get("/whoami").status_code == 200

    def test_as_many_as_it_likes_if_that_was_said(self, db: Database) -> None:
        with tenants(db, limits=Limits(requests=0)) as both, both.client("a") as a:
            assert {a.get("/whoami").status_code for _ in range(10)} == {200}

    def test_who_needs_no_token_is_charged_nothing(self, db: Database) -> None:
        with running(db, limits=Limits(requests=1)) as house, house.client() as client:
            assert {client.get("/events").status_code for _ in range(10)} == {200}

    @pytest.mark.parametrize(
        ("path", "name"),
        [
            *(("/events", "types"), ("/events", "tags"), ("/dead-letters", "types")),
            *(("/events/stream", "types"), ("/events/subscribe", "types")),
        ],
    )
    def test_a_look_up_names_a_hundred_patterns_at_most(
        self, api: httpx.Client, path: str, name: str
    ) -> None:
        worker = {"worker_id": "w:1"} if path == "/events/subscribe" else {}
        patterns = ",".join(f"t{n}*" for n in range(101))
        answer = api.get(path, params={name: patterns, **worker})
        assert code(answer) == (400, "invalid_query")
        assert "100" in answer.json()["error"]

    def test_a_look_up_looks_at_a_million_at_most_and_says_how_far(self, api: httpx.Client) -> None:
        assert code(api.get("/events", params={"look_at": 1000001})) == (400, "invalid_query")
        ids = [api.post("/events", json={"type": "a"}).json()["id"] for _ in range(3)]
        found = api.get("/events", params={"types": "b", "look_at": 1}).json()
        assert found["events"] == []
        assert found["searched_to"] in ids


class TestStreams:
    def test_a_token_follows_so_many_and_others_as_many(self, db: Database) -> None:
        with (
            tenants(db, limits=Limits(streams=2)) as both,
            both.client("a", "a") as a,
            both.client("b", "b") as b,
        ):
            with (
                a.stream("GET", "/events/stream") as first,
                a.stream("GET", "/events/stream") as two,
            ):
                assert [one.status_code for one in (first, two)] == [200, 200]
                followed = [one.iter_lines() for one in (first, two)]  # until they are forgotten
                assert [next(lines) for lines in followed]
                refused = a.get("/events/stream")
                assert code(refused) == (429, "too_many_streams")
                assert refused.headers["retry-after"]
                with b.stream("GET", "/events/stream") as other:
                    assert other.status_code == 200
                del followed
            db.wait_for(lambda: _follows(a))

    @requirement("G16")
    def test_one_that_waits_for_another_tenants_transaction_says_so(
        self, db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(feed, "STUCK", 0.1)
        with (
            tenants(db) as both,
            psycopg.connect(db.dsn, application_name="secret of a") as writer,
            both.client("b", "b") as b,
            b.stream("GET", "/events/stream") as stream,
        ):
            lines = stream.iter_lines()
            next(lines)
            writer.execute("select headrace.publish('a', '{\"type\": \"secret\"}')")
            id = b.post("/events", json={"type": "mine"}).json()["id"]
            said = _until(lines, "event: waiting")
            assert said["pid"] == writer.info.backend_pid
            assert set(said) == {"pid", "since"}
            writer.commit()
            while True:
                entry = _until(lines, "data: ")
                if "event_id" in entry:
                    break
            assert entry["event_id"] == id


def _follows(client: httpx.Client) -> bool:
    with client.stream("GET", "/events/stream") as stream:
        return stream.status_code == 200


def _until(lines: Iterator[str], beginning: str) -> dict[str, object]:
    """The data after a line, or in it."""
    line = next(line for line in lines if line.startswith(beginning))
    data = line if line.startswith("data: ") else next(lines)
    return json.loads(data.removeprefix("data: "))  # type: ignore[no-any-return]


class TestAttention:
    @requirement("G16")
    def test_a_neighbours_findings_take_no_place(self, db: Database) -> None:
        with tenants(db) as both, both.client("b") as b:
            for namespace, many in (("a", 120), ("b", 1)):
                for n in range(many):
                    db.sql("select headrace.create_queue(%s, %s)", [namespace, f"q{n}"])
                db.sql("select headrace.publish(%s, '{}')", [namespace])
            db.sql("update headrace.queues set state = 'paused' where name <> 'main'")
            everywhere = b.get("/attention").json()["findings"]
            assert [(one["namespace"], one["code"]) for one in everywhere if one["namespace"]] == [
                ("b", "paused")
            ]
            assert len(db.sql("select * from headrace.attention()")) == 100

    def test_of_namespaces_that_are_not_there_nothing_is_said(self, db: Database) -> None:
        found = db.sql("select * from headrace.attention_in('{nowhere,default}')")
        assert all(one[2] in (None, "default") for one in found)

"""Who comes in: with a token, without one, from another page."""

import asyncio
import itertools
import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from headrace import EventQueue
from headrace.errors import InvalidInput
from headrace.server.clients import open_directory
from headrace.server.http import gate as guarding
from headrace.server.http.gate import Access, open_gate
from headrace.server.http.origins import is_loopback
from tests.database import Database
from tests.requirements import requirement
from tests.server.running import Running, running


@pytest.fixture
def queue(house: Running) -> EventQueue:
    return house.db.queue()


@pytest.fixture(scope="module")
def made(house: Running) -> Callable[..., str]:
    """Makes tokens. The first one of a server closes it to those who have none."""
    queue = house.db.queue()
    numbers = iter(range(1000))
    return lambda *scopes, **options: queue.create_token(
        f"token {next(numbers)}", scopes, **options
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "PACE", 0.01)


@pytest.fixture(autouse=True)
def closed(house: Running, made: Callable[..., str]) -> None:
    if not house.db.sql("select from headrace.tokens()"):
        made("read")
        with house.client() as client:
            house.db.wait_for(lambda: client.get("/events").status_code == 401)


def bearer(token: str, **headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **headers}


def told(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


FOREIGN: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Referer": "https://evil.example/a/page"},
    {"Referer": "http://127.0.0.1:1/"},
    {"Referer": "http://[/"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


async def _gate(db: Database, host: str, access: Access) -> object:
    async with open_directory(db.dsn) as directory:
        return await open_gate(directory, host, access)


# What each scope is good for, by an example.
WAYS = {
    "publish": ("POST", "/events"),
    "consume": ("GET", "/events/subscribe?tags=*&worker_id=w:1"),
    "read": ("GET", "/events"),
    "admin": ("POST", "/queues/default/main/resume"),
}


class TestTokens:
    @pytest.mark.parametrize("scope", WAYS)
    def test_a_token_is_good_for_its_scope_and_an_admins_for_all(
        self, house: Running, made: Callable[..., str], scope: str
    ) -> None:
        with house.client() as client:
            for way, (method, path) in WAYS.items():
                answers = {
                    name: client.request(method, path, headers=bearer(token), json={})
                    for name, token in (("own", made(scope)), ("admin", made("admin")))
                }
                assert answers["admin"].is_success, way
                if way == scope or scope == "admin":
                    assert answers["own"].is_success, way
                else:
                    assert told(answers["own"]) == (403, "insufficient_scope"), way
                    assert answers["own"].json()["scope"] == way

    @pytest.mark.parametrize(
        ("authorization", "code"),
        [
            (None, "token_required"),
            ("", "invalid_token"),
            ("Bearer", "invalid_token"),
            ("Bearer hr_nobody-has-this", "invalid_token"),
            ("Basic aHI6aHI=", "invalid_token"),
            (b"Bearer \xff\xfe", "invalid_token"),
            ("Bearer " + "x" * 4000, "invalid_token"),
            ("Bearer '; drop table headrace.api_tokens; --", "invalid_token"),
        ],
    )
    def test_without_a_good_one_nobody_comes_in(
        self, house: Running, authorization: Any, code: str
    ) -> None:
        headers = {} if authorization is None else {"Authorization": authorization}
        with house.client() as client:
            for method, path in WAYS.values():
                response = client.request(method, path, headers=headers)
                assert told(response) == (401, code)
                assert response.headers["WWW-Authenticate"].startswith("Bearer")

    def test_it_is_taken_from_the_header_alone(
        self, house: Running, made: Callable[..., str]
    ) -> None:
        token = made("admin")
        with house.client(cookies={"Authorization": f"Bearer {token}", "token": token}) as client:
            assert client.get("/events").status_code == 401
            for name in ("token", "access_token", "authorization"):
                assert client.get("/events", params={name: token}).status_code == 400

    @requirement("G16")
    def test_one_of_a_namespace_cannot_tell_another_from_none(
        self, house: Running, made: Callable[..., str]
    ) -> None:
        own, other = house.new_namespace(), house.new_namespace()
        event = EventQueue(house.db.connect(), namespace=other).publish("secret").id
        token = made("publish", "consume", "read", "admin", namespaces=[own])
        with house.client(headers=bearer(token)) as client:
            assert client.get("/events", params={"namespace": own}).is_success
            for method, path in (*WAYS.values(), ("GET", f"/events/{event}")):
                path = path.replace("/default/", "/{namespace}/")
                answers = []
                for name in (other, "nosuch"):
                    asked = httpx.URL(path.format(namespace=name) if "{" in path else path)
                    if "{" not in path:
                        asked = asked.copy_merge_params({"namespace": name})
                    answer = client.request(method, asked)
                    assert answer.status_code == 404
                    answers.append(answer.text.replace(name, "NAME"))
                assert len(set(answers)) == 1, answers

    @pytest.mark.parametrize("name", ["it's", "back\\slash", "\"'\\'\"", "ü"])
    def test_the_sentence_about_a_hidden_namespace_is_the_engines(
        self, house: Running, made: Callable[..., str], name: str
    ) -> None:
        with house.client(name) as client:
            limited = client.get("/events", headers=bearer(made("read", namespaces=["a"])))
            unlimited = client.get("/events", headers=bearer(made("read")))
        assert limited.json() == unlimited.json()
        assert limited.status_code == unlimited.status_code == 404

    def test_one_that_is_revoked_is_good_for_seconds_at_most(
        self, house: Running, queue: EventQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(guarding, "LAST", 0.1)
        token = queue.create_token("to be revoked", ["read"])
        with house.client(headers=bearer(token)) as client:
            assert client.get("/events").is_success
            queue.revoke_token("to be revoked")
            house.db.wait_for(lambda: client.get("/events").status_code == 401)

    def test_one_that_was_made_a_moment_ago_is_good(
        self, house: Running, made: Callable[..., str]
    ) -> None:
        with house.client() as client:
            for _ in range(3):
                assert client.get("/events", headers=bearer(made("read"))).is_success

    def test_who_tries_tokens_out_costs_the_database_nothing(
        self, house: Running, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[float] = []
        read = guarding.Tokens._read

        async def noted(tokens: guarding.Tokens) -> Any:
            asked.append(time.monotonic())
            while len(asked) == 1 and len(house.server.server_state.tasks) < 60:  # noqa: ASYNC110  (all have come)
                await asyncio.sleep(0.001)
            return await read(tokens)

        monkeypatch.setattr(guarding.Tokens, "_read", noted)
        monkeypatch.setattr(guarding, "PACE", 0.1)

        async def try_many() -> list[int]:
            async with httpx.AsyncClient(base_url=house.url) as client:
                tries = [client.get("/events", headers=bearer(f"hr_{n}")) for n in range(60)]
                return [answer.status_code for answer in await asyncio.gather(*tries)]

        assert asyncio.run(try_many()) == [401] * 60
        pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
        assert len(asked) <= 3
        assert all(pause >= 0.09 for pause in pauses)

    def test_what_is_for_everybody_needs_none(self, house: Running) -> None:
        with house.client() as client:
            for path in ("/healthz", "/readyz"):
                assert client.get(path).is_success
                assert client.get(path, headers=bearer("hr_unknown")).is_success

    @requirement("API-21")
    def test_the_log_of_administration_has_the_name_of_the_token(
        self, house: Running, queue: EventQueue
    ) -> None:
        token = queue.create_token("deploy-bot", ["admin"])
        with house.client(headers=bearer(token)) as client:
            assert client.post("/queues/default/main/pause").is_success
            assert client.post("/queues/default/main/resume").is_success
        newest = queue.admin_log(limit=2)
        assert [(entry.actor, entry.action) for entry in newest] == [
            ("deploy-bot", "resume"),
            ("deploy-bot", "pause"),
        ]


class TestPagesOfOthers:
    @pytest.fixture
    def client(self, house: Running, made: Callable[..., str]) -> Iterator[httpx.Client]:
        with house.client(headers=bearer(made("admin"))) as client:
            yield client

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Origin": ""},
            *FOREIGN,
        ],
    )
    def test_they_change_nothing(self, client: httpx.Client, headers: dict[str, str]) -> None:
        for method, path in (WAYS["publish"], WAYS["consume"], WAYS["admin"]):
            assert told(client.request(method, path, headers=headers)) == (403, "cross_origin")

    def test_our_own_do(self, client: httpx.Client, house: Running) -> None:
        headers = {"Origin": house.url, "Referer": f"{house.url}/", "Sec-Fetch-Site": "same-origin"}
        assert client.post("/events", json={}, headers=headers).status_code == 201

    def test_nobody_is_told_that_they_may_read_either(self, client: httpx.Client) -> None:
        answer = client.get("/events", headers={"Origin": "https://evil.example"})
        assert not [name for name in answer.headers if name.startswith("access-control")]

    def test_they_are_not_of_this_server_by_another_name(
        self, client: httpx.Client, house: Running
    ) -> None:
        for host in ("evil.example", f"evil.example:{house.port}", ""):
            assert told(client.get("/events", headers={"Host": host})) == (403, "foreign_host")
        for host in ("localhost", "203.0.113.5", "[2001:db8::1]:80"):
            assert client.get("/events", headers={"Host": host}).is_success

    def test_nothing_is_taken_for_what_it_is_not(self, client: httpx.Client) -> None:
        for path in (
            "/events",
            "/events/1",
            "/nothing",
            "/healthz",
            "/metrics",
            "/openapi.json",
            "/",
        ):
            answer = client.get(path, headers={"Accept": "text/html"})
            assert answer.headers["x-content-type-options"] == "nosniff", path

    def test_two_names_in_a_request_are_one_too_many(self, house: Running) -> None:
        for path in (b"/events", b"/healthz", b"/nothing"):
            with socket.create_connection(("127.0.0.1", house.port)) as line:
                line.sendall(
                    b"GET %b HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n" % path
                )
                answer = HTTPResponse(line)
                answer.begin()
                assert (answer.status, b'"invalid_request"' in answer.read()) == (400, True)


class TestWithoutTokens:
    @pytest.fixture
    def fresh(self, db: Database) -> Iterator[Running]:
        with running(db) as started:
            yield started

    @pytest.fixture(autouse=True)
    def closed(self) -> None:
        """These begin with an open one."""

    def test_this_machine_is_open_until_there_is_a_token(
        self, fresh: Running, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(guarding, "LAST", 0.1)
        queue = fresh.db.queue()
        with fresh.client() as client:
            assert client.post("/events", json={}).status_code == 201
            assert client.get("/events", headers=bearer("hr_unknown")).status_code == 401
            client.post("/queues/default/main/pause")
            assert queue.admin_log(limit=1)[0].actor == "127.0.0.1"
            queue.create_token("first", ["read"])
            fresh.db.wait_for(lambda: client.post("/events").status_code == 401)
            queue.revoke_token("first")  # which opens nothing
            assert client.get("/events").status_code == 401

    def test_to_another_name_it_does_not_answer(self, fresh: Running) -> None:
        with fresh.client() as client:
            for host in ("evil.example", f"evil.example:{fresh.port}", "localhost.evil.example"):
                assert told(client.get("/events", headers={"Host": host})) == (403, "foreign_host")
            for host in ("localhost", f"LOCALHOST:{fresh.port}", "[::1]:80", "127.0.0.2"):
                assert client.get("/events", headers={"Host": host}).is_success

    @pytest.fixture(params=["until a token", "open"])
    def without(self, db: Database, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
        """Of both kinds of servers that ask nobody for a token; one more name is allowed."""
        kind = {"open": True} if request.param == "open" else {"open_until_token": True}
        access = Access(hosts=("Queue.Example.com",), **kind)
        with running(db, access=access) as started, started.client() as client:
            yield client

    @pytest.mark.parametrize(
        "header",
        [
            *("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Anything"),
            *("Forwarded", "Via", "X-Real-IP"),
        ],
    )
    def test_through_a_proxy_nobody_comes_in(self, without: httpx.Client, header: str) -> None:
        for path in ("/events", "/events/subscribe?tags=*&worker_id=w:1"):
            assert told(without.get(path, headers={header: "1.2.3.4"})) == (403, "forwarded")
        allowed = {header: "1.2.3.4", "Host": "queue.example.com"}
        assert without.get("/events", headers=allowed).is_success
        assert without.get("/healthz", headers={header: "1.2.3.4"}).is_success

    def test_nor_through_one_that_speaks_http_1_0(self, without: httpx.Client) -> None:
        """Older nginx, as it comes: no header of its own, and as Host what it was told to connect to."""
        with socket.create_connection(("127.0.0.1", without.base_url.port or 0)) as line:
            line.sendall(b"GET /events HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            answer = HTTPResponse(line)
            answer.begin()
            assert (answer.status, b'"forwarded"' in answer.read()) == (403, True)

    def test_by_another_name_nobody_comes_in(self, without: httpx.Client) -> None:
        for host in (
            "evil.example",
            "203.0.113.5",
            "localhost.evil.example",
            "queue.example.com.x",
        ):
            assert told(without.get("/events", headers={"Host": host})) == (403, "foreign_host")
        for host in ("localhost:1", "127.0.0.1", "QUEUE.example.com:8443", "[::1]"):
            assert without.get("/events", headers={"Host": host}).is_success

    def test_any_name_can_be_allowed(self, db: Database) -> None:
        access = Access(open=True, hosts=("*",))
        with running(db, access=access) as started, started.client() as client:
            assert client.get("/events", headers={"Host": "anything"}).is_success

    def test_what_is_no_name_cannot(self, db: Database) -> None:
        for name in ("https://queue.example.com", "", "a b"):
            with pytest.raises(InvalidInput, match="not a valid host name"):
                asyncio.run(_gate(db, "127.0.0.1", Access(open=True, hosts=(name,))))

    def test_a_foreign_page_claims_nothing_and_the_request_as_documented_does(
        self, without: httpx.Client
    ) -> None:
        path = "/events/subscribe?tags=*&worker_id=w:1"
        id = without.post("/events", json={}).json()["id"]
        for headers in FOREIGN:
            assert told(without.get(path, headers=headers)) == (403, "cross_origin")
        assert without.get(path).json()["id"] == id

    def test_who_says_so_lets_everybody_in(self, db: Database) -> None:
        db.queue().create_token("some", ["read"])
        with running(db, access=Access(open=True)) as open, open.client() as client:
            assert client.post("/events", json={}).status_code == 201
            assert told(client.post("/events", headers={"Origin": "http://evil"})) == (
                403,
                "cross_origin",
            )

    def test_nobody_is_let_in_unless_somebody_says_so(self, db: Database) -> None:
        for host in ("0.0.0.0", "::", "192.0.2.1", "127.0.0.1"):
            with pytest.raises(InvalidInput, match=r"no token yet.*--open"):
                asyncio.run(_gate(db, host, Access()))
            asyncio.run(_gate(db, host, Access(open=True)))
        with pytest.raises(InvalidInput, match=r"no token yet.*--open"):
            asyncio.run(_gate(db, "0.0.0.0", Access(open_until_token=True)))
        db.queue().create_token("some", ["read"])
        asyncio.run(_gate(db, "0.0.0.0", Access()))

    def test_a_first_token_is_no_key_to_a_database_that_has_others(self, db: Database) -> None:
        queue = db.queue()
        reader = queue.create_token("reader", ["read"])
        queue.create_token("gone", ["admin"])
        for token in (reader, "0123456789abcdef0123"):
            asyncio.run(_gate(db, "127.0.0.1", Access(first_token=token)))
        assert [(one.name, one.scopes) for one in queue.tokens() if one.live] == [
            ("gone", ("admin",)),
            ("reader", ("read",)),
        ]

    @pytest.mark.parametrize(
        ("host", "local"),
        [
            *(("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True)),
            *(("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.com", False)),
            ("", False),
        ],
    )
    def test_what_this_machine_is(self, host: str, local: bool) -> None:
        assert is_loopback(host) is local

"""What clients see when the server, PostgreSQL or other clients misbehave."""

import asyncio
import itertools
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.embedded import EmbeddedPostgres, find_binaries
from headrace.server import clients
from headrace.server.http import connection
from headrace.server.http.gate import Access
from headrace.server.http.server import open_server
from tests.cli.test_commands import command, environment
from tests.database import Database, Server
from tests.faults.test_server_crash import Crashable
from tests.folders import short_folder
from tests.pooler import pgbouncer
from tests.requirements import requirement
from tests.server.running import Running, running

PATIENCE = 60.0
OPEN = Access(open=True)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has no patience, so that tests need none."""
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(connection, "BODY_SECONDS", 0.3)
    monkeypatch.setattr(connection, "LINGER_SECONDS", 0.3)
    monkeypatch.setattr(connection, "UNREAD_SECONDS", 0.3)
    monkeypatch.setattr(clients, "PATIENCE", 0.5)


def line(house: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", house.port), timeout=20)


def everything(connection: socket.socket) -> bytes:
    """What is sent until the other side closes."""
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    return received


SLOW = {
    "a connection without a request": (b"", b""),
    "half a head": (b"GET /events HTTP/1.1\r\nHost: lo", b"HTTP/1.1 408"),
    "half a body": (
        b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b'Content-Length: 100\r\n\r\n{"title":',
        b"HTTP/1.1 408",
    ),
    "half a chunk": (
        b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 408",
    ),
    "a body that nobody asked for": (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx",
        b"HTTP/1.1 200",
    ),
    "empty lines": (b"\r\n\r\n", b"HTTP/1.1 408"),
}


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("name", SLOW)
def test_who_dawdles_is_cut_off(db: Database, name: str) -> None:
    sent, answered = SLOW[name]
    with running(db) as house, line(house) as connection:
        connection.sendall(sent)
        received = everything(connection)
        assert received.startswith(answered), received
        assert received or not answered


@pytest.mark.usefixtures("hurried")
def test_a_byte_now_and_then_does_not_help(db: Database) -> None:
    with running(db) as house, line(house) as connection:
        began = time.monotonic()
        for byte in itertools.cycle(b"GET /events HTTP/1.1 "):
            try:
                connection.sendall(bytes([byte]))
            except OSError:
                break
            time.sleep(0.05)
        assert time.monotonic() - began < 60


@pytest.mark.usefixtures("hurried")
def test_who_does_not_read_is_cut_off(db: Database) -> None:
    """Many answers are asked for on one connection and none is read."""
    queue = db.queue()
    queue.publish_many(("large", {"a": "x" * 100_000}) for _ in range(50))
    with running(db) as house, line(house) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ask = b"GET /events?limit=50&payload=true HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall(ask * 3)
        db.wait_for(lambda: len(house.server.server_state.connections) == 0)


@requirement("G18")
def test_work_is_finished_when_all_other_connections_are_busy(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four connections: one is for publishes and claims, and somebody has it."""
    monkeypatch.setattr(clients, "LIMITS", ())
    with running(db, connections=4) as house, house.client() as client:
        id = client.post("/events", json={}).json()["id"]
        claimed = client.get("/events/subscribe", params={"tags": "*", "worker_id": "w:1"}).json()
        assert claimed["id"] == id
        house.wait_no_longer_than(0.5)
        with db.connect(autocommit=False) as blocking:
            blocking.execute("lock table headrace.events in share mode")
            answers: list[httpx.Response] = []
            publishing = threading.Thread(
                target=lambda: answers.append(client.post("/events", json={}))
            )
            publishing.start()
            waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            db.wait_for(lambda: db.sql(waits)[0][0] > 0)
            assert client.get("/events").status_code == 200
            refused = client.get("/events/subscribe", params={"tags": "*", "worker_id": "w:1"})
            assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
            assert int(refused.headers["retry-after"]) >= 1
            me = {"worker_id": "w:1"}
            assert client.post(f"/events/{id}/heartbeat", json=me).status_code == 200
            assert client.post(f"/events/{id}/complete", json=me).status_code == 200
            blocking.rollback()
        publishing.join(60)
        assert answers[0].status_code == 201
        assert client.get("/events").status_code == 200


@pytest.mark.usefixtures("hurried")
def test_lost_connections_are_told_of_and_then_it_goes_on(db: Database) -> None:
    with running(db) as house, house.client() as client:
        assert client.post("/events", json={}).status_code == 201
        db.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        seen: list[httpx.Response] = []

        def has_recovered() -> bool:
            seen.append(client.post("/events", json={}))
            return seen[-1].status_code == 201

        db.wait_for(has_recovered)
        assert {answer.status_code for answer in seen[:-1]} <= {503, 504}
        assert all(answer.json()["code"] for answer in seen[:-1])


def allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


@pytest.mark.long
@requirement("G18")
def test_a_thousand_idle_and_a_hundred_slow_clients_do_not_stop_an_honest_one(
    db: Database,
) -> None:
    allow_files(4000)
    with running(db) as house, house.client() as honest, ExitStack() as opened:
        began = time.monotonic()
        for _ in range(1000):
            opened.enter_context(line(house))
        slow = [opened.enter_context(line(house)) for _ in range(100)]
        request = b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        times = []
        for byte in request[:40]:
            for connection in slow:
                connection.sendall(bytes([byte]))
            asked = time.monotonic()
            assert honest.post("/events", json={}).status_code == 201
            times.append(time.monotonic() - asked)
        assert sorted(times)[len(times) // 2] < 1
        # A byte every ten seconds: gone within 15 s of the connection.
        slow[0].settimeout(40)
        assert everything(slow[0]).startswith(b"HTTP/1.1 408")
        db.wait_for(lambda: len(house.server.server_state.connections) <= 1)
        assert time.monotonic() - began < 40


class Publishers:
    """Clients that publish one event after the other, each under a key of its own, and do not give up."""

    def __init__(self, url: str, count: int) -> None:
        self.acknowledged: dict[str, set[int]] = {}
        self.statuses: list[int] = []
        self._url = url
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._publish, args=(number,)) for number in range(count)
        ]

    def __enter__(self) -> "Publishers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)

    def wait_for_more(self, count: int = 20) -> None:
        goal = len(self.acknowledged) + count
        deadline = time.monotonic() + PATIENCE
        while len(self.acknowledged) < goal:
            assert time.monotonic() < deadline, f"nothing is published: {self.statuses[-5:]}"
            time.sleep(0.01)

    def _publish(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=10) as client:
            for n in itertools.count():
                key = f"{number}/{n}"
                while not self._try(client, key):
                    time.sleep(0.05)
                if self._stop.is_set():
                    return

    def _try(self, client: httpx.Client, key: str) -> bool:
        try:
            answer = client.post("/events", json={"payload": key}, headers={"Idempotency-Key": key})
        except httpx.TransportError:
            return False
        self.statuses.append(answer.status_code)
        if answer.status_code != 201:
            assert answer.status_code in (503, 504), answer.text
            assert answer.status_code == 504 or answer.headers["retry-after"]
            return False
        self.acknowledged.setdefault(key, set()).add(answer.json()["id"])
        return True


def check(db: Database, publishers: Publishers) -> None:
    """All that was acknowledged is there, and under every key there is one event."""
    stored = dict(db.sql("select payload #>> '{}', id from headrace.events"))
    [(count,)] = db.sql("select count(*) from headrace.events")
    assert count == len(stored), "one event for a key"
    assert {key: {stored[key]} for key in publishers.acknowledged} == publishers.acknowledged
    assert set(db.placement()) == set(stored.values())


@contextmanager
def served(dsn: str, port: int, folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command("serve", "--open", "--dsn", dsn, "--port", str(port)),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        while "http://" not in process.stdout.readline():
            assert process.poll() is None, "it ended by itself"
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.long
@requirement("G1", "G2")
def test_a_server_that_is_killed_loses_and_doubles_nothing(db: Database, tmp_path: Path) -> None:
    port = free_port()
    with Publishers(f"http://127.0.0.1:{port}", 8) as publishers:
        for _ in range(4):
            with served(db.dsn, port, tmp_path) as process:
                publishers.wait_for_more()
                process.send_signal(signal.SIGKILL)
                process.wait(PATIENCE)
        with served(db.dsn, port, tmp_path):
            publishers.wait_for_more()
            publishers.__exit__()
    assert set(publishers.statuses) <= {201, 503}
    check(db, publishers)


@pytest.fixture
def crashable() -> Iterator[Crashable]:
    with short_folder() as folder, EmbeddedPostgres(folder / "data") as postgres:
        server = Server(postgres, find_binaries())
        server.prepare_template()
        server.close()
        crashable = Crashable(postgres)
        yield crashable
        crashable.close()


@pytest.mark.long
@requirement("G1", "G2", "G18")
def test_postgresql_restarts_under_load_and_the_server_goes_on(crashable: Crashable) -> None:
    with running(crashable.db) as house, Publishers(house.url, 8) as publishers:
        for _ in range(2):
            publishers.wait_for_more()
            crashable.crash()
            wait_until(lambda: publishers.statuses[-1:] == [503])
            with house.client() as client:
                answer = client.get("/events")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            crashable.revive()
            publishers.wait_for_more()
        publishers.__exit__()
        house.db = crashable.db
    assert {201, 503} <= set(publishers.statuses) <= {201, 503, 504}
    check(crashable.db, publishers)


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@pytest.mark.anyio
async def test_a_server_notices_a_transaction_pooler(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with pgbouncer(db) as dsn:
        async with open_server(dsn, access=OPEN) as server, open_server(dsn, access=OPEN) as second:
            for one in (server, second):
                client = one.directory.of("default", "main")
                ids = await asyncio.gather(*(client.publish("a") for _ in range(20)))
                assert len({event.id for event in ids}) == 20
                assert not one.directory._prepare
    assert "behind a transaction pooler" in caplog.text

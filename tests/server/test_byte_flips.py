"""Requests that are right but for one byte, which is changed, lost, new, or the last: each is answered by HTTP and below 500 or
not at all, nothing is half stored, and the server goes on."""

import json
import logging
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from random import Random

import pytest

from headrace.server.http.gate import Access
from tests.database import Database, Server
from tests.engine.every_function import Life, live
from tests.places import check_places
from tests.requirements import requirement
from tests.server.every_operation import BY_NAME, prepared
from tests.server.running import Running, running

SEED = 19
WAYS = ("a bit", "a byte", "lost", "new", "twice", "swapped", "the last")
PATIENCE = 60.0  # seconds for an answer
HESITATION = 0.1  # seconds after which who gets no answer sends no more; either is fine
DELETION = "DELETE /namespaces/{namespace}"


@pytest.fixture(scope="module")
def house(server: Server) -> Iterator[Running]:
    """Open to everybody, so that no byte is lost on a token."""
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    with running(database, access=Access(open=True, hosts=("*",))) as started:
        yield started
    database.close()
    server.drop_database(database.name)


def spoiled(raw: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(raw))
    before, byte, after = raw[:place], raw[place : place + 1], raw[place + 1 :]
    match chance.choice(WAYS):
        case "a bit":
            return before + bytes([byte[0] ^ 1 << chance.randrange(8)]) + after
        case "a byte":
            return before + chance.randbytes(1) + after
        case "lost":
            return before + after
        case "new":
            return before + chance.randbytes(1) + byte + after
        case "twice":
            return before + byte + byte + after
        case "swapped":
            return before + after[:1] + byte + after[1:]
        case _:
            return before + byte


def answered(port: int, raw: bytes, hesitation: float = HESITATION) -> int | None:
    """The status of what is answered, which is read as strictly as clients do; None: the connection was closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as line:
        line.sendall(raw)
        if not select.select([line], [], [], hesitation)[0]:
            line.shutdown(socket.SHUT_WR)
        answer = HTTPResponse(line)
        try:
            answer.begin()
        except ConnectionError:
            return None
        kind = answer.headers.get("Content-Type", "")
        if not kind.startswith("text/event-stream"):  # which has no end
            body = answer.read()
            if kind == "application/json":
                json.loads(body)
        return answer.status


@requirement("G18")
@pytest.mark.parametrize("times", [4, pytest.param(100, marks=pytest.mark.rest)])
def test_one_wrong_byte_in_a_request_breaks_nothing(
    house: Running, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    life, doomed = live(house.db, f"flips{times}"), live(house.db, f"doomed{times}")
    caplog.set_level(logging.ERROR)
    statuses = []
    with ThreadPoolExecutor(8) as clients:
        for name in BY_NAME:
            requests = flips(name, doomed if name == DELETION else life, times)
            answers = clients.map(lambda raw: answered(house.port, raw), requests)
            for raw, status in zip(requests, answers, strict=True):
                assert status is None or status < 500, f"{status} for {raw!r}"
                statuses.append(status)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert {200, 400, 404} <= set(statuses), "it was too hard or too easy"
    check_places(house.db.sql)
    goes_on(house)


def flips(name: str, life: Life, times: int) -> list[bytes]:
    chance = Random(f"{SEED} {name}")
    request = prepared(name, life)
    return [spoiled(request.raw(chunked=n % 4 == 3), chance) for n in range(times)]


def goes_on(house: Running) -> None:
    """Somebody else is served as if nothing had been."""
    with house.client(house.new_namespace()) as client:
        published = client.post("/events", json={"payload": {"after": "all"}}).json()
        worker = {"tags": "*", "worker_id": "w:1"}
        claimed = client.get("/events/subscribe", params=worker).json()
        assert claimed["id"] == published["id"]
        assert claimed["payload"] == {"after": "all"}
        ended = client.post(f"/events/{claimed['id']}/complete", json={"worker_id": "w:1"})
        assert ended.is_success


def test_the_bytes_that_are_spoiled_are_those_of_good_requests(house: Running) -> None:
    life = live(house.db, "good")
    for name in ("GET /events", "POST /events", "POST /events/batch", "POST /events/claim"):
        for chunked in (False, True):
            raw = prepared(name, life).raw(chunked=chunked)
            assert answered(house.port, raw, PATIENCE) in (200, 201), raw

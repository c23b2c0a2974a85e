import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from headrace.server import long_poll
from tests.server.running import Running

SUBSCRIBE = "/events/subscribe"


def waiting(house: Running, namespace: str, **params: Any) -> tuple[threading.Thread, list[Any]]:
    """A worker that waits for an event, in a thread, and what it was answered."""
    answers: list[Any] = []
    asked = {"tags": "*", "worker_id": "w:1", "wait": 20, **params}

    def wait() -> None:
        with house.client(namespace) as client:
            answers.append(client.get(SUBSCRIBE, params=asked))

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, answers


def is_slept_on(house: Running, namespace: str) -> Callable[[], bool]:
    """Whether publishers would notify somebody: then somebody waits."""
    [(queue,)] = house.db.sql("select id from headrace.queues where space = %s", [namespace])
    held = (
        "select exists (select from pg_locks where locktype = 'advisory' and objid = %s"
        " and mode = 'ShareLock')"
    )
    return lambda: house.db.sql(held, [queue]) == [(True,)]


def test_who_waits_gets_an_event_as_soon_as_it_is_there(house: Running, api: httpx.Client) -> None:
    namespace = api.params["namespace"]
    thread, answers = waiting(house, namespace)
    house.db.wait_for(is_slept_on(house, namespace))
    published = time.monotonic()
    id = api.post("/events", json={}).json()["id"]
    thread.join(60)
    assert answers[0].json()["id"] == id
    assert time.monotonic() - published < 15


def test_who_waits_in_vain_is_told_so_in_time(api: httpx.Client) -> None:
    began = time.monotonic()
    answer = api.get(SUBSCRIBE, params={"tags": "*", "worker_id": "w:1", "wait": 0.2})
    assert answer.status_code == 204
    assert 0.2 <= time.monotonic() - began < 15


def test_nobody_waits_for_longer_than_twenty_seconds(api: httpx.Client) -> None:
    for wait in ("20.1", "-1", "nan", "inf", "soon"):
        answer = api.get(SUBSCRIBE, params={"tags": "*", "worker_id": "w:1", "wait": wait})
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query")


def test_many_who_wait_each_get_one(house: Running, api: httpx.Client) -> None:
    namespace = api.params["namespace"]
    workers = [waiting(house, namespace, worker_id=f"w:{n}") for n in range(12)]
    house.db.wait_for(is_slept_on(house, namespace))
    batch = api.post("/events/batch", json={"events": [{}] * 12}).json()["ids"]
    for thread, _ in workers:
        thread.join(60)
    assert sorted(answers[0].json()["id"] for _, answers in workers) == batch


def test_who_waits_for_a_rate_gets_an_event_when_it_may_start(
    house: Running, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "LONGEST_PAUSE", 600.0)
    limits = [{"scope": "queue", "rate": 2, "per": 1}]
    with house.client() as admin:
        path = f"/queues/{api.params['namespace']}/main"
        assert admin.patch(path, json={"limits": limits}).status_code == 200
    batch = api.post("/events/batch", json={"events": [{}] * 4}).json()["ids"]
    asked = {"tags": "*", "worker_id": "w:1", "wait": 20}
    assert [api.get(SUBSCRIBE, params=asked).json()["id"] for _ in batch] == batch


def test_who_is_gone_gets_nothing(house: Running, api: httpx.Client) -> None:
    namespace = api.params["namespace"]
    with socket.create_connection(("127.0.0.1", house.port)) as line:
        path = f"{SUBSCRIBE}?tags=*&worker_id=gone:1&wait=20&namespace={namespace}"
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        house.db.wait_for(is_slept_on(house, namespace))
    free = is_slept_on(house, namespace)
    house.db.wait_for(lambda: not free())
    id = api.post("/events", json={}).json()["id"]
    assert api.get(f"/events/{id}").json()["status"] == "PENDING"


def test_who_does_not_wait_and_is_gone_keeps_nothing(house: Running, api: httpx.Client) -> None:
    """He leaves while the claim is on its way: it is held up for so long."""
    namespace = api.params["namespace"]
    id = api.post("/events", json={}).json()["id"]
    with house.db.connect() as other, other.transaction():
        other.execute("lock table headrace.leases")
        with socket.create_connection(("127.0.0.1", house.port)) as line:
            path = f"{SUBSCRIBE}?tags=*&worker_id=gone:1&namespace={namespace}"
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            house.db.wait_for(
                lambda: house.db.sql(
                    "select from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'poll'"
                )
            )
    logs = {"include_logs": True}
    house.db.wait_for(lambda: len(api.get(f"/events/{id}", params=logs).json()["logs"]) == 2)
    shown = api.get(f"/events/{id}", params=logs).json()
    assert [entry["action"] for entry in shown["logs"]] == ["PICKED", "RELEASED"]
    assert (shown["status"], shown["retry_count"]) == ("PENDING", 0)


CLAIM = b'{"worker_id": "gone:1"}'
CLAIM_AND_WAIT = b'{"worker_id": "gone:1", "wait": 20}'
RESET = struct.pack("ii", 1, 0)


@pytest.mark.parametrize("close", ["", "Connection: close\r\n"], ids=["kept", "closed"])
@pytest.mark.parametrize("body", [None, CLAIM, CLAIM_AND_WAIT], ids=["get", "post", "wait"])
def test_an_answer_that_its_client_did_not_read_costs_the_event_nothing(
    house: Running, api: httpx.Client, body: bytes | None, close: str
) -> None:
    """The client leaves at every moment: before the claim, during it, when it is answered; and says goodbye or not."""
    namespace = api.params["namespace"]
    # One for each claim: an event that was just released may have to wait.
    events = [{"max_retries": 1}] * 40
    ids = api.post("/events/batch", json={"events": events}).json()["ids"]
    path = f"{SUBSCRIBE}?tags=*&worker_id=gone:1&namespace={namespace}"
    if body is not None:
        path = f"/events/claim?namespace={namespace}"
    head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\n{close}"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    asking = head.encode() + b"\r\n" + (body or b"")

    def leave(line: socket.socket, number: int) -> None:
        if number % 2:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        line.close()

    for number in range(30):
        line = socket.create_connection(("127.0.0.1", house.port))
        line.sendall(asking)
        select.select([line], [], [], number / 4000)  # at most 7 ms: it is answered, or not yet
        leave(line, number)
    for number in range(4):  # it is answered, and that is not read
        line = socket.create_connection(("127.0.0.1", house.port), timeout=60)
        line.sendall(asking)
        house.db.wait_for(lambda line=line: b'"attempt":' in line.recv(10_000, socket.MSG_PEEK))
        leave(line, number)

    def actions() -> Counter[str]:
        logs = {"include_logs": True}
        shown = [api.get(f"/events/{id}", params=logs).json() for id in ids]
        assert {one["retry_count"] for one in shown} == {0}
        return Counter(entry["action"] for one in shown for entry in one["logs"])

    state, services = house.server.server_state, house.server.services
    house.db.wait_for(lambda: not any(c.failing for c in state.connections))  # type: ignore[union-attr]
    house.db.wait_for(lambda: not services.tasks)
    house.db.wait_for(lambda: (found := actions())["PICKED"] == found["RELEASED"], 30)
    assert actions().keys() == {"PICKED", "RELEASED"}


def test_an_answer_that_was_read_is_its_clients_though_it_leaves(
    house: Running, api: httpx.Client
) -> None:
    namespace = api.params["namespace"]
    path = f"{SUBSCRIBE}?tags=*&worker_id=w:1&namespace={namespace}"
    for close in ("", "Connection: close\r\n"):
        id = api.post("/events", json={}).json()["id"]
        with socket.create_connection(("127.0.0.1", house.port)) as line:
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{close}\r\n".encode())
            read = b""
            while f'"id":{id}'.encode() not in read or not read.endswith(b"}"):
                read += line.recv(10_000)
        house.db.wait_for(lambda: len(house.server.server_state.connections) <= 1)  # but for `api`
        assert not house.server.services.tasks
        done = api.post(f"/events/{id}/complete", json={"worker_id": "w:1"})
        assert done.status_code == 200, done.text


def test_waiting_holds_no_connection(house: Running, api: httpx.Client) -> None:
    """There are ten connections; fifteen who wait leave them to others."""
    namespace = api.params["namespace"]
    workers = [waiting(house, namespace, tags=f"t{n}", worker_id=f"w:{n}") for n in range(15)]
    house.db.wait_for(is_slept_on(house, namespace))
    began = time.monotonic()
    for n in range(15):
        api.post("/events", json={"tags": f"t{n}"})
    for thread, answers in workers:
        thread.join(60)
        assert answers[0].status_code == 200
    assert time.monotonic() - began < 18


@pytest.mark.parametrize("wait", [0, 20])
def test_a_claim_of_many_gives_what_there_is(api: httpx.Client, wait: float) -> None:
    ids = api.post("/events/batch", json={"events": [{"type": "a"}] * 3}).json()["ids"]
    asked = {"worker_id": "w:1", "types": ["a", "b.*"], "limit": 10, "lease": 30, "wait": wait}
    claimed = api.post("/events/claim", json=asked).json()["events"]
    assert [event["id"] for event in claimed] == ids
    assert set(claimed[0]) == {
        *("id", "title", "tags", "status", "payload", "retry_count", "max_retries"),
        *("created_at", "attempt", "lease_expires_at", "lease_token", "type"),
    }
    assert api.post("/events/claim", json={**asked, "wait": 0}).json() == {"events": []}

"""An answer that goes straight to its connection is the one that ASGI would have brought."""

import re
import socket

import pytest

from headrace.server.http import connection
from tests.server.running import Running

CHANGES = re.compile(
    rb'date: [^\r]*|content-length: \d+|"id":\d+|/events/\d{1,11}\b|'
    rb'"(created_at|updated_at|processing_started_at|lease_expires_at|lease_token)":"[^"]*"'
)


def post(path: str, body: bytes, *headers: str, version: str = "1.1") -> bytes:
    lines = [
        f"POST {path} HTTP/{version}",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def asked(house: Running, request: bytes, *pieces: bytes) -> bytes:
    """All that comes back until the server closes the connection, or has answered."""
    with socket.create_connection(("127.0.0.1", house.port)) as to:
        to.settimeout(30)
        to.sendall(request)
        for piece in pieces:
            to.sendall(piece)
        received = b""
        while part := to.recv(65536):
            received += part
        return received


REQUESTS = {
    "publish": lambda space: [
        post(f"/events?namespace={space}", b'{"payload":{"n":1}}', "Connection: close")
    ],
    "HTTP/1.0": lambda space: [post(f"/events?namespace={space}", b'{"payload":1}', version="1.0")],
    "a body in pieces": lambda space: [
        post(f"/events?namespace={space}", b'{"payload":1}', "Connection: close")[:-5],
        b'ad":1}'[-5:],
    ],
    "one after the other": lambda space: [
        post(f"/events?namespace={space}", b'{"payload":1}')
        + post(f"/events/claim?namespace={space}", b'{"worker_id":"w:1"}')
        + post(f"/events/claim?namespace={space}", b'{"worker_id":"w:1"}', "Connection: close")
    ],
    "chunked": lambda space: [
        f"POST /events?namespace={space} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        'd\r\n{"payload":1}\r\n0\r\n\r\n'.encode()
    ],
    "expecting to go on": lambda space: [
        post(
            f"/events?namespace={space}",
            b'{"payload":1}',
            "Expect: 100-continue",
            "Connection: close",
        )
    ],
    "too large": lambda space: [
        post(f"/events/claim?namespace={space}", b" " * 70_000, "Connection: close")
    ],
    "no body": lambda space: [post(f"/events?namespace={space}", b"", "Connection: close")],
    "no JSON": lambda space: [post(f"/events?namespace={space}", b"{", "Connection: close")],
    "no such event": lambda space: [
        post(
            f"/events/999999999999/complete?namespace={space}",
            b'{"worker_id":"w:1"}',
            "Connection: close",
        )
    ],
    "HEAD": lambda space: [
        f"HEAD /queues?namespace={space} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    ],
}


@pytest.mark.parametrize("what", REQUESTS)
def test_both_ways_answer_the_same(
    house: Running, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    answers = []
    for is_direct in (True, False):
        monkeypatch.setattr(connection, "DIRECT", is_direct)
        space = house.new_namespace()
        answer = CHANGES.sub(b"", asked(house, *REQUESTS[what](space)))
        answers.append(answer.replace(space.encode(), b"SPACE"))
    assert answers[0].startswith(b"HTTP/1.1 ")
    assert answers[0] == answers[1]


def test_an_answer_with_an_invalid_header_is_refused_on_both_ways(house: Running) -> None:
    """A line end in a header would begin another one."""
    sent: list[bytes] = []

    class Cycle:
        more_body = disconnected = response_started = False
        scope = {"method": "POST"}  # noqa: RUF012
        default_headers: list[tuple[bytes, bytes]] = []  # noqa: RUF012

    class Line:
        class flow:
            write_paused = False

        class transport:
            is_closing = staticmethod(lambda: False)
            write = staticmethod(sent.append)

    delivery = connection.Transport(Line, Cycle)  # type: ignore[arg-type]
    assert not delivery.answer(201, [(b"location", b"/a\r\nset-cookie: b")], b"{}")
    assert sent == []

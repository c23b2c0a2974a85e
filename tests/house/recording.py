"""Records every statement that reaches PostgreSQL, as it is on the wire, and compares what was recorded with a golden file.

A proxy stands between the code and the server and reads the frontend's messages. It knows nothing of the modules that send them,
so that it records the same before and after they are moved, and it sees round trips, which PostgreSQL's log does not.
"""

import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format

from tests.database import Database
from tests.folders import short_folder

PORT = "5432"
LONGEST = 3000  # characters that are shown of a statement or parameter
PROTOCOL = 196608  # 3.0, which a session begins with; anything else is no session
NEGOTIATING = {80877103, 80877104}  # asks for TLS or GSSAPI: the startup message follows

# What is different every time, in texts. The first two are of PostgreSQL, ISO 8601 or JSON.
VARYING = [
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?"), "<time>"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\bhr_[\w-]{20,}"), "<token>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<digest>"),
    (re.compile(r"\b[0-9a-f]{8}-(?=\d+ )"), "<era>-"),  # in cursors and marks
    (re.compile(r"\b\d{16}\b"), "<microseconds>"),
    (re.compile(r"\b1\d{9}\.\d+\b"), "<seconds>"),  # in hints
    (re.compile(r'File (\\*)"[^"]*", line \d+'), "File <file>"),  # in tracebacks
    (re.compile(re.escape(socket.gethostname())), "<host>"),
    (re.compile(rf"\b{os.getpid()}\b"), "<pid>"),
]

Called = tuple[str, list[list[str]]]
"""What was called, and its round trips."""


class Recorder:
    """What was sent, by round trip; each is a list of statements."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trips: list[list[str]] = []

    def note(self, trip: list[str]) -> None:
        with self._lock:
            self._trips.append(trip)

    def take(self) -> list[list[str]]:
        """What was recorded since the last time."""
        with self._lock:
            trips, self._trips = self._trips, []
        return trips


class Session:
    """What one connection's client sends, message by message."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._prepared: dict[bytes, tuple[str, tuple[int, ...]]] = {}
        self._adapter = Transformer()
        self._trip: list[str] = []
        self._rest = b""
        self._began = False

    def feed(self, data: bytes) -> None:
        self._rest += data
        while not self._began and len(self._rest) >= 8:
            size, code = struct.unpack("!iI", self._rest[:8])
            if len(self._rest) < size:
                return
            self._rest = self._rest[size:]
            self._began = code not in NEGOTIATING
        while self._began and len(self._rest) >= 5:
            (size,) = struct.unpack("!i", self._rest[1:5])
            if len(self._rest) < size + 1:
                return
            kind, body = self._rest[:1], self._rest[5 : size + 1]
            self._rest = self._rest[size + 1 :]
            self._message(kind, body)

    def _message(self, kind: bytes, body: bytes) -> None:
        if kind == b"P":
            self._parse(body)
        elif kind == b"B":
            self._bind(body)
        elif kind == b"C":
            self._trip.append(f"close {body[:1].decode()}")
        elif kind == b"Q":
            self._trip.append(plain(body[:-1].decode()))
        if kind in (b"Q", b"S"):
            self._recorder.note(self._trip)
            self._trip = []

    def _parse(self, body: bytes) -> None:
        name, sql, types = body.split(b"\0", 2)
        count = struct.unpack("!h", types[:2])[0]
        self._prepared[name] = sql.decode(), struct.unpack(f"!{count}I", types[2:])
        if name:  # else it is executed at once
            self._trip.append(f"prepare {plain(sql.decode())}")

    def _bind(self, body: bytes) -> None:
        _, name, rest = body.split(b"\0", 2)
        sql, types = self._prepared[name]
        count = struct.unpack("!h", rest[:2])[0]
        formats, at = struct.unpack(f"!{count}h", rest[2 : 2 + 2 * count]), 4 + 2 * count
        values = []
        for n in range(struct.unpack("!h", rest[at - 2 : at])[0]):
            (size,) = struct.unpack("!i", rest[at : at + 4])
            value = None if size < 0 else rest[at + 4 : at + 4 + size]
            is_binary = bool(formats[n] if len(formats) > 1 else sum(formats))
            values.append(self._shown(value, types[n] if n < len(types) else 0, is_binary))
            at += 4 + max(size, 0)
        shown = f"\n      {', '.join(values)}" if values else ""
        self._trip.append(plain(sql) + shown)

    def _shown(self, value: bytes | None, type: int, is_binary: bool) -> str:
        if value is None:
            return "null"
        if not is_binary:
            return plain(repr(value.decode()))
        return shown(self._adapter.get_loader(type, Format.BINARY).load(value))


def shown(value: Any) -> str:
    """A parameter, without what is different every time."""
    if isinstance(value, datetime):
        return "<time>"
    if isinstance(value, UUID):
        return "<uuid>"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return plain(repr(value))


def plain(text: str) -> str:
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    text = " ".join(text.split())
    if len(text) <= LONGEST:
        return text
    digest = blake2b(text.encode(), digest_size=4).hexdigest()
    return f"{text[:LONGEST]}… ({len(text)} characters, {digest})"


def written(called: list[Called]) -> str:
    """As it stands in a golden file: a dash is a round trip."""
    lines = []
    for name, trips in called:
        lines.append(f"## {name}")
        lines += ("- " + "\n  ".join(map(_short, trip)) for trip in trips)
    return "\n".join([*lines, ""])


def _short(statement: str) -> str:
    """To be executed, it follows in full."""
    return f"{statement[:70]}…" if statement.startswith("prepare ") else statement


@contextmanager
def recorded(db: Database) -> Iterator[tuple[Database, Recorder]]:
    """The same database through a proxy, and what the proxy records."""
    known = conninfo_to_dict(db.dsn)
    target = str(Path(str(known["host"])) / f".s.PGSQL.{known.get('port') or PORT}")
    recorder = Recorder()
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / f".s.PGSQL.{PORT}"))
        listening.listen(64)
        accepting = _thread(_accept, listening, target, recorder)
        through = Database(db.server, db.name)
        through.dsn = make_conninfo(db.dsn, host=str(folder), port=PORT)
        try:
            yield through, recorder
        finally:
            through.close()
            listening.shutdown(socket.SHUT_RDWR)  # ends accept
            accepting.join()


def _accept(listening: socket.socket, target: str, recorder: Recorder) -> None:
    with suppress(OSError):
        while True:
            client, _ = listening.accept()
            _thread(_serve, client, target, recorder)


def _serve(client: socket.socket, target: str, recorder: Recorder) -> None:
    with client, socket.socket(socket.AF_UNIX) as server:
        server.connect(target)
        answering = _thread(_copy, server, client, None)
        _copy(client, server, Session(recorder).feed)
        answering.join()


def _copy(source: socket.socket, sink: socket.socket, look: Callable[[bytes], None] | None) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            if look is not None:
                look(data)  # first: what is answered has been recorded
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _thread(run: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=run, args=arguments, daemon=True)
    thread.start()
    return thread

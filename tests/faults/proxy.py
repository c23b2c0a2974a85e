"""A proxy between a client and PostgreSQL that understands the messages, and makes one of them go wrong."""

import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

PORT = 5432
PARSE, EXECUTE, QUERY, SYNC = b"P", b"E", b"Q", b"S"
READY, KEY = b"Z", b"K"


class Fault(NamedTuple):
    """What is to happen to the n-th message of its kind, counted from 1, that a client sends."""

    kind: str
    """cut: the connection is lost before this message. unanswered: it is lost after the server has done all it
    was asked to and before it says so. vanished: so are all others then, and there are no new ones until the proxy
    is told to reappear. Or an SQLSTATE: the server raises it instead of this statement."""
    n: int
    saying: bytes = b""
    """Only messages that hold this are counted."""

    @property
    def loses_connection(self) -> bool:
        return self.kind in ("cut", "unanswered", "vanished")

    def concerns(self, kind: bytes, message: bytes) -> bool:
        if self.saying not in message:
            return False
        match self.kind:
            case "cut":
                return True
            case "unanswered" | "vanished":
                # In a pipeline the words are in one message and what makes the server answer in another.
                return kind == QUERY or kind == (PARSE if self.saying else SYNC)
            case _:
                return kind in (EXECUTE, QUERY)


class Proxy:
    """Listens on a socket of its own; `armed` lets one fault happen, and knows whether it has."""

    def __init__(self, dsn: str) -> None:
        server = conninfo_to_dict(dsn)
        self._server = f"{server['host']}/.s.PGSQL.{server['port']}"
        self._folder = tempfile.TemporaryDirectory(prefix="hr-")
        plain = {"sslmode": "disable", "gssencmode": "disable"}
        self.dsn = make_conninfo(dsn, host=self._folder.name, port=PORT, **plain)
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._seen = 0
        self.struck: int | None = None  # the backend that the fault has met
        self._vanished = False
        self.swallows = False  # all that is sent, and connections are taken all the same
        self._links: list[Link] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(self._folder.name) / f".s.PGSQL.{PORT}"))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, fault: Fault) -> None:
        with self._lock:
            self._fault, self._seen, self.struck = fault, 0, None

    def disarm(self) -> int | None:
        """The backend that was met by the fault, if there were so many messages."""
        with self._lock:
            self._fault = None
            return self.struck

    def strikes(self, kind: bytes, message: bytes, backend: int) -> Fault | None:
        """The fault, if it is this message's."""
        with self._lock:
            fault = self._fault
            if fault is None or not fault.concerns(kind, message):
                return None
            self._seen += 1
            if self._seen < fault.n:
                return None
            self._fault, self.struck = None, backend
            return fault

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._vanished:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._links.append(Link(self, client, server))

    def vanish(self, but: "Link") -> None:
        """Lose all connections, but for one that will lose itself, and let nobody connect."""
        self._vanished = True
        for link in self._links:
            if link is not but:
                link.cut()

    def reappear(self) -> None:
        self._vanished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for link in self._links:
            link.cut()
        self._folder.cleanup()


class Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.backend = 0
        self.silent = False  # the client hears nothing more
        for pump in (self._from_client, self._from_server):
            threading.Thread(target=self._run, args=[pump], daemon=True).start()

    def _run(self, pump: Callable[[], None]) -> None:
        with suppress(OSError):
            pump()
        self.cut()

    def _from_client(self) -> None:
        for kind, message in messages(self.client, startup=True):
            fault = self.proxy.strikes(kind, message, self.backend) if kind else None
            match fault:
                case None:
                    if not self.proxy.swallows:
                        self.server.sendall(message)
                case Fault("cut"):
                    return
                case Fault("unanswered" | "vanished"):
                    self.silent = True
                    if fault.kind == "vanished":
                        self.proxy.vanish(but=self)
                    self.server.sendall(message)
                case Fault(sqlstate):
                    self.server.sendall(raising(sqlstate, plainly=kind == QUERY))

    def _from_server(self) -> None:
        for kind, message in messages(self.server):
            if kind == KEY:
                self.backend = struct.unpack_from("!i", message, 5)[0]
            if self.proxy.swallows:
                continue
            if not self.silent:
                self.client.sendall(message)
            elif kind == READY:
                return

    def cut(self) -> None:
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def messages(source: socket.socket, *, startup: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """The messages as they come, each with its kind; the first of a client has none."""
    stream = source.makefile("rb")
    if startup:
        (length,) = struct.unpack("!i", head := stream.read(4))
        yield b"", head + stream.read(length - 4)
    while len(head := stream.read(5)) == 5:
        kind, length = struct.unpack("!ci", head)
        yield kind, head + stream.read(length - 4)


def raising(sqlstate: str, *, plainly: bool) -> bytes:
    """Messages that make the server raise this, where a statement was to be executed."""
    sql = f"do $$ begin raise exception using errcode = '{sqlstate}', message = 'so be it'; end $$"
    if plainly:
        return message(QUERY, sql.encode() + b"\0")
    return (
        message(b"P", b"\0" + sql.encode() + b"\0\0\0")
        + message(b"B", b"\0\0" + b"\0\0" * 3)
        + message(EXECUTE, b"\0" + b"\0" * 4)
    )


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body

"""What lies between our processes and PostgreSQL, and can go wrong: a network that cuts, resets, delays, throttles and
swallows; a proxy that loses the answer to a commit; a pooler."""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.faults.proxy import Fault as Loss
from tests.faults.proxy import Proxy
from tests.laboratory.house import ACTOR, House, eventually
from tests.laboratory.laboratory import Fault, Laboratory
from tests.pooler import pgbouncer

PIECE = 16 * 1024
RESET = struct.pack("ii", 1, 0)  # to linger for no time is to reset


class Network:
    """TCP on the loopback, to the socket of a PostgreSQL. `delay` and `rate` (bytes a second) hold for every piece,
    `silent` swallows all of them."""

    def __init__(self, dsn: str) -> None:
        known = conninfo_to_dict(dsn)
        self._path = f"{known['host']}/.s.PGSQL.{known['port']}"
        self.delay = 0.0
        self.rate: float | None = None
        self.silent = False
        self._links: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._wait(asyncio.start_server(self._accept, "127.0.0.1", 0))
        port = str(self._server.sockets[0].getsockname()[1])
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="disable")

    def _wait(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_read, to_write = await asyncio.open_unix_connection(self._path)
        except OSError:
            writer.close()
            return
        self._links.append((writer, to_write))
        await asyncio.gather(self._pump(reader, to_write), self._pump(to_read, writer))
        with suppress(ValueError):
            self._links.remove((writer, to_write))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ConnectionError):
            while piece := await reader.read(PIECE):
                await asyncio.sleep(self.delay + (len(piece) / self.rate if self.rate else 0))
                if not self.silent:
                    writer.write(piece)
                    await writer.drain()
        with suppress(OSError, RuntimeError):
            writer.close()

    def cut(self, chance: random.Random, share: float = 0.5, *, reset: bool = False) -> None:
        """Some of the connections end; reset: without a goodbye."""

        def end() -> None:
            for link in [link for link in self._links if chance.random() < share]:
                for writer in link:
                    if reset and (its := writer.get_extra_info("socket")).family == socket.AF_INET:
                        with suppress(OSError):  # it was closed by the other end meanwhile
                            its.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    writer.transport.abort()

        self._loop.call_soon_threadsafe(end)

    def calm(self) -> None:
        self.delay, self.rate = 0.0, None

    def swallow(self, seconds: float) -> None:
        """Nothing comes through for a while, and what was on its way is lost: so are the connections, some day."""
        self.silent = True
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._speak)

    def _speak(self) -> None:
        self.silent = False
        for link in self._links:  # whose streams have holes by now
            for writer in link:
                writer.transport.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


def cutting(network: Network) -> list[Fault]:
    return [
        Fault("cuts of connections", 2.0, lambda lab: network.cut(lab.random)),
        Fault("resets of connections", 2.0, lambda lab: network.cut(lab.random, reset=True)),
    ]


def slowing(network: Network) -> list[Fault]:
    def change(lab: Laboratory) -> None:
        network.delay = lab.random.choice([0, 0.01, 0.05, 0.2])
        network.rate = lab.random.choice([None, 20_000, 100_000])

    return [Fault("changes of the network's pace", 2.0, change)]


def swallowing(network: Network) -> list[Fault]:
    def swallow(lab: Laboratory) -> None:
        network.swallow(lab.random.uniform(0.5, 2) * lab.lease)

    return [Fault("black holes", 8.0, swallow)]


@contextmanager
def losing_answers(house: House) -> Iterator[tuple[str, list[Fault]]]:
    """A proxy that loses the answer to a COMMIT, or to a statement that is a transaction of its own."""
    with Proxy(house.way_in) as proxy:

        def lose(lab: Laboratory) -> None:
            if proxy.disarm() is not None:
                lab.did("answers to commits lost")
            word = lab.random.choice([b"commit", b"COMMIT", b""])
            proxy.arm(Loss("unanswered", lab.random.randint(1, 5), saying=word))

        yield proxy.dsn, [Fault("losses of an answer prepared", 0.4, lose)]


@contextmanager
def pooler(house: House) -> Iterator[str]:
    """PgBouncer, by transactions, with two connections to PostgreSQL."""
    server = SimpleNamespace(data=house.postgres.data)
    with pgbouncer(SimpleNamespace(dsn=house.dsn, server=server, wait_for=eventually)) as dsn:  # type: ignore[arg-type]
        yield make_conninfo(dsn, user=ACTOR, password=house.password)

"""An installation of several shards, what can happen to it, and whether keys keep their order meanwhile."""

import secrets
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

import headrace
from headrace.embedded import EmbeddedPostgres
from headrace.engine.shards import SLOTS
from headrace.errors import HeadraceError
from headrace.install.migrate import migrate
from tests.client.shards import rename
from tests.laboratory.accounting import Accounts
from tests.laboratory.house import ACTOR, PATIENCE, PLACES, House, eventually
from tests.laboratory.laboratory import NOBODY, Laboratory
from tests.laboratory.watching import Bystander

STRIDE = 64
KEYS = 24
ORDERED = "ordered"
AWAY = 3.0  # seconds for which a shard, or its place, is another's
MOVES, MOVING = 64, 30.0  # slots that move at once, and seconds that they may take


class Part(House):
    """One shard."""

    def __init__(self, folder: Path, number: int, password: str) -> None:
        self.number, self.password = number, password
        self.postgres = EmbeddedPostgres(folder)

    def begin(self) -> None:
        self.postgres.start()
        with self.connect() as connection:
            migrate(connection, stride=STRIDE, shard=self.number)
            self._let_in(connection)
            connection.execute(PLACES)


class ShardedHouse(House):
    """Some shards. The actors know the addresses of all; the last ones are added later."""

    def __init__(self, parts: Sequence[House], late: int = 0) -> None:
        self.password = parts[0].password
        self.all = list(parts)
        self.parts = self.all[: len(parts) - late]
        for part in self.parts:
            if isinstance(part, Part):
                part.begin()
        with self.client() as queue:
            queue.spread_slots()

    @classmethod
    def of(cls, folder: Path, count: int, late: int = 0) -> "ShardedHouse":
        password = f"lab-{secrets.token_hex(12)}"
        parts = [Part(folder / f"shard-{number}", number, password) for number in range(count)]
        return cls(parts, late)

    def client(self, **options: Any) -> Any:
        """The owner's, of the shards that there are."""
        return headrace.connect([part.dsn for part in self.parts], migrate=False, **options)

    @property
    def dsn(self) -> str:
        return self.parts[0].dsn

    @property
    def way_in(self) -> str:
        return "\n".join(part.way_in for part in self.all)

    @property
    def by_proxy(self) -> str:
        """A cluster has another leader now and then, whom its proxy finds."""
        return "\n".join(getattr(part, "by_proxy", part.dsn) for part in self.all)

    @property
    def logs(self) -> list[Path]:
        return [log for part in self.parts for log in part.logs]

    def sql(self, statement: str, *parameters: Any) -> list[Any]:
        """The rows of all shards; of a count the sum, and what is to be true is to be true everywhere."""
        rows = [row for part in self.parts for row in part.sql(statement, *parameters)]
        if statement.startswith("select count(*) from"):
            return [(sum(count for (count,) in rows),)]
        if statement.startswith("select not exists"):
            return [(all(at_rest for (at_rest,) in rows),)]
        if statement.startswith("select exists"):
            return [(any(there for (there,) in rows),)]
        return rows

    def tick(self) -> None:
        for part in self.parts:
            with suppress(psycopg.Error):
                part.tick()

    def close(self) -> None:
        for part in self.all:
            part.close()


class Ordered:
    """Events with ordering keys in a namespace of their own, numbered, and whoever handles them."""

    def __init__(self, house: ShardedHouse) -> None:
        with house.client() as queue:
            queue.create_namespace(ORDERED)
        self._house = house
        self._queue = headrace.connect(house.by_proxy, namespace=ORDERED, timeout=10)
        self._sent = dict.fromkeys((f"key-{n}" for n in range(KEYS)), 0)
        self.handled: dict[str, list[int]] = {key: [] for key in self._sent}
        self._works = [Bystander(self._publish, 0.05), Bystander(self._handle, 0.05)]

    def _publish(self) -> None:
        """The next one of a key only when the one before is known to be stored."""
        for key, sent in self._sent.items():
            with suppress(headrace.HeadraceError, psycopg.OperationalError):
                its = {"key": key, "idempotency_key": f"{key}/{sent}"}
                self._queue.publish("ordered", {"of": key, "n": sent}, **its)
                self._sent[key] = sent + 1

    def _handle(self) -> None:
        for event in self._queue.poll(max_events=50, lease=10):
            self.handled[event.payload["of"]].append(event.payload["n"])
            with suppress(headrace.HeadraceError, psycopg.OperationalError):
                self._queue.complete(event)

    def calm(self) -> None:
        """Its events are nobody's: they are counted, and taken away before the accounts are made."""
        self._works[0].end()
        eventually(self._is_done, 4 * PATIENCE)
        self._works[1].end()
        self._queue.close()
        for table in ("events", "outcomes"):
            self._house.sql(
                f"delete from headrace.{table} where namespace = "
                "(select id from headrace.namespaces where name = 'ordered')"
            )

    def _is_done(self) -> bool:
        with suppress(HeadraceError, psycopg.OperationalError):
            found = self._queue.stats()
            return not found.missing and found.ready + found.processing + found.delayed == 0
        return False

    def account(self, accounts: Accounts) -> None:
        accounts.must_not_be(
            "ordered publishers that broke", [w.broke for w in self._works if w.broke]
        )
        first = {key: list(dict.fromkeys(told)) for key, told in self.handled.items()}
        accounts.must_not_be(
            "keys out of order", (key for key, told in first.items() if told != sorted(told))
        )
        accounts.must_not_be(
            "keys of which events are missing",
            (
                (key, sent, len(first[key]))
                for key, sent in self._sent.items()
                if not sent <= len(first[key]) <= sent + 1  # the last answer may be unknown
            ),
        )
        accounts.figures["events with ordering keys"] = sum(map(len, first.values()))


class Strikes:
    """What can happen to shards."""

    def __init__(self, house: ShardedHouse) -> None:
        self._house = house

    def kill(self, lab: Laboratory) -> None:
        part = lab.random.choice(self._house.parts)
        part.stop(signal.SIGKILL)
        time.sleep(AWAY)
        part.start()

    def move(self, lab: Laboratory) -> object:
        """Add the shard that is not there yet; then bring slots of keys somewhere else."""
        house = self._house
        if len(house.parts) < len(house.all):
            part = house.all[len(house.parts)]
            assert isinstance(part, Part)
            part.begin()
            house.parts.append(part)
            with house.client() as queue:
                queue.settle()
                moved = queue.spread_slots(timeout=MOVING)
            lab.did("shards added")
        else:
            slots = lab.random.sample(range(SLOTS), MOVES)
            to = lab.random.randrange(len(house.parts))
            with house.client() as queue:
                moved = queue.move_slots(slots, to, timeout=MOVING)
        return None if any(one.is_over for one in moved) else NOBODY

    def take_the_place(self, lab: Laboratory) -> None:
        """Where a shard was, another database says that it is that shard; then the right one is back."""
        part = lab.random.choice(self._house.parts)
        assert isinstance(part, Part)
        admin_dsn = make_conninfo(part.dsn, dbname="postgres")
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            rename(admin, "headrace", "headrace_away")
            try:
                admin.execute("create database headrace")
                with part.connect() as connection:
                    # Without the tables of those who publish in transactions of their own: their rows go where
                    # their connections lead, and so do their events.
                    migrate(connection, stride=STRIDE, shard=part.number)
                    connection.execute(f"grant connect on database headrace to {ACTOR}")
                time.sleep(AWAY)
                with part.connect() as connection:
                    [(published,)] = connection.execute(
                        "select count(*) from headrace.events"
                    ).fetchall()
                for _ in range(published):
                    lab.did("events that went to an impostor")
                rename(admin, "headrace", "headrace_impostor")
                admin.execute("drop database headrace_impostor with (force)")
            finally:
                rename(admin, "headrace_away", "headrace")

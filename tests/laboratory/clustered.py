"""A cluster under Patroni (examples/patroni), what can happen to it, and whoever must not be hurt by it: publishers over
several ways, readers of the stream, a schedule that fires every second, and the server's word on whether it is ready."""

import itertools
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg

from examples.patroni.cluster import PATIENCE, Cluster, Member
from headrace.install.migrate import migrate
from tests.laboratory.accounting import Accounts, lines, starts_of
from tests.laboratory.house import ACTOR, PLACES, House, eventually
from tests.laboratory.laboratory import Laboratory
from tests.laboratory.watching import Bystander

LONG = 90.0  # seconds that nothing may be acknowledged for: ttl, and what a busy machine takes
PROVEN, SEEN = (
    4.0,
    1.5,
)  # seconds for which the server's word may stand after a loss, and before the first commit
AWAY = 25.0  # seconds for which something is missing


class ClusterHouse(House):
    """The house of an experiment whose PostgreSQL is a cluster: the laboratory itself asks the member that Patroni says is
    the leader."""

    def __init__(self, folder: Path, *, strict: bool = False) -> None:
        self.cluster = Cluster(folder, strict=strict)
        try:
            self.cluster.start()
            self.password = f"lab-{secrets.token_hex(12)}"
            with self.connect() as connection:
                migrate(connection)
                self._let_in(connection)
                connection.execute(PLACES)
        except BaseException:
            self.cluster.close()
            raise

    def _open_door(self) -> None:
        """It is open: the cluster lets in who knows a password."""

    @property
    def dsn(self) -> str:
        leader = self.cluster.leader()
        if leader is None:
            raise psycopg.OperationalError("nobody leads")
        return leader.dsn

    @property
    def way_in(self) -> str:
        return self.cluster.dsn(ACTOR, self.password)

    @property
    def by_proxy(self) -> str:
        return self.cluster.proxy_dsn(ACTOR, self.password)

    @property
    def logs(self) -> list[Path]:
        return list(self.cluster.folder.glob("*.log"))

    def close(self) -> None:
        self.cluster.close()


class Readiness:
    """What /readyz says, twice a second."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=5)
        self._said: list[tuple[float, int]] = []
        self._works = Bystander(self._ask, 0.5)

    def _ask(self) -> None:
        began = time.monotonic()
        self._said.append((began, self._client.get("/readyz").status_code))

    def account(self, accounts: Accounts, pauses: list[tuple[float, float]]) -> None:
        """It must not say that it is ready while nobody's publish is acknowledged."""
        self._works.end()
        self._client.close()
        wrong = [
            (round(at - begin, 1), round(end - begin, 1))
            for begin, end in pauses
            for at, status in self._said
            if status == 200 and begin + PROVEN < at < end - SEEN
        ]
        accounts.must_not_be("times the server said it was ready, and nothing committed", wrong)
        said = [status for _, status in self._said]
        accounts.must_not_be("last words of /readyz", [s for s in said[-1:] if s != 200])
        accounts.figures["times /readyz said no"] = sum(status != 200 for status in said)


def pauses(times: list[float], least: float) -> list[tuple[float, float]]:
    """From one to the next, where that took longer than this."""
    times = sorted(times)
    return [(a, b) for a, b in itertools.pairwise(times) if b - a > least]


def account(accounts: Accounts, lab: Laboratory, ready: Readiness) -> None:
    """How long nobody's publish was acknowledged, by the way it took, and no handler began."""
    everybody: list[float] = []
    for way, _ in lab.ways:
        times = [float(line[4]) for line in _of(lab, way, "ok") if len(line) > 4]
        everybody += times
        longest = max((b - a for a, b in pauses(times, 0)), default=0.0)
        accounts.figures[f"{way}: longest without an acknowledgement, s"] = round(longest, 1)
        if longest > LONG:
            accounts.must_not_be(f"too long without an acknowledgement over {way}", [longest])
    refused = [line[2] for line in _of(lab, "HTTP", "unknown")]
    accounts.must_not_be(
        "outages that were called overload", (said for said in refused if "overloaded" in said)
    )
    begun = [start.at for file in lab.folder.glob("*.notes") for start in starts_of(file)]
    longest = max((b - a for a, b in pauses(begun, 0)), default=0.0)
    accounts.figures["handlers: longest without a start, s"] = round(longest, 1)
    # Without a call that failed it is the machine that has other things to do.
    failed = [float(line[4]) for way, _ in lab.ways for line in _of(lab, way, "unknown")]
    silent = pauses(everybody, PROVEN + SEEN)
    ready.account(accounts, [(a, b) for a, b in silent if any(a < at <= b + SEEN for at in failed)])


def _of(lab: Laboratory, way: str, what: str) -> Iterator[Any]:
    """The lines of this kind in the ledgers of a way."""
    for file in lab.folder.glob(f"{way}-*.ledger"):
        yield from (line for line in lines(file) if line[0] == what)


class Strikes:
    """What can happen to a cluster. Each is over when the cluster is whole again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def kill(self, lab: Laboratory) -> None:
        first = self._leader()
        first.kill()
        self._replaced(first)
        time.sleep(3)
        first.start()
        self._whole()

    def switch_over(self, lab: Laboratory) -> None:
        first = self._leader()
        self._cluster.switch_over()
        self._replaced(first)
        self._whole()

    def orphan(self, lab: Laboratory) -> None:
        first = self._leader()
        first.kill_patroni()
        self._replaced(first)
        time.sleep(AWAY)
        if first.pids:
            lab.did("orphans that went on taking connections")
        first.start()
        self._whole()

    def cut_off(self, lab: Laboratory) -> None:
        self._leader()
        with next(one for one in self._cluster.members if one.says("/synchronous")).frozen():
            time.sleep(AWAY)
        self._whole()

    def stop_etcd(self, lab: Laboratory) -> None:
        self._cluster.stop_etcd()
        time.sleep(AWAY)
        if self._cluster.leader() is None:
            lab.did("leaders that stepped down without etcd")
        self._cluster.start_etcd()
        self._whole()

    def leave_alone(self, lab: Laboratory) -> None:
        first = self._leader()
        others = [one for one in self._cluster.members if one is not first]
        for one in others:
            one.kill()
        time.sleep(AWAY)
        for one in others:
            one.start()
        self._whole()

    def _leader(self) -> Member:
        eventually(self._cluster.leader, PATIENCE)
        found = self._cluster.leader()
        assert found is not None
        return found

    def _replaced(self, old: Member) -> None:
        eventually(lambda: self._cluster.leader() not in (None, old), PATIENCE)

    def _whole(self) -> None:
        eventually(self._cluster.is_whole, PATIENCE)
        time.sleep(3)  # so that everybody works for a while before the next

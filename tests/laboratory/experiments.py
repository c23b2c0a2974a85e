"""The experiments: what is set up, what is done to it, for how long, and what a run must have met with to show
anything."""

import itertools
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import psycopg

import headrace
from headrace.install.migrate import migrate
from headrace.testing.database import MOVABLE_CLOCK
from tests.embedded.processes import is_running
from tests.laboratory import between, debounce, faults, limits, sharded, tenants, watching
from tests.laboratory.accounting import Accounts
from tests.laboratory.house import House, eventually
from tests.laboratory.laboratory import HEADRACE, KINDS, NOBODY, Fault, Laboratory, laboratory
from tests.laboratory.pair import Pair
from tests.laboratory.reading import Readers

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
NODES, PUBLISHERS = 4, 3
BEFORE_A_CHANGE = """
update headrace_test.clock set shift = (
    select h - interval '90 minutes' - clock_timestamp()
    from generate_series(date_trunc('hour', now()) + interval '3 hours', now() + interval '1 year', interval '1 hour') h
    where extract(timezone from h) <> extract(timezone from h - interval '1 hour') order by h limit 1
)
"""
STEP = """
update headrace_test.clock set shift = least(shift + %s * interval '1 hour', %s + interval '120 days')
"""
OLD_MONTH = """
select headrace._make_partition('events', 'created_at', date_trunc('month', now() - interval '3 months', 'UTC'))
"""
OLD_MONTHS = """
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'headrace.events'::regclass and c.relname < to_char(now() at time zone 'UTC', '"events_"YYYY_MM')
"""
FIRED = "select count(*) from headrace.fires where fire_at between %s and now()"
CALENDAR = "select extract(month from headrace._now()), extract(timezone from headrace._now())"


@dataclass
class Set:
    """Where an experiment takes place: a house, how it is reached, and what happens there."""

    house: House
    faults: list[Fault] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    calm: Callable[[], object] = lambda: None
    """Ends what would last."""
    account: Callable[[Accounts, Laboratory], object] = lambda accounts, lab: None
    """Of what happens there besides."""
    staff: tuple[int, int] = (NODES, PUBLISHERS)


Stage = Callable[[Path, ExitStack], Set]


@dataclass(frozen=True)
class Experiment:
    name: str
    what: str
    stage: Stage
    seconds: float = 20
    meets: tuple[str, ...] = ()
    """Figures that must not be zero."""
    never: tuple[str, ...] = ()
    """Figures that must be."""
    may_lose: bool = False
    """A control: what is promised elsewhere is not promised here."""
    needs: Callable[[], str | None] = lambda: None
    """Why it cannot be made here."""

    def run(self, folder: Path, seed: int, scale: float) -> Accounts:
        notes = folder / "notes"
        notes.mkdir()
        with ExitStack() as stack:
            its = self.stage(folder, stack)
            with laboratory(its.house, notes, seed, **its.options) as lab:
                lab.staff(*its.staff)
                lab.endure(self.seconds * scale, *its.faults)
                its.calm()
                lab.settle()
                accounts = lab.account()
                its.account(accounts, lab)
        missed = [name for name in self.meets if not accounts.figures.get(name)]
        if missed and scale >= 1:
            accounts.wrong["a run that has met nothing of"] = missed
        for name in self.never:
            accounts.must_not_be(name, range(int(accounts.figures.get(name, 0))))
        return accounts


class Flow(Experiment):
    """With workers and publishers of its own, and accounts and a table of its own."""


class Debounced(Flow):
    """A hundred publishers of one key and a node."""

    def run(self, folder: Path, seed: int, scale: float) -> Accounts:
        (folder / "notes").mkdir()
        with ExitStack() as stack:
            its = self.stage(folder, stack)
            return debounce.measure(its.house.dsn, seconds=self.seconds * scale, **its.options)


def one_key(folder: Path, stack: ExitStack) -> Set:
    house = _house(folder, stack, max_connections="200")
    options = {"publishers": 100, "settle": 1, "at_latest": 5, "pause": 0.05}
    return Set(house, options=options)


class Limited(Flow):
    """Workers of many tenants, one of which has nearly all that waits."""

    def run(self, folder: Path, seed: int, scale: float) -> Accounts:
        notes = folder / "notes"
        notes.mkdir()
        with ExitStack() as stack:
            its = self.stage(folder, stack)
            seconds = self.seconds * scale
            return limits.measure(its.house.dsn, notes, seed, seconds=seconds, **its.options)


def many_tenants(folder: Path, stack: ExitStack) -> Set:
    options = {"processes": 8, "tenants": 50, "backlog": 1_000_000}
    return Set(_house(folder, stack), options=options)


class Neighbours(Experiment):
    """Two tenants of a server, and none of the laboratory's own."""

    def run(self, folder: Path, seed: int, scale: float) -> Accounts:
        (folder / "notes").mkdir()
        with ExitStack() as stack:
            its = self.stage(folder, stack)
            return tenants.measure(
                its.house, its.options["url"], its.options["tokens"], self.seconds * scale
            )


def two_tenants(folder: Path, stack: ExitStack) -> Set:
    house = _house(folder, stack)
    tokens: dict[str, str] = {}
    with headrace.connect(house.dsn) as queue:
        for name in (tenants.GOOD, tenants.HOSTILE):
            queue.create_namespace(name)
            scopes: list[Any] = ["publish", "consume", "read"]
            tokens[name] = queue.create_token(name, scopes, namespaces=[name])
    log = folder / "notes" / "server.log"
    service = stack.enter_context(serving(["serve"], {"HEADRACE_DSN": house.way_in}, log))
    return Set(house, options={"url": service.url, "tokens": tokens})


def at_home(*happening: Fault, **options: Any) -> Stage:
    """Straight to a PostgreSQL of its own."""

    def stage(folder: Path, stack: ExitStack) -> Set:
        return Set(_house(folder, stack), list(happening), options)

    return stage


def _house(folder: Path, stack: ExitStack, **settings: str) -> House:
    house = House(folder / "data", settings)
    stack.callback(house.close)
    return house


def over_network(*kinds: Callable[[between.Network], list[Fault]]) -> Stage:
    def stage(folder: Path, stack: ExitStack) -> Set:
        house = _house(folder, stack)
        network = stack.enter_context(between.Network(house.way_in))
        happening = [fault for kind in kinds for fault in kind(network)]
        return Set(house, happening, {"dsn": network.dsn, "longest": 0.3}, network.calm)

    return stage


def lost_answers(folder: Path, stack: ExitStack) -> Set:
    house = _house(folder, stack)
    dsn, happening = stack.enter_context(between.losing_answers(house))
    return Set(house, happening, {"dsn": dsn})


def behind_a_pooler(folder: Path, stack: ExitStack) -> Set:
    house = _house(folder, stack)
    dsn = stack.enter_context(between.pooler(house))
    return Set(house, [faults.KILL_NODES], {"dsn": dsn, "prepare": False})


def _house_on_small_disk(folder: Path, stack: ExitStack) -> tuple[House, Path]:
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "none", disk], check=True)
    stack.callback(subprocess.run, ["umount", "-l", disk], check=True)
    disk.chmod(0o777)
    house = House(disk / "data", {"max_wal_size": "80MB", "min_wal_size": "32MB"})
    stack.callback(house.close)
    return house, disk


@contextmanager
def _filled(disk: Path) -> Iterator[None]:
    junk = disk / "junk"
    with suppress(OSError), junk.open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 65536)
    yield
    junk.unlink()


def full_disk(folder: Path, stack: ExitStack) -> Set:
    house, disk = _house_on_small_disk(folder, stack)

    def fill(lab: Laboratory) -> None:
        with _filled(disk):
            time.sleep(lab.random.uniform(2, 4))
        house.start()  # if it has died of it

    return Set(house, [Fault("times the disk was full", 7.0, fill)])


def wrong_clocks(folder: Path, stack: ExitStack) -> Set:
    def clock(chance: Random) -> dict[str, str]:
        shift = chance.choice(["+3d", "-2d", "+30m", "-45s", "+0"])
        return {"LD_PRELOAD": str(FAKETIME), "FAKETIME": shift, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    return Set(_house(folder, stack), [faults.KILL_NODES], {"environment": clock})


def stepping_clock(folder: Path, stack: ExitStack) -> Set:
    """In a place whose clocks are changed, and begun an hour and a half before they are."""
    house = _house(folder, stack, timezone="Europe/Berlin")
    with house.connect() as connection:
        connection.execute(MOVABLE_CLOCK)
        connection.execute(BEFORE_A_CHANGE)
    [(first,)] = house.sql("select shift from headrace_test.clock")

    def step(lab: Laboratory) -> None:
        """Four months in all, retention has six."""
        before = house.sql(CALENDAR)
        house.sql(STEP, lab.random.choice([1, 24, 24 * 20]), first)
        [(month, changed)] = house.sql(CALENDAR)
        if month != before[0][0]:
            lab.did("ends of months passed")
        if changed != before[0][1]:
            lab.did("changes to summer time or back passed")

    return Set(
        house, [Fault("steps of the database's clock", 1.5, step)], {"clock_is_right": False}
    )


def clock_ahead(folder: Path, stack: ExitStack) -> Set:
    """It is ahead for seconds, and right again. Schedules that fire every second have a namespace of their own, so that
    their events are nobody's but the clock's."""
    house = _house(folder, stack)
    with house.connect() as connection:
        connection.execute(MOVABLE_CLOCK)
    house.sql(OLD_MONTH)
    old = house.sql(OLD_MONTHS)
    house.sql("select headrace.create_namespace('clockwork')")
    clockwork = stack.enter_context(headrace.connect(house.dsn, namespace="clockwork"))
    for policy in ("coalesce", "catch_up", "skip"):
        clockwork.schedule_task(policy, "* * * * * *", "second", missed=policy)
    ended = threading.Event()

    def keep_planning() -> None:
        while not ended.wait(1.0):
            clockwork.plan_schedules()

    planner = threading.Thread(target=keep_planning, daemon=True)
    planner.start()
    ahead = itertools.cycle(["8 hours", "400 days"])

    def step(lab: Laboratory) -> None:
        shift = next(ahead)
        house.sql("update headrace_test.clock set shift = %s", shift)
        time.sleep(lab.random.uniform(2, 4))
        house.sql("update headrace_test.clock set shift = '0'")
        lab.did(f"times the clock was {shift} ahead")

    def calm() -> None:
        [(since,)] = house.sql("select now()")
        eventually(lambda: house.sql(FIRED, since)[0][0] >= 10)
        assert set(old) <= set(house.sql(OLD_MONTHS)), "a month was dropped"
        ended.set()
        planner.join()
        for task in clockwork.schedules():
            clockwork.remove_schedule(task.name)
        clockwork.purge("ready")
        for table in ("events", "outcomes"):
            house.sql(
                f"delete from headrace.{table} where namespace ="
                " (select id from headrace.namespaces where name = 'clockwork')"
            )

    happening = [faults.KILL_NODES, Fault("steps of the clock, ahead and back", 6.0, step)]
    return Set(house, happening, {"clock_is_right": False}, calm)


def held_snapshot(folder: Path, stack: ExitStack) -> Set:
    house = _house(folder, stack)
    connection = stack.enter_context(psycopg.connect(house.dsn))
    connection.execute("set transaction isolation level repeatable read")
    connection.execute("select count(*) from headrace.events")
    return Set(house, [faults.KILL_NODES])


def no_partitions(folder: Path, stack: ExitStack) -> Set:
    house = _house(folder, stack)
    months = house.sql(
        "select inhrelid::regclass::text from pg_inherits"
        " where inhparent in ('headrace.events'::regclass, 'headrace.outcomes'::regclass, 'headrace.errors'::regclass)"
        " and inhrelid::regclass::text not like '%%_default'"
    )
    for (month,) in months:
        house.sql(f"drop table {month}")
    return Set(house, [faults.KILL_NODES])


def migrations(folder: Path, stack: ExitStack) -> Set:
    house = _house(folder, stack)

    def migrate_again(lab: Laboratory) -> None:
        """As from a release whose every function was another."""
        with house.connect() as connection:
            connection.execute("update headrace.release set digest = 'another'")
            migrate(connection)

    return Set(house, [Fault("migrations", 2.0, migrate_again)])


def over_http(*happening: Fault, connections: int = 10, killed: bool = True) -> Stage:
    def stage(folder: Path, stack: ExitStack) -> Set:
        house = _house(folder, stack)
        with headrace.connect(house.dsn, migrate=False) as queue:
            token = queue.create_token("laboratory", ["publish"])
        log = folder / "notes" / "server.log"
        command = ["serve", "--connections", str(connections)]
        service = stack.enter_context(serving(command, {"HEADRACE_DSN": house.way_in}, log))
        kills = [Fault("kills of the server", 4.0, service.strike)] if killed else []
        return Set(house, [*happening, *kills], {"url": service.url, "token": token})

    return stage


class Service:
    """`headrace serve`, or `up`, on one port, whoever kills it."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._command = [*HEADRACE, *command, "--port", str(self._port)]
        self._environment = {**os.environ, **environment}
        self._log = log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as file:
            self.process = subprocess.Popen(
                self._command, env=self._environment, stdout=file, stderr=file
            )
        eventually(self._answers)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
        return False

    def strike(self, lab: Laboratory) -> None:
        self.process.kill()
        self.process.wait()
        self.start()


@contextmanager
def serving(command: list[str], environment: dict[str, str], log: Path) -> Iterator[Service]:
    service = Service(command, environment, log)
    try:
        yield service
    finally:
        service.process.kill()
        service.process.wait()


def supervised(*happening: Fault) -> Stage:
    """The PostgreSQL of `headrace up`, which alone starts it again."""

    def stage(folder: Path, stack: ExitStack) -> Set:
        return _supervised(_house(folder, stack), list(happening), folder, stack)

    return stage


def _supervised(house: House, happening: list[Fault], folder: Path, stack: ExitStack) -> Set:
    with headrace.connect(house.dsn, migrate=False) as queue:
        token = queue.create_token("laboratory", ["publish"])
    command = ["up", "--data", str(house.postgres.data)]
    service = stack.enter_context(serving(command, {}, folder / "notes" / "server.log"))
    return Set(house, happening, {"url": service.url, "token": token})


def full_disk_supervised(folder: Path, stack: ExitStack) -> Set:
    house, disk = _house_on_small_disk(folder, stack)

    def fill(lab: Laboratory) -> None:
        with _filled(disk):
            time.sleep(lab.random.uniform(2, 4))
            died = not is_running(house.postgres.data)
        house.sql("select")  # which is answered once `headrace up` has started it again
        if died:
            lab.did("deaths of PostgreSQL of a full disk")

    return _supervised(house, [Fault("times the disk was full", 7.0, fill)], folder, stack)


def replicated(*, synchronous: bool, read: bool = False) -> Stage:
    def stage(folder: Path, stack: ExitStack) -> Set:
        pair = Pair(folder, synchronous=synchronous)
        stack.callback(pair.close)
        readers = Readers(pair.dsn, folder / "notes") if read else None
        failed_over: list[bool] = []

        def fail_over(lab: Laboratory) -> None:
            if not failed_over:
                failed_over.append(True)
                pair.fail_over(lab)
                lab.did("promotions of the standby")

        its = Set(
            pair.first, [Fault("failures of the primary tried", 6.0, fail_over)], {"dsn": pair.dsn}
        )
        if readers is not None:
            its.calm, its.account = readers.calm, readers.account
        return its

    return stage


def orphaned(folder: Path, stack: ExitStack) -> Set:
    """Three times the standby comes back; the fourth time the primary is lost while it is away."""
    pair = Pair(folder, synchronous=True)
    stack.callback(pair.close)
    times = iter((False, False, False, True))

    def orphan(lab: Laboratory) -> object:
        for_good = next(times, None)
        return NOBODY if for_good is None else pair.orphan(lab, for_good=for_good)

    # A call ends with its time, and a little later on a machine that has other things to do.
    options = {"dsn": pair.dsn, "timeout": 3.0, "longest_call": 8.0}
    return Set(pair.first, [Fault("absences of the standby", 4.0, orphan)], options)


def in_a_cluster(what: str, strike: str, *, strict: bool = False) -> Stage:
    """Publishers over every way to it, and nodes over two; the server knows all the hosts."""

    def stage(folder: Path, stack: ExitStack) -> Set:
        from tests.laboratory import clustered as its  # which needs Patroni

        (folder / "cluster").mkdir(mode=0o755)
        house = its.ClusterHouse(folder / "cluster", strict=strict)
        stack.callback(house.close)
        with headrace.connect(house.dsn, migrate=False) as queue:
            token = queue.create_token("laboratory", ["publish", "read"])
        log = folder / "notes" / "server.log"
        service = stack.enter_context(serving(["serve"], {"HEADRACE_DSN": house.way_in}, log))
        reader = watching.StreamReader(service.url, token)
        ready = its.Readiness(service.url)
        clockwork = watching.Clockwork(house)
        ours = {kind: KINDS[kind] for kind in ("plain", "effect", "retried")}
        options = {
            **{"dsn": house.way_in, "node_dsns": [house.way_in, house.by_proxy], "token": token},
            "ways": [
                ("multi-host", {"kinds": ours}),
                ("HAProxy", {"dsn": house.by_proxy}),
                ("HTTP", {"url": service.url}),
                ("own-transactions", {"dsn": house.by_proxy, "kinds": {"outbox": 1}}),
            ],
            **{"poison": False, "timeout": 10.0, "longest_call": 30.0},
            "publisher": {"bursts": [1, 1, 5], "pause": 0.05},
        }

        def account(accounts: Accounts, lab: Laboratory) -> None:
            its.account(accounts, lab, ready)
            reader.account(accounts, lab)
            clockwork.account(accounts)

        happening = [Fault(what, 6.0, getattr(its.Strikes(house.cluster), strike))]
        return Set(house, happening, options, clockwork.calm, account, (2, 4))

    return stage


def over_shards(what: str, strike: str, *, late: int = 0) -> Stage:
    """Publishers by Python, HTTP and their own transactions, nodes over all shards, a reader of the stream, a schedule,
    and keys."""

    def stage(folder: Path, stack: ExitStack) -> Set:
        (folder / "shards").mkdir(mode=0o755)
        house = sharded.ShardedHouse.of(folder / "shards", 2 + late, late)
        stack.callback(house.close)
        return _among_shards(
            folder, stack, house, Fault(what, 5.0, getattr(sharded.Strikes(house), strike))
        )

    return stage


def with_a_cluster_as_a_shard(folder: Path, stack: ExitStack) -> Set:
    from tests.laboratory import clustered as its  # which needs Patroni

    (folder / "cluster").mkdir(mode=0o755)
    cluster = its.ClusterHouse(folder / "cluster")
    stack.callback(cluster.close)
    with cluster.connect() as connection:
        migrate(connection, stride=sharded.STRIDE, shard=0)
    second = sharded.Part(folder / "shard-1", 1, cluster.password)
    stack.callback(second.close)
    house = sharded.ShardedHouse([cluster, second])
    happening = Fault("leaders of a shard killed", 6.0, its.Strikes(cluster.cluster).kill)
    return _among_shards(folder, stack, house, happening)


def _among_shards(folder: Path, stack: ExitStack, house: Any, happening: Fault) -> Set:
    with house.client() as queue:
        token = queue.create_token("laboratory", ["publish", "read"])
    log = folder / "notes" / "server.log"
    service = stack.enter_context(serving(["serve"], {"HEADRACE_DSN": house.way_in}, log))
    reader = watching.StreamReader(service.url, token)
    ordered, clockwork = sharded.Ordered(house), watching.Clockwork(house)
    ours = {kind: KINDS[kind] for kind in ("plain", "effect", "retried")}
    there = "\n".join(part.way_in for part in house.parts)
    options = {
        "token": token,
        "ways": [
            ("Python", {"kinds": ours}),
            ("HTTP", {"url": service.url}),
            ("own-transactions", {"dsn": there, "kinds": {"outbox": 1}}),
        ],
        **{"poison": False, "timeout": 10.0, "longest_call": 30.0},
        "publisher": {"bursts": [1, 1, 5], "pause": 0.05},
    }

    def calm() -> None:
        ordered.calm()
        clockwork.calm()

    def account(accounts: Accounts, lab: Laboratory) -> None:
        reader.account(accounts, lab)
        ordered.account(accounts)
        clockwork.account(accounts)

    return Set(house, [happening], options, calm, account, (2, 3))


def _no_cluster() -> str | None:
    if find_spec("patroni") is None:
        return "the extra cluster is not installed"
    from examples.patroni.cluster import missing

    return missing()


def _not_root() -> str | None:
    return None if os.geteuid() == 0 else "only root can mount a small disk"


def _no_cronsim() -> str | None:
    return None if find_spec("cronsim") else "the extra schedules is not installed"


def _no_faketime() -> str | None:
    return None if FAKETIME.exists() else "libfaketime is not installed"


EXPERIMENTS = [
    Experiment(
        "calm", "Nothing happens: the accounts themselves are on trial.", at_home(poison=False)
    ),
    Experiment(
        "kills",
        "Nodes and publishers are killed with SIGKILL.",
        at_home(faults.KILL_NODES, faults.KILL_PUBLISHERS),
        meets=("nodes killed", "publishers killed", "abandoned", "redelivered"),
    ),
    Experiment(
        "recovery",
        "A node is killed now and then, while the others have little to do.",
        at_home(
            faults.KILL_NOW_AND_THEN,
            poison=False,
            longest=0.5,
            publisher={"bursts": [1], "pause": 0.05},
        ),
        seconds=45,
        meets=("nodes killed", "abandoned"),
        never=("claimable later than that", "begun later than that"),
    ),
    Experiment(
        "freezes",
        "Nodes are stopped with SIGSTOP, for longer than their leases or not, and go on.",
        at_home(faults.FREEZE_NODES, longest=0.5),
        meets=("abandoned", "late finishes refused"),
    ),
    Experiment(
        "terminations",
        "Nodes are told to end with SIGTERM, one after the other.",
        at_home(faults.TERMINATE_NODES, poison=False, longest=0.3),
        meets=("nodes terminated",),
    ),
    Experiment(
        "stubborn",
        "Handlers swallow their cancellation, block the event loop, hang in threads or hold Python's global lock, and their "
        "nodes are told to end with SIGTERM.",
        at_home(
            faults.TELL_NODES_TO_END,
            poison=False,
            longest=0.3,
            node={"grace": 1},
            publisher={"kinds": {**KINDS, "stubborn": 20, "hanging": 8}},
        ),
        seconds=40,
        meets=(
            "nodes told to end",
            "nodes that ended in order",
            "nodes that ended themselves",
            "nodes that their watchdogs killed",
        ),
        never=("nodes that did not end in time",),
    ),
    Experiment(
        "guilty",
        "Events cut their own connections, crash PostgreSQL or cancel their tasks, among innocents of one try, while nodes are replaced in order.",
        at_home(
            faults.TERMINATE_NODES,
            poison="connections",
            longest=0.5,
            lease=15.0,
            node={"grace": 0.1, "connections": 10},
            publisher={
                "kinds": {"plain": 100, "effect": 100, "cancelled": 5, "poison": 1},
                "bursts": [1],
                "pause": 0.05,
                "tries": 1,
            },
        ),
        seconds=40,
        meets=("nodes terminated", "abandoned", "dead-lettered", "released"),
    ),
    Experiment(
        "backends",
        "Half of PostgreSQL's sessions are terminated, again and again.",
        at_home(faults.CUT_BACKENDS),
        meets=("publishes of which nobody knew",),
    ),
    Experiment(
        "fast",
        "PostgreSQL is restarted, fast.",
        at_home(faults.RESTART_FAST),
        seconds=30,
        meets=("publishes of which nobody knew",),
    ),
    Experiment(
        "immediate",
        "PostgreSQL is restarted, immediately.",
        at_home(faults.RESTART_IMMEDIATELY),
        seconds=30,
        meets=("publishes of which nobody knew",),
    ),
    Experiment(
        "postmaster",
        "All of PostgreSQL is killed with SIGKILL.",
        at_home(faults.KILL_POSTGRES),
        seconds=30,
        meets=("publishes of which nobody knew",),
    ),
    Experiment(
        "away",
        "PostgreSQL is away for a quarter of a minute, nodes and the HTTP server wait for it.",
        over_http(faults.LONG_ABSENCES, killed=False),
        seconds=40,
        meets=("long absences of PostgreSQL", "publishes of which nobody knew"),
    ),
    Experiment(
        "frozen",
        "PostgreSQL does not answer for a while.",
        at_home(faults.FREEZE_POSTGRES),
        seconds=30,
    ),
    Experiment("locks", "A stranger locks our tables.", at_home(faults.LOCK_TABLES), seconds=30),
    Experiment(
        "cuts",
        "Connections are cut and reset on their way.",
        over_network(between.cutting),
        meets=("publishes of which nobody knew",),
    ),
    Experiment(
        "slow", "The network delays and throttles.", over_network(between.slowing), seconds=30
    ),
    Experiment(
        "black-hole",
        "The network swallows everything for a while.",
        over_network(between.swallowing),
        seconds=40,
        meets=("publishes of which nobody knew",),
    ),
    Experiment(
        "lost-answers",
        "The answer to a COMMIT is lost, exactly.",
        lost_answers,
        meets=("answers to commits lost", "publishes of which nobody knew"),
    ),
    Experiment(
        "pooler",
        "Behind PgBouncer in transaction mode, nodes are killed.",
        behind_a_pooler,
        meets=("abandoned",),
    ),
    Experiment(
        "disk",
        "The disk is full for a while.",
        full_disk,
        seconds=30,
        meets=("publishes of which nobody knew",),
        needs=_not_root,
    ),
    Experiment(
        "clocks",
        "The clocks of nodes and publishers are wrong by days.",
        wrong_clocks,
        meets=("abandoned",),
        needs=_no_faketime,
    ),
    Experiment(
        "months",
        "The database's clock steps over month ends and clock changes.",
        stepping_clock,
        meets=(
            "abandoned",
            "ends of months passed",
            "changes to summer time or back passed",
        ),
    ),
    Experiment(
        "clock-ahead",
        "The database's clock is hours or more than a year ahead for seconds, and right again; nodes are killed.",
        clock_ahead,
        seconds=35,
        meets=(
            "abandoned",
            "times the clock was 8 hours ahead",
            "times the clock was 400 days ahead",
        ),
        needs=_no_cronsim,
    ),
    Experiment(
        "snapshot",
        "A stranger holds an old snapshot, and nodes are killed.",
        held_snapshot,
        meets=("abandoned",),
    ),
    Experiment(
        "partitions", "This month's and the next months' partitions are missing.", no_partitions
    ),
    Experiment(
        "migration",
        "The release is replaced under load, again and again.",
        migrations,
        meets=("migrations",),
    ),
    Experiment(
        "pool",
        "Nodes have one connection for twenty handlers.",
        at_home(faults.KILL_NODES, node={"connections": 1}),
        meets=("abandoned",),
    ),
    Experiment(
        "forks",
        "Publishers fork children after they have connected, and all of them publish.",
        at_home(publisher={"forks": 0.1}),
        seconds=25,
        meets=("publishers forked",),
        never=("publishes of which nobody knew",),
    ),
    Experiment(
        "impatience",
        "Publishers cancel their calls after milliseconds, with a pool of three connections.",
        at_home(publisher={"impatience": 0.05, "bursts": [12]}),
        seconds=25,
        meets=("calls cancelled", "publishes of which nobody knew"),
    ),
    Experiment(
        "server",
        "The HTTP server, with four connections, is killed under load.",
        over_http(connections=4),
        meets=("publishes of which nobody knew",),
    ),
    Debounced(
        "debounce",
        "A hundred publishers of one debounce key, which settles in a second, and runs every five at the latest.",
        one_key,
        seconds=30,
    ),
    Limited(
        "limits",
        "Eight workers of a queue with limits for each tenant, for all, and for starts in a time, are killed with SIGKILL, and its limits changed; one of fifty tenants has a backlog of a million.",
        many_tenants,
        seconds=120,
    ),
    Neighbours(
        "tenants",
        "A tenant with every right of one (publish, look, stream, claim) does as much of it as it can, beside a well-behaved one.",
        two_tenants,
        seconds=120,
    ),
    Experiment(
        "up",
        "The PostgreSQL of `headrace up` is killed with SIGKILL, again and again, and `up` alone starts it again.",
        supervised(faults.KILL_SUPERVISED),
        seconds=30,
        meets=("kills of the PostgreSQL of `headrace up`", "publishes of which nobody knew"),
    ),
    Experiment(
        "up-disk",
        "The disk of `headrace up` is full for a while; if PostgreSQL dies of it, `up` starts it again.",
        full_disk_supervised,
        seconds=30,
        meets=("times the disk was full", "publishes of which nobody knew"),
        needs=_not_root,
    ),
    Experiment(
        "replica",
        "The primary is lost; its synchronous standby takes its place.",
        replicated(synchronous=True),
        meets=("promotions of the standby",),
    ),
    Experiment(
        "readers",
        "The same, while publishers roll back or are interrupted in their wait for it, and readers must be told everything.",
        replicated(synchronous=True, read=True),
        seconds=25,
        meets=(
            "promotions of the standby",
            "waits for the standby interrupted",
            "numbers drawn again",
        ),
    ),
    Experiment(
        "replica-control",
        "The same with an asynchronous standby, which may lose what was acknowledged: a control.",
        replicated(synchronous=False),
        meets=("promotions of the standby",),
        may_lose=True,
    ),
    Experiment(
        "orphan",
        "The synchronous standby is away for a while, and waits for it are cancelled; in the end the primary is lost.",
        orphaned,
        seconds=40,
        meets=(
            "waits for the standby cancelled",
            "promotions of the standby",
            "publishes of which nobody knew",
        ),
    ),
    Experiment(
        "cluster-kill",
        "The leader of a cluster under Patroni is killed, with its Patroni.",
        in_a_cluster("leaders killed with their Patroni", "kill"),
        seconds=40,
        meets=("leaders killed with their Patroni",),
        needs=_no_cluster,
    ),
    Experiment(
        "cluster-switchover",
        "The synchronous standby takes the leader's place, as it is told to.",
        in_a_cluster("switchovers", "switch_over"),
        seconds=40,
        meets=("switchovers",),
        needs=_no_cluster,
    ),
    Experiment(
        "cluster-orphan",
        "The leader's Patroni alone is killed: its PostgreSQL lives on, while another leads.",
        in_a_cluster("leaders whose Patroni alone was killed", "orphan"),
        seconds=40,
        meets=(
            "leaders whose Patroni alone was killed",
            "orphans that went on taking connections",
        ),
        needs=_no_cluster,
    ),
    Experiment(
        "cluster-cut-off",
        "The synchronous standby is cut off for 25 s.",
        in_a_cluster("synchronous standbys cut off", "cut_off"),
        seconds=40,
        meets=("synchronous standbys cut off",),
        needs=_no_cluster,
    ),
    Experiment(
        "cluster-etcd",
        "Etcd is away for 25 s, so the leader steps down.",
        in_a_cluster("absences of etcd", "stop_etcd"),
        seconds=40,
        meets=(
            "absences of etcd",
            "leaders that stepped down without etcd",
        ),
        needs=_no_cluster,
    ),
    Experiment(
        "cluster-alone",
        "Both standbys are lost for 25 s: Patroni lets the leader go on alone.",
        in_a_cluster("losses of both standbys", "leave_alone"),
        seconds=40,
        meets=("losses of both standbys",),
        needs=_no_cluster,
    ),
    Experiment(
        "cluster-strict",
        "The same in strict mode: nothing is committed until a standby is back.",
        in_a_cluster("losses of both standbys", "leave_alone", strict=True),
        seconds=40,
        meets=(
            "losses of both standbys",
            "publishes of which nobody knew",
        ),
        needs=_no_cluster,
    ),
    Experiment(
        "shards-kill",
        "One of two shards is killed, and is back 3 s later.",
        over_shards("shards killed", "kill"),
        seconds=30,
        meets=("shards killed", "events with ordering keys"),
    ),
    Experiment(
        "shards-move",
        "A third shard is added under load, and slots of keys move to and fro. Nobody tells the clients.",
        over_shards("moves of slots", "move", late=1),
        seconds=40,
        meets=("shards added", "moves of slots", "events with ordering keys"),
    ),
    Experiment(
        "shards-impostor",
        "Where a shard was, another database says for 3 s that it is that shard.",
        over_shards("impostors", "take_the_place"),
        seconds=30,
        meets=("impostors",),
        never=("events that went to an impostor",),
    ),
    Experiment(
        "shards-failover",
        "One of two shards is a cluster under Patroni, whose leader is killed.",
        with_a_cluster_as_a_shard,
        seconds=40,
        meets=("leaders of a shard killed", "events with ordering keys"),
        needs=_no_cluster,
    ),
    Experiment(
        "everything",
        "Kills, freezes, terminations and storms together.",
        at_home(
            faults.KILL_NODES,
            faults.KILL_PUBLISHERS,
            faults.FREEZE_NODES,
            faults.TERMINATE_NODES,
            faults.CUT_BACKENDS,
            longest=0.3,
        ),
        seconds=60,
        meets=(
            "abandoned",
            "redelivered",
            "late finishes refused",
            "publishes of which nobody knew",
        ),
    ),
]

"""What Headrace is measured against: the floor, a bare table, and other queues where they are installed.

`python -m bench.peers` installs those that run in environments of their own, below .venv/peers, in the versions that are
written here. PgQ is an extension of the server's: Debian has it as postgresql-15-pgq3.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

# A key is the one index on id that even a bare queue needs.
FLOOR = """
create table floor (
    id bigserial primary key,
    created_at timestamptz not null default now(),
    payload jsonb not null
);
create table own (id bigint, at timestamptz not null default now());
"""

# The quickest of the ways to write it, as the engine's own claim is written: the textbook's
# `where id in (select …)` is planned as a join, and on an empty table as a bad one.
FLOOR_CLAIM = """
with picked as materialized (
    select ctid from floor order by id limit {limit} for update skip locked
)
delete from floor where ctid = any (array(select ctid from picked))
returning id, payload::text"""


FOLDER = Path(os.environ.get("HEADRACE_PEERS") or Path(__file__).parents[1] / ".venv" / "peers")
PROGRAMS = Path(__file__).parent / "workers"
NODE = "node@22.23.3"  # Node.js itself, as a package
NODE_FOLDER = FOLDER / "nodejs"
INSTALL = "python -m bench.peers"
NOTE = "installed"  # in a peer's folder: what is


@dataclass(frozen=True)
class Peer:
    """A queue with a worker process of its own."""

    name: str
    command: tuple[str, ...]
    unfinished: str
    """Whether the database shows something that is not done."""
    tables: tuple[str, ...]
    share: float = 1
    variables: dict[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    """What is installed for it, itself first."""
    extension: str | None = None
    """What its server must have."""
    alone: str | None = None
    """Why only one process can work on a queue."""

    @property
    def is_python(self) -> bool:
        return self.command[1].endswith(".py")

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def is_installed(self) -> bool:
        note = self.folder / NOTE
        return note.exists() and note.read_text() == self.note

    @property
    def note(self) -> str:
        return " ".join(self.packages)

    def lacks(self, connection: psycopg.Connection[Any]) -> str | None:
        """What is missing, or rather how to have it."""
        if self.packages and not self.is_installed:
            return INSTALL
        if self.extension and _extension(connection, self.extension) is None:
            return f"the extension {self.extension} in {_server(connection)}"
        return None

    def version(self, connection: psycopg.Connection[Any]) -> str | None:
        if self.extension:
            return _extension(connection, self.extension)
        if self.packages:
            return self.packages[0].replace("==", "@").rpartition("@")[2]
        return None


def _python(name: str, program: str, unfinished: str, table: str, **more: Any) -> Peer:
    command = (str(FOLDER / name / "bin/python"), str(PROGRAMS / program))
    return Peer(name, command, unfinished, (table,), **more)


def _node(name: str, program: str, unfinished: str, table: str, **more: Any) -> Peer:
    command = (str(NODE_FOLDER / "node_modules/.bin/node"), str(PROGRAMS / program))
    variables = {"PEER_FOLDER": str(FOLDER / name)}
    return Peer(name, command, unfinished, (table,), variables=variables, **more)


OURS = Peer(
    "headrace",
    (sys.executable, "-m", "bench.workers.ours"),
    """select exists (select from headrace.ready) or exists (select from headrace.delayed)
           or exists (select from headrace.held)
           or exists (select from headrace.leases where events is not null)""",
    ("headrace.ready", "headrace.leases", "headrace.held", "headrace.counts"),
)
FLOOR_WORKER = Peer(
    "floor",
    (sys.executable, "-m", "bench.workers.floor"),
    "select exists (select from floor)",
    ("floor",),
)
PGMQ = Peer(
    "pgmq",
    (sys.executable, "-m", "bench.workers.pgmq_raw"),
    "select exists (select from pgmq.q_bench)",
    ("pgmq.q_bench",),
)
# Who is slower gets a share of the events that the others get.
OTHERS = (
    _node(
        "graphile-worker",
        "graphile.mjs",
        "select exists (select from graphile_worker._private_jobs)",
        "graphile_worker._private_jobs",
        share=0.4,
        packages=("graphile-worker@0.18.0", "pg@8"),
    ),
    _node(
        "pg-boss",
        "pgboss.mjs",
        "select exists (select from pgboss.job where state < 'completed')",
        "pgboss.job",
        share=0.25,
        packages=("pg-boss@12.35.0",),
    ),
    _python(
        "pgqueuer",
        "pgqueuer_peer.py",
        "select exists (select from pgqueuer)",
        "pgqueuer",
        share=0.15,
        packages=("pgqueuer==1.6.0", "asyncpg", "uvloop"),
    ),
    _python(
        "awa-pg",
        "awa_peer.py",
        # What a view of its own says takes seconds; entries and receipts of a slot come and go together.
        """select (select count(*) from awa.ready_entries)
                > (select coalesce(sum(completed_count), 0) from awa.receipt_completion_batches)""",
        "awa.ready_entries",
        share=0.05,
        packages=("awa-pg==0.6.9", "uvloop"),
    ),
    _python(
        "chancy",
        "chancy_peer.py",
        "select exists (select from chancy_jobs where state in ('pending', 'running', 'retrying'))",
        "chancy_jobs",
        share=0.03,
        packages=("chancy==0.26.0", "psycopg[binary,pool]", "uvloop"),
    ),
    _python(
        "procrastinate",
        "procrastinate_peer.py",
        "select exists (select from procrastinate_jobs where status in ('todo', 'doing'))",
        "procrastinate_jobs",
        share=0.01,
        packages=("procrastinate==3.10.0", "psycopg[binary,pool]", "uvloop"),
    ),
    Peer(
        "pgq",
        (sys.executable, "-m", "bench.workers.pgq_peer"),
        """select (select last_value from pgq.event_1_id_seq) > (
               select tick_event_seq from pgq.subscription
               join pgq.tick on tick_queue = sub_queue and tick_id = sub_last_tick)""",
        ("pgq.subscription", "pgq.tick"),
        extension="pgq",
        alone="a consumer of PgQ is one process",
    ),
)


def install(connection: psycopg.Connection[Any]) -> None:
    connection.execute(FLOOR)
    script = _pgmq_script()
    if script is not None:
        connection.execute(script.read_bytes())
        connection.execute("select pgmq.create('bench')")


def workers(dsn: str) -> list[Peer]:
    """Ours, and those of the others that can be measured here."""
    return [
        OURS,
        *([FLOOR_WORKER] if has_asyncpg() else []),
        *([PGMQ] if has_pgmq() else []),
        *others(dsn),
    ]


def others(dsn: str) -> list[Peer]:
    with psycopg.connect(dsn) as connection:
        return [peer for peer in OTHERS if peer.lacks(connection) is None]


def absent(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """Who could be measured too, and what for that is missing."""
    missing = {peer.name: peer.lacks(connection) for peer in OTHERS}
    return {
        **({} if has_pgmq() else {"pgmq": "pip install pgmq"}),
        **({} if has_asyncpg() else {"floor (asyncpg)": "pip install asyncpg"}),
        **{name: how for name, how in missing.items() if how is not None},
    }


def versions(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """Of those that are measured, as far as they have one."""
    found = {peer.name: peer.version(connection) for peer in OTHERS if not peer.lacks(connection)}
    found["headrace"] = importlib.metadata.version("headrace")
    found["pgmq"] = _pgmq_version()
    return {name: version for name, version in found.items() if version is not None}


def has_pgmq() -> bool:
    return _pgmq_script() is not None


def has_asyncpg() -> bool:
    return importlib.util.find_spec("asyncpg") is not None


def _pgmq_script() -> Path | None:
    # Found, not imported: the package brings pgmq's SQL along, and that is all that is wanted.
    spec = importlib.util.find_spec("pgmq")
    for location in (spec and spec.submodule_search_locations) or ():
        script = Path(location) / "sql" / "pgmq.sql"
        if script.exists():
            return script
    return None


def _pgmq_version() -> str | None:
    """Of the SQL, which is not that of the package."""
    script = _pgmq_script()
    note = script and script.with_suffix(".sql.version")
    return note.read_text().strip().removeprefix("v") if note and note.exists() else None


def _extension(connection: psycopg.Connection[Any], name: str) -> str | None:
    row = connection.execute(
        "select default_version from pg_available_extensions where name = %s", [name]
    ).fetchone()
    return row and row[0]


def _server(connection: psycopg.Connection[Any]) -> str:
    return f"PostgreSQL {connection.info.server_version // 10000}"


def install_peers() -> None:
    """Each in an environment of its own, so that nobody's versions are another's."""
    npm = shutil.which("npm")
    if npm is None:
        print("No npm here: graphile-worker and pg-boss are not measured.")
    else:
        _npm_install(npm, NODE_FOLDER, NODE)
    for peer in OTHERS:
        if not peer.packages or peer.is_installed or (npm is None and not peer.is_python):
            continue
        print(f"Installing {peer.packages[0]}")
        try:
            if peer.is_python:
                venv.create(peer.folder, with_pip=True, clear=True, symlinks=os.name != "nt")
                pip = (peer.folder / "bin/python", "-m", "pip", "install", "--quiet")
                subprocess.run([*pip, *peer.packages], check=True)
            elif npm is not None:
                _npm_install(npm, peer.folder, *peer.packages)
        except subprocess.CalledProcessError as error:
            print(f"{peer.name} could not be installed, and is not measured: {error}")
            continue
        (peer.folder / NOTE).write_text(peer.note)


def _npm_install(npm: str, folder: Path, *packages: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}\n')
    subprocess.run([npm, "install", "--silent", "--no-audit", *packages], cwd=folder, check=True)


if __name__ == "__main__":
    install_peers()

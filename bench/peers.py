"""What Headrace is measured against: the floor, a bare table, and other queues where they are installed.

`python -m bench.peers` installs those that run in an environment of their own, below .venv/peers.
"""

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


def install(connection: psycopg.Connection[Any]) -> None:
    connection.execute(FLOOR)
    script = _pgmq_script()
    if script is not None:
        connection.execute(script.read_bytes())
        connection.execute("select pgmq.create('bench')")


def has_pgmq() -> bool:
    return _pgmq_script() is not None


def has_asyncpg() -> bool:
    return importlib.util.find_spec("asyncpg") is not None


def absent() -> list[str]:
    """What could be measured too, if it were installed."""
    return [
        *([] if has_pgmq() else ["pgmq (pip install pgmq)"]),
        *([] if has_asyncpg() else ["the floor through asyncpg (pip install asyncpg)"]),
        *(
            f"{peer.name} (python -m bench.peers)"
            for peer in (PGQUEUER, PROCRASTINATE, GRAPHILE)
            if not peer.is_there
        ),
    ]


def _pgmq_script() -> Path | None:
    # Found, not imported: the package brings pgmq's SQL along, and that is all that is wanted.
    spec = importlib.util.find_spec("pgmq")
    for location in (spec and spec.submodule_search_locations) or ():
        script = Path(location) / "sql" / "pgmq.sql"
        if script.exists():
            return script
    return None


FOLDER = Path(os.environ.get("HEADRACE_PEERS") or Path(__file__).parents[1] / ".venv" / "peers")
PROGRAMS = Path(__file__).parent / "workers"
PYTHON_PEERS = ("pgqueuer", "procrastinate", "asyncpg", "uvloop", "psycopg[binary,pool]")
NODE_PEERS = ("graphile-worker", "node@22")


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

    @property
    def is_there(self) -> bool:
        return Path(self.command[0]).exists()


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
PGQUEUER = Peer(
    "pgqueuer",
    (str(FOLDER / "python/bin/python"), str(PROGRAMS / "pgqueuer_peer.py")),
    "select exists (select from pgqueuer)",
    ("pgqueuer",),
    share=0.15,
)
PROCRASTINATE = Peer(
    "procrastinate",
    (str(FOLDER / "python/bin/python"), str(PROGRAMS / "procrastinate_peer.py")),
    "select exists (select from procrastinate_jobs where status in ('todo', 'doing'))",
    ("procrastinate_jobs",),
    share=0.01,
)
GRAPHILE = Peer(
    "graphile-worker",
    (str(FOLDER / "node/node_modules/.bin/node"), str(PROGRAMS / "graphile.mjs")),
    "select exists (select from graphile_worker._private_jobs)",
    ("graphile_worker._private_jobs",),
    share=0.4,
    variables={"PEER_FOLDER": str(FOLDER / "node")},
)


def workers() -> list[Peer]:
    """Ours, and those of the others that are installed."""
    others = [peer for peer in (GRAPHILE, PGQUEUER, PROCRASTINATE) if peer.is_there]
    return [
        OURS,
        *([FLOOR_WORKER] if has_asyncpg() else []),
        *([PGMQ] if has_pgmq() else []),
        *others,
    ]


def install_peers() -> None:
    """Each kind in an environment of its own, so that nobody's versions are another's."""
    python = FOLDER / "python"
    venv.create(python, with_pip=True)
    subprocess.run([python / "bin/pip", "install", "--quiet", *PYTHON_PEERS], check=True)
    npm = shutil.which("npm")
    if npm is None:
        print("No npm here: graphile-worker is not measured.")
        return
    node = FOLDER / "node"
    node.mkdir(parents=True, exist_ok=True)
    (node / "package.json").write_text('{"private": true}\n')
    subprocess.run([npm, "install", "--silent", "--no-audit", *NODE_PEERS], cwd=node, check=True)


if __name__ == "__main__":
    install_peers()

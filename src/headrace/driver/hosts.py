"""In what order the hosts of a DSN are tried, after one of them has kept a call waiting.

A client takes the first host that says it takes writes. An orphan says so too: a primary whose
failover manager has died, while another server has taken its place. No commit ends there, since
nobody follows it. So a host on which a call ran out of time is tried last for a while, and the
connections to it are given up. If it was the right one, nothing is lost: the others refuse.

Libpq's load_balance_hosts=random was rejected: half of the new connections would go to the orphan,
for as long as it lives.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

AVOIDED = 600.0  # seconds

_since: dict[tuple[str, str], float] = {}
"""When a call ran out of time, by host and port."""


def avoid(host: str, port: str) -> None:
    _since[host, port] = monotonic()


def was_left(host: str, port: str, made_at: float) -> bool:
    """Whether a connection was made before a call on this host ran out of time."""
    return made_at < _since.get((host, port), 0.0)


def anything_avoided() -> bool:
    return bool(_since)


def several(conninfo: str) -> bool:
    """Whether a DSN names several hosts, as far as can be told without parsing it."""
    return "," in conninfo


def ordered(conninfo: str) -> str:
    """The DSN with the hosts that are avoided behind the others."""
    if not _since:
        return conninfo
    known = conninfo_to_dict(conninfo)
    lists = {
        name: str(known[name]).split(",")
        for name in ("host", "hostaddr", "port")
        if known.get(name)
    }
    count = max(len(lists.get("host", [])), len(lists.get("hostaddr", [])))
    if count < 2:
        return conninfo
    turn = sorted(range(count), key=lambda n: _is_avoided(lists, n))  # which keeps the order
    moved: dict[str, Any] = {
        name: ",".join(its[n] for n in turn) for name, its in lists.items() if len(its) == count
    }
    return make_conninfo(conninfo, **moved)


def _is_avoided(lists: dict[str, list[str]], n: int) -> bool:
    names = lists.get("host") or lists["hostaddr"]
    ports = lists.get("port", ["5432"])
    at = _since.get((names[n], ports[n if len(ports) > 1 else 0]))
    return at is not None and monotonic() < at + AVOIDED

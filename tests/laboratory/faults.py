"""What can happen to processes, to PostgreSQL and to what is between them."""

import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

import psycopg

from tests.embedded.processes import postmaster
from tests.laboratory.house import eventually
from tests.laboratory.laboratory import NOBODY, Actor, Fault, Laboratory

STRANGER = "stranger"  # a session that is nobody's of ours, and is left alone


def kill_a_node(lab: Laboratory) -> object:
    node = lab.victim()
    return NOBODY if node is None else lab.kill(node)


def kill_a_publisher(lab: Laboratory) -> None:
    lab.kill(lab.random.choice(lab.publishers))


def freeze_a_node(lab: Laboratory) -> object:
    """For longer than its lease, or not."""
    node = lab.victim()
    seconds = lab.random.uniform(0.2, 2.5) * lab.lease
    return NOBODY if node is None else lab.freeze(node, seconds)


def terminate_a_node(lab: Laboratory) -> object:
    node = lab.victim()
    return NOBODY if node is None else node.process.send_signal(signal.SIGTERM)


def tell_a_node_to_end(lab: Laboratory) -> object:
    """Whatever its handlers do: how each node ends is counted, and whether it does so in time."""
    for one in lab.nodes:
        if one not in ENDING:
            ENDING[one] = threading.Event()
            threading.Thread(target=count_its_end, args=(lab, one), daemon=True).start()
    node = lab.victim()
    if node is None or ENDING[node].is_set():
        return NOBODY
    node.process.send_signal(signal.SIGTERM)
    ENDING[node].set()
    return None


def count_its_end(lab: Laboratory, node: Actor) -> None:
    while node.is_alive and not ENDING[node].wait(0.1):
        pass
    try:
        code = node.process.wait(lab.node_options["grace"] + IN_TIME)
    except subprocess.TimeoutExpired:
        lab.did("nodes that did not end in time")
    else:
        lab.did(ENDS.get(code, f"nodes that ended with {code}"))


def cut_backends(lab: Laboratory) -> None:
    lab.house.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
        f" and backend_type = 'client backend' and application_name <> '{STRANGER}' and random() < 0.5"
    )


def restart(number: int, away: tuple[float, float] = (0, 2)) -> object:
    def strike(lab: Laboratory) -> None:
        with lab.disturbances.absence():
            lab.house.stop(number)
            time.sleep(lab.random.uniform(*away))
            lab.house.start()

    return strike


def kill_supervised(lab: Laboratory) -> None:
    """The postmaster alone, or all of them; somebody else starts it again."""
    data = lab.house.postgres.data
    before = postmaster(data)
    with lab.disturbances.absence():
        processes = lab.house.processes() if lab.random.random() < 0.5 else [before]
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: _is_another(data, before))
        lab.house.sql("select")


def _is_another(data: Path, before: int) -> bool:
    with suppress(OSError, ValueError):  # it is just being written
        return postmaster(data) != before
    return False


def freeze_postgres(lab: Laboratory) -> None:
    with lab.disturbances.absence(), lab.house.frozen():
        time.sleep(lab.random.uniform(0.2, 1.5) * lab.lease)


def lock_a_table(lab: Laboratory) -> None:
    """Somebody's migration, or a careless person with psql."""
    table = lab.random.choice(["ready", "events", "leases", "held", "outcomes", "counts"])
    try:
        with lab.house.connect() as connection, connection.transaction():
            connection.execute("set local lock_timeout = '5s'")
            connection.execute(f"lock table headrace.{table} in access exclusive mode")
            time.sleep(lab.random.uniform(0.1, 1.5) * lab.lease)
    except psycopg.OperationalError:
        pass  # it did not get the lock


ENDS = {
    0: "nodes that ended in order",
    4: "nodes that ended themselves",
    -signal.SIGKILL: "nodes that their watchdogs killed",
}
ENDING: WeakKeyDictionary[Actor, threading.Event] = WeakKeyDictionary()
"""Nodes whose ends are counted, and whether they were told to end."""
IN_TIME = 15.0  # seconds after the grace time, on a machine that may be busy with others
KILL_NODES = Fault("nodes killed", 1.0, kill_a_node)
KILL_NOW_AND_THEN = Fault("nodes killed", 8.0, kill_a_node)
KILL_PUBLISHERS = Fault("publishers killed", 3.0, kill_a_publisher)
FREEZE_NODES = Fault("nodes frozen", 1.0, freeze_a_node)
TELL_NODES_TO_END = Fault("nodes told to end", 1.5, tell_a_node_to_end)
TERMINATE_NODES = Fault("nodes terminated", 1.5, terminate_a_node)
CUT_BACKENDS = Fault("storms over backends", 1.5, cut_backends)
RESTART_FAST = Fault("fast restarts of PostgreSQL", 6.0, restart(signal.SIGINT))  # type: ignore[arg-type]
RESTART_IMMEDIATELY = Fault("immediate restarts of PostgreSQL", 6.0, restart(signal.SIGQUIT))  # type: ignore[arg-type]
KILL_POSTGRES = Fault("kills of PostgreSQL", 7.0, restart(signal.SIGKILL))  # type: ignore[arg-type]
LONG_ABSENCES = Fault("long absences of PostgreSQL", 8.0, restart(signal.SIGINT, (12, 16)))  # type: ignore[arg-type]
KILL_SUPERVISED = Fault("kills of the PostgreSQL of `headrace up`", 4.0, kill_supervised)
FREEZE_POSTGRES = Fault("freezes of PostgreSQL", 5.0, freeze_postgres)
LOCK_TABLES = Fault("tables locked by a stranger", 4.0, lock_a_table)

"""The experiments: what is set up, what is done to it, for how long."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.laboratory import faults
from tests.laboratory.accounting import Accounts
from tests.laboratory.house import House
from tests.laboratory.laboratory import Fault, laboratory


@dataclass(frozen=True)
class Experiment:
    name: str
    what: str
    run: Callable[[Path, int, float], Accounts]
    """In a folder, by a seed, so many times as long as it is meant to be."""


def plain(*happening: Fault, seconds: float = 20, **options: object) -> Callable[[Path, int, float], Accounts]:
    def run(folder: Path, seed: int, scale: float) -> Accounts:
        house = House(folder / "data")
        notes = folder / "notes"
        notes.mkdir()
        try:
            with laboratory(house, notes, seed, **options) as lab:
                lab.staff(nodes=4, publishers=3)
                lab.endure(seconds * scale, *happening)
                lab.settle()
                return lab.account()
        finally:
            house.close()

    return run


EXPERIMENTS = [
    Experiment("calm", "Nothing happens: the accounts themselves are on trial.", plain(poison=False)),
    Experiment("kills", "Nodes and publishers are killed with SIGKILL.", plain(faults.KILL_NODES, faults.KILL_PUBLISHERS)),
    Experiment("freezes", "Nodes are stopped with SIGSTOP, for longer than their leases or not, and go on.", plain(faults.FREEZE_NODES, longest=0.5)),
    Experiment("terminations", "Nodes are told to end with SIGTERM, one after the other.", plain(faults.TERMINATE_NODES)),
    Experiment("backends", "Half of PostgreSQL's sessions are terminated, again and again.", plain(faults.CUT_BACKENDS)),
    Experiment("fast", "PostgreSQL is restarted, fast.", plain(faults.RESTART_FAST, seconds=30)),
    Experiment("immediate", "PostgreSQL is restarted, immediately.", plain(faults.RESTART_IMMEDIATELY, seconds=30)),
    Experiment("postmaster", "All of PostgreSQL is killed with SIGKILL.", plain(faults.KILL_POSTGRES, seconds=30)),
    Experiment("frozen", "PostgreSQL does not answer for a while.", plain(faults.FREEZE_POSTGRES, seconds=30)),
    Experiment("locks", "A stranger locks our tables.", plain(faults.LOCK_TABLES, seconds=30)),
    Experiment("everything", "Kills, freezes, terminations and storms together.", plain(faults.KILL_NODES, faults.KILL_PUBLISHERS, faults.FREEZE_NODES, faults.TERMINATE_NODES, faults.CUT_BACKENDS, seconds=40)),
]

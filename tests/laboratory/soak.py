"""A long run: a million events, plain, transactional, retried and poison, while workers are killed every 20 s, backends
terminated every 5 s, PostgreSQL is restarted six times and killed once, and somebody holds a snapshot for five minutes."""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.laboratory import faults, report, results
from tests.laboratory.accounting import Accounts
from tests.laboratory.house import House
from tests.laboratory.laboratory import Fault, Laboratory, laboratory
from tests.laboratory.running import say

EVENTS = 1_000_000
NODES, PUBLISHERS = 4, 3
HELD = 300.0  # seconds for which the snapshot is held, of a million
DRAIN = 1800.0
KINDS = {"plain": 890_000, "effect": 75_000, "retried": 30_000, "outbox": 4_980, "poison": 20}
OPTIONS: dict[str, Any] = {
    "longest": 0.02,
    "lease": 5.0,
    "drain": DRAIN,
    "ticking": False,  # the nodes do
    # 1,500 events a second, together: so it takes a while though the machine be quick.
    "publisher": {"kinds": KINDS, "bursts": [50, 100, 300], "pause": 0.3},
}
HAPPENING = [
    Fault("nodes killed", 20.0, faults.kill_a_node),
    Fault("storms over backends", 5.0, faults.cut_backends),
]
DEEDS = [
    *[("restarts of PostgreSQL", faults.restart(signal.SIGINT))] * 6,
    ("kills of PostgreSQL", faults.restart(signal.SIGKILL)),
]
HOT = ("ready", "delayed", "held", "leases", "keyed")
SIZES = """
select c.relname, pg_total_relation_size(c.oid) from pg_class c
where c.relnamespace = 'headrace'::regnamespace and c.relname = any(%s)
"""
PAUSE = 10.0  # seconds between two lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory.soak", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help="to publish")
    parser.add_argument("--seed", type=int, help="that a run printed, to have it again")
    parser.add_argument("--report", action="store_true", help="keep it for the report")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(2**32)
    print(f"soak: {given.events:,} events. Seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="hr-lab-"))
    folder.chmod(0o755)  # PostgreSQL, which is not root, lives in it
    began = time.monotonic()
    accounts = run(folder, seed, given.events)
    seconds = round(time.monotonic() - began)
    say(accounts)
    print(
        f"  {'WRONG' if accounts.wrong else 'all accounts are even'} ({seconds / 60:.0f} minutes)"
    )
    if accounts.wrong:
        print(f"  What was written is in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    if given.report and given.events >= EVENTS:  # less is not the soak
        wrong = {name: repr(examples) for name, examples in accounts.wrong.items()}
        found = {"seed": seed, "seconds": seconds, "figures": accounts.figures, "wrong": wrong}
        results.keep("soak", found)
        report.write()
    sys.exit(bool(accounts.wrong))


def run(folder: Path, seed: int, events: int) -> Accounts:
    notes = folder / "notes"
    notes.mkdir()
    house = House(folder / "data")
    try:
        with laboratory(house, notes, seed, **OPTIONS) as lab:
            return Soak(lab, events).run()
    finally:
        house.close()


class Soak:
    def __init__(self, lab: Laboratory, events: int) -> None:
        self._lab = lab
        self._events = events
        self._published = Counted(lab.folder, "*.ledger", b'["ok"')
        self._begun = Counted(lab.folder, "*.notes", b'["start"')
        self._began = self._said_at = time.monotonic()
        self._sizes: dict[str, int] = {}

    def run(self) -> Accounts:
        before = self._hot()
        self._lab.staff(NODES, PUBLISHERS)
        held = HELD * self._events / EVENTS
        with a_snapshot(self._lab.house):
            until = time.monotonic() + held
            self._endure(lambda: time.monotonic() >= until)
        begin = self._published.so_far()
        for number, (name, deed) in enumerate(DEEDS, 1):
            enough = begin + (self._events - begin) * number // (len(DEEDS) + 1)
            self._endure(lambda enough=enough: self._published.so_far() >= enough)
            deed(self._lab)  # type: ignore[operator]
            self._lab.did(name)
        self._endure(lambda: self._published.so_far() >= self._events)
        print("  everything is published, now it comes to its end", flush=True)
        self._lab.settle(lambda: self._progress("settling"))
        after = self._hot()
        accounts = self._lab.account()
        accounts.figures |= {"snapshot held, s": round(held)}
        for name in HOT:
            sizes = (before[name], self._sizes.get(name, 0), after[name])
            accounts.figures |= {
                f"{name}: {when}, MB": round(size / 1e6, 1)
                for when, size in zip(("before", "largest", "after"), sizes, strict=True)
            }
        return accounts

    def _endure(self, is_over: Any) -> None:
        def said_and_over() -> bool:
            self._progress()
            return bool(is_over())

        self._lab.endure_until(said_and_over, *HAPPENING)

    def _progress(self, doing: str = "") -> None:
        if time.monotonic() < self._said_at + PAUSE:
            return
        self._said_at = time.monotonic()
        for name, size in self._hot().items():
            self._sizes[name] = max(size, self._sizes.get(name, 0))
        published, begun = self._published.so_far(), self._begun.so_far()
        share = min(1.0, published / self._events)
        bar = "#" * round(share * 30)
        counts = ", ".join(f"{count} {name}" for name, count in self._lab.counts.items())
        print(
            f"  {self._said_at - self._began:5.0f} s [{bar:<30}] {published:>9,} published, {begun:>9,} begun;"
            f" {counts} {doing}",
            flush=True,
        )

    def _hot(self) -> dict[str, int]:
        return dict(self._lab.house.sql(SIZES, list(HOT)))


class Counted:
    """The lines of files that begin in some way, as far as they are written."""

    def __init__(self, folder: Path, pattern: str, beginning: bytes) -> None:
        self._folder, self._pattern, self._beginning = folder, pattern, beginning
        self._read: dict[Path, int] = {}
        self._count = 0
        self._looked_at = 0.0

    def so_far(self) -> int:
        if time.monotonic() > self._looked_at + 0.5:
            self.look_again()
        return self._count

    def look_again(self) -> None:
        self._looked_at = time.monotonic()
        self._count += sum(map(self._new_ones, self._folder.glob(self._pattern)))

    def _new_ones(self, path: Path) -> int:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(whole)
        return sum(line.startswith(self._beginning) for line in whole.splitlines())


@contextmanager
def a_snapshot(house: House) -> Iterator[None]:
    """Of a stranger's, whose session is spared."""
    with psycopg.connect(house.dsn, application_name=faults.STRANGER) as connection:
        connection.execute("set transaction isolation level repeatable read")
        connection.execute("select count(*) from headrace.events")
        yield
        connection.execute("select 1")  # it was there to the end


if __name__ == "__main__":
    main()

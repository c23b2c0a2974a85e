"""Runs experiments and says what was found."""

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.laboratory import report, results
from tests.laboratory.accounting import Accounts
from tests.laboratory.experiments import EXPERIMENTS, Experiment, Flow


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        help="of experiments, or what several names begin with (cluster); all of them if none is named",
    )
    parser.add_argument("--seed", type=int, help="that a run printed, to have it again")
    parser.add_argument("--scale", type=float, default=1.0, help="how many times as long")
    parser.add_argument(
        "--report", action="store_true", help="write docs/reliability-report.md anew"
    )
    given = parser.parse_args()
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    groups = {name.partition("-")[0] for name in known}
    if unknown := set(given.names) - known.keys() - groups:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there is {', '.join(known)}")
    wanted = [name for one in given.names for name in named(one, known)]
    if given.report and given.scale < 1:
        parser.error("less than all of it is not for the report")
    found: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    began = time.monotonic()
    for experiment in [known[name] for name in wanted or known]:
        if why := experiment.needs():
            print(f"{experiment.name}: not made here, because {why}")
            skipped[experiment.name] = why
        else:
            seed = given.seed if given.seed is not None else random.randrange(2**32)
            found.append(run(experiment, seed, given.scale))
        if given.report:
            name = kept_in(experiment)
            results.keep(name, replaced(found, skipped, name))
            report.write()
    minutes = (time.monotonic() - began) / 60
    wrong = [one["name"] for one in found if one["wrong"] and not one["may_lose"]]
    print(f"{len(found)} experiments in {minutes:.0f} minutes, {len(wrong)} wrong {wrong or ''}")
    sys.exit(bool(wrong))


def named(one: str, known: Iterable[str]) -> list[str]:
    """The experiment of this name, or those that begin with it: `cluster`."""
    return [one] if one in known else [name for name in known if name.startswith(f"{one}-")]


def kept_in(experiment: Experiment) -> str:
    """The name of the results that it is kept in."""
    if experiment.name.startswith(("cluster-", "shards-")):
        return "servers"
    return "flow" if isinstance(experiment, Flow) else "faults"


def replaced(
    found: list[dict[str, Any]], skipped: dict[str, str], name: str = "faults"
) -> dict[str, Any]:
    """What is kept of such experiments, with what was run again on the same machine in its place."""
    before = results.kept(name) or {}
    if before.get("on") != results.machine():
        before = {"found": [], "skipped": {}}
    known = {one["name"]: one for one in [*before["found"], *found]}
    reasons = {**before["skipped"], **skipped}
    names = [one.name for one in EXPERIMENTS if kept_in(one) == name]
    return {
        "found": [known[name] for name in names if name in known],
        "skipped": {name: reasons[name] for name in names if name in reasons.keys() - known.keys()},
    }


def run(experiment: Experiment, seed: int, scale: float) -> dict[str, Any]:
    print(f"{experiment.name}: {experiment.what} Seed {seed}", flush=True)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="hr-lab-"))
    folder.chmod(0o755)  # PostgreSQL, which is not root, lives in it
    try:
        accounts = experiment.run(folder, seed, scale)
    except Exception as error:  # the others are to have their turn
        traceback.print_exc()
        accounts = Accounts(wrong={f"it broke off: {error}": []})
    took = round(time.monotonic() - began)
    say(accounts)
    if accounts.wrong and not experiment.may_lose:
        print(f"  What was written is in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"  {'wrong' if accounts.wrong else 'all accounts are even'} ({took} s)", flush=True)
    return {
        "name": experiment.name,
        "what": experiment.what,
        "seed": seed,
        "seconds": took,
        "may_lose": experiment.may_lose,
        "figures": accounts.figures,
        "wrong": {name: repr(examples) for name, examples in accounts.wrong.items()},
    }


def say(accounts: Accounts) -> None:
    for name, figure in accounts.figures.items():
        print(f"    {figure:>9,}  {name}")
    for name, examples in accounts.wrong.items():
        print(f"  WRONG: {name}, such as {examples}")

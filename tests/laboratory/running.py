"""Runs experiments and says what was found."""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.laboratory import report
from tests.laboratory.experiments import EXPERIMENTS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.laboratory", description=__doc__)
    parser.add_argument("names", nargs="*", help="of experiments; all of them if none is named")
    parser.add_argument("--seed", type=int, help="that a run printed, to have it again")
    parser.add_argument("--scale", type=float, default=1.0, help="how many times as long")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    parser.add_argument(
        "--report", action="store_true", help="write docs/reliability-report.md anew"
    )
    given = parser.parse_args()
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    if unknown := set(given.names) - known.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}; there is {', '.join(known)}")
    found: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    for experiment in [known[name] for name in given.names or known]:
        if why := experiment.needs():
            print(f"{experiment.name}: not made here, because {why}")
            skipped[experiment.name] = why
            continue
        seed = given.seed if given.seed is not None else random.randrange(2**32)
        print(f"{experiment.name}: {experiment.what} Seed {seed}", flush=True)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="hr-lab-", ignore_cleanup_errors=True) as folder:
            accounts = experiment.run(Path(folder), seed, given.scale)
        took = time.monotonic() - began
        for name, figure in accounts.figures.items():
            print(f"    {figure:>8}  {name}")
        for name, examples in accounts.wrong.items():
            print(f"  WRONG: {name}, such as {examples}")
        verdict = "all accounts are even" if not accounts.wrong else "wrong"
        print(
            f"  {verdict}{', as it may be' if experiment.may_lose else ''} ({took:.0f} s)",
            flush=True,
        )
        found.append(
            {"name": experiment.name, "what": experiment.what, "seed": seed, "seconds": round(took)}
            | {
                "may_lose": experiment.may_lose,
                "figures": accounts.figures,
                "wrong": {k: repr(v) for k, v in accounts.wrong.items()},
            }
        )
    if given.report and not given.names:  # a part of it is not the report
        report.write(found, skipped)
    if given.json:
        given.json.write_text(json.dumps(found, indent=2))
    sys.exit(any(one["wrong"] and not one["may_lose"] for one in found))

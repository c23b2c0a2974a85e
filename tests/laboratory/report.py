"""What a run of the laboratory has found, as a page of the documentation."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.embedded import find_binaries

PAGE = Path(__file__).parents[2] / "docs" / "reliability-report.md"

INTRODUCTION = """\
# Reliability report

*Written by `make faults`.*

Each experiment starts a PostgreSQL of its own with `fsync` on, four nodes and three publishers as processes, and
disturbs them. Publishers write what they mean to publish and what they were told into files outside the database, nodes write
every start of a handler. Then nothing is disturbed any more, everything comes to its end, and the files are compared with
what the database says. **All of these must be zero in every experiment:** events lost, events nobody meant to publish,
publishes that a living publisher knows nothing of, two events of one idempotency key, rows without the event of their
transaction or the other way, deliveries with other than one end, attempts with two ends, gaps among attempts, effects doubled,
missing or without their event, attempts begun twice, poison begun more than four times, innocents among the dead letters,
entries of the log that do not match.
"""


def write() -> None:
    pass


def page(found: list[dict[str, Any]], skipped: dict[str, str]) -> str:
    binaries = find_binaries()
    lines = [
        INTRODUCTION,
        f"{datetime.now(UTC):%Y-%m-%d}, {platform.system()} {platform.release()}, {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, PostgreSQL {binaries.major}.",
        "",
        "| experiment | what happens | published | attempts | abandoned | redelivered | late finishes refused | accounts |",
        "|---|---|---|---|---|---|---|---|",
    ]
    shown = ("published", "attempts", "abandoned", "redelivered", "late finishes refused")
    for one in found:
        figures = " | ".join(f"{one['figures'].get(name, 0):,}" for name in shown)
        lines.append(f"| {one['name']} | {one['what']} | {figures} | {_verdict(one)} |")
    lines += ["", "## In detail", ""]
    for one in found:
        lines += [
            f"**{one['name']}**, seed {one['seed']}, {one['seconds']} s: " + _details(one),
            "",
        ]
    lines += ["## What was not tested", ""]
    lines += [f"- {name}: {why}." for name, why in skipped.items()]
    lines += [
        "- Loss of power: a killed PostgreSQL loses no page that the kernel has. `fsync` is on; whether the disk keeps what it",
        "  says it has kept is the disk's promise.",
        "- Two machines: all processes were on one, with a network of our own between them.",
    ]
    return "\n".join(lines) + "\n"


def _verdict(one: dict[str, Any]) -> str:
    if not one["wrong"]:
        return "even"
    return "as expected: " + "; ".join(one["wrong"]) if one["may_lose"] else "**wrong**"


def _details(one: dict[str, Any]) -> str:
    return ", ".join(f"{name} {figure:,}" for name, figure in one["figures"].items()) + "."

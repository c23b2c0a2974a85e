"""What was found last, for the report: `make faults`, `make soak` and `make defects` keep it here."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from headrace.embedded import find_binaries

FOLDER = Path(__file__).parent / "results"


def keep(name: str, found: dict[str, Any]) -> None:
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps({"at": f"{datetime.now(UTC):%Y-%m-%d}", "on": machine(), **found}, indent=1)
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def kept(name: str) -> dict[str, Any] | None:
    file = FOLDER / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def machine() -> str:
    binaries = find_binaries()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{platform.system()} {platform.release()}, {os.cpu_count()} cores,"
        f" {memory:.0f} GiB, Python {platform.python_version()}, psycopg {psycopg.__version__}, PostgreSQL {binaries.major}"
    )

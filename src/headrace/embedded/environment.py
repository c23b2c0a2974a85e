"""The one place where the embedded PostgreSQL reads the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

# A server outlives the process that started it, and other processes share it. So it gets none of
# that process's secrets, no PG* variable, and no locale: LC_ALL may name one that is not installed.
HANDED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True)
class Environment:
    data: Path | None
    binaries: Path | None
    search_path: str
    sudo_user: int | None
    """The user that called sudo."""
    for_server: dict[str, str]


def environment() -> Environment:
    data, binaries = os.environ.get("HEADRACE_DATA"), os.environ.get("HEADRACE_PG_BIN")
    search_path = os.environ.get("PATH", os.defpath)
    sudo = os.environ.get("SUDO_UID", "")
    handed_on = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    return Environment(
        data=Path(data) if data else None,
        binaries=Path(binaries) if binaries else None,
        search_path=search_path,
        sudo_user=int(sudo) if sudo.isdecimal() else None,
        for_server={"PATH": search_path, **handed_on, "LC_ALL": "C", "TZ": "UTC"},
    )

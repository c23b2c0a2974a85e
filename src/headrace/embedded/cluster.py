"""The cluster in a data folder: its version, the programs that fit it, and how it is made."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from headrace.embedded.binaries import OLDEST, Binaries, find_binaries
from headrace.embedded.folder import sync
from headrace.embedded.identity import Identity
from headrace.embedded.locks import FileLock
from headrace.errors import EmbeddedError

UNFINISHED = "pg.new-"


def version(cluster: Path) -> int | None:
    """The major version that made the cluster; None: there is no cluster yet."""
    if not cluster.exists():
        return None
    try:
        return int((cluster / "PG_VERSION").read_text(encoding="utf-8").split(".")[0])
    except (FileNotFoundError, ValueError):
        raise EmbeddedError(
            f"{cluster} is not a PostgreSQL cluster: move it away, or restore it from a backup"
        ) from None


def fitting_binaries(cluster: Path, folder: Path | None, identity: Identity) -> Binaries:
    """Programs of the cluster's major version, or any for a cluster that is yet to be made."""
    major = version(cluster)
    if major is not None and major < OLDEST:
        raise EmbeddedError(_unusable(cluster, major, f"Headrace needs {OLDEST} or newer"))
    try:
        return find_binaries(major, folder=folder, identity=identity)
    except EmbeddedError as error:
        if major is None:
            raise
        raise EmbeddedError(_unusable(cluster, major, str(error))) from error


def create(
    cluster: Path, binaries: Binaries, identity: Identity, lock: FileLock, timeout: float
) -> None:
    """Make the cluster beside its place and rename it at the end, so that it is whole or absent.

    initdb inherits server.lock: if this process is killed, no other process sweeps away the
    files that the orphan is still writing.
    """
    unfinished = cluster.parent / f"{UNFINISHED}{secrets.token_hex(4)}"
    unfinished.mkdir(mode=0o700)
    identity.own(unfinished)
    command: list[str | Path] = [binaries.initdb, "-D", unfinished, *_options(binaries.major)]
    try:
        made = identity.run(command, fds=[lock.fd], timeout=timeout)
    except subprocess.TimeoutExpired:
        raise EmbeddedError(f"initdb did not finish in {timeout:.0f} s in {unfinished}") from None
    if not made.succeeded:
        said = (made.errors or made.output).strip()
        raise EmbeddedError(f"{binaries.initdb} could not make a cluster in {unfinished}:\n{said}")
    unfinished.rename(cluster)
    # Before anything is acknowledged: after a power cut the cluster must not be found under its
    # unfinished name, and be swept away.
    sync(cluster.parent)
    _keep_out_of_git(cluster.parent, identity)


def sweep(data: Path) -> None:
    """Remove what killed starts left behind; only for the holder of server.lock."""
    for leftover in data.glob(f"{UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _keep_out_of_git(data: Path, identity: Identity) -> None:
    ignore = data / ".gitignore"
    with suppress(FileExistsError), ignore.open("x", encoding="utf-8") as file:
        file.write("*\n")
        identity.own(ignore)


def _options(major: int) -> list[str]:
    # The C locale sorts alike on every machine and always exists. Trust is for users that can enter
    # the socket's folder, which is its owner; a network gets in only by a change of pg_hba.
    builtin = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if major >= 17 else []
    return [
        "--username=postgres",
        "--auth-local=trust",
        "--auth-host=reject",
        "--encoding=UTF8",
        "--locale=C",
        *builtin,
        "--data-checksums",
        "--no-instructions",
    ]


def _unusable(cluster: Path, major: int, reason: str) -> str:
    return (
        f"{cluster} was made by PostgreSQL {major}: {reason}. Install PostgreSQL {major}, or move"
        " the data to a newer one with pg_upgrade or pg_dumpall, or choose another data folder"
    )

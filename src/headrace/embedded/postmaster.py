"""The process behind postmaster.pid: whether it is this cluster's, and how it is asked to stop.

The number in the file is a hint. It is acted on only after a look at the process itself, because
after a crash or a reboot it may belong to any process.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from headrace.errors import EmbeddedError

PROC = Path("/proc")


def announces_ready(cluster: Path) -> bool:
    """The content of the file, whether its process lives or not: a hint that spares the log of a
    recovering server."""
    lines = _lines(cluster)
    return len(lines) >= 8 and lines[7].strip() == "ready"


def interrupt(cluster: Path) -> bool:
    """Ask this cluster's postmaster for a fast shutdown; False when none was found here."""
    pid = _recorded_pid(cluster)
    if pid is None:
        return False
    handle = _pin(pid)
    try:
        if not _serves(pid, cluster):
            return False
        if handle is None:
            os.kill(pid, signal.SIGINT)
        else:
            signal.pidfd_send_signal(handle, signal.SIGINT)
    except ProcessLookupError:
        return False
    finally:
        if handle is not None:
            os.close(handle)
    return True


def discard_stale_pid(cluster: Path) -> None:
    """Remove the pid file of a dead server; only for the holder of server.lock.

    PostgreSQL would refuse to start if the number now belonged to a stranger. A server started by
    hand holds no lock of ours, so it is looked for: without its file it would stop itself.
    """
    pid = _recorded_pid(cluster)
    if pid is not None and _serves(pid, cluster):
        raise EmbeddedError(
            f"a PostgreSQL that Headrace did not start (process {pid}) is running in {cluster};"
            " stop it, and try again"
        )
    (cluster / "postmaster.pid").unlink(missing_ok=True)


def _pin(pid: int) -> int | None:
    """A descriptor of the process: if the process ends after the look, the signal reaches no
    other."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None  # not Linux, or an old one, or no such process


def _serves(pid: int, cluster: Path) -> bool:
    """Whether this process is a postmaster and that cluster is its folder."""
    if not (PROC / "self").exists():
        return _serves_by_ps(pid, cluster)
    try:
        argv = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        if argv[0].rpartition(b"/")[2] != b"postgres":
            return False  # a stranger, or a backend, which is titled `postgres: …`
        return _folder_of(pid, argv).samefile(cluster)
    except OSError:
        return False


def _folder_of(pid: int, argv: list[bytes]) -> Path:
    # A postmaster works in its cluster. Root in a container may not be allowed to see the working
    # folder of another user's process, but every user sees its arguments.
    folder = PROC / str(pid) / "cwd"
    try:
        folder.stat()
    except PermissionError:
        if b"-D" in argv[:-1]:
            return Path(os.fsdecode(argv[argv.index(b"-D") + 1]))
    return folder


def _serves_by_ps(pid: int, cluster: Path) -> bool:
    command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
    shown = subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout
    program, _, arguments = shown.partition(b" -D ")
    return program.endswith(b"postgres") and arguments.startswith(os.fsencode(f"{cluster} "))


def _recorded_pid(cluster: Path) -> int | None:
    lines = _lines(cluster)
    return int(lines[0]) if lines and lines[0].isdigit() and int(lines[0]) > 1 else None


def _lines(cluster: Path) -> list[str]:
    try:
        text = (cluster / "postmaster.pid").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return text.split("\n")

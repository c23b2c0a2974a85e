"""The data folder: which one it is, and what may be done to one that was there before."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from headrace.embedded.environment import environment
from headrace.embedded.identity import candidates
from headrace.errors import EmbeddedError

SYSTEM_DATA = Path("/var/lib/headrace")
MARK = "gate.lock"  # the first file made in a data folder, so its presence says whose folder it is


def data_folder(explicit: str | Path | None = None) -> Path:
    """`explicit`, else HEADRACE_DATA, else `.headrace` in the working folder.

    Root, when nothing was named and the working folder will not do, gets /var/lib/headrace.
    """
    # Resolved, so that one folder has one path, and one socket path, under all of its names.
    named = explicit or environment().data
    try:
        if named:
            return Path(named).expanduser().resolve()
        here = Path.cwd().resolve()
    except FileNotFoundError:
        raise EmbeddedError("the working folder is gone; name a data folder by its path") from None
    if os.geteuid() == 0 and not _suits_root(here):
        return SYSTEM_DATA
    return here / ".headrace"


def _suits_root(here: Path) -> bool:
    """Services start in `/`; others start where whoever runs PostgreSQL for root cannot go."""
    data = here / ".headrace"
    if (data / MARK).exists():
        return True
    if here == Path("/") or not os.access(here, os.W_OK):
        return False
    return any(identity.reaches(here) for identity in candidates(data))


def prepare(data: Path) -> None:
    """Make the folder, or take over an empty one; never touch one that is somebody else's."""
    data.parent.mkdir(parents=True, exist_ok=True)
    try:
        data.mkdir(mode=0o700)
    except FileExistsError:
        _adopt(data)
    else:
        with suppress(PermissionError):  # one may be allowed to write in it, and not to read it
            sync(data.parent)


def _adopt(data: Path) -> None:
    # By descriptor: what is found empty is what is changed, whatever the path names by then.
    fd = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with os.scandir(fd) as entries:
            names = {entry.name for entry in entries} - {"lost+found"}
        if names and MARK not in names:
            raise EmbeddedError(
                f"{data} holds other files; name a new or an empty folder for Headrace's data"
            )
        if not names and os.fstat(fd).st_uid == os.geteuid():
            os.fchmod(fd, 0o700)
    finally:
        os.close(fd)


def sync(folder: Path) -> None:
    """Make the folder's entries durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""The data folder: which one it is, and what may be done to one that was there before."""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from headrace.embedded.environment import environment
from headrace.embedded.identity import candidates
from headrace.errors import EmbeddedError

SYSTEM_DATA = Path("/var/lib/headrace")
# The first file made in a data folder, so its presence says that the folder is Headrace's.
MARK = "gate.lock"


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
        raise EmbeddedError(
            "the working folder does not exist any more: name a data folder by its path"
        ) from None
    if os.geteuid() == 0 and not _suits_root(here):
        return SYSTEM_DATA
    return here / ".headrace"


def _suits_root(here: Path) -> bool:
    """Services start in `/`; other programs start where the user that runs PostgreSQL for root
    cannot go."""
    data = here / ".headrace"
    if (data / MARK).exists():
        return True
    if here == Path("/") or not os.access(here, os.W_OK):
        return False
    return any(identity.reaches(here) for identity in candidates(data))


def prepare(data: Path, *, named: bool = True) -> None:
    """Make the folder, or use an existing one; never touch or trust a folder of another user.

    The folder's owner chooses the server that its users connect to. So the owner must be this
    user. Root may name another user's folder, but uses none that it only finds (`named=False`).
    """
    data.parent.mkdir(parents=True, exist_ok=True)
    try:
        data.mkdir(mode=0o700)
    except FileExistsError:
        _adopt(data, named)
    else:
        with suppress(PermissionError):  # one may be allowed to write in it, and not to read it
            sync(data.parent)


def _adopt(data: Path, named: bool) -> None:
    _check_owner(data, data.lstat(), named)  # by path first: a foreign folder may be unreadable
    # By descriptor: the folder that was found empty is changed, even if the path names another.
    fd = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(fd)
        _check_owner(data, found, named)
        with os.scandir(fd) as entries:
            owners = {entry.name: entry.stat(follow_symlinks=False).st_uid for entry in entries}
        owners.pop("lost+found", None)
        if owners and MARK not in owners:
            raise EmbeddedError(
                f"{data} holds other files; name a new or an empty folder for Headrace's data"
            )
        if not owners and found.st_uid == os.geteuid():
            os.fchmod(fd, 0o700)
        else:
            _check_closed(data, found, owners)
    finally:
        os.close(fd)


def _check_owner(data: Path, found: os.stat_result, named: bool) -> None:
    user = os.geteuid()
    if found.st_uid == user or (user == 0 and (named or _is_roots_choice(data, found.st_uid))):
        return
    owner = _name(found.st_uid)
    raise EmbeddedError(
        f"{data} belongs to another user ({owner}), who would be able to read and change your "
        "events, so Headrace does not use it."
        + (
            f"If you trust {owner}, name the folder: --data {data}"
            if user == 0
            else "Name a data folder of your own with --data or HEADRACE_DATA"
        )
    )


def _is_roots_choice(data: Path, owner: int) -> bool:
    """Whether root may use another user's folder that it finds in its working folder.

    Root gives its folder to an unprivileged user where the system leaves no other way; such a
    folder stands where root alone can put one. Under sudo, the user that called it is trusted
    with their own.
    """
    parent = data.parent.stat()
    only_root_writes = parent.st_uid == 0 and not _is_open(parent)
    return only_root_writes or owner == environment().sudo_user


def _check_closed(data: Path, found: os.stat_result, owners: dict[str, int]) -> None:
    """Refuse a folder into which other users can put a cluster or a socket, or have done so."""
    if _is_open(found):
        raise EmbeddedError(
            f"other users can write to {data}, so Headrace does not use it. "
            f"Look through its files, then close it: chmod 700 {data}"
        )
    user = os.geteuid()
    for name, owner in owners.items():
        if user != 0 and owner not in (user, 0):
            raise EmbeddedError(
                f"{data / name} belongs to another user ({_name(owner)}), so Headrace does not use "
                "the folder. Remove the file if you do not know it, or name another data folder"
            )


def _is_open(found: os.stat_result) -> bool:
    return bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"number {uid}"


def sync(folder: Path) -> None:
    """Make the folder's entries durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""The folder of the server's socket, and the DSN that leads to it."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from headrace.embedded.identity import Identity

PORT = 5432  # only a part of the socket's name: nothing listens on a network
FILE = f".s.PGSQL.{PORT}"
LONGEST = 103  # bytes in a socket's path on macOS; Linux has room for 107
ELSEWHERE = Path("/tmp")  # and not TMPDIR, which may be long, or private
INSIDE, OUTSIDE = "sock-", "headrace-"  # prefixes of the names of socket folders


def socket_folder(data: Path) -> Path:
    """The folder of the running server's socket, as clients name it."""
    sock = data / "sock"
    target = sock.readlink() if sock.is_symlink() else sock
    return target if target.is_absolute() else sock


def make_socket_folder(data: Path, identity: Identity) -> Path:
    """A fresh folder for a new server; only for the holder of server.lock.

    A server removes its socket when it ends, by name. A server whose data folder was deleted
    ends a minute later, and must not remove the socket of its successor. So every server has its
    own folder, and `sock` is a link to the present one. Clients that use the link reconnect to a
    server that was started again. Clients of a server whose socket is in /tmp know that folder's
    own name: the folder is kept as long as the link is there, so for a server that died and is
    started again.
    """
    kept = _folder_in_tmp(data, identity)
    if kept is not None:
        _remove_files(kept)
        return kept
    remove_socket_folder(data)
    folder, sock = data / f"{INSIDE}{secrets.token_hex(4)}", data / "sock"
    if _can_be_named(folder):
        sock.symlink_to(folder.name)
    else:
        folder = ELSEWHERE / f"{OUTSIDE}{secrets.token_hex(8)}"
        sock.symlink_to(folder)
    folder.mkdir(mode=0o700)
    for path in (folder, sock):
        identity.own(path)
    return folder


def is_replaced(data: Path) -> bool:
    """Whether another user has made a folder of the socket folder's name in /tmp, after that was
    deleted."""
    try:
        return socket_folder(data).stat().st_uid != data.stat().st_uid
    except OSError:
        return False


def remove_socket_folder(data: Path) -> None:
    """Remove what is left of the sockets of earlier servers; only for the holder of server.lock."""
    sock = data / "sock"
    if sock.is_symlink():
        target = sock.readlink()
        if target.parent == ELSEWHERE and target.name.startswith(OUTSIDE):
            _remove(target)
        sock.unlink()
    for folder in data.glob(f"{INSIDE}*"):
        _remove(folder)


def _folder_in_tmp(data: Path, identity: Identity) -> Path | None:
    """The folder in /tmp that an earlier server had, if it is still the server's alone."""
    sock = data / "sock"
    target = sock.readlink() if sock.is_symlink() else sock
    if target.parent != ELSEWHERE or not target.name.startswith(OUTSIDE):
        return None
    owner = os.geteuid() if identity.user is None else identity.user[0]
    try:
        found = target.lstat()
    except OSError:
        return None
    is_own = found.st_uid == owner and stat.S_IMODE(found.st_mode) == 0o700
    return target if is_own and stat.S_ISDIR(found.st_mode) else None


def _remove(folder: Path) -> None:
    _remove_files(folder)
    with suppress(OSError):
        folder.rmdir()


def _remove_files(folder: Path) -> None:
    # Only the files that a server leaves: the folder may be in a place where other users can write.
    for name in (FILE, f"{FILE}.lock"):
        with suppress(OSError):
            (folder / name).unlink()


def dsn(folder: Path, database: str) -> str:
    """A URI, since percent signs carry any character; the port, since PGPORT may name another."""
    return (
        f"postgresql://postgres@/{database}?host={quote(os.fsencode(folder), safe='')}&port={PORT}"
    )


def _can_be_named(folder: Path) -> bool:
    """Whether libpq can take this path: short, without a comma (a list of hosts), and UTF-8."""
    try:
        name = str(folder / FILE).encode()
    except UnicodeEncodeError:
        return False
    return len(name) <= LONGEST and b"," not in name

"""Where the server's socket is, and the DSN that leads to it."""

from __future__ import annotations

import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from headrace.embedded.identity import Identity
from headrace.errors import EmbeddedError

PORT = 5432  # only a part of the socket's name: nothing listens on a network
FILE = f".s.PGSQL.{PORT}"
LONGEST = 103  # bytes in a socket's path on macOS; Linux has room for 107
SHORT = Path("/tmp")  # and not TMPDIR, which may be long, or private
PREFIX = "headrace-"


def socket_folder(data: Path) -> Path:
    """The folder of the running server's socket."""
    sock = data / "sock"
    return sock.readlink() if sock.is_symlink() else sock


def make_socket_folder(data: Path, identity: Identity) -> Path:
    """A fresh folder for a new server; only for the holder of server.lock."""
    remove_socket_folder(data)
    sock = data / "sock"
    if _can_be_named(sock):
        sock.mkdir(mode=0o700)
        identity.own(sock)
        return sock
    # The link is how the others learn the name: it depends on no variable of theirs.
    target = SHORT / f"{PREFIX}{secrets.token_hex(8)}"
    target.mkdir(mode=0o700)
    identity.own(target)
    if not identity.reaches(target):
        raise EmbeddedError(f"{identity.name} cannot use {target} for the socket of {data}")
    sock.symlink_to(target)
    return target


def remove_socket_folder(data: Path) -> None:
    sock = data / "sock"
    if not sock.is_symlink():
        shutil.rmtree(sock, ignore_errors=True)
        return
    target = sock.readlink()
    sock.unlink()
    if target.parent != SHORT or not target.name.startswith(PREFIX):
        return  # not of our making
    for name in (FILE, f"{FILE}.lock"):
        with suppress(OSError):
            (target / name).unlink()
    with suppress(OSError):
        target.rmdir()


def dsn(folder: Path, database: str) -> str:
    """A URI, since percent signs carry any character; the port, since PGPORT may name another."""
    return f"postgresql://postgres@/{database}?host={quote(str(folder), safe='')}&port={PORT}"


def _can_be_named(sock: Path) -> bool:
    """Whether libpq can be told this path: short, without a comma (a list of hosts), and UTF-8."""
    try:
        name = str(sock / FILE).encode()
    except UnicodeEncodeError:
        return False
    return len(name) <= LONGEST and b"," not in name

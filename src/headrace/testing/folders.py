"""Folders for servers and sockets: with short names, in memory where there is enough of it, and gone in the end."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")  # nobody cuts the power, so tests need not wait for a disk
ENOUGH = 2**30


def roomy(folder: Path) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    system = os.statvfs(folder)
    return system.f_bavail * system.f_frsize > ENOUGH and not system.f_flag & os.ST_NOEXEC


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose name leaves room for a socket's in 107 bytes and which everybody may enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="hr-", dir=MEMORY if roomy(MEMORY) else "/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        # A server that a failed test left behind notices that its folder is gone.
        shutil.rmtree(folder, ignore_errors=True)

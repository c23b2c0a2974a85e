"""Temporary folders for servers and sockets: with short names, and in memory if there is enough."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")  # tests need not survive a power cut, nor wait for a disk
ENOUGH = 2**30


def roomy(folder: Path) -> bool:
    if not os.access(folder, os.W_OK):
        return False
    system = os.statvfs(folder)
    return system.f_bavail * system.f_frsize > ENOUGH and not system.f_flag & os.ST_NOEXEC


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose name leaves room for a socket's name in 107 bytes, and which all users may
    enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="hr-", dir=MEMORY if roomy(MEMORY) else "/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        # A server that a failed test left behind ends when its folder is gone.
        shutil.rmtree(folder, ignore_errors=True)

"""File locks that show which processes are alive, with exact rules for fork and exec.

`flock` belongs to the open file description, which `fork` shares and `exec` keeps. Descriptors
are close-on-exec, so a lock reaches another program only when it is passed on purpose. A forked
child of this process closes its copies at once: else a child forked while another thread held
the gate would keep it shut for as long as the child lives.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

PAUSE = 0.01  # seconds between two looks at a lock or a server


class FileLock:
    """One open lock file; locked and unlocked by its methods, closed at the latest by `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _fork_guard:
            self._fd: int | None = _above_standard(open_own(path))
            _locks.add(self)

    @property
    def fd(self) -> int:
        assert self._fd is not None, "the lock has been closed"
        return self._fd

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    @property
    def is_current(self) -> bool:
        """Whether this is still the file at its path; the folder may have been deleted and made
        again."""
        try:
            return self.is_open and os.path.samestat(os.fstat(self.fd), self._path.stat())
        except FileNotFoundError:
            return False

    def share_until(self, deadline: float) -> bool:
        return self._try_until(fcntl.LOCK_SH, deadline)

    def share(self) -> bool:
        return self._try(fcntl.LOCK_SH)

    def seize(self) -> bool:
        """Take it alone, now or not at all. A shared lock held before is lost either way."""
        return self._try(fcntl.LOCK_EX)

    def seize_until(self, deadline: float) -> bool:
        return self._try_until(fcntl.LOCK_EX, deadline)

    def release(self) -> None:
        # Unlocking, not only closing: another thread may be between fork and exec with a copy.
        if self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self.leave()

    def leave(self) -> None:
        """Close it here; a process that inherited the descriptor keeps the lock."""
        with _fork_guard:
            self._close()

    def _try_until(self, mode: int, deadline: float) -> bool:
        while not self._try(mode):
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE)
        return True

    def _try(self, mode: int) -> bool:
        try:
            fcntl.flock(self.fd, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _close(self) -> None:
        _locks.discard(self)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def open_own(path: Path) -> int:
    """Open a file of the data folder for this user alone, and make it if it is not there."""
    # Root may be working in another user's folder: it follows no link there, and gives what it
    # makes, and only that, to the folder's owner, which could not open it otherwise.
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.fchown(fd, owner.st_uid, owner.st_gid)
    return fd


def _above_standard(fd: int) -> int:
    # A daemon may have closed 0, 1 and 2; a lock there would be lost to the streams of the server.
    if fd > 2:
        return fd
    moved: int = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return moved


_locks: set[FileLock] = set()
_fork_guard = threading.Lock()  # no fork may fall between opening a file and listing it here


def _after_in_child() -> None:
    for lock in list(_locks):
        lock._close()
    _fork_guard.release()


os.register_at_fork(
    before=_fork_guard.acquire,
    after_in_parent=_fork_guard.release,
    after_in_child=_after_in_child,
)

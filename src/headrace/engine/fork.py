"""Things that a forked child must not share with its parent.

A child inherits the parent's sockets, locks and objects, but none of its threads. Two processes
that use one connection to PostgreSQL read each other's answers, and a lock that another thread of
the parent held at that moment stays locked for ever. So every object that holds a connection, a
lock or a thread registers here, and begins anew in the child before anything else runs.
"""

from __future__ import annotations

import os
import socket
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    def after_fork(self) -> None:
        """Called in the child: let go of what the parent uses. No lock of the parent's may be
        taken, nothing waited for."""


_all: WeakSet[Forked] = WeakSet()


def register(one: Forked) -> None:
    """Have it told when this process is a new one. It is not kept alive by that."""
    _all.add(one)


def mute(fd: int) -> None:
    """Put a socket in the place of this one whose other end is closed.

    Closing the descriptor would leave its number to the next file that is opened, and what still
    writes there writes into that file. And while a child holds the parent's socket, PostgreSQL does
    not notice the parent's death.
    """
    ours, other = socket.socketpair()
    with ours:
        other.close()
        os.dup2(ours.fileno(), fd, inheritable=False)


def _after_in_child() -> None:
    for one in list(_all):
        one.after_fork()


os.register_at_fork(after_in_child=_after_in_child)

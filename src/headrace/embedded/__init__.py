"""A private PostgreSQL for one data folder: all processes that open it share it, the last stops it.

    with EmbeddedPostgres("queue-data") as postgres:
        psycopg.connect(postgres.dsn)

A data folder holds everything:

    pg/          the cluster, with data checksums
    sock         its unix socket: a link to a folder, mode 0700, beside it, or in /tmp when the path
                 is too long for a socket (then the server has another DSN after each stop)
    server.log   the log; at most 10 MB while a process supervises the server
    server.log.1 the 10 MB before that
    gate.lock    held while a process starts or stops the server
    use.lock     held, shared, by every process that uses the server
    server.lock  held by the processes of PostgreSQL themselves, which inherit it: it is free
                 exactly when none of them lives

These locks show what is alive, and never process ids, which lie after a crash. The kernel releases
a lock when its last holder dies, in whatever way it dies, so `kill -9` of any process leaves
nothing to clean up by hand.

Consequences:

- A process that ends normally without `close()` is closed by `atexit`. One that is killed leaves
  the server running; the next process that opens and closes the folder stops it.
- A use belongs to the process that started it. A forked child is not a user: it neither keeps the
  server alive nor stops it, and while its parent lives it may use the DSN. A child that may outlive
  its parent calls `start()` itself, on the same object or another.
- A server that dies under a process that opened it as `supervised` (so do `connect()` and every
  command) is started again by that process. Committed data is there, and the DSN is the same.
- A start that runs out of time leaves the server to its recovery; the next one finds it.
- `settings` take effect when the server starts; a server that already runs keeps those it has.
- The folder must be on a file system of this machine: `flock` over NFS is not inherited.
"""

from headrace.embedded.binaries import Binaries, find_binaries
from headrace.embedded.folder import data_folder
from headrace.embedded.server import EmbeddedPostgres

__all__ = ["Binaries", "EmbeddedPostgres", "data_folder", "find_binaries"]

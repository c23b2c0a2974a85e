"""The floor of a wake-up: a connection that listens, and says when it has heard."""

import sys
import time

import psycopg

from bench.workers.speaking import said, wait_for_go

if __name__ == "__main__" and sys.argv[1] == "work":
    wait_for_go()
    with psycopg.connect("", autocommit=True) as connection:
        connection.execute("listen bench")
        said("started", time.monotonic())
        for _ in connection.notifies():
            said("seen", time.monotonic())

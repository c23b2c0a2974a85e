"""A worker that takes what there is, batch by batch, and dies of poison.

Before it starts an event it notes so in a file: [event, attempt, crashes charged so far, size of
its batch]. An event whose payload is {"poison": true} kills the process there and then.
"""

import json
import os
import signal
import sys

import psycopg
from psycopg.rows import namedtuple_row


def main() -> None:
    dsn, notes, max_events, each = json.loads(sys.argv[1])
    starts = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    with psycopg.connect(dsn, autocommit=True, row_factory=namedtuple_row) as connection:
        while claims := connection.execute(
            "select * from headrace.poll('default', max_events => %s, each => %s)",
            [max_events, each],
        ).fetchall():
            for claim in claims:
                note = [claim.id, claim.attempt, claim.crashes, len(claims)]
                os.write(starts, json.dumps(note).encode() + b"\n")
                if claim.payload.get("poison"):
                    os.kill(os.getpid(), signal.SIGKILL)
                if each:
                    connection.execute(
                        "select headrace.complete('default', %s, %s)", [claim.id, claim.attempt]
                    )
            if not each:
                connection.execute(
                    "select headrace.finish('default', 'main', %s, %s, %s)",
                    [
                        [claim.id for claim in claims],
                        [claim.attempt for claim in claims],
                        [claim.lease for claim in claims],
                    ],
                )


if __name__ == "__main__":
    main()

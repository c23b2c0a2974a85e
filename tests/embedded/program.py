"""A process that uses an embedded PostgreSQL, steered by lines of JSON on its standard input.

Each line is `{"do": …}`; each answer a line with `"result"` or `"error"`. It runs as the user named
in the arguments: it starts as whoever the tests run as and changes over once everything is
imported, because the interpreter may live where that user cannot go.
"""

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from headrace.embedded import EmbeddedPostgres, data_folder
from headrace.embedded.identity import Identity, namespace, unprivileged
from headrace.errors import EmbeddedError


class InNamespace(EmbeddedPostgres):
    _candidates = staticmethod(lambda data: namespace())


class AsUnprivileged(EmbeddedPostgres):
    _candidates = staticmethod(lambda data: unprivileged())


class AsNobody(EmbeddedPostgres):
    _candidates = staticmethod(
        lambda data: (who for who in unprivileged() if who.name == "the user nobody")
    )


KINDS = {kind.__name__: kind for kind in (EmbeddedPostgres, InNamespace, AsNobody, AsUnprivileged)}


def become(uid: int) -> None:
    # Whatever is imported at the first use must be imported before the change.
    with suppress(psycopg.OperationalError):
        psycopg.connect("host=/nowhere")
    Identity("this user").run(["true"])
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)


def fork(postgres: EmbeddedPostgres, lives: bool, starts: bool) -> int:
    """Fork a child that ends at once, with all that Python does at exit, or lives until killed.

    It has begun when this returns: until then it is a copy of its parent, with all that the parent holds.
    """
    begun, begins = os.pipe()
    child = os.fork()
    if child:
        os.close(begins)
        assert os.read(begun, 1), "the child has died"
        os.close(begun)
        if not lives:
            assert os.waitpid(child, 0)[1] == 0
        return child
    os.write(begins, b"!")
    if starts:
        postgres.start()
    if not lives:
        sys.exit(0)
    os.closerange(0, 3)  # the pipes are the parent's
    signal.pause()
    raise AssertionError


def perform(postgres: EmbeddedPostgres, order: dict[str, Any]) -> object:
    match order:
        case {"do": "start"}:
            return postgres.start()
        case {"do": "close"}:
            return postgres.close()
        case {"do": "query", "sql": sql}:
            with psycopg.connect(postgres.dsn) as connection:
                cursor = connection.execute(sql)
                return cursor.fetchall() if cursor.description else None
        case {"do": "fork", "lives": lives, "starts": starts}:
            return fork(postgres, lives, starts)
        case {"do": "default folder"}:
            return str(data_folder())
    raise ValueError(order)


def main() -> None:
    kind, user, data, binaries, timeout, unreaped = json.loads(sys.argv[1])
    if user is not None:
        become(user)
    if unreaped:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    postgres = KINDS[kind](data, binaries=binaries and Path(binaries), timeout=timeout)
    for line in sys.stdin:
        try:
            answer: dict[str, object] = {"result": perform(postgres, json.loads(line))}
        except (EmbeddedError, psycopg.Error) as error:
            answer = {"error": str(error), "class": type(error).__name__}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

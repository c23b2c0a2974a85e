"""How a worker and the benchmark talk: lines."""

import sys


def said(*words: object) -> None:
    print(*words, flush=True)


def wait_for_go() -> None:
    said("ready")
    sys.stdin.readline()


def closed() -> None:
    """Return when the benchmark has heard enough."""
    sys.stdin.read()

"""What saving a queue's state costs a node that drains it: twice as often as is usual, so that a turn has its share, and never."""

from bench import peers
from bench.cases.nodes import Workers
from bench.measure import Contender


def contenders(saving: str, free: str) -> list[Contender]:
    return [_drain(saving, "headrace", "5 seconds"), _drain(free, "no saving", "off")]


def _drain(dsn: str, name: str, interval: str) -> Workers:
    made = Workers(dsn, peers.OURS, 1, name=name)
    made.admin.execute("select headrace.configure('state_interval', %s)", [interval])
    return made

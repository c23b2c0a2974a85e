"""What saving a queue's state costs a node that drains it: as it is done unless somebody says otherwise, and never.

A turn takes as long as the pause between two saves, or longer, so that there is one in each.
"""

from bench import peers
from bench.cases.nodes import Workers
from bench.measure import Contender


def contenders(saving: str, free: str) -> list[Contender]:
    never = Workers(free, peers.OURS, 1, name="no saving")
    never.admin.execute("select headrace.configure('state_interval', 'off')")
    return [Workers(saving, peers.OURS, 1), never]

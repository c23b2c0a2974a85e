"""Ordering keys among many: whoever publishes, fails and dies, of a key there is one at a time, and each in its turn."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.places import check_places
from tests.requirements import requirement

PROGRAM = Path(__file__).with_name("orderly.py")
PUBLISHERS, CONSUMERS, KEYS = 4, 6, ["x", "y", "z"]

# Every claim there was, with the numbers of its beginning and its end: they are drawn from one sequence, a claim's after it
# has seen the end of the one before. (Its time is read earlier, and would not do.)
CLAIMS = """
select e.key, (e.payload ->> 'publisher')::int, (e.payload ->> 'n')::int, m.attempt, o.lease, o.id, o.action
from headrace.outcomes o
cross join lateral unnest(o.events, o.attempts) as m(event, attempt)
join headrace.events e on e.id = m.event
where o.picked_at is not null
order by o.lease
"""

HOLDS = "select from headrace.leases l join headrace.held h on h.lease = l.id where l.worker = %s limit 1"


class Claim(NamedTuple):
    key: str
    publisher: int
    n: int
    attempt: int
    began: int
    ended: int
    action: str


class Consumers:
    def __init__(self, db: Database, chance: random.Random) -> None:
        self.db = db
        self.chance = chance
        self.started = 0
        self.processes = [self.start() for _ in range(CONSUMERS)]

    def start(self) -> tuple[str, subprocess.Popen[bytes]]:
        self.started += 1
        name = f"worker {self.started}"
        arguments = [self.db.dsn, name, self.chance.randrange(2**32)]
        return name, subprocess.Popen([sys.executable, PROGRAM, json.dumps(arguments)])

    def kill_one(self) -> None:
        """One that is in the middle of something, if there is one: they are stopped in turn to look."""
        order = self.chance.sample(range(CONSUMERS), CONSUMERS)
        for victim in order:
            name, process = self.processes[victim]
            assert process.poll() is None, "a worker ended by itself"
            process.send_signal(signal.SIGSTOP)
            if victim == order[-1] or self.db.sql(HOLDS, [name]):
                process.kill()
                process.wait()
                self.processes[victim] = self.start()
                return
            process.send_signal(signal.SIGCONT)

    def discard(self) -> None:
        for _, process in self.processes:
            process.kill()
            process.wait()


def publish(db: Database, publisher: int, count: int, seed: int) -> None:
    """So many events of all keys, one after the other, some in a batch."""
    chance = random.Random(seed)
    connection = db.connect()
    n = 0
    while n < count:
        size = min(chance.choice([1, 1, 2, 5]), count - n)
        events = [
            {
                "type": chance.choice("ab"),
                "key": chance.choice(KEYS),
                "max_retries": 6,
                "payload": {"publisher": publisher, "n": n + i},
            }
            for i in range(size)
        ]
        connection.execute("select headrace.publish('default', %s)", [Jsonb(events)])
        n += size


@requirement("G4", "G5", "G11")
@pytest.mark.parametrize(
    ("events", "kills"),
    [
        pytest.param(1_000, 4, id="a few"),
        pytest.param(20_000, 80, id="many", marks=(pytest.mark.long, pytest.mark.timeout(1800))),
    ],
)
def test_of_a_key_one_at_a_time_and_each_in_its_turn(db: Database, events: int, kills: int) -> None:
    chance = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    publishers = [
        threading.Thread(target=publish, args=[db, number, events // PUBLISHERS, seed + number])
        for number in range(PUBLISHERS)
    ]
    consumers = Consumers(db, chance)
    try:
        for publisher in publishers:
            publisher.start()
        weather(db, consumers, events, kills)
    finally:
        consumers.discard()
        for publisher in publishers:
            publisher.join()
    check_places(db.sql)
    claims = [Claim(*row) for row in db.sql(CLAIMS)]
    assert len({(claim.publisher, claim.n) for claim in claims}) == events
    for key in KEYS:
        check_turns([claim for claim in claims if claim.key == key])
    assert any(claim.action == "ABANDONED" for claim in claims), "no claim was cut short"


def weather(db: Database, consumers: Consumers, events: int, kills: int) -> None:
    """Kill workers, evenly over the whole, until all is done."""
    deadline = time.monotonic() + 60 + events / 20
    killed = 0
    while True:
        db.sql("select headrace.tick()")
        [(published, live)] = db.sql(
            "select (select count(*) from headrace.events), (select count(*) from headrace.deliveries)"
        )
        if published == events and live == 0:
            return
        if killed < kills and (published - live) * (kills + 1) > events * (killed + 1):
            consumers.kill_one()
            killed += 1
        assert time.monotonic() < deadline, f"{live} of {published} are not done"
        time.sleep(0.02)


def check_turns(claims: list[Claim]) -> None:
    """All claims of a key, in the order in which they began."""
    for one, other in pairwise(claims):
        assert one.ended < other.began, f"two at once: {one}, {other}"
    order: dict[int, list[int]] = defaultdict(list)
    for claim in claims:
        if not order[claim.publisher] or order[claim.publisher][-1] != claim.n:
            order[claim.publisher].append(claim.n)
    for turns in order.values():
        assert turns == sorted(turns), "somebody was passed over, or came again after his end"

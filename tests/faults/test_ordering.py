"""Ordering keys among many: whoever publishes, fails and dies, of a key there is one at a time, and each in its turn."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
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
MATRIX = (pytest.mark.long, pytest.mark.matrix, pytest.mark.timeout(1800))

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
CONNECTED = (
    "select from pg_stat_activity where datname = current_database() and application_name = %s"
)


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
        """One that is in the middle of something: they are stopped in turn to look."""
        self.db.wait_for(
            lambda: any(map(self.kill, self.chance.sample(range(CONSUMERS), CONSUMERS)))
        )

    def kill(self, victim: int) -> bool:
        """Kill it if it holds something: whether it does so still when it is dead."""
        name, process = self.processes[victim]
        assert process.poll() is None, "a worker ended by itself"
        process.send_signal(signal.SIGSTOP)
        if not self.db.sql(HOLDS, [name]):
            process.send_signal(signal.SIGCONT)
            return False
        process.kill()
        process.wait()
        self.processes[victim] = self.start()
        # What it has asked for the server still does: it may have been the end of all it held.
        self.db.wait_for(lambda: not self.db.sql(CONNECTED, [name]))
        return bool(self.db.sql(HOLDS, [name]))

    def discard(self) -> None:
        for _, process in self.processes:
            process.kill()
            process.wait()


def publish(db: Database, publisher: int, count: int, seed: int, enough: threading.Event) -> int:
    """So many events of all keys, one after the other, some in a batch, and then a trickle until it is enough: how many
    there were."""
    chance = random.Random(seed)
    connection = db.connect()
    n = 0
    while n < count or not enough.wait(0.2):
        size = chance.choice([1, 1, 2, 5])
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
    return n


@requirement("G4", "G5", "G11")
@pytest.mark.parametrize(
    ("events", "kills"),
    [
        pytest.param(150, 1, id="a few"),
        pytest.param(600, 3, id="some", marks=pytest.mark.rest),
        pytest.param(20_000, 80, id="many", marks=MATRIX),
    ],
)
def test_of_a_key_one_at_a_time_and_each_in_its_turn(db: Database, events: int, kills: int) -> None:
    chance = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    enough = threading.Event()
    consumers = Consumers(db, chance)
    with ThreadPoolExecutor(PUBLISHERS) as threads:
        publishers = [
            threads.submit(publish, db, number, events // PUBLISHERS, seed + number, enough)
            for number in range(PUBLISHERS)
        ]
        try:
            weather(db, consumers, events, kills)
            enough.set()
            published = [publisher.result() for publisher in publishers]
            wait_until_ended(db, sum(published))
        finally:
            enough.set()
            consumers.discard()
    check_places(db.sql)
    claims = [Claim(*row) for row in db.sql(CLAIMS)]
    assert {(claim.publisher, claim.n) for claim in claims} == {
        (publisher, n) for publisher, count in enumerate(published) for n in range(count)
    }
    for key in KEYS:
        check_turns([claim for claim in claims if claim.key == key])
    cut_short = {claim.began for claim in claims if claim.action == "ABANDONED"}
    assert len(cut_short) >= kills, "whoever was killed held something"


def weather(db: Database, consumers: Consumers, events: int, kills: int) -> None:
    """Kill workers, evenly over what is to be done at least."""
    for killed in range(kills):
        wait_until_ended(db, events * (killed + 1) // (kills + 1))
        consumers.kill_one()


def wait_until_ended(db: Database, count: int) -> None:
    """Wait for the end of so many, for as long as there is some progress."""
    while (now := ended(db)) < count:
        db.wait_for(lambda now=now: ended(db) > now)
        time.sleep(0.02)


def ended(db: Database) -> int:
    db.sql("select headrace.tick()")
    [(count,)] = db.sql(
        "select (select count(*) from headrace.events) - (select count(*) from headrace.deliveries)"
    )
    return int(count)


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

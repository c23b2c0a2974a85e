"""A hostile tenant, with every right of a tenant, beside a well-behaved one: what the other notices of it."""

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import quantiles
from typing import NamedTuple

import httpx

from tests.laboratory.accounting import Accounts
from tests.laboratory.house import House

GOOD, HOSTILE = "well-behaved", "hostile"
WINDOW = 10.0  # seconds, by turns with and without the hostile one
PAUSE = 0.02  # seconds between two requests
TIMES = 3  # as long a p99 may be beside the hostile one
LATE = 5.0  # seconds after which a delay that is over is late: the upkeep is done every second
OVERDUE = """
select coalesce(max(extract(epoch from clock_timestamp() - due_at)), 0)::float
from headrace.delayed where due_at < clock_timestamp()
"""


class Asked(NamedTuple):
    """One request of the well-behaved tenant."""

    what: str
    status: int
    seconds: float


class Neighbour(threading.Thread):
    """The well-behaved one: it publishes, claims, completes and looks, one after the other, and keeps the time."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(name="neighbour")
        self.asked: list[Asked] = []
        self.stopped = threading.Event()
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            params={"namespace": GOOD},
            timeout=60,
        )

    def run(self) -> None:
        with self._client:
            while not self.stopped.wait(PAUSE):
                for new in ({"type": "a"}, {"type": "a", "delay": 1}):
                    self._ask("publish", "POST", "/events", json=new)
                claimed = self._ask(
                    "claim", "GET", "/events/subscribe", params={"tags": "*", "worker_id": "w"}
                )
                if claimed.status_code == 200:
                    id = claimed.json()["id"]
                    body = {"worker_id": "w"}
                    self._ask("complete", "POST", f"/events/{id}/complete", json=body)
                self._ask("look", "GET", "/events")
                self._ask("attention", "GET", "/attention")

    def _ask(self, what: str, method: str, path: str, **options: object) -> httpx.Response:
        began = time.monotonic()
        answer = self._client.request(method, path, **options)  # type: ignore[arg-type]
        self.asked.append(Asked(what, answer.status_code, time.monotonic() - began))
        return answer


def measure(house: House, url: str, tokens: dict[str, str], seconds: float) -> Accounts:
    """By turns, so that whatever else goes on here is in both."""
    neighbour = Neighbour(url, tokens[GOOD])
    beside: dict[bool, list[Asked]] = {False: [], True: []}
    told: Counter[str] = Counter()
    late = 0.0
    neighbour.start()
    try:
        for turn in range(2 * max(1, round(seconds / WINDOW / 2))):
            is_hostile = turn % 2 == 1
            with harassed(url, tokens[HOSTILE], told) if is_hostile else nullcontext():
                first, until = len(neighbour.asked), time.monotonic() + WINDOW
                while time.monotonic() < until and neighbour.is_alive():
                    [(overdue,)] = house.sql(OVERDUE)
                    late = max(late, overdue)
                    neighbour.stopped.wait(0.25)
                beside[is_hostile] += neighbour.asked[first:]
    finally:
        neighbour.stopped.set()
        neighbour.join()
    return _account(beside, late, told)


def _account(beside: dict[bool, list[Asked]], late: float, told: Counter[str]) -> Accounts:
    accounts = Accounts()
    calm, harassed = (_p99(beside[one]) for one in (False, True))
    accounts.figures |= {
        "requests of the well-behaved tenant, alone": len(beside[False]),
        "requests of the well-behaved tenant, beside the hostile one": len(beside[True]),
        "ms, 99 of 100 of its requests took less, alone": round(calm * 1000),
        "ms, 99 of 100 of its requests took less, beside the hostile one": round(harassed * 1000),
        "ms, the longest that a delay was over before the upkeep ended it": round(late * 1000),
        **{f"answers to the hostile one, {what}": times for what, times in sorted(told.items())},
    }
    all_asked = [*beside[False], *beside[True]]
    refused = [f"{one.what}: {one.status}" for one in all_asked if one.status >= 300]
    accounts.must_not_be("requests of the well-behaved tenant refused", refused)
    if harassed > TIMES * calm:
        accounts.wrong[f"a p99 that is more than {TIMES} times as long"] = [calm, harassed]
    if late > LATE:
        accounts.wrong["upkeep that is late"] = [late]
    return accounts


def _p99(asked: list[Asked]) -> float:
    return quantiles([one.seconds for one in asked], n=100)[98] if len(asked) > 1 else 0.0


@contextmanager
def harassed(url: str, token: str, told: Counter[str]) -> Iterator[None]:
    """From when the hostile one has had its first answer."""
    its = {"HOSTILE_URL": url, "HOSTILE_TOKEN": token, "HOSTILE_NAMESPACE": HOSTILE}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.laboratory.hostile_tenant"],
        env={**os.environ, **its},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        counting = threading.Thread(target=lambda: told.update(map(str.strip, process.stdout)))  # type: ignore[arg-type]
        assert process.stdout.readline(), "the hostile tenant has given up"
        counting.start()
        try:
            yield
        finally:
            process.kill()
            counting.join()

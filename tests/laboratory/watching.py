"""Whoever must not be hurt by what happens to a cluster or to shards: readers of the stream, and a schedule that fires every
second."""

import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import datetime
from threading import Event, Thread
from typing import Any

import httpx
import psycopg

import headrace
from tests.laboratory.accounting import Accounts
from tests.laboratory.house import PATIENCE, eventually
from tests.laboratory.laboratory import Laboratory

CLOCKWORK = "clockwork"
STORED = "select id from headrace.events where namespace = (select id from headrace.namespaces where name = 'default')"
FORGET = """
delete from headrace.{} where namespace = (select id from headrace.namespaces where name = 'clockwork')
"""
FIRED = """
select e.details ->> 'scheduled_for', count(*) from headrace.events e
where e.namespace = (select id from headrace.namespaces where name = 'clockwork') group by 1
"""


class Bystander(Thread):
    """Does something again and again, whatever fails, until it is told to end."""

    def __init__(self, work: Callable[[], object], pause: float) -> None:
        super().__init__(daemon=True)
        self._work, self._pause = work, pause
        self.ended = Event()
        self.broke: BaseException | None = None
        self.start()

    def run(self) -> None:
        while not self.ended.wait(self._pause):
            try:
                self._work()
            except (httpx.HTTPError, headrace.HeadraceError, psycopg.OperationalError):
                pass
            except BaseException as error:
                self.broke = error
                return

    def end(self) -> None:
        self.ended.set()
        self.join(PATIENCE)


class StreamReader:
    """Follows the stream over HTTP, and begins again where it was when that breaks off."""

    def __init__(self, url: str, token: str) -> None:
        self._client = httpx.Client(
            base_url=url, timeout=15, headers={"Authorization": f"Bearer {token}"}
        )
        self.told: dict[int, int] = {}
        self.rewound = 0
        self._cursor = "0"
        self.works = Bystander(self._follow, 0.2)

    def _follow(self) -> None:
        known = {"Last-Event-ID": self._cursor}
        asked = {"actions": "EMITTED"}
        with self._client.stream("GET", "/events/stream", params=asked, headers=known) as answer:
            if answer.status_code != 200:
                return
            kind = ""
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                match name:
                    case "id":
                        self._cursor = value
                    case "event":
                        kind = value
                        self.rewound += kind == "rewound"
                    case "data" if not kind:
                        event = json.loads(value)["event_id"]
                        self.told[event] = self.told.get(event, 0) + 1
                    case "":
                        kind = ""
                if self.works.ended.is_set():
                    return

    def account(self, accounts: Accounts, lab: Laboratory) -> None:
        stored = {id for (id,) in lab.house.sql(STORED)}
        with suppress(TimeoutError):
            eventually(lambda: stored <= self.told.keys())
        self.works.end()
        self._client.close()
        accounts.must_not_be("readers that failed", filter(None, [self.works.broke]))
        accounts.must_not_be("events that the stream never told", stored - self.told.keys())
        accounts.figures |= {
            "entries that the stream told": len(self.told),
            "entries told again": sum(times - 1 for times in self.told.values()),
            "times the stream went back": self.rewound,
        }


class Clockwork:
    """A schedule that fires every second, in a namespace of its own, and whoever handles its events."""

    def __init__(self, house: Any) -> None:
        house.sql(f"select headrace.create_namespace('{CLOCKWORK}')")
        self._house = house
        self._queue = headrace.connect(
            house.by_proxy, namespace=CLOCKWORK, migrate=False, timeout=10
        )
        with self._of_those_that_are_there() as queue:
            queue.schedule_task("second", "* * * * * *", "second", missed="catch_up")
        self.fired: dict[datetime | None, set[int]] = {}
        self._stored: dict[str, int] = {}
        self._works = [Bystander(self._plan, 1.0), Bystander(self._handle, 0.2)]

    def _of_those_that_are_there(self) -> Any:
        """A shard that does not answer may have the schedule already, so none is made meanwhile."""
        by = getattr(self._house, "client", None)
        return by(namespace=CLOCKWORK) if by else nullcontext(self._queue)

    def _plan(self) -> None:
        self._queue.plan_schedules()

    def _handle(self) -> None:
        for event in self._queue.poll(max_events=20, lease=10):
            self.fired.setdefault(event.scheduled_for, set()).add(event.id)
            self._queue.complete(event)

    def calm(self) -> None:
        """Its events are nobody's: they are counted, and taken away before the accounts are made."""
        self._works[0].end()
        eventually(lambda: not self._queue.remove_schedule("second"), PATIENCE)
        [(count,)] = self._house.sql(
            f"select count(*) from ({STORED.replace('default', CLOCKWORK)}) e"
        )
        with suppress(TimeoutError):  # which the accounts tell
            eventually(lambda: sum(map(len, self.fired.values())) >= count, PATIENCE)
        self._works[1].end()
        self._stored = dict(self._house.sql(FIRED))
        self._queue.close()
        for table in ("events", "outcomes"):
            self._house.sql(FORGET.format(table))

    def account(self, accounts: Accounts) -> None:
        instants = sorted(filter(None, self.fired))
        accounts.must_not_be("clockworks that broke", filter(None, (w.broke for w in self._works)))
        left = sum(self._stored.values()) - sum(map(len, self.fired.values()))
        accounts.must_not_be("events of the clockwork that nobody handled", range(left))
        accounts.must_not_be(
            "instants that fired twice", (at for at, n in self._stored.items() if n > 1)
        )
        accounts.must_not_be(
            "instants that were handled as two events",
            (at for at, events in self.fired.items() if len(events) > 1),
        )
        missed = (instants[-1] - instants[0]).total_seconds() + 1 - len(instants) if instants else 1
        accounts.must_not_be("instants that did not fire", range(int(missed)))
        accounts.figures["instants that fired"] = len(instants)

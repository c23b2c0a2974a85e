"""A queue moves from one PostgreSQL to another, of another release, while the old one works on other queues."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import headrace
from headrace.embedded import EmbeddedPostgres, find_binaries
from headrace.errors import EmbeddedError
from headrace.install.migrate import migrate
from tests.folders import short_folder

OF_QUEUE = """
with q as (select id from headrace.queues where space = 'default' and name = 'moved'),
stands as (
    select d.event, d.attempts, d.failures, d.crashes, d.suspect, d.due_at, null::timestamptz as died_at, null as reason
    from headrace.deliveries d join q on q.id = d.queue
    union all
    select x.event, x.attempts, x.failures, x.crashes, false, null, x.died_at, x.reason from headrace.dead_letters x join q on q.id = x.queue
)
select b.payload, b.type, b.tags, b.key, b.priority, b.created_at, s.attempts, s.failures, s.crashes, s.suspect, s.due_at, s.died_at, s.reason
from stands s join headrace.events b on b.id = s.event
order by s.event
"""
KEYS = """
select k.key, array_agg(e.payload ->> 'n' order by k.event) from headrace.keyed k
join headrace.queues q on q.id = k.queue and q.name = 'moved' join headrace.events e on e.id = k.event
group by k.key order by k.key
"""


@contextmanager
def server(major: int, folder: Path) -> Iterator[str]:
    try:
        binaries = find_binaries(major)
    except EmbeddedError as error:
        pytest.skip(str(error))
    settings = {"fsync": "off", "full_page_writes": "off"}
    with EmbeddedPostgres(folder / "data", binaries=binaries.folder, settings=settings) as postgres:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            migrate(connection)
        yield postgres.dsn


@pytest.fixture(scope="module")
def old() -> Iterator[str]:
    with short_folder() as folder, server(15, folder) as dsn:
        yield dsn


@pytest.fixture
def new() -> Iterator[str]:
    with short_folder() as folder, server(18, folder) as dsn:
        yield dsn


def fill(dsn: str, count: int) -> list[Any]:
    """The queue `moved` with so many events in every place; returns claims that are open."""
    with headrace.connect(dsn, queue="moved", worker="w") as queue:
        queue.create_queue("moved", types=["moved.*"], max_retries=4)
        queue.create_queue("busy", types=["busy"])
        queue.change_queue("main", takes=False)
        part = count // 5
        plain = [("moved.plain", {"n": n, "text": "ü" * (n % 50)}) for n in range(part)]
        queue.publish_many(plain)
        few = max(1, part // 20)
        queue.publish_many([("moved.dead", {"n": n}) for n in range(few)])
        for claims in iter(lambda: queue.poll(types=["moved.dead"], max_events=500), []):
            queue.finish([headrace.Failed(claim, "broken", reason="given up") for claim in claims])
        queue.publish_many([("moved.failed", {"n": n}) for n in range(few)])
        for claims in iter(lambda: queue.poll(types=["moved.failed"], max_events=500), []):
            queue.finish([headrace.Failed(claim, "not yet", retry_in=3600) for claim in claims])
        queue.publish_many(
            [headrace.NewEvent("moved.keyed", {"n": n}, key=f"key {n % 97}") for n in range(part)]
        )
        queue.publish_many(
            [headrace.NewEvent("moved.late", {"n": n}, delay=3600 + n) for n in range(part)]
        )
        queue.publish_many(
            [headrace.NewEvent("moved.urgent", {"n": n}, priority=n % 10, tags=["a", "b"]) for n in range(count - 3 * part - 2 * few)]
        )  # fmt: skip
        held = queue.poll(types=["moved.plain"], max_events=50, each=True)
        return held + queue.poll(types=["moved.urgent"], max_events=500)


class Load:
    """Publishers and workers of another queue, until it is enough."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._enough = threading.Event()
        self.done = 0
        self.problems: list[BaseException] = []
        self._threads = [threading.Thread(target=self._guarded) for _ in range(2)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()

    def _guarded(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.problems.append(error)

    def _work(self) -> None:
        with headrace.connect(self._dsn, queue="busy") as queue:
            while not self._enough.is_set():
                queue.publish_many([("busy", {"n": n}) for n in range(100)])
                claims = queue.poll(max_events=100)
                queue.complete(claims)
                self.done += len(claims)


def rows(dsn: str, query: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query).fetchall()


def move(old: str, new: str, count: int, state: str) -> None:
    with (
        headrace.connect(old, queue="moved") as source,
        headrace.connect(new, queue="moved") as target,
    ):
        open_claims = fill(old, count)
        with Load(old) as load:
            getattr(source, state)()
            with short_folder() as folder:
                file = folder / "moved.jsonl"
                with file.open("wb") as out:
                    out.writelines(source.export_state(move=True))
                for claim in open_claims[::100]:
                    with pytest.raises(headrace.LeaseLost):
                        source.complete(claim)
                done = target.import_state(file)
                again = target.import_state(file)
        assert load.done > 0
        assert not load.problems
        before, after = rows(old, OF_QUEUE), rows(new, OF_QUEUE)
        assert len(after) == count
        assert after == before
        assert rows(new, KEYS) == rows(old, KEYS) != []
        assert done.kept_ids
        assert done.ready + done.delayed + done.dead == count
        assert (again.stored, again.already) == (0, count)
        assert source.queue().state == "paused"
        seen = [claim for claims in iter(lambda: _worked(target), []) for claim in claims]
        assert len({claim.id for claim in seen}) == len(seen) == done.ready
        keyed: dict[str, list[int]] = {}
        for claim in seen:
            if claim.type == "moved.keyed":
                n = claim.payload["n"]
                keyed.setdefault(f"key {n % 97}", []).append(n)
        assert len(keyed) == 97
        assert all(order == sorted(order) for order in keyed.values())
        source.delete_queue("moved", with_deliveries=True)


def _worked(queue: headrace.EventQueue) -> list[Any]:
    claims = queue.poll(max_events=500)
    queue.complete(claims)
    return claims


@pytest.mark.parametrize("state", ["drain", "pause"])
def test_a_queue_moves_to_another_server_under_load(old: str, new: str, state: str) -> None:
    move(old, new, 1000, state)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("state", ["drain", "pause"])
def test_a_long_queue_moves_to_another_server_under_load(old: str, new: str, state: str) -> None:
    move(old, new, 100_000, state)

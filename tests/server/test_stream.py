"""GET /events/stream: what is told, resuming, heartbeats, slow readers, the end."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
import pytest

from headrace import EventQueue
from headrace.server import feed
from headrace.server.api import stream
from headrace.server.feed import Feed
from headrace.server.http import gate as guarding
from tests.database import Database
from tests.engine.functions_helpers import another_life
from tests.requirements import requirement
from tests.server.running import Running, running


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PAUSE", 0.01)
    monkeypatch.setattr(stream, "PAUSE", 0.01)


@pytest.fixture
def space(house: Running) -> str:
    return house.new_namespace()


@pytest.fixture
def queue(house: Running, space: str) -> EventQueue:
    return EventQueue(house.db.connect(), namespace=space, worker="w:1")


class Told(NamedTuple):
    cursor: str
    data: dict[str, Any] | None
    kind: str | None = None

    @property
    def id(self) -> int:
        return int(self.cursor.rpartition("-")[2])


class Listener:
    """Reads a stream as a browser would, blank line by blank line."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.iter_lines()

    def __iter__(self) -> Iterator[Told]:
        fields: dict[str, str] = {}
        for line in self._lines:
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            elif "id" in fields:
                data = fields.get("data")
                yield Told(
                    fields["id"], None if data is None else json.loads(data), fields.get("event")
                )
                fields = {}
            else:
                fields = {}

    def take(self, count: int) -> list[Told]:
        taken = []
        for told in self:
            if told.data is not None:
                taken.append(told)
            if len(taken) == count:
                return taken
        raise AssertionError(f"the stream ended after {taken}")

    def actions(self, count: int) -> list[str]:
        return [told.data["action"] for told in self.take(count) if told.data]


@contextmanager
def listening(
    house: Running, space: str | None, after: int | str | None = None, **options: Any
) -> Iterator[Listener]:
    params = {"namespace": space} if space else {}
    headers = options.pop("headers", {})
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    params |= options
    with (
        httpx.Client(base_url=house.url, timeout=60) as client,
        client.stream("GET", "/events/stream", params=params, headers=headers) as response,
    ):
        assert response.status_code == 200, response.read()
        yield Listener(response)


def listener_after(queue: EventQueue, listener: Listener, count: int) -> list[Told]:
    queue.publish_many([("later", n) for n in range(count)])
    return listener.take(count)


def followers(house: Running) -> int:
    return house.server.services.feeds.followers


class TestWhatIsTold:
    @requirement("API-15")
    def test_what_happens_is_told_as_it_happens(
        self, house: Running, space: str, queue: EventQueue
    ) -> None:
        queue.publish("before")
        with listening(house, space) as listener:
            headers = listener.response.headers
            assert headers["Content-Type"].startswith("text/event-stream")
            assert headers["Cache-Control"] == "no-store"
            event = queue.publish("mail.sent", tags=["a"])
            [emitted] = listener.take(1)
            assert emitted.data is not None
            assert {**emitted.data, "created_at": ""} == {
                **{"id": emitted.id, "event_id": event.id, "action": "EMITTED"},
                **{"type": "mail.sent", "created_at": ""},
            }
            assert emitted.data["created_at"].endswith("Z")
            claimed = queue.poll(types=["mail.*"])[0]
            queue.fail(claimed, "it broke", execution_time_ms=5, status_code=500)
            picked, failed = listener.take(2)
            assert picked.data is not None
            assert failed.data is not None
            assert (picked.data["action"], picked.data["attempt"]) == ("PICKED", 1)
            assert {name: failed.data[name] for name in failed.data if name != "created_at"} == {
                **{"id": failed.id, "event_id": event.id, "action": "FAILED", "queue": "main"},
                **{"type": "mail.sent", "worker_id": "w:1", "attempt": 1, "status_code": 500},
                **{"error_message": "it broke", "execution_time_ms": 5},
            }

    @requirement("G16")
    def test_of_other_namespaces_nothing_is_told(
        self, house: Running, space: str, queue: EventQueue
    ) -> None:
        other = EventQueue(house.db.connect(), namespace=house.new_namespace())
        with listening(house, space) as listener:
            other.publish("secret")
            queue.publish("own")
            [told] = listener.take(1)
            assert told.data is not None
            assert told.data["type"] == "own"

    @pytest.mark.parametrize(
        ("filter", "expected"),
        [
            ({"actions": "COMPLETED"}, [("COMPLETED", "a.x"), ("COMPLETED", "b")]),
            (
                {"types": "a.*"},
                [("EMITTED", "a.x"), ("PICKED", "a.x"), ("COMPLETED", "a.x")],
            ),
            ({"types": "b,c", "actions": "EMITTED,PICKED"}, [("EMITTED", "b"), ("PICKED", "b")]),
            (
                {"queue": "other", "actions": "PICKED,EMITTED"},
                [("EMITTED", "a.x"), ("EMITTED", "b")],
            ),
        ],
    )
    def test_it_is_filtered(
        self, house: Running, space: str, queue: EventQueue, filter: dict[str, str], expected: Any
    ) -> None:
        queue.create_queue("other", types=["z"])
        queue.publish_many([("a.x", 1), ("b", 1)])
        queue.complete(queue.poll(types=["a.x"]))
        queue.complete(queue.poll(types=["b"]))
        with listening(house, space, **{"after": 0, **filter}) as listener:
            told = listener.take(len(expected))
        assert sorted((one.data["action"], one.data["type"]) for one in told if one.data) == sorted(
            expected
        )

    def test_a_filter_of_many_asterisks_costs_the_others_nothing(
        self, house: Running, space: str, queue: EventQueue
    ) -> None:
        queue.publish_many([("a" * 200, 1), ("ab" * 40, 1)])
        with listening(house, space, after=0, types="*a" * 30 + "*b") as listener:
            [told] = listener.take(1)
        assert told.data is not None
        assert told.data["type"] == "ab" * 40

    def test_who_catches_up_in_a_namespace_that_is_deleted_is_told_no_more(
        self, house: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def read_nothing(feed: Feed) -> None:
            await asyncio.Event().wait()

        space = house.new_namespace()
        monkeypatch.setattr(Feed, "_read", read_nothing)
        monkeypatch.setattr(Feed, "since", lambda *_: None)  # so everybody reads for himself
        with listening(house, space, after=0) as listener:
            house.db.sql("select headrace.delete_namespace(%s)", [space])
            assert [told for told in listener if told.data] == []
        assert not [record for record in caplog.records if record.exc_info]

    def test_long_errors_are_shortened(self, house: Running, space: str, queue: EventQueue) -> None:
        queue.publish("a")
        with listening(house, space, actions="FAILED") as listener:
            queue.fail(queue.poll()[0], "x" * 60000)
            [told] = listener.take(1)
        assert told.data is not None
        assert told.data["error_message"] == "x" * 1000


class TestResuming:
    def test_who_comes_back_misses_nothing_and_is_told_nothing_twice(
        self, house: Running, space: str, queue: EventQueue
    ) -> None:
        seen: list[int] = []
        done = threading.Event()

        def publish() -> None:
            for _ in range(60):
                queue.publish_many([("a", None)] * 3)
                queue.complete(queue.poll(max_events=3))
            done.set()

        publisher = threading.Thread(target=publish)
        publisher.start()
        after: int | str = 0
        while len(seen) < 60 * 9:
            with listening(house, space, after=after) as listener:
                for told in listener.take(min(37, 60 * 9 - len(seen))):
                    seen.append(told.id)
                    after = told.cursor if len(seen) % 2 else told.id  # either is good
        publisher.join()
        log = house.db.sql(
            "select id from headrace.log_since(%s, 0, 1000, null, headrace._database_life() || '-0 ' || headrace._server_started()"
            " || ' 0 0 999999999 ') where action is not null",  # nobody is writing
            [space],
        )
        assert seen == [id for (id,) in log]

    def test_what_commits_late_is_not_skipped(
        self, house: Running, space: str, queue: EventQueue
    ) -> None:
        with listening(house, space) as listener:
            late = house.db.connect(autocommit=False)
            slow = EventQueue(late, namespace=space).publish("slow")
            quick = queue.publish("quick")
            assert slow.id < quick.id
            late.commit()
            told = listener.take(2)
        assert [one.data["event_id"] for one in told if one.data] == [slow.id, quick.id]

    def test_many_follow_one_reading(
        self, house: Running, space: str, queue: EventQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with (
            listening(house, space) as one,
            listening(house, space) as two,
            listening(house, space, after=0) as three,
        ):
            house.db.wait_for(lambda: followers(house) == 3)
            assert len(house.server.services.feeds._feeds) == 1
            queue.publish("a")
            assert one.take(1) == two.take(1) == three.take(1)
        house.db.wait_for(lambda: followers(house) == 0)
        assert house.server.services.feeds._feeds == {}

    def test_who_is_behind_what_is_at_hand_reads_for_himself(
        self, house: Running, space: str, queue: EventQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(feed, "KEPT", 5)
        monkeypatch.setattr(feed, "PAGE", 7)
        monkeypatch.setattr(stream, "PAGE", 7)
        old = queue.publish_many([("old", n) for n in range(40)])
        with listening(house, space) as live:
            new = queue.publish_many([("new", n) for n in range(40)])
            live.take(40)
            with listening(house, space, after=0) as late:
                told = [one.data["event_id"] for one in late.take(80) if one.data]
                assert told == [*old, *new]
                queue.publish("last")
                assert late.actions(1) == ["EMITTED"]

    @pytest.mark.parametrize("id", ["x", "-1", "1.5", str(2**64), "１"])
    def test_what_is_no_place_in_the_log_is_refused(
        self, house: Running, space: str, id: str
    ) -> None:
        with house.client(space) as client:
            answer = client.get("/events/stream", headers={b"Last-Event-ID": id.encode()})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_last_event_id")
            for after in ("x", "-1", str(2**63)):
                answer = client.get("/events/stream", params={"after": after})
                assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query")

    def test_a_place_that_the_log_does_not_have_is_refused(
        self, house: Running, space: str
    ) -> None:
        with house.client(space) as client:
            for beyond in ("999999999999", "1abc-5"):
                answer = client.get("/events/stream", headers={"Last-Event-ID": beyond})
                assert (answer.status_code, answer.json()["code"]) == (410, "cursor_not_found")

    @requirement("G17")
    def test_after_a_promotion_entries_are_told_again_and_it_is_said(self, db: Database) -> None:
        queue = db.queue()
        with running(db) as house:
            queue.publish("a")
            with listening(house, None, after=0) as listener:
                listener.take(1)
                db.sql("select headrace.save_state('default')")  # how far it surely came
                [lost] = listener_after(queue, listener, 1)
                another_life(db)
                new = queue.publish("new")
                assert [told for told in listener if told.kind] == []  # who follows is cut off
            with listening(house, None, after=lost.cursor) as listener:
                told = iter(listener)
                rewound, again, last = next(told), next(told), next(told)
            assert (rewound.kind, rewound.data) == ("rewound", {"after": rewound.id})
            assert rewound.id < lost.id
            assert again.data == lost.data
            assert last.data is not None
            assert last.data["event_id"] == new.id
            with listening(house, None, after=again.cursor) as listener:
                assert next(iter(listener)).data == last.data  # it is a cursor of this life

    def test_there_must_be_such_a_namespace(self, house: Running) -> None:
        with house.client("nosuch") as client:
            assert client.get("/events/stream").json()["code"] == "namespace_not_found"

    def test_head_ends(self, house: Running, space: str) -> None:
        with house.client(space) as client:
            assert client.head("/events/stream").status_code == 200
        house.db.wait_for(lambda: followers(house) == 0)


class TestEnds:
    def test_who_is_told_nothing_is_told_that_all_is_well_and_how_far_it_is(
        self, house: Running, space: str, queue: EventQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stream, "BEAT", 0.05)
        with listening(house, space, types="none") as listener:
            event = queue.publish("a")
            for told in listener:
                assert told.data is None
                if told.id >= event.id << 10:
                    break

    def test_who_does_not_read_is_cut_off(
        self, house: Running, space: str, queue: EventQueue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headrace.server.http.connection.UNREAD_SECONDS", 0.3)
        queue.publish_many([("a" * 200, n) for n in range(20000)])
        with socket.create_connection(("127.0.0.1", house.port)) as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            path = f"/events/stream?namespace={space}&after=0"
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            read = b""
            while b"retry" not in read:  # he follows, for certain, and reads no more
                byte = line.recv(1)
                assert byte, read
                read += byte
            house.db.wait_for(lambda: followers(house) == 0)

    def test_who_is_revoked_is_told_no_more(
        self, db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stream, "ADMITTED", 0.05)
        monkeypatch.setattr(guarding, "LAST", 0.05)
        monkeypatch.setattr(guarding, "PACE", 0.01)
        queue = db.queue()
        token = queue.create_token("one", ["read"])
        headers = {"Authorization": f"Bearer {token}"}
        with running(db) as house, listening(house, None, headers=headers) as listener:
            queue.revoke_token("one")
            assert [told for told in listener if told.data] == []  # it ends

    def test_a_server_that_stops_does_not_wait_for_them(self, db: Database) -> None:
        with running(db) as house, listening(house, None) as listener:
            house.loop.call_soon_threadsafe(house.server.stop)
            assert [told for told in listener if told.data] == []

    def test_a_namespace_that_is_deleted_ends_it(
        self, house: Running, space: str, queue: EventQueue
    ) -> None:
        with listening(house, space) as listener:
            queue.delete_namespace(space)
            assert [told for told in listener if told.data] == []

    def test_too_many_are_refused(
        self, house: Running, space: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stream, "STREAMS", 1)
        with listening(house, space), house.client(space) as client:
            house.db.wait_for(lambda: followers(house) == 1)
            answer = client.get("/events/stream")
            assert (answer.status_code, answer.json()["code"]) == (503, "too_many_streams")

    def test_while_the_database_is_away_it_waits_and_then_goes_on(
        self, db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(feed, "AWAY", 0.05)
        with running(db) as house, listening(house, None) as listener:
            db.queue().publish("one")
            assert listener.actions(1) == ["EMITTED"]
            db.sql(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
            house.db.queue().publish("two")
            [told] = listener.take(1)
            assert told.data is not None
            assert told.data["type"] == "two"


def test_a_stream_of_a_queue_that_is_not_there_is_refused(api: httpx.Client) -> None:
    refused = api.get("/events/stream", params={"queue": "nowhere"})
    assert (refused.status_code, refused.json()["code"]) == (404, "queue_not_found")

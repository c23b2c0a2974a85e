"""Queues, namespaces, schedules, nodes, workers and dead letters over HTTP."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest

from headrace import EventQueue
from tests.requirements import requirement
from tests.server.running import Running


@pytest.fixture
def space(house: Running) -> str:
    return house.new_namespace()


@pytest.fixture
def plain(house: Running) -> Iterator[httpx.Client]:
    """One that names namespaces in paths."""
    with house.client() as client:
        yield client


@pytest.fixture
def api(house: Running, space: str) -> Iterator[httpx.Client]:
    with house.client(space) as client:
        yield client


@pytest.fixture
def queue(house: Running, space: str) -> EventQueue:
    return EventQueue(house.db.connect(), namespace=space, worker="w:1")


def ok(response: httpx.Response, status: int = 200) -> Any:
    assert response.status_code == status, response.text
    return response.json() if response.content else None


def told(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def bury(queue: EventQueue, *types: str, error: str = "no") -> list[int]:
    for type in types:
        queue.publish(type, {"secret": 1}, max_retries=0, tags=["a", "b"])
    claims = queue.poll(max_events=len(types), types=list(types))
    for claimed in claims:
        queue.fail(claimed, error)
    return [claimed.id for claimed in claims]


class TestQueues:
    def test_one_is_made_shown_changed_and_deleted(
        self, api: httpx.Client, plain: httpx.Client, space: str
    ) -> None:
        body = {
            **{"name": "mail", "types": ["mail.*"], "tags": ["a"], "all_tags": True},
            **{"max_retries": 1, "batch_size": 5, "processing_interval": 0.5},
            **{"metadata": {"team": "x"}, "max_queue_depth": 10, "high_watermark": 8},
            "backoff": {"kind": "fixed", "delay": 1},
        }
        response = api.post("/queues", json=body)
        made = ok(response, 201)
        where = response.headers["Location"]
        assert where == f"/queues/{space}/mail"
        assert {name: made[name] for name in body} == body
        assert (made["namespace"], made["state"], made["depth"]) == (space, "active", 0)
        assert made["created_at"].endswith("Z")
        assert ok(api.post("/queues", json=body)) == made  # it was there
        assert ok(plain.get(where)) == made
        assert [one["name"] for one in ok(api.get("/queues"))["queues"]] == ["mail", "main"]

        changed = ok(plain.patch(where, json={"types": None, "batch_size": None, "takes": False}))
        assert changed == {**made, "types": None, "batch_size": None, "takes": False}
        assert ok(plain.patch(where, json={})) == changed
        assert ok(plain.delete(where), 204) is None
        assert told(plain.get(where)) == (404, "queue_not_found")

    @requirement("QS-9")
    def test_it_is_paused_drained_and_resumed(
        self, plain: httpx.Client, queue: EventQueue, space: str
    ) -> None:
        where = f"/queues/{space}/main"
        queue.publish("a")
        assert ok(plain.post(f"{where}/pause"))["state"] == "paused"
        assert queue.poll() == []
        assert ok(plain.post(f"{where}/drain"))["state"] == "draining"
        assert ok(plain.post(f"{where}/resume"))["state"] == "active"
        assert len(queue.poll()) == 1

    def test_it_begins_in_the_past(self, api: httpx.Client, queue: EventQueue) -> None:
        queue.publish("a")
        made = ok(api.post("/queues", json={"name": "late", "after": 0}), 201)
        assert made["filling"] == "waiting"
        ok(api.post("/queues", json={"name": "later", "since": "2020-01-01T00:00:00Z"}), 201)
        while queue.tick().more:
            pass
        assert {one["name"]: one["depth"] for one in ok(api.get("/queues"))["queues"]} == {
            **{"late": 1, "later": 1, "main": 1},
        }

    def test_how_it_does(self, plain: httpx.Client, queue: EventQueue, space: str) -> None:
        where = f"/queues/{space}/main/stats"
        queue.publish_many([("a", 1), ("a", 2), ("a", 3)])
        queue.complete(queue.poll(), execution_time_ms=40)
        stats = ok(plain.get(where))
        assert (stats["ready"], stats["published"], stats["completed"]) == (2, 3, 1)
        assert (stats["average_ms"], stats["is_exact"]) == (40, True)
        assert stats["oldest_ready_at"].endswith("Z")
        assert ok(plain.get(where, params={"period": 0}))["ready"] == 2

    def test_it_is_purged(self, plain: httpx.Client, queue: EventQueue, space: str) -> None:
        where = f"/queues/{space}/main/purge"
        queue.publish_many([("a", 1), ("a", 2), ("b", 3)])
        purged = ok(plain.post(where, json={"what": "ready", "types": ["a"], "reason": "old"}))
        assert purged == {"deliveries": 2, "more": False}
        assert queue.stats().ready == 1
        assert told(plain.post(where, json={"what": "everything"})) == (400, "invalid_body")
        assert told(plain.post(where, json={"what": "ready", "ids": [1]})) == (400, "invalid_input")

    @pytest.mark.parametrize(
        ("method", "path", "body", "expected"),
        [
            ("POST", "/queues", {}, (400, "invalid_body")),
            ("POST", "/queues", {"name": ""}, (400, "invalid_body")),
            ("POST", "/queues", {"name": "a/b"}, (400, "invalid_input")),
            ("POST", "/queues", {"name": "a", "surprise": 1}, (400, "invalid_body")),
            ("POST", "/queues", {"name": "a", "max_retries": -1}, (400, "invalid_body")),
            ("POST", "/queues", {"name": "a", "max_retries": 40000}, (400, "invalid_body")),
            ("POST", "/queues", {"name": "a", "types": "a"}, (400, "invalid_body")),
            ("POST", "/queues", {"name": "a", "types": []}, (400, "invalid_body")),
            ("POST", "/queues", {"name": "a", "backoff": {"kind": "?"}}, (400, "invalid_input")),
            ("POST", "/queues", {"name": "a", "since": "soon"}, (400, "invalid_body")),
            ("POST", "/queues", {"name": "a\u0000"}, (400, "invalid_input")),
            ("POST", "/queues", {"name": "main", "types": ["a"]}, (409, "queue_exists")),
            ("PATCH", "/queues/{}/main", {"max_queue_depth": 0}, (400, "invalid_body")),
            ("PATCH", "/queues/{}/main", {"name": "other"}, (400, "invalid_body")),
            ("PATCH", "/queues/{}/none", {}, (404, "queue_not_found")),
            ("PATCH", "/queues/nosuch/main", {}, (404, "namespace_not_found")),
            ("DELETE", "/queues/{}/main", None, (400, "invalid_input")),
            ("DELETE", "/queues/{}/none", None, (404, "queue_not_found")),
            ("POST", "/queues/{}/none/pause", None, (404, "queue_not_found")),
            ("PUT", "/queues/{}/main", {}, (405, "method_not_allowed")),
            ("GET", "/queues/{}/main/stats?period=x", None, (400, "invalid_query")),
            ("GET", "/queues/{}/main/stats?period=-1", None, (400, "invalid_query")),
            ("GET", "/queues/{}/main/stats?period=nan", None, (400, "invalid_query")),
            ("GET", "/queues/{}/main/stats?period=inf", None, (400, "invalid_query")),
        ],
    )
    def test_what_is_refused(
        self,
        plain: httpx.Client,
        space: str,
        method: str,
        path: str,
        body: Any,
        expected: tuple[int, str],
    ) -> None:
        params = {"namespace": space} if path == "/queues" else None
        answer = plain.request(method, path.format(space), json=body, params=params)
        assert told(answer) == expected

    def test_one_that_has_something_is_deleted_only_with_it(
        self, api: httpx.Client, plain: httpx.Client, queue: EventQueue, space: str
    ) -> None:
        ok(api.post("/queues", json={"name": "mail"}), 201)
        queue.publish("a")
        where = f"/queues/{space}/mail"
        assert told(plain.delete(where)) == (409, "queue_not_empty")
        ok(plain.delete(where, params={"with_deliveries": "true"}), 204)

    @pytest.mark.parametrize("name", ["ü ñ", "a'b\"c", "50%", "a?b#c", "..", ";drop"])
    def test_names_are_data(
        self, api: httpx.Client, plain: httpx.Client, space: str, name: str
    ) -> None:
        response = api.post("/queues", json={"name": name})
        assert ok(response, 201)["name"] == name
        if name != "..":  # which every client takes for the folder above
            assert ok(plain.get(response.headers["Location"]))["name"] == name
            ok(plain.delete(f"/queues/{space}/{quote(name, safe='')}"), 204)


class TestNamespaces:
    def test_one_is_made_shown_changed_and_deleted(self, plain: httpx.Client) -> None:
        response = plain.post("/namespaces", json={"name": "shop 1", "metadata": {"a": 1}})
        made = ok(response, 201)
        where = response.headers["Location"]
        assert where == "/namespaces/shop%201"
        assert {**made, "created_at": ""} == {
            **{"name": "shop 1", "unhandled": "keep", "metadata": {"a": 1}, "queues": 1},
            **{"unhandled_after": 300.0, "created_at": ""},
        }
        assert ok(plain.post("/namespaces", json={"name": "shop 1"})) == made
        assert made in ok(plain.get("/namespaces"))["namespaces"]
        settings = {"unhandled": "dead_letter", "unhandled_after": 60}
        changed = ok(plain.patch(where, json={**settings, "metadata": None}))
        assert changed == {**made, **settings, "metadata": {}}
        ok(plain.post("/events", params={"namespace": "shop 1"}, json={}), 201)
        assert told(plain.delete(where)) == (409, "namespace_not_empty")
        ok(plain.delete(where, params={"with_deliveries": True}), 204)
        assert told(plain.get(where)) == (404, "namespace_not_found")

    def test_what_is_refused(self, plain: httpx.Client) -> None:
        for body in (
            {},
            {"name": ""},
            {"name": "x" * 101},
            {"name": "a", "metadata": []},
            {"name": "a", "x": 1},
        ):
            assert told(plain.post("/namespaces", json=body)) == (400, "invalid_body")
        for name in (" a", "a\u0007", "a/b"):
            assert told(plain.post("/namespaces", json={"name": name})) == (400, "invalid_input")
        assert told(plain.patch("/namespaces/default", json={"unhandled": "x"})) == (
            400,
            "invalid_body",
        )


class TestSchedules:
    NIGHTLY: dict[str, Any] = {  # noqa: RUF012
        **{"name": "nightly", "cron_expression": "0 2 * * *", "timezone": "Europe/Berlin"},
        **{"event_type": "night", "payload": {"a": [1]}, "missed": "skip"},
        **{"tags": "x,y", "priority": 2, "title": "Good night", "headers": {"b": 2}},
    }

    @requirement("PG-6", "PG-28")
    def test_one_is_made_changed_paused_run_and_removed(self, api: httpx.Client) -> None:
        response = api.post("/schedules", json=self.NIGHTLY)
        made = ok(response, 201)
        where = "/schedules/nightly"
        assert response.headers["Location"].startswith(f"{where}?namespace=")
        same = ("name", "cron_expression", "timezone", "event_type", "payload", "missed")
        assert {name: made[name] for name in same} == {name: self.NIGHTLY[name] for name in same}
        assert made["event"] == {
            **{"tags": ["x", "y"], "priority": 2, "title": "Good night"},
            "headers": {"b": 2},
        }
        assert made["active"] is True
        assert all(fire.endswith(":00:00Z") for fire in made["next_fires"])
        assert len(made["next_fires"]) > 2
        assert ok(api.get(where)) == made
        assert ok(api.get("/schedules"))["schedules"] == [made]

        changed = ok(api.patch(where, json={"cron_expression": "30 2 * * *", "priority": 3}))
        assert changed["cron_expression"] == "30 2 * * *"
        assert changed["event"] == {**made["event"], "priority": 3}
        assert changed["payload"] == made["payload"]
        assert all(fire.endswith(":30:00Z") for fire in changed["next_fires"])
        assert ok(api.patch(where, json={"active": False}))["active"] is False
        assert ok(api.patch(where, json={"active": True}))["active"] is True
        assert ok(api.post(f"{where}/pause"))["active"] is False
        event = ok(api.post(f"{where}/run"), 201)
        assert (event["title"], event["tags"], event["payload"]) == (
            "Good night",
            "x,y",
            {"a": [1]},
        )
        assert ok(api.post(f"{where}/resume"))["active"] is True
        ok(api.delete(where), 204)
        assert told(api.get(where)) == (404, "schedule_not_found")
        assert told(api.post(f"{where}/run")) == (404, "schedule_not_found")

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            ({"cron_expression": "every day"}, "invalid_input"),
            ({"timezone": "Mars/Olympus"}, "invalid_input"),
            ({"missed": "cry"}, "invalid_body"),
            ({"priority": 10}, "invalid_input"),
            ({"name": ""}, "invalid_body"),
            ({"payload": {"a": "\u0000"}}, "invalid_payload"),
            ({"surprise": 1}, "invalid_body"),
        ],
    )
    def test_what_is_refused(self, api: httpx.Client, change: dict[str, Any], code: str) -> None:
        assert told(api.post("/schedules", json={**self.NIGHTLY, **change})) == (400, code)
        assert ok(api.get("/schedules")) == {"schedules": []}


class TestWhoWorks:
    @requirement("PG-31")
    def test_nodes_are_listed(self, api: httpx.Client, house: Running, space: str) -> None:
        house.db.sql(
            "select headrace.register_node(%s, 'n1', %s, 'Node one', handles => '{a.*}')",
            [space, uuid4()],
        )
        [node] = ok(api.get("/nodes"))["nodes"]
        assert (node["node_id"], node["alive"], node["handles"]) == ("n1", True, ["a.*"])
        assert node["last_heartbeat"].endswith("Z")
        assert node["stopped_at"] is None

    @requirement("API-3", "API-17")
    def test_workers_need_not_register(self, api: httpx.Client, queue: EventQueue) -> None:
        queue.publish_many([("a", 1), ("a", 2)])
        queue.complete(queue.poll(worker="host:1"))
        queue.poll(worker="host:2")
        one, two = ok(api.get("/workers"))["workers"]
        assert (one["worker_id"], one["completed"], one["holds"]) == ("host:1", 1, 0)
        assert (two["worker_id"], two["completed"], two["holds"]) == ("host:2", 0, 1)
        assert two["lease_expires_at"].endswith("Z")


class TestDeadLetters:
    def test_they_are_listed_shown_and_grouped(self, api: httpx.Client, queue: EventQueue) -> None:
        one, two = bury(queue, "a", "b", error="it broke")
        newest, oldest = ok(api.get("/dead-letters"))["dead_letters"]
        assert (newest["id"], oldest["id"]) == (two, one)
        assert (newest["tags"], newest["error"], newest["status"]) == ("a,b", "it broke", "FAILED")
        assert "payload" not in newest
        assert ok(api.get("/dead-letters", params={"types": "a"}))["dead_letters"] == [oldest]
        assert ok(api.get("/dead-letters", params={"before": two}))["dead_letters"] == [oldest]
        assert ok(api.get(f"/dead-letters/{one}")) == {**oldest, "payload": {"secret": 1}}
        [group] = ok(api.get("/dead-letters/groups"))["groups"]
        assert (group["letters"], group["types"]) == (2, ["a", "b"])
        assert group["fingerprint"] == newest["fingerprint"]
        for id in ("0", "x", "1e3", str(10**30), "-1", str(one + 1000)):
            assert told(api.get(f"/dead-letters/{id}")) == (404, "event_not_found")

    def test_they_are_redriven(self, api: httpx.Client, queue: EventQueue) -> None:
        one, two, three = bury(queue, "a", "b", "b")
        redriven = ok(api.post("/dead-letters/redrive", json={"ids": [one, 10**12]}))
        assert redriven == {"deliveries": 1, "more": False}
        assert queue.event(one).status == "PENDING"
        assert ok(api.post("/dead-letters/redrive", json={"types": ["c"]}))["deliveries"] == 0
        assert ok(api.post("/dead-letters/redrive", json={}))["deliveries"] == 2
        assert {queue.event(id).status for id in (two, three)} == {"PENDING"}
        done = queue.admin_log(limit=1)[0]
        assert (done.actor, done.action, done.details["deliveries"]) == ("127.0.0.1", "redrive", 2)
        for body in ({"rate": 0}, {"ids": ["a"]}, {"ids": [-1]}, {"ids": 1}):
            assert told(api.post("/dead-letters/redrive", json=body)) == (400, "invalid_body")


class TestErasing:
    def test_what_an_event_says_is_gone_and_its_trail_stays(
        self, api: httpx.Client, queue: EventQueue
    ) -> None:
        [dead] = bury(queue, "a", error="of Alice")
        for _ in range(2):
            ok(api.post(f"/events/{dead}/erase", params={"reason": "asked to"}), 204)
        shown = ok(api.get(f"/events/{dead}", params={"include_logs": True}))
        assert shown["payload"] == {"erased": True}
        assert "Alice" not in str(shown)
        assert "ERASED" in [entry["action"] for entry in shown["logs"]]
        done = queue.admin_log(limit=1)[0]
        assert (done.action, done.target, done.details) == (
            *("erase", str(dead), {"reason": "asked to"}),
        )
        assert told(api.post(f"/events/{dead + 1000}/erase")) == (404, "event_not_found")


class TestTheLog:
    def test_it_says_who_did_what(self, api: httpx.Client, plain: httpx.Client, space: str) -> None:
        ok(plain.post(f"/queues/{space}/main/pause"))
        entries = ok(api.get("/admin-log"))["entries"]
        assert [(one["action"], one["target"]) for one in entries] == [
            ("pause", "main"),
            ("create_namespace", space),
        ]
        assert entries[0]["actor"] == "127.0.0.1"
        assert entries[0]["namespace"] == space
        older = ok(api.get("/admin-log", params={"before": entries[0]["id"]}))["entries"]
        assert older == entries[1:]
        everywhere = ok(plain.get("/admin-log", params={"limit": 1000}))["entries"]
        assert {space, "default"} <= {one["namespace"] for one in everywhere}


class TestLimitedTokens:
    @requirement("G16")
    def test_lists_tell_only_what_the_token_is_for(
        self, house: Running, plain: httpx.Client, space: str
    ) -> None:
        queue = house.db.queue()
        token = queue.create_token(f"of {space}", ["admin"], namespaces=[space, f"{space}-new"])
        try:
            with house.client(headers={"Authorization": f"Bearer {token}"}) as client:
                listed = ok(client.get("/namespaces"))["namespaces"]
                assert [one["name"] for one in listed] == [space]
                assert told(client.get("/admin-log")) == (403, "namespace_not_allowed")
                assert ok(client.get("/admin-log", params={"namespace": space}))
                assert told(client.post("/namespaces", json={"name": "other"})) == (
                    403,
                    "namespace_not_allowed",
                )
                ok(client.post("/namespaces", json={"name": f"{space}-new"}), 201)
                metrics = client.get("/metrics").text
                assert f'namespace="{space}"' in metrics
                assert 'namespace="default"' not in metrics
                assert "headrace_http" not in metrics
        finally:
            house.db.sql("delete from headrace.api_tokens")  # others come without
            house.db.wait_for(lambda: plain.get("/events").is_success)

"""/metrics, read as Prometheus reads it; /healthz and /readyz."""

from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace import EventQueue
from headrace.server import figures
from tests.database import Database
from tests.requirements import requirement
from tests.server.running import Running, running


@pytest.fixture(autouse=True)
def fresh_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "YOUNG", 0.0)


@pytest.fixture
def space(house: Running) -> str:
    return house.new_namespace()


@pytest.fixture
def queue(house: Running, space: str) -> EventQueue:
    return EventQueue(house.db.connect(), namespace=space)


@pytest.fixture
def api(house: Running) -> Iterator[httpx.Client]:
    with house.client() as client:
        yield client


def scrape(api: httpx.Client) -> dict[str, list[Any]]:
    response = api.get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = text_string_to_metric_families(response.text)
    samples: dict[str, list[Any]] = {}
    for family in families:
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    return samples


def of(samples: dict[str, list[Any]], name: str, **labels: str) -> list[float]:
    return [
        sample.value for sample in samples.get(name, []) if labels.items() <= sample.labels.items()
    ]


class TestMetrics:
    @requirement("EQ-17", "EB-13", "PG-31")
    def test_how_the_queues_do(
        self, api: httpx.Client, house: Running, queue: EventQueue, space: str
    ) -> None:
        queue.publish_many([("mail", n) for n in range(20)])
        queue.publish("mail", delay=60)
        queue.publish("bad", max_retries=0)
        queue.publish("again")
        queue.complete(queue.poll(types=["mail"], max_events=3), execution_time_ms=100)
        queue.fail(queue.poll(types=["bad"])[0], "no")
        queue.fail(queue.poll(types=["again"])[0], "no")
        queue.poll(types=["mail"], max_events=2)
        house.db.sql("select headrace.register_node(%s, 'n1', gen_random_uuid())", [space])
        samples = scrape(api)

        def figure(name: str, **labels: str) -> float:
            [value] = of(samples, f"headrace_{name}", namespace=space, **labels)
            return value

        assert figure("depth", queue="main", type="mail") == 15
        assert figure("delayed", type="mail") == 1
        assert figure("dead_letters", type="bad") == 1
        assert 0 <= figure("oldest_seconds", type="mail") < 60
        assert figure("depth_is_exact", type="mail") == 1
        assert figure("published_total", queue="main") == 23
        assert figure("completed_total") == 3
        assert figure("failed_total") == 2
        assert figure("retried_total") == 1
        assert figure("dead_lettered_total") == 1
        assert figure("abandoned_total") == 0
        assert figure("attempts_total") == 5
        assert figure("failure_ratio") == pytest.approx(0.4)
        assert figure("execution_seconds_total") == pytest.approx(0.3)
        assert (figure("leases"), figure("processing")) == (1, 2)
        assert 0 <= figure("oldest_claim_seconds") < 60
        assert figure("paused") == 0
        assert figure("nodes", state="alive") == 1
        assert of(samples, "headrace_database_up") == [1]

    @requirement("EQ-17")
    def test_how_long_attempts_waited_and_ran(
        self, api: httpx.Client, house: Running, queue: EventQueue, space: str
    ) -> None:
        scrape(api)  # from now on
        queue.publish_many([("a", n) for n in range(4)])
        queue.complete(queue.poll(max_events=3), execution_time_ms=70)
        house.db.advance(seconds=3)
        samples = scrape(api)
        for kind, total in (("wait", None), ("run", 0.21)):
            name = f"headrace_{kind}_seconds"
            assert of(samples, f"{name}_count", namespace=space, queue="main") == [3]
            assert of(samples, f"{name}_bucket", namespace=space, le="+Inf") == [3]
            if total:
                assert of(samples, f"{name}_sum", namespace=space) == [pytest.approx(total)]
        assert of(samples, "headrace_run_seconds_bucket", namespace=space, le="0.025") == [0]
        assert of(samples, "headrace_run_seconds_bucket", namespace=space, le="0.1") == [3]
        queue.complete(queue.poll())
        house.db.advance(seconds=3)
        assert of(scrape(api), "headrace_run_seconds_count", namespace=space) == [4]  # they grow

    def test_how_requests_fare(self, api: httpx.Client, space: str) -> None:
        for _ in range(3):
            api.post("/events", params={"namespace": space}, json={})
        api.get("/events/12345678")
        api.get("/events/0")
        api.request("PUT", "/events")
        samples = scrape(api)

        def count(**labels: str) -> float:
            return sum(of(samples, "headrace_http_request_seconds_count", **labels))

        assert count(method="POST", path="/events", status="201") == 3
        assert count(method="GET", path="/events/{id}", status="404") == 2
        assert count(method="other", path="/events", status="405") == 1
        assert of(samples, "headrace_http_request_seconds_sum", path="/events", status="201")[0] > 0

    def test_names_are_escaped(self, api: httpx.Client, house: Running) -> None:
        name = 'a"b\\c{}'
        house.db.sql("select headrace.create_namespace(%s)", [name])
        type = 'multi\\n"line'
        EventQueue(house.db.connect(), namespace=name).publish(type)
        assert of(scrape(api), "headrace_depth", namespace=name, type=type) == [1]

    def test_who_asks_again_at_once_is_told_the_same(
        self, api: httpx.Client, queue: EventQueue, space: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(figures, "YOUNG", 60.0)
        scrape(api)
        queue.publish("a")
        assert of(scrape(api), "headrace_depth", namespace=space) == []
        monkeypatch.setattr(figures, "YOUNG", 0.0)
        assert of(scrape(api), "headrace_depth", namespace=space) == [1]


class TestHealth:
    def test_it_is_alive_and_ready(self, api: httpx.Client) -> None:
        assert api.get("/healthz").json() == {"status": "ok"}
        assert api.get("/readyz").json() == {"status": "ready"}
        assert api.head("/healthz").status_code == 200

    def test_without_its_database_it_is_alive_and_not_ready(self, db: Database) -> None:
        with running(db) as started, started.client() as api:
            assert api.get("/readyz").is_success
            assert of(scrape(api), "headrace_database_up") == [1]
            started.wait_no_longer_than(0.2)
            with psycopg.connect(db.server.dsn, autocommit=True) as admin:
                admin.execute(f"alter database {db.name} allow_connections false")
                admin.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s",
                    [db.name],
                )
            # What was seen within the last second is still told.
            db.wait_for(lambda: not api.get("/readyz").is_success)
            not_ready = api.get("/readyz")
            assert (not_ready.status_code, not_ready.json()["code"]) == (
                503,
                "database_unavailable",
            )
            assert not_ready.headers["Retry-After"]
            assert api.get("/healthz").is_success
            assert of(scrape(api), "headrace_database_up") == [0]

    def test_with_a_schema_of_another_time_it_is_not_ready(self, db: Database) -> None:
        with running(db) as started, started.client() as api:
            db.sql(
                "create or replace function headrace.version(out major int, out minor int)"
                " language sql as 'select 99, 0'"
            )
            answer = api.get("/readyz")
            assert (answer.status_code, answer.json()["code"]) == (503, "schema_mismatch")
            assert "upgrade the headrace package" in answer.json()["error"]

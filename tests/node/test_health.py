"""The port of a worker: alive, ready, and the figures, also while the event loop is blocked."""

import asyncio
import http.client
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from headrace import InvalidInput
from headrace.node.health.port import AT_ONCE, HealthPort, parsed
from headrace.node.health.vitals import Vitals

WELL = Vitals(
    node="api-1",
    namespace="shop",
    queue="main",
    trouble=None,
    ended={("order.paid", "completed"): 3, ('say "hi"\n\\', "failed"): 1},
    run_times={0.005: 2, 0.1: 1, math.inf: 1},
    run_time=70.25,
    running=2,
    buffered=5,
    leases=1,
)


class Worker:
    """An event loop in a thread, with a health port."""

    def __init__(self, patience: float) -> None:
        self.vitals = WELL
        self._patience = patience
        self._stop = asyncio.Event()
        self._open = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        async with HealthPort("127.0.0.1:0", lambda: self.vitals, self._patience) as port:
            self.address = port.address
            self._open.set()
            await self._stop.wait()

    def __enter__(self) -> "Worker":
        self._thread.start()
        assert self._open.wait(60)
        return self

    def __exit__(self, *error: object) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """What a handler does that waits without awaiting."""
        begun, end = threading.Event(), threading.Event()

        def block() -> None:
            begun.set()
            end.wait(60)

        self.loop.call_soon_threadsafe(block)
        assert begun.wait(60)
        yield
        end.set()


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(patience=0.05) as worker:
        yield worker


@pytest.fixture
def patient() -> Iterator[Worker]:
    """One that is not taken for dead on a slow machine."""
    with Worker(patience=10) as worker:
        yield worker


def test_it_is_alive_and_ready(patient: Worker) -> None:
    assert patient.get("/healthz") == (200, "alive\n")
    assert patient.get("/readyz") == (200, "ready\n")
    assert patient.get("/readyz?verbose=1", "HEAD") == (200, "")


def test_it_is_alive_and_not_ready_while_it_claims_nothing(patient: Worker) -> None:
    patient.vitals = replace(WELL, trouble="PostgreSQL does not answer")
    assert patient.get("/healthz")[0] == 200
    assert patient.get("/readyz") == (503, "PostgreSQL does not answer\n")


def test_it_is_not_alive_while_its_event_loop_is_blocked(worker: Worker) -> None:
    with worker.blocked():
        for path in ("/healthz", "/readyz", "/metrics"):
            status, said = worker.get(path)
            assert (status, "event loop has not answered" in said) == (503, True)
    _until(lambda: worker.get("/healthz")[0] == 200)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline


def test_the_figures_are_as_prometheus_reads_them(patient: Worker) -> None:
    status, shown = patient.get("/metrics")
    assert status == 200
    lines = shown.splitlines()
    its = 'node="api-1",namespace="shop",queue="main"'
    for line in (
        "# TYPE headrace_node_attempts_total counter",
        f'headrace_node_attempts_total{{{its},type="order.paid",outcome="completed"}} 3',
        f'headrace_node_attempts_total{{{its},type="say \\"hi\\"\\n\\\\",outcome="failed"}} 1',
        "# TYPE headrace_node_run_seconds histogram",
        f'headrace_node_run_seconds_bucket{{{its},le="0.005"}} 2',
        f'headrace_node_run_seconds_bucket{{{its},le="0.1"}} 3',
        f'headrace_node_run_seconds_bucket{{{its},le="+Inf"}} 4',
        f"headrace_node_run_seconds_sum{{{its}}} 70.25",
        f"headrace_node_run_seconds_count{{{its}}} 4",
        f"headrace_node_running{{{its}}} 2",
        f"headrace_node_buffered{{{its}}} 5",
        f"headrace_node_leases{{{its}}} 1",
        f"headrace_node_ready{{{its}}} 1",
    ):
        assert line in lines
    [lag] = [line.split()[-1] for line in lines if line.startswith("headrace_node_loop_lag_sec")]
    assert 0 < float(lag) < 10


def test_prometheus_reads_them(patient: Worker) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    families = {
        family.name: family
        for family in parser.text_string_to_metric_families(patient.get("/metrics")[1])
    }
    samples = families["headrace_node_attempts"].samples
    assert {sample.labels["type"] for sample in samples} == {"order.paid", 'say "hi"\n\\'}
    assert families["headrace_node_run_seconds"].type == "histogram"


def test_anything_else_is_not_there(patient: Worker) -> None:
    assert patient.get("/")[0] == 404
    assert patient.get("/metrics/../x")[0] == 404
    assert patient.get("/healthz", "POST")[0] == 501


def test_who_asks_and_goes_or_says_nothing_keeps_nobody_from_asking(patient: Worker) -> None:
    host, port = parsed(patient.address)
    for sent in (b"GET /metrics HTTP/1.1\r\n\r\n", b"\0\xff" * 100, b""):
        with socket.create_connection((host, port)) as hasty:
            hasty.sendall(sent)
    silent = [socket.create_connection((host, port)) for _ in range(AT_ONCE - 1)]
    _until(lambda: _answers(patient))
    for one in silent:
        one.close()
    _until(lambda: _answers(patient))


def test_connections_that_ask_for_nothing_keep_no_probe_waiting(patient: Worker) -> None:
    silent = [socket.create_connection(parsed(patient.address)) for _ in range(2 * AT_ONCE)]
    for _ in range(3):
        assert patient.get("/healthz")[0] == 200
    for one in silent:
        one.close()


def _answers(worker: Worker) -> bool:
    try:
        return worker.get("/healthz")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


@pytest.mark.parametrize(
    ("address", "where"),
    [
        ("0.0.0.0:9000", ("0.0.0.0", 9000)),
        (":9000", ("127.0.0.1", 9000)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, where: tuple[str, int]) -> None:
    assert parsed(address) == where


@pytest.mark.parametrize("address", ["", "9000", "a:", "a:b", "a:65536", "a:-1", "a:٣"])
def test_another_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput, match="HOST:PORT"):
        parsed(address)


def test_a_port_that_somebody_else_has_is_said_to_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(InvalidInput, match=f"cannot listen on {address}: "):
            HealthPort(address, lambda: WELL)

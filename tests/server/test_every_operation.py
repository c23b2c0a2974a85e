"""Every operation: it is there for who may do it, in the namespaces he may know of, and for nobody else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headrace.server.http import gate as guarding
from headrace.server.http.operation import SCOPES
from tests.database import Database, Server
from tests.engine.every_function import Life, live
from tests.engine.functions_helpers import contents, differences, stop_the_clock
from tests.requirements import requirement
from tests.server.every_operation import (
    BY_NAME,
    REQUESTS,
    REQUESTS_OF_ALL,
    operation,
    prepared,
)
from tests.server.running import Running, running

# What the server's own upkeep writes, whoever asks.
UPKEEP = {"chores", "counts", "depths", "history", "instances", "moments", "samplings", "stats"} | {
    "totals", "unhandled", "upkeep", "marks", "horizons", "saved_states", "event_queue_state", "queue_checkpoints",
}  # fmt: skip

Ask = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "PACE", 0.001)


@pytest.fixture(scope="module")
def house(server: Server) -> Iterator[Running]:
    """In which time stands still, so that nothing changes by itself."""
    database = Database(server, server.create_database(template=Server.TEMPLATE))
    stop_the_clock(database)
    with running(database) as started:
        yield started
    database.close()
    server.drop_database(database.name)


@pytest.fixture(scope="module")
def ours(house: Running) -> Life:
    return live(house.db, "ours")


@pytest.fixture(scope="module")
def theirs(house: Running, ours: Life) -> Life:
    return live(house.db, "theirs")


@pytest.fixture(scope="module")
def token(house: Running, theirs: Life) -> Callable[..., str]:
    queue = house.db.queue()
    numbers = iter(range(1000))
    return lambda *scopes, **options: queue.create_token(
        f"token {next(numbers)}", scopes, **options
    )


@pytest.fixture
def ask(house: Running) -> Iterator[Ask]:
    with house.client() as client:

        def asked(
            name: str, life: Life, authorization: str | None, namespace: str | None = None
        ) -> tuple[int, str]:
            request = prepared(name, life, namespace)
            headers = {"Content-Type": "application/json"}
            if authorization is not None:
                headers["Authorization"] = authorization
            with client.stream(
                *(request.method, request.target), content=request.content, headers=headers
            ) as answer:
                endless = answer.headers.get("content-type", "").startswith("text/event-stream")
                return answer.status_code, "" if endless else answer.read().decode()

        yield asked


@contextmanager
def nothing_changes(house: Running) -> Iterator[None]:
    before = contents(house.db)
    yield
    assert differences(before, contents(house.db)) - UPKEEP == set()


def test_all_of_them_are_here() -> None:
    listed = {*REQUESTS, *REQUESTS_OF_ALL}
    assert BY_NAME.keys() - listed == set(), "REQUESTS in every_operation.py needs one of these"
    assert listed - BY_NAME.keys() == set(), "every_operation.py has these, and the server does not"
    for name in BY_NAME:
        told = "{namespace}" in name or "namespace" in operation(name).query.__struct_fields__
        assert (name in REQUESTS) == told, name


@requirement("G16")
def test_of_a_namespace_that_is_not_his_nobody_learns_or_changes_anything(
    house: Running, ask: Ask, token: Callable[..., str], ours: Life, theirs: Life
) -> None:
    bearer = f"Bearer {token(*sorted(SCOPES), namespaces=['ours'])}"
    with nothing_changes(house):
        for name in REQUESTS:
            status, there = ask(name, theirs, bearer)
            assert status == 404, f"{name}: {there}"
            _, nowhere = ask(name, theirs, bearer, "nosuch")
            assert there.replace("theirs", "nosuch") == nowhere, name


@requirement("G16")
def test_by_its_number_nobody_gets_hold_of_an_event_of_another_namespace(
    house: Running, ask: Ask, token: Callable[..., str], ours: Life, theirs: Life
) -> None:
    bearer = f"Bearer {token(*sorted(SCOPES), namespaces=['ours'])}"
    by_number = [name for name in REQUESTS if "{id}" in name]
    assert len(by_number) > 8
    with nothing_changes(house):
        for name in by_number:
            status, said = ask(name, theirs, bearer, "ours")
            assert status == 404, f"{name}: {said}"
        status, said = ask("POST /dead-letters/redrive", theirs, bearer, "ours")
        assert (status, said) == (200, '{"deliveries":0,"more":false}')


def test_who_may_not_do_it_is_told_so_and_it_is_not_done(
    house: Running, ask: Ask, token: Callable[..., str], ours: Life
) -> None:
    queue = house.db.queue()
    revoked = queue.create_token("to be revoked", ["admin"])
    queue.revoke_token("to be revoked")
    nobody = [None, "", "Basic aHI6aHI=", "Bearer hr_nobody-has-this", f"Bearer {revoked}"]
    without = {
        scope: f"Bearer {token(*sorted(SCOPES - {scope, 'admin'}))}"
        for scope in ("publish", "consume", "read", "admin")
    }
    with nothing_changes(house):
        for name in BY_NAME:
            scope = operation(name).scope
            if scope is None:
                continue
            answers = {ask(name, ours, authorization)[0] for authorization in nobody}
            assert answers == {401}, name
            if scope != "any":
                status, said = ask(name, ours, without[scope])
                assert (status, f'"scope":"{scope}"' in said) == (403, True), name


def test_who_may_do_it_does_it(ask: Ask, token: Callable[..., str], ours: Life) -> None:
    """So that what the others are refused is the right request."""
    everything = f"Bearer {token('admin')}"
    one_scope = {scope: f"Bearer {token(scope)}" for scope in sorted(SCOPES)}
    for name in (*REQUESTS_OF_ALL, *REQUESTS):
        bearer = one_scope.get(operation(name).scope or "", everything)
        status, said = ask(name, ours, bearer)
        assert status in operation(name).answers or status == 200, f"{name}: {said}"
        assert status < 400, f"{name}: {said}"

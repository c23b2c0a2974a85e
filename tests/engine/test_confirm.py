"""Answers from what is stored: "it was done before" is only said once the synchronous standby has it, too."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from headrace.embedded import EmbeddedPostgres, find_binaries
from headrace.install.migrate import migrate
from tests.database import FIRST, STRIDE, Database, Server
from tests.engine.races_helpers import Background
from tests.folders import short_folder
from tests.requirements import requirement

# Nothing waits for the standby that does not exist, unless it says so.
LOCAL = "-c synchronous_commit=local"
WAITS = "-c synchronous_commit=on"


@pytest.fixture(scope="module")
def primary() -> Iterator[Server]:
    """A server whose commits wait for a standby that never comes."""
    settings = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "local"}
    settings["synchronous_standby_names"] = "nobody"
    with short_folder() as folder, EmbeddedPostgres(folder / "data", settings=settings) as postgres:
        server = Server(postgres, find_binaries())
        server.prepare_template()
        yield server
        server.close()


@pytest.fixture
def db(primary: Server) -> Iterator[Database]:
    database = primary.lend()
    yield database
    database.give_back()


class Waiting:
    """A statement that runs until its commit waits for the standby, and is then let go: it stays, here alone."""

    def __init__(self, db: Database, query: str) -> None:
        self.db = db
        self.connection = db.connect(options=WAITS)
        self.warnings: list[str] = []
        self.connection.add_notice_handler(lambda said: self.warnings.append(said.severity or ""))
        self.pid = self.connection.info.backend_pid
        self.running = Background(lambda: self.connection.execute(query).fetchall())

    def is_waiting(self) -> bool:
        assert not self.running.over, f"it waited for nobody: {self.running.result()}"
        query = "select from pg_stat_activity where pid = %s and wait_event = 'SyncRep'"
        return bool(self.db.sql(query, [self.pid]))

    def interrupted(self) -> list[Any]:
        self.db.wait_for(self.is_waiting)
        self.db.sql("select pg_cancel_backend(%s)", [self.pid])
        rows = self.running.result()
        assert self.warnings == ["WARNING"]
        return rows


class Answer(NamedTuple):
    """A call, and what it answers when it was done before."""

    call: str
    again: tuple[Any, ...]
    before: tuple[str, ...] = ()
    """What is done first, and is not waited for."""
    once_more: str | None = None
    """What is called the second time, if that is another."""


PUBLISHED = "select headrace.publish('default', '{\"type\": \"a\"}')"
CLAIMED = "select headrace.poll('default', worker => 'w')"
HELD = "select headrace.poll('default', worker => 'w', \"each\" => true)"
DEAD = f"select headrace.finalize('default', {FIRST}, 1, success => false)"
IDEMPOTENT = "select ids, repeated from headrace.publish('default', '{\"idempotency_key\": \"k\"}')"
FINISH = f"select verdict from headrace.finish('default', 'main', '{{{FIRST}}}', '{{1}}')"
REPORT = (
    f"select verdict from headrace.report('default', 'main', '{{{FIRST}}}', '{{null}}', '{{w}}')"
)
SCHEDULED = "select (headrace.schedule_task('default', 's', '@daily')).name"

ANSWERS = {
    "publish": Answer(IDEMPOTENT, ([FIRST], [1])),
    "a batch": Answer(
        "select ids, repeated from headrace.publish('default', "
        '\'[{"idempotency_key": "k"}, {"idempotency_key": "l"}]\')',
        ([FIRST, FIRST + STRIDE], [1, 2]),
    ),
    "finish": Answer(FINISH, ("repeated",), (PUBLISHED, HELD)),
    "finish, of a batch": Answer(FINISH, ("repeated",), (PUBLISHED, CLAIMED)),
    "report": Answer(REPORT, ("repeated",), (PUBLISHED, HELD)),
    "complete": Answer(
        f"select headrace.complete('default', {FIRST}, 1)", ("",), (PUBLISHED, HELD)
    ),
    "complete, found otherwise": Answer(
        f"select headrace.complete_held('default', 'main', {FIRST}, 1)",
        ("repeated",),
        (PUBLISHED, HELD),
        FINISH,
    ),
    "fail": Answer(
        f"select headrace.fail('default', {FIRST}, 1, 'e', retry_in => '1 day') is null",
        (False,),
        (PUBLISHED, HELD),
    ),
    "release": Answer(f"select headrace.release('default', {FIRST}, 1)", ("",), (PUBLISHED, HELD)),
    "finalize": Answer(
        f"select headrace.finalize('default', {FIRST}, 1)", ("COMPLETED",), (PUBLISHED, HELD)
    ),
    "finalize, without a claim": Answer(
        f"select headrace.finalize('default', {FIRST}, 1)",
        ("COMPLETED",),
        (PUBLISHED, HELD),
        f"select headrace.finalize('default', {FIRST}, null)",
    ),
    "resolve": Answer(
        FINISH,
        ("COMPLETED",),
        (PUBLISHED, HELD),
        f"select headrace.resolve('default', 'main', {FIRST}, 1)",
    ),
    "start": Answer(
        f"select headrace.start('default', {FIRST}, 1) is null", (False,), (PUBLISHED, CLAIMED)
    ),
    "save_progress": Answer(
        f"select headrace.save_progress('default', {FIRST}, 1, '1')", ("",), (PUBLISHED, CLAIMED)
    ),
    "cancel": Answer(f"select headrace.cancel('default', {FIRST})", (False,), (PUBLISHED,)),
    "reset": Answer(f"select headrace.reset('default', {FIRST})", (False,), (PUBLISHED, CLAIMED)),
    "erase": Answer(f"select headrace.erase('default', {FIRST})", (False,), (PUBLISHED,)),
    "redrive": Answer(
        "select done, more from headrace.redrive('default')", (0, False), (PUBLISHED, HELD, DEAD)
    ),
    "purge": Answer(
        "select done, more from headrace.purge('default', 'main', 'ready')",
        (0, False),
        (PUBLISHED,),
    ),
    "give_slots": Answer(
        "select headrace.give_slots('{7}', 0)", ([{"slot": 7, "asked": [], "version": 0}],)
    ),
    "open_slots": Answer("select headrace.open_slots('{7}')", ([],)),
    "create_namespace": Answer("select headrace.create_namespace('n')", (False,)),
    "create_queue": Answer("select headrace.create_queue('default', 'q')", (False,)),
    "pause": Answer("select headrace.pause('default')", (None,)),
    "schedule_task": Answer(SCHEDULED, ("s",)),
    "pause_schedule": Answer("select headrace.pause_schedule('default', 's')", ("",), (SCHEDULED,)),
    "resume_schedule": Answer(
        "select (headrace.resume_schedule('default', 's')).name",
        ("s",),
        (SCHEDULED, "select headrace.pause_schedule('default', 's')"),
    ),
    "configure": Answer("select headrace.configure('retention', '9 months')", ("",)),
    "checkpoint": Answer(
        "select checkpoint_id from headrace.checkpoint('default')",
        (str(FIRST),),
        (PUBLISHED, HELD, FINISH),
    ),
    "save_state": Answer("select headrace.save_state('default')", ("",), (PUBLISHED,)),
}


@requirement("G1")
@pytest.mark.parametrize("name", ANSWERS)
def test_what_was_done_before_is_waited_for(db: Database, name: str) -> None:
    answer = ANSWERS[name]
    for query in answer.before:
        db.sql(query)
    Waiting(db, answer.call).interrupted()
    again = Waiting(db, answer.once_more or answer.call)
    [row] = again.interrupted()
    assert row == answer.again


@requirement("G1")
def test_what_pgmq_was_told_before_is_waited_for(db: Database) -> None:
    migrate(db.connect(), add=["pgmq"])
    calls: dict[str, Callable[[Any], bool]] = {
        "select pgmq.create('q')": lambda _: True,
        "select pgmq.delete('q', (select max(id) from headrace.events))": lambda told: not told,
    }
    for call, is_told in calls.items():
        Waiting(db, call).interrupted()
        [(told,)] = Waiting(db, call).interrupted()
        assert is_told(told)
        db.sql("select pgmq.send('q', '{}')")


def test_a_call_that_answers_at_once_waits_for_nobody(db: Database) -> None:
    """Where nobody asks for a synchronous standby, an answer from what is stored costs no waiting."""
    assert [db.sql(IDEMPOTENT) for _ in range(2)] == [[([FIRST], None)], [([FIRST], [1])]]
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        db.sql("begin read only; select headrace.publish('default', '{}')")

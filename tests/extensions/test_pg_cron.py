"""Where pg_cron is the house's clock: schedules fire and leases end with no node running, each instant once."""

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from headrace import NotInstallable, doctor
from headrace.install import parts
from headrace.install.migrate import migrate, script
from tests.database import Database, Server
from tests.requirements import requirement

JOBS = "select jobname, schedule, command from cron.job where jobname <> 'headrace_tick' order by 1"


@pytest.fixture
def cron(db: Database) -> Database:
    """A database whose schedules pg_cron runs."""
    migrate(db.connect(), add=["pg_cron"])
    return db


def schedule(db: Database, name: str = "nightly", cron: str = "0 2 * * *", **given: Any) -> str:
    [(task,)] = db.sql(
        "select task_id::text from headrace.schedule_task(namespace => 'default', name => %s,"
        " cron_expression => %s, timezone => %s)",
        [name, cron, given.get("timezone", "UTC")],
    )
    return task


@requirement("PG-6", "PG-27")
def test_a_task_has_a_job_of_the_documented_name_and_its_number(cron: Database) -> None:
    task = schedule(cron)
    run = f"select headrace.run_scheduled_task('{task}', by_clock => true)"
    assert cron.sql(JOBS) == [(f"default_nightly_{task}", "0 2 * * *", run)]
    assert cron.sql(
        "select job_id = (select jobid from cron.job where jobname ~ 'nightly') from headrace.scheduled_tasks"
    ) == [(True,)]
    schedule(cron)  # the same again
    assert len(cron.sql(JOBS)) == 1


@requirement("PG-27", "PG-28")
def test_the_job_goes_with_the_task_and_its_pauses(cron: Database) -> None:
    task = schedule(cron)
    schedule(cron, cron="30 2 * * mon-fri")
    assert [when for _, when, _ in cron.sql(JOBS)] == ["30 2 * * mon-fri"]
    cron.sql("select headrace.pause_schedule('default', 'nightly')")
    assert cron.sql(JOBS) == []
    assert cron.sql("select job_id from headrace.scheduled_tasks") == [(None,)]
    cron.sql("select headrace.resume_schedule('default', 'nightly')")
    assert [name for name, _, _ in cron.sql(JOBS)] == [f"default_nightly_{task}"]
    cron.sql("select headrace.remove_schedule('default', 'nightly')")
    assert cron.sql(JOBS) == []


@requirement("PG-6", "PG-27", "PG-28")
def test_a_task_that_is_inserted_into_core_has_one_job_under_its_id(cron: Database) -> None:
    migrate(cron.connect(), add=["core"])
    task = "5a1f2e3d-0000-4000-8000-000000000001"
    cron.sql(
        "insert into core.scheduled_tasks (task_id, namespace, name, cron_expression) values (%s, 'default', 'nightly', '0 2 * * *')",
        [task],
    )
    assert [name for name, _, _ in cron.sql(JOBS)] == [f"default_nightly_{task}"]
    assert cron.sql("select job_id is not null from core.scheduled_tasks") == [(True,)]
    cron.sql("update core.scheduled_tasks set active = false")
    assert cron.sql(JOBS) == []
    cron.sql("update core.scheduled_tasks set active = true")
    cron.sql("delete from core.scheduled_tasks")
    assert cron.sql(JOBS) == []


def test_the_jobs_of_a_namespace_go_with_it(cron: Database) -> None:
    cron.sql("select headrace.create_namespace('shop')")
    cron.sql("select headrace.schedule_task('shop', 'nightly', '@daily')")
    assert len(cron.sql(JOBS)) == 1
    cron.sql("select headrace.delete_namespace('shop')")
    assert cron.sql(JOBS) == []


def test_what_is_rolled_back_leaves_no_job(cron: Database) -> None:
    connection = cron.connect()
    with connection.transaction(force_rollback=True):
        connection.execute("select headrace.schedule_task('default', 'nightly', '@daily')")
    assert cron.sql(JOBS) == []


@pytest.mark.parametrize(
    ("cron_expression", "timezone"),
    [
        ("0 2 * * *", "Europe/Berlin"),
        ("*/10 * * * * *", "UTC"),
        ("0 0 L * *", "UTC"),
        ("0 0 * * 1#2", "UTC"),
    ],
)
def test_what_pg_cron_cannot_run_has_no_job_and_is_left_to_the_tick(
    cron: Database, cron_expression: str, timezone: str
) -> None:
    schedule(cron)
    schedule(cron, cron=cron_expression, timezone=timezone)  # a job it had is taken away
    assert cron.sql(JOBS) == []
    assert cron.sql("select job_id from headrace.scheduled_tasks") == [(None,)]


def test_tasks_that_were_there_before_get_their_jobs_and_lose_them_with_the_part(
    db: Database,
) -> None:
    task = schedule(db)
    migrate(db.connect(), add=["pg_cron"])
    assert [name for name, _, _ in db.sql(JOBS)] == [f"default_nightly_{task}"]
    [(ticking,)] = db.sql("select command from cron.job where jobname = 'headrace_tick'")
    assert ticking == "call headrace_cron.tick()"
    migrate(db.connect(), remove=["pg_cron"])
    assert db.sql("select * from cron.job") == []
    assert db.sql("select job_id from headrace.scheduled_tasks") == [(None,)]
    assert db.sql("select to_regnamespace('headrace_cron')") == [(None,)]


def test_a_script_lets_pg_cron_run_them_too(db: Database) -> None:
    schedule(db)
    connection = db.connect()
    for _ in range(2):
        connection.execute(script(add=["pg_cron"]))
        assert len(db.sql(JOBS)) == 1
    connection.execute(script(remove=["pg_cron"]))
    assert db.sql(JOBS) == []


def test_a_job_that_somebody_removed_is_not_missed(cron: Database) -> None:
    schedule(cron)
    cron.sql("delete from cron.job where jobname ~ 'nightly'")
    cron.sql("select headrace.remove_schedule('default', 'nightly')")
    assert cron.sql("select * from headrace.scheduled_tasks") == []


def test_instants_in_a_time_zone_are_stored_for_a_year(cron: Database) -> None:
    with cron.queue() as queue:
        for name, expression, zone in [
            ("daily", "0 2 * * *", "Europe/Berlin"),
            ("hourly", "0 * * * *", "Europe/Berlin"),
            ("seconds", "*/10 * * * * *", "UTC"),
            ("its own", "0 2 * * *", "UTC"),
        ]:
            queue.schedule_task(name, expression, "a", timezone=zone)
        assert queue.plan_schedules() == 0  # all are planned as far as they should be
        assert all(len(task.next_fires) <= 200 for task in queue.schedules())
    ahead = dict(cron.sql(
        "select name, cardinality(next_fires) from headrace.scheduled_tasks"
    ))  # fmt: skip
    assert ahead["daily"] >= 365
    assert ahead["hourly"] == 1000
    assert ahead["seconds"] == 200
    assert ahead["its own"] <= 20


def test_where_pg_cron_lives_elsewhere_it_is_said_what_to_run_there(house: Server) -> None:
    database = Database(house, house.create_database())
    notices: list[str] = []
    connection = database.connect()
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    migrate(connection, add=["pg_cron"])
    [said] = [notice for notice in notices if "pg_cron" in notice]
    command = said.split("There, run: ")[1]
    schedule(database)
    elsewhere = psycopg.connect(house.dsn, autocommit=True)
    elsewhere.execute("create extension if not exists pg_cron")
    elsewhere.execute(command)
    job = elsewhere.execute("select command, database from cron.job").fetchall()
    assert job == [("call headrace_cron.tick()", database.name)]
    database.sql(job[0][0])
    [about_parts] = [check for check in doctor.CHECKS if check.name == "extensions"]
    [finding] = doctor.examine(database.connect(), database.dsn, checks=[about_parts])
    assert finding.says == "pg_cron as asked for"
    elsewhere.execute("delete from cron.job")
    elsewhere.close()
    database.close()
    house.drop_database(database.name)


def test_a_user_who_may_not_use_it_is_told_who_can_let_him(db: Database) -> None:
    db.sql("create role not_trusted login")
    try:
        with pytest.raises(
            psycopg.Error, match="grant usage on schema cron to not_trusted"
        ) as refused:
            db.connect(user="not_trusted").execute(parts.installation("pg_cron"))
        assert refused.value.sqlstate == NotInstallable.sqlstate
    finally:
        db.sql("drop role not_trusted")


class TestTick:
    @pytest.mark.parametrize("level", ["read committed", "serializable"])
    def test_what_pg_cron_calls_ticks_until_nothing_is_due(
        self, cron: Database, level: str
    ) -> None:
        cron.sql("""
            insert into headrace.delayed (event, created_at, due_at, route, queue, priority)
            select n, now(), now() - interval '1 second', 1, q.id, 5
            from generate_series(1, 6000) n, headrace.queues q where q.space = 'default'
        """)
        connection = cron.connect()
        connection.execute(f"set default_transaction_isolation = '{level}'")
        connection.execute("call headrace_cron.tick()")
        # pg_cron may have come at the same moment, and what it is moving is skipped.
        cron.wait_for(lambda: cron.sql("select count(*) from headrace.ready") == [(6000,)])


@pytest.mark.long
@requirement("PG-11", "PG-15", "G12")
def test_with_no_node_running_tasks_fire_once_and_leases_end(cron: Database) -> None:
    """Waits for the minute to end, which pg_cron does, too."""
    plain = schedule(cron, "plain", "* * * * *")
    zoned = schedule(cron, "zoned", "* * * * *", timezone="Europe/Berlin")
    [(minute,)] = cron.sql("select date_trunc('minute', now()) + interval '1 minute'")
    # What a node worked out before it stopped: of one task; the other has nobody but pg_cron.
    cron.sql(
        "select headrace.plan_task('default', %s, 1, %s)",
        [zoned, [minute, minute + timedelta(minutes=1)]],
    )
    cron.sql("""select headrace.publish('default', '{"type": "a", "payload": {}}')""")
    cron.sql("select headrace.poll('default', lease => interval '1 second')")

    def fired(task: str) -> list[datetime]:
        rows = cron.sql("select fire_at from headrace.fires where task_id = %s order by 1", [task])
        return [fire_at for (fire_at,) in rows]

    cron.wait_for(lambda: fired(plain) != [] != fired(zoned), patience=200)
    assert fired(zoned)[0] == minute
    assert minute in fired(plain)
    [(fires, events, scheduler)] = cron.sql("""
        select (select count(*) from headrace.fires), count(*), bool_and(details ->> 'producer' = 'scheduler')
        from headrace.events where details ? 'scheduled_for'
    """)
    assert (fires, scheduler) == (events, True)
    cron.wait_for(lambda: cron.sql("select count(*) from headrace.leases") == [(0,)], patience=200)
    abandoned = "select count(*) from headrace.event_log where action = 'ABANDONED'"
    assert cron.sql(abandoned) == [(1,)]
    assert cron.sql("select return_message from cron.job_run_details where status = 'failed'") == []

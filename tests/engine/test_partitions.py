"""Months: made ahead, in UTC whoever asks, caught by a net when missing, and dropped when their time is over."""

import re

import psycopg
import pytest

from headrace.testing.database import LET_RUN
from tests.database import Database
from tests.engine.races_helpers import Session
from tests.requirements import requirement

PARENTS = ("errors", "events", "outcomes")


@pytest.fixture
def worker(db: Database) -> Session:
    return Session(db)


def move_clock_to(db: Database, moment: str) -> None:
    db.sql("update headrace_test.clock set shift = %s::timestamptz - clock_timestamp()", [moment])
    db.sql(LET_RUN)


def months(db: Database, parent: str = "events") -> dict[str, tuple[str, str]]:
    """The bounds of each monthly partition, by its name without the parent's, in UTC."""
    db.sql("set timezone = 'UTC'")
    rows = db.sql(
        "select c.relname, pg_get_expr(c.relpartbound, c.oid) from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = %s::regclass and c.relname !~ '_default$' order by 1",
        [f"headrace.{parent}"],
    )
    bounds = r"FOR VALUES FROM \('(.*)'\) TO \('(.*)'\)"
    return {name.removeprefix(f"{parent}_"): re.match(bounds, text).groups() for name, text in rows}


def home(db: Database, event: int) -> str:
    """The partition an event is in."""
    [(table,)] = db.sql(
        "select tableoid::regclass::text from headrace.events where id = %s", [event]
    )
    return table.removeprefix("headrace.")


class TestAhead:
    @requirement("G1")
    def test_this_month_and_three_more_are_there_for_every_table(
        self, db: Database, worker: Session
    ) -> None:
        move_clock_to(db, "2031-03-15T12:00:00Z")
        assert worker.tick(upkeep=True).kept_up
        for parent in PARENTS:
            made = {name: bounds for name, bounds in months(db, parent).items() if name > "2031"}
            assert made == {
                "2031_03": ("2031-03-01 00:00:00+00", "2031-04-01 00:00:00+00"),
                "2031_04": ("2031-04-01 00:00:00+00", "2031-05-01 00:00:00+00"),
                "2031_05": ("2031-05-01 00:00:00+00", "2031-06-01 00:00:00+00"),
                "2031_06": ("2031-06-01 00:00:00+00", "2031-07-01 00:00:00+00"),
            }

    def test_a_month_stores_its_columns_as_its_table_does(self, db: Database) -> None:
        unlike = db.sql("""
            select i.inhrelid::regclass::text, a.attname
            from pg_inherits i
            join pg_attribute a on a.attrelid = i.inhrelid
            join pg_attribute p on p.attrelid = i.inhparent and p.attname = a.attname
            join pg_class t on t.oid = i.inhparent and t.relkind = 'p'
            where p.attnum > 0 and a.attstorage <> p.attstorage
        """)
        assert unlike == []

    def test_over_the_end_of_a_year_there_is_no_gap(self, db: Database, worker: Session) -> None:
        move_clock_to(db, "2031-11-30T23:59:00Z")
        worker.tick(upkeep=True)
        made = {name: bounds for name, bounds in months(db).items() if name > "2031"}
        assert list(made) == ["2031_11", "2031_12", "2032_01", "2032_02"]
        ends = [end for _, end in made.values()]
        starts = [start for start, _ in made.values()]
        assert ends[:-1] == starts[1:]

    def test_on_new_years_eve_an_event_goes_into_the_year_it_is_published_in(
        self, db: Database, worker: Session
    ) -> None:
        move_clock_to(db, "2031-12-31T23:59:00Z")
        worker.tick(upkeep=True)
        [old_year] = worker.publish()
        db.advance(minutes=2)
        [new_year] = worker.publish()
        assert (home(db, old_year), home(db, new_year)) == ("events_2031_12", "events_2032_01")
        claims = worker.poll(9)
        assert [claimed.id for claimed in claims] == [old_year, new_year]
        assert worker.finish(claims) == ["counted"] * 2

    def test_a_month_is_a_month_of_utc_wherever_the_session_is(
        self, db: Database, worker: Session
    ) -> None:
        zones = ("Pacific/Kiritimati", "America/Los_Angeles", "Asia/Kathmandu")
        worker.sql("set datestyle = 'SQL, DMY'")
        worker.sql("set intervalstyle = 'iso_8601'")
        for year, zone in zip((2031, 2037, 2043), zones, strict=True):
            worker.sql(f"set timezone = '{zone}'")
            for moment, month in (
                (f"{year}-12-31T22:00:00Z", f"{year}_12"),
                (f"{year + 1}-01-01T03:00:00Z", f"{year + 1}_01"),
            ):
                move_clock_to(db, moment)
                # Numbers only: psycopg does not read times in this style.
                [(ids,)] = worker.sql("select ids from headrace.publish('default', '{}')")
                assert worker.sql("select kept_up from headrace.tick(upkeep => true)") == [(True,)]
                assert home(db, ids[0]) == f"events_{month}", (zone, moment)
            new_year = f"{year + 1}-01-01 00:00:00+00"
            assert months(db)[f"{year}_12"] == (f"{year}-12-01 00:00:00+00", new_year)
            assert months(db)[f"{year + 1}_01"] == (new_year, f"{year + 1}-02-01 00:00:00+00")

    def test_publishers_and_finishers_go_on_while_months_are_being_made(
        self, db: Database, worker: Session
    ) -> None:
        db.advance(days=62)
        worker.publish(2)
        claims = worker.poll(2)
        maker = Session(db)
        maker.begin()
        assert maker.tick(upkeep=True).kept_up
        worker.hurry().publish(2)
        assert worker.finish(claims) == ["counted"] * 2
        locked = maker.sql(
            "select mode from pg_locks where pid = pg_backend_pid()"
            " and relation = any ('{headrace.events,headrace.outcomes,headrace.errors}'::regclass[])"
        )
        assert "AccessExclusiveLock" not in {mode for (mode,) in locked}
        maker.commit()

    def test_a_month_has_the_keys_and_indexes_of_its_table(
        self, db: Database, worker: Session
    ) -> None:
        db.advance(days=62)
        worker.tick(upkeep=True)
        for parent in PARENTS:
            shapes = {
                tuple(shape)
                for (shape,) in db.sql(
                    """
                    select array_agg(i.indisprimary || regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', ' ')
                                     order by regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', ' '))
                    from pg_partition_tree(%s) t join pg_index i on i.indrelid = t.relid and i.indisvalid
                    where t.isleaf
                    group by t.relid
                    """,
                    [f"headrace.{parent}"],
                )
            }
            [shape] = shapes
            # An id is given to one event, whenever that was published; so the key is the month's own.
            key = {"events": "id", "outcomes": "id, at", "errors": "event, queue, outcome, at"}
            assert f"true btree ({key[parent]})" in shape

    def test_making_them_twice_makes_them_once(self, db: Database, worker: Session) -> None:
        db.advance(days=62)
        assert worker.tick(upkeep=True).kept_up
        made = {parent: months(db, parent) for parent in PARENTS}
        assert worker.tick(upkeep=True).kept_up
        assert {parent: months(db, parent) for parent in PARENTS} == made


class TestNet:
    @requirement("G1", "G4")
    def test_what_came_while_nobody_kept_up_is_moved_to_its_months_also_to_past_ones(
        self, db: Database, worker: Session
    ) -> None:
        moments = ["2031-01-05", "2031-02-05", "2031-12-31", "2032-01-01"]
        caught = []
        for moment in moments:
            move_clock_to(db, f"{moment}T12:00:00Z")
            caught += worker.publish(payload={"at": moment})
        assert {home(db, event) for event in caught} == {"events_default"}
        db.sql("select headrace.configure('retention', '2 years')")
        assert worker.tick(upkeep=True).kept_up
        assert [home(db, event) for event in caught] == [
            f"events_{moment[:7].replace('-', '_')}" for moment in moments
        ]
        claims = worker.poll(9)
        assert [claimed.payload["at"] for claimed in claims] == moments

    @requirement("G17")
    def test_what_the_net_caught_is_retired_like_everything_else(
        self, db: Database, worker: Session
    ) -> None:
        move_clock_to(db, "2031-01-05T12:00:00Z")
        worker.publish()
        worker.finish(worker.poll())
        move_clock_to(db, "2032-01-05T12:00:00Z")
        assert worker.tick(upkeep=True).kept_up
        assert db.sql("select count(*) from headrace.events") == [(0,)]
        assert db.sql("select count(*) from headrace.outcomes") == [(0,)]
        assert "2031_01" not in months(db)

    def test_outcomes_and_errors_lie_in_the_month_in_which_they_happened(
        self, db: Database, worker: Session
    ) -> None:
        move_clock_to(db, "2031-01-31T23:59:00Z")
        worker.tick(upkeep=True)
        [event] = worker.publish()
        claims = worker.poll()
        db.advance(minutes=2)
        worker.finish(claims, action="fail", error="no")
        assert home(db, event) == "events_2031_01"
        for parent in ("outcomes", "errors"):
            assert db.sql(f"select tableoid::regclass::text from headrace.{parent}") == [
                (f"headrace.{parent}_2031_02",)
            ]
        assert worker.outcomes(event) == ["FAILED"]


class TestRetention:
    @pytest.fixture
    def in_january(self, db: Database, worker: Session) -> Database:
        """A database that has only known January 2031, and finished what it had."""
        for parent in PARENTS:
            for month in months(db, parent):
                db.sql(f"drop table headrace.{parent}_{month}")
        move_clock_to(db, "2031-01-15T12:00:00Z")
        worker.tick(upkeep=True)
        worker.publish()
        worker.finish(worker.poll(), action="fail", error="no", retry_in=0)
        worker.finish(worker.poll())
        return db

    @requirement("G17", "API-18")
    def test_a_month_goes_half_a_year_after_its_end_and_not_a_minute_before(
        self, in_january: Database, worker: Session
    ) -> None:
        db = in_january
        move_clock_to(db, "2031-07-31T23:59:00Z")
        worker.sql("set timezone = 'Pacific/Kiritimati'")  # where it is August already
        assert worker.tick(upkeep=True).kept_up
        assert all("2031_01" in months(db, parent) for parent in PARENTS)
        db.advance(minutes=2)
        db.sql(LET_RUN)
        worker.sql("set timezone = 'America/Los_Angeles'")  # where it is not
        assert worker.tick(upkeep=True).kept_up
        assert not any("2031_01" in months(db, parent) for parent in PARENTS)
        assert all("2031_02" in months(db, parent) for parent in PARENTS)
        assert db.sql("select to_regclass('headrace.events_2031_01') is null") == [(True,)]

    @requirement("G17")
    def test_the_log_is_cut_by_whole_months_and_never_edited(
        self, in_january: Database, worker: Session
    ) -> None:
        db = in_january
        move_clock_to(db, "2031-02-15T12:00:00Z")
        [kept] = worker.publish()
        worker.finish(worker.poll())
        before = worker.sql(
            "select * from headrace.event_log where event_id = %s order by id", [kept]
        )
        move_clock_to(db, "2031-08-02T12:00:00Z")
        worker.tick(upkeep=True)
        assert worker.sql("select * from headrace.event_log order by id") == before

    def test_it_can_be_set_and_set_back(self, in_january: Database, worker: Session) -> None:
        db = in_january
        db.sql("select headrace.configure('retention', '9 months')")
        move_clock_to(db, "2031-10-31T23:59:00Z")
        worker.tick(upkeep=True)
        assert "2031_01" in months(db)
        db.sql("select headrace.configure('retention', null)")
        assert db.sql("select headrace._setting('retention')") == [("6 months",)]
        worker.tick(upkeep=True)
        assert "2031_01" not in months(db)

    @pytest.mark.parametrize(
        ("kept", "until"),
        [
            ("1 day", "2031-02-02"),
            ("3 weeks", "2031-02-22"),
            ("1 month", "2031-03-01"),
            ("1 year", "2032-02-01"),
        ],
    )
    def test_it_is_counted_in_days_weeks_months_or_years(
        self, in_january: Database, worker: Session, kept: str, until: str
    ) -> None:
        db = in_january
        db.sql("select headrace.configure('retention', %s)", [kept])
        move_clock_to(db, f"{until}T00:00:00Z")
        db.advance(minutes=-1)
        db.sql(LET_RUN)
        worker.tick(upkeep=True)
        assert "2031_01" in months(db)
        db.advance(minutes=2)
        db.sql(LET_RUN)
        worker.tick(upkeep=True)
        assert "2031_01" not in months(db)

    def test_what_is_no_setting_is_refused(self, db: Database) -> None:
        for name, value in (
            ("retention", "0 days"),
            ("retention", "-6 months"),
            ("retention", "6"),
            ("retention", "6 hours"),
            ("retention", "forever"),
            ("retention", "6 months; drop table headrace.events"),
            ("retention", ""),
            ("retention_action", "delete"),
            ("no such thing", "1"),
        ):
            with pytest.raises(psycopg.Error) as refusal:
                db.sql("select headrace.configure(%s, %s)", [name, value])
            assert refusal.value.sqlstate == "QU001", (name, value)
        assert db.sql("select count(*) from headrace.settings") == [(0,)]

    def test_detached_months_stay_as_tables_with_what_they_hold(
        self, in_january: Database, worker: Session
    ) -> None:
        db = in_january
        db.sql("select headrace.configure('retention_action', 'detach')")
        move_clock_to(db, "2031-08-02T12:00:00Z")
        worker.tick(upkeep=True)
        for parent in PARENTS:
            assert "2031_01" not in months(db, parent)
            assert db.sql(f"select count(*) > 0 from headrace.{parent}_2031_01") == [(True,)]
        db.advance(days=1)
        assert worker.tick(upkeep=True).kept_up  # and does not stumble over them

    def test_tables_that_only_look_like_months_are_left_alone(
        self, in_january: Database, worker: Session
    ) -> None:
        db = in_january
        db.sql("create table headrace.events_2020_01 (like headrace.events)")
        db.sql("create table public.events_2020_02 (like headrace.events)")
        move_clock_to(db, "2031-08-02T12:00:00Z")
        assert worker.tick(upkeep=True).kept_up
        assert db.sql("select count(*) from headrace.events_2020_01") == [(0,)]
        assert db.sql("select count(*) from public.events_2020_02") == [(0,)]

    def test_after_years_without_upkeep_one_call_puts_everything_right(
        self, in_january: Database, worker: Session
    ) -> None:
        db = in_january
        move_clock_to(db, "2034-05-05T12:00:00Z")
        [event] = worker.publish()
        assert worker.tick(upkeep=True).kept_up
        for parent in PARENTS:
            assert list(months(db, parent)) == ["2034_05", "2034_06", "2034_07", "2034_08"]
        assert home(db, event) == "events_2034_05"


class TestPacing:
    def test_upkeep_is_done_once_an_hour_or_when_asked(self, db: Database, worker: Session) -> None:
        assert worker.keep_up()  # in several ticks, if a month has begun
        assert not worker.tick().kept_up
        db.advance(minutes=59)
        assert not worker.tick().kept_up
        db.advance(minutes=2)
        assert worker.keep_up()
        assert not worker.tick().kept_up
        assert worker.tick(upkeep=True).kept_up

    def test_a_tick_that_rolls_back_has_not_kept_up(self, db: Database, worker: Session) -> None:
        worker.begin()
        assert worker.keep_up()
        worker.rollback()
        assert worker.keep_up()

    @requirement("EQ-17", "EB-13")
    def test_statistics_are_kept_for_a_month(self, db: Database, worker: Session) -> None:
        worker.publish(2)
        worker.tick()
        db.advance(days=30)
        worker.publish(3)
        worker.tick(upkeep=True)
        assert db.sql("select published from headrace.stats order by minute") == [(2,), (3,)]
        db.advance(days=2)
        worker.tick(upkeep=True)
        assert db.sql("select published from headrace.stats order by minute") == [(3,)]

"""When schedules fire: cron expressions in time zones, and the nights on which the clocks change."""

import sys
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest

from headrace import HeadraceError, InvalidInput
from headrace.engine.cron import NICKNAMES, Schedule, Unplanned, plan
from headrace.model import ScheduledTask
from tests.requirements import requirement

pytest.importorskip("cronsim")

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
SKIPPING = {
    BERLIN: "2026-03-29",
    NEW_YORK: "2026-03-08",
    LORD_HOWE: "2026-10-04",
}  # 2:00-3:00, 2:00-2:30
REPEATING = {
    BERLIN: "2026-10-25",
    NEW_YORK: "2026-11-01",
    LORD_HOWE: "2026-04-05",
}  # 2:00-3:00, 1:00-2:00, 1:30-2:00


def fires(expression: str, zone: str, day: str, hours: float = 6) -> list[str]:
    """What the wall shows whenever it fires from midnight on, with the offset from UTC."""
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    end = midnight + timedelta(hours=hours)
    instants = Schedule(expression, zone).after(midnight - timedelta(seconds=1))
    shown = (fire.astimezone(ZoneInfo(zone)) for fire in takewhile(lambda f: f < end, instants))
    return [f"{fire:%H:%M}{fire:%z}"[:-2].replace("+", " +").replace("-", " -") + f"{fire:%z}"[-2:].replace("00", "") for fire in shown]  # fmt: skip


class TestNights:
    """Named hours: every time once. Wildcard hours: whatever the wall shows, as often as it does."""

    @requirement("G12")
    @pytest.mark.parametrize(
        ("expression", "zone", "expected"),
        [
            ("30 2 * * *", BERLIN, ["03:00 +02"]),
            ("30 2 * * *", NEW_YORK, ["03:00 -04"]),
            ("15 2 * * *", LORD_HOWE, ["02:30 +11"]),
            ("30 2 * * *", LORD_HOWE, ["02:30 +11"]),
            ("0 30 2 * * *", BERLIN, ["03:00 +02"]),
            ("0 30 2 * * *", NEW_YORK, ["03:00 -04"]),
            ("0 15 2 * * *", LORD_HOWE, ["02:30 +11"]),
            # Skipped together they fire together, and with what is due then anyway.
            ("*/15 2 * * *", BERLIN, ["03:00 +02"]),
            ("*/15 2 * * *", LORD_HOWE, ["02:30 +11", "02:45 +11"]),
            ("0 2,3 * * *", BERLIN, ["03:00 +02"]),
            ("30 1-3 * * *", BERLIN, ["01:30 +01", "03:00 +02", "03:30 +02"]),
            ("30 1-3 * * *", NEW_YORK, ["01:30 -05", "03:00 -04", "03:30 -04"]),
            ("10 1-3 * * *", LORD_HOWE, ["01:10 +1030", "02:30 +11", "03:10 +11"]),
            # Wild
            ("0 * * * *", BERLIN, ["00:00 +01", "01:00 +01", "03:00 +02", "04:00 +02", "05:00 +02", "06:00 +02"]),
            ("0 * * * *", NEW_YORK, ["00:00 -05", "01:00 -05", "03:00 -04", "04:00 -04", "05:00 -04", "06:00 -04"]),
            ("0 * * * *", LORD_HOWE, ["00:00 +1030", "01:00 +1030", "03:00 +11", "04:00 +11", "05:00 +11", "06:00 +11"]),
            ("0 0-23 * * *", BERLIN, ["00:00 +01", "01:00 +01", "03:00 +02", "04:00 +02", "05:00 +02", "06:00 +02"]),
            ("0 0 * * * *", BERLIN, ["00:00 +01", "01:00 +01", "03:00 +02", "04:00 +02", "05:00 +02", "06:00 +02"]),
            ("0 */3 * * *", LORD_HOWE, ["00:00 +1030", "03:00 +11", "06:00 +11"]),
            ("30 */2 * * *", LORD_HOWE, ["00:30 +1030", "02:30 +11", "04:30 +11"]),
            ("0 */2 * * *", BERLIN, ["00:00 +01", "04:00 +02", "06:00 +02"]),
        ],
    )  # fmt: skip
    def test_times_that_are_skipped(self, expression: str, zone: str, expected: list[str]) -> None:
        assert fires(expression, zone, SKIPPING[zone]) == expected

    @requirement("G12")
    @pytest.mark.parametrize(
        ("expression", "zone", "expected"),
        [
            ("30 2 * * *", BERLIN, ["02:30 +02"]),
            ("30 1 * * *", NEW_YORK, ["01:30 -04"]),
            ("45 1 * * *", LORD_HOWE, ["01:45 +11"]),
            ("0 30 2 * * *", BERLIN, ["02:30 +02"]),
            ("0 30 1 * * *", NEW_YORK, ["01:30 -04"]),
            ("0 45 1 * * *", LORD_HOWE, ["01:45 +11"]),
            ("*/30 2 * * *", BERLIN, ["02:00 +02", "02:30 +02"]),
            ("*/15 1 * * *", LORD_HOWE, ["01:00 +11", "01:15 +11", "01:30 +11", "01:45 +11"]),
            ("0 1-4 * * *", BERLIN, ["01:00 +02", "02:00 +02", "03:00 +01", "04:00 +01"]),
            ("0 2 * * *", NEW_YORK, ["02:00 -05"]),
            ("0 2 * * *", LORD_HOWE, ["02:00 +1030"]),
            # Wild
            ("0 * * * *", BERLIN, ["00:00 +02", "01:00 +02", "02:00 +02", "02:00 +01", "03:00 +01", "04:00 +01"]),
            ("0 * * * *", NEW_YORK, ["00:00 -04", "01:00 -04", "01:00 -05", "02:00 -05", "03:00 -05", "04:00 -05"]),
            ("0 * * * *", LORD_HOWE, ["00:00 +11", "01:00 +11", "02:00 +1030", "03:00 +1030", "04:00 +1030", "05:00 +1030"]),
            ("45 * * * *", LORD_HOWE, ["00:45 +11", "01:45 +11", "01:45 +1030", "02:45 +1030", "03:45 +1030", "04:45 +1030"]),
            ("0 */2 * * *", LORD_HOWE, ["00:00 +11", "02:00 +1030", "04:00 +1030"]),
            ("0 */2 * * *", BERLIN, ["00:00 +02", "02:00 +02", "02:00 +01", "04:00 +01"]),
            ("0 0 */2 * * *", BERLIN, ["00:00 +02", "02:00 +02", "02:00 +01", "04:00 +01"]),
        ],
    )  # fmt: skip
    def test_times_that_are_repeated(self, expression: str, zone: str, expected: list[str]) -> None:
        assert fires(expression, zone, REPEATING[zone]) == expected

    @pytest.mark.parametrize("nights", [SKIPPING, REPEATING], ids=["skipping", "repeating"])
    @pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE])
    @pytest.mark.parametrize("minutes", [1, 15, 30])
    def test_every_few_minutes_is_every_few_minutes_of_elapsed_time(
        self, nights: dict[str, str], zone: str, minutes: int
    ) -> None:
        midnight = datetime.fromisoformat(nights[zone]).replace(tzinfo=ZoneInfo(zone))
        begin = midnight.astimezone(UTC)
        step = timedelta(minutes=minutes)
        got = list(islice(Schedule(f"*/{minutes} * * * *", zone).after(begin), 300))
        assert got == [begin + n * step for n in range(1, 301)]

    @pytest.mark.parametrize("nights", [SKIPPING, REPEATING], ids=["skipping", "repeating"])
    @pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE])
    @pytest.mark.parametrize(
        "expression", ["*/7 * * * *", "13 2 * * *", "*/20 1,2 * * *", "5 */2 * * *", "0 0 3 * * *"]
    )
    def test_it_matters_not_from_where_one_goes_on(
        self, nights: dict[str, str], zone: str, expression: str
    ) -> None:
        """Whoever plans goes on from any instant: what follows is what would have followed."""
        begin = datetime.fromisoformat(nights[zone]).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
        schedule = Schedule(expression, zone)
        expected = list(islice(schedule.after(begin), 60))
        assert expected == sorted(set(expected))
        for minute in range(0, 6 * 60, 3):
            after = begin + timedelta(minutes=minute, seconds=1)
            following = next(schedule.after(after))
            assert following == next(fire for fire in expected if fire > after)

    def test_a_change_at_midnight_repeats_the_hour_before(self) -> None:
        # In Havana 1:00 becomes 0:00; in Beirut 0:00 becomes 23:00, of the day before.
        assert fires("30 * * * *", "America/Havana", "2026-11-01", 3) == ["00:30 -04", "00:30 -05", "01:30 -05"]  # fmt: skip
        beirut = Schedule("30 * 24 10 *", "Asia/Beirut").after(datetime(2026, 10, 24, 18, tzinfo=UTC))  # fmt: skip
        shown = [fire.astimezone(ZoneInfo("Asia/Beirut")) for fire in islice(beirut, 5)]
        assert [f"{fire:%d %H:%M %z}" for fire in shown[:4]] == [
            "24 21:30 +0300", "24 22:30 +0300", "24 23:30 +0300", "24 23:30 +0200",
        ]  # fmt: skip
        assert shown[4].year == 2027

    def test_a_day_that_is_skipped_fires_when_it_would_have_begun(self) -> None:
        # On Samoa there was no 30 December 2011.
        apia = Schedule("0 12 30 12 *", "Pacific/Apia").after(datetime(2011, 12, 1, tzinfo=UTC))
        assert next(apia) == datetime(2011, 12, 30, 10, tzinfo=UTC)


class TestExpressions:
    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("0 2 * * *", ["11-16 02:00:00", "11-17 02:00:00"]),
            ("*/20 * * * * *", ["11-15 12:00:20", "11-15 12:00:40"]),
            ("0 9 * * MON-FRI", ["11-16 09:00:00", "11-17 09:00:00"]),
            ("0 0 L * *", ["11-30 00:00:00", "12-31 00:00:00"]),
            ("0 0 * * 1#2", ["12-14 00:00:00", "01-11 00:00:00"]),
            ("@hourly", ["11-15 13:00:00", "11-15 14:00:00"]),
            ("@weekly", ["11-22 00:00:00", "11-29 00:00:00"]),
        ],
    )
    def test_five_fields_six_with_seconds_and_nicknames(
        self, expression: str, expected: list[str]
    ) -> None:
        after = datetime(2026, 11, 15, 12, 0, 0, 500_000, tzinfo=UTC)
        got = islice(Schedule(expression).after(after), 2)
        assert [f"{fire:%m-%d %H:%M:%S}" for fire in got] == expected

    @pytest.mark.parametrize("nickname", NICKNAMES)
    def test_every_nickname_is_an_expression(self, nickname: str) -> None:
        assert next(Schedule(nickname, BERLIN).after(datetime.now(UTC)))

    @pytest.mark.parametrize(
        "expression",
        ["", "* * * *", "61 * * * *", "@reboot", "a b c d e", "MON#2/2 * * * *", "* * * * MON#2/2",
         "9" * 5000 + " * * * *", "0 0 31 2 *", None, 5, "* * * * * * *"],
        ids=lambda given: str(given)[:20],
    )  # fmt: skip
    def test_what_is_no_expression_is_refused(self, expression: str) -> None:
        with pytest.raises(InvalidInput, match="not a cron expression"):
            Schedule(expression)

    def test_without_the_extra_it_is_said_what_to_install(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "cronsim", None)
        with pytest.raises(HeadraceError, match=r"pip install 'headrace\[schedules\]'"):
            Schedule("@daily")

    def test_one_that_never_fires_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="never fires"):
            Schedule("0 0 */31 * MON#5")

    @pytest.mark.parametrize(
        "zone", ["", "Europe/Atlantis", "Europe", "../etc/passwd", "/etc/passwd", "a\0b", None, 5, "x" * 9999],
        ids=lambda given: str(given)[:20],
    )  # fmt: skip
    def test_what_is_no_time_zone_is_refused(self, zone: str) -> None:
        with pytest.raises(InvalidInput, match="unknown time zone"):
            Schedule("@daily", zone)


NOW = datetime(2026, 11, 15, 12, 0, 30, tzinfo=UTC)


def planned(expression: str, since: datetime, missed: str = "coalesce") -> list[datetime]:
    task = ScheduledTask(
        task_id="", name="", cron_expression=expression, timezone="UTC", event_type="", payload=None, event={},
        missed=missed, active=True, next_fires=(), last_fire_at=None, created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    return plan(Unplanned(task, 1, since, NOW))


class TestPlans:
    @pytest.mark.parametrize(
        ("expression", "count", "until"),
        [
            ("* * * * * *", 200, timedelta(seconds=200)),
            ("* * * * *", 200, timedelta(minutes=200)),
            ("0 * * * *", 24, timedelta(days=1)),
            ("0 2 * * *", 20, timedelta(days=20)),
        ],
    )
    def test_a_day_is_planned_ahead_but_20_at_least_and_200_at_most(
        self, expression: str, count: int, until: timedelta
    ) -> None:
        fires = planned(expression, NOW)
        assert len(fires) == count
        assert fires[0] > NOW
        assert NOW + until - timedelta(hours=24) <= fires[-1] <= NOW + until

    def test_it_goes_on_where_the_last_plan_ended(self) -> None:
        last = NOW + timedelta(seconds=90)
        assert planned("* * * * * *", last)[0] == last + timedelta(seconds=1)

    @requirement("G12")
    def test_what_nobody_planned_in_time_was_missed(self) -> None:
        since = NOW - timedelta(days=300)
        minute = NOW.replace(second=0)
        minutes = [minute - timedelta(minutes=n) for n in range(99, -1, -1)]
        # Which of them are skipped the engine decides, which knows why they are late.
        for missed, expected in (("coalesce", [minute]), ("catch_up", minutes), ("skip", minutes)):
            fires = planned("* * * * *", since, missed)
            assert [fire for fire in fires if fire <= NOW] == expected
            assert len(fires) == 200

    def test_what_is_a_little_late_was_not(self) -> None:
        since = NOW - timedelta(seconds=45)
        for missed in ("coalesce", "catch_up", "skip"):
            assert planned("* * * * * *", since, missed)[:46] == [
                since + timedelta(seconds=n) for n in range(1, 47)
            ]

    def test_the_last_of_many_years_is_found_without_going_through_them(self) -> None:
        since = datetime(1990, 1, 1, tzinfo=UTC)
        assert Schedule("* * * * * *", BERLIN).latest(1, since, NOW) == [NOW]
        assert Schedule("0 0 29 2 *").latest(2, since, NOW) == [
            datetime(2020, 2, 29, tzinfo=UTC),
            datetime(2024, 2, 29, tzinfo=UTC),
        ]
        assert Schedule("@yearly").latest(3, NOW - timedelta(days=90), NOW) == []

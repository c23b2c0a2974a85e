from datetime import UTC, datetime, timedelta

import pytest
import typer

from headrace.cli.terminal.times import (
    ago,
    duration,
    instant,
    length,
    moment,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("0.5", 0.5), ("90s", 90), ("1h30m", 5400), ("2w", 1_209_600), ("1.5h", 5400)],
)
def test_a_length_of_time_is_read(text: str, seconds: float) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "h", "5y", "-1d", "1h 30m", "1..5h", "10 m", "nan", "9999999d"]
)
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        duration(text)


def test_a_time_is_exact_or_so_long_ago() -> None:
    assert moment("2026-03-01T12:00Z") == NOW
    assert moment("2026-03-01T13:00+01:00") == NOW
    assert abs(datetime.now(UTC) - moment("2h") - timedelta(hours=2)) < timedelta(minutes=1)
    assert moment("2026-03-01").tzinfo is not None
    for parse in (moment, instant):
        with pytest.raises(typer.BadParameter, match="is not a valid time"):
            parse("yesterday")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((0, "now"), (5, "5s ago"), (90, "1m30s ago"), (3600, "1h ago"), (12_000, "3h20m ago")),
        *((40_000, "11h ago"), (90_000, "1d1h ago"), (2_000_000, "23d ago"), (-300, "in 5m")),
    ],
)
def test_people_read_how_long_ago_it_was(seconds: int, words: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == words


def test_short_lengths_have_their_fractions() -> None:
    assert [length(one) for one in (0, 0.0123, 1.5, 59.9, None)] == [
        "0s",
        "12ms",
        "1.5s",
        "59s",
        "–",
    ]

import json
from datetime import UTC, datetime, timedelta

import pytest
from rich.text import Text

from headrace.cli.terminal.json import json_line
from headrace.cli.terminal.table import Column, fitted, lay_out
from headrace.cli.terminal.text import clean, clean_lines

COLUMNS = [Column("id", 0), Column("type", 1, 6), Column("age", 2), Column("worker", 5, 8)]
ROWS = [
    [Text("1234567"), Text("order.created"), Text("5s ago"), Text("a-very-long-host:4711")],
    [Text("8"), Text("日本語のイベント"), Text("1m ago"), Text("–")],
]


@pytest.mark.parametrize("width", [20, 27, 30, 40, 60, 80, 200])
def test_a_table_is_never_wider_than_the_terminal(width: int) -> None:
    lines = lay_out(COLUMNS, ROWS, width)
    assert all(line.cell_len <= width for line in lines)
    assert "1234567" in lines[1].plain, "an id is never cut: it is to be copied"


def test_columns_are_cut_and_then_left_out_by_rank() -> None:
    wanted = [7, 13, 6, 21]
    assert fitted(COLUMNS, wanted, 100) == wanted
    assert fitted(COLUMNS, wanted, 45) == [7, 13, 6, 13]
    assert fitted(COLUMNS, wanted, 32) == [7, 13, 6, 0]
    assert fitted(COLUMNS, wanted, 20) == [7, 11, 0, 0]
    assert fitted(COLUMNS, wanted, 12) == [7, 0, 0, 0]
    assert fitted(COLUMNS, wanted, None) == wanted


def test_where_there_is_no_terminal_nothing_is_cut() -> None:
    assert lay_out(COLUMNS, ROWS, None)[1].plain.split() == [
        *("1234567", "order.created", "5s", "ago", "a-very-long-host:4711"),
    ]


def test_what_a_terminal_would_act_on_is_shown_instead() -> None:
    assert clean("a\x1b[31mb\x07\n\x9b2J\u202egnp") == r"a\x1b[31mb\x07\n\x9b2J\u202egnp"
    assert clean_lines("one\n\ttwo\x1b]0;title\x07") == "one\n    two\\x1b]0;title\\x07"


def test_json_has_times_in_utc_and_lengths_in_seconds_and_nothing_to_act_on() -> None:
    record = {
        "at": datetime(2026, 3, 1, tzinfo=UTC),
        "for": timedelta(minutes=1),
        "text": "\x9b\x1b",
    }
    line = json_line(record)
    assert "\x9b" not in line
    assert json.loads(line) == {"at": "2026-03-01T00:00:00Z", "for": 60.0, "text": "\x9b\x1b"}

"""The table of the decision on the house says what `make house` measures: each number within a tenth, the small ones exactly."""

import re
from pathlib import Path

import pytest

from tests.house import measure

DECISION = (
    Path(__file__).parents[2] / "docs" / "decisions" / "0025-the-source-in-rooms.md"
).read_text(encoding="utf-8")
TABLE = {
    name: (first, now)
    for name, first, now in re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", DECISION, re.M)
    if name in measure.AT_FIRST
}
MEASURED = measure.now()


def numbers(text: str) -> list[int]:
    """The numbers of a text, without what it says in parentheses of files and functions."""
    without_names = re.sub(r"\([a-z_][^)]*\)", "", text)
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d|\d", without_names)]


def test_the_table_has_every_measure() -> None:
    assert {name: first for name, (first, _) in TABLE.items()} == measure.AT_FIRST


@pytest.mark.parametrize("name", measure.AT_FIRST)
def test_what_the_table_says_of_now_is_true_of_this_tree(name: str) -> None:
    told, measured = numbers(TABLE[name][1]), numbers(MEASURED[name])
    assert len(told) == len(measured) > 0
    for one, other in zip(told, measured, strict=True):
        assert abs(one - other) <= other / 10, f"the table says {told}, make house {measured}"

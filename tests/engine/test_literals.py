"""What the engine's SQL says does not depend on how a session reads strings and arrays."""

import re
from pathlib import Path

import pytest

import headrace

SQL = Path(headrace.__file__).parent / "sql"
FILES = sorted(SQL.rglob("*.sql"))

# A comment, a string with escapes, or a plain one.
TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|\b[eE]'(?:[^'\\]|''|\\.)*'|([uU]&)?'((?:[^']|'')*)'", re.S)


def test_there_are_files() -> None:
    assert len(FILES) > 100


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SQL).as_posix())
def test_no_literal_depends_on_a_setting(path: Path) -> None:
    for found in TOKEN.finditer(path.read_text(encoding="utf-8")):
        said = f"{found[0]}: "
        assert found[1] is None, (
            said + "without standard_conforming_strings it is an error: E'\\U…'"
        )
        assert "\\" not in (found[2] or ""), (
            said + "without standard_conforming_strings it is another: E'\\\\'"
        )
        assert "{null}" not in (found[2] or "").lower(), (
            said + "without array_nulls it is a word: array[null]"
        )

"""The list of locks, sql/locks.md: every name and number that the SQL uses is in it, and stands for one thing."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import headrace.install.migrate
from tests.database import Database

PACKAGE = Path(headrace.__file__).parent
LIST = (PACKAGE / "sql" / "locks.md").read_text(encoding="utf-8")

FUNCTION = re.compile(r"create or replace (?:function|procedure) (\w+\.\w+)")
ROW_LOCK = re.compile(r"headrace\._?(?:try_)?lock\(")
ITS_NAME = re.compile(r"(?:concat\(|format\()?'([^']+)'")
TRIED = re.compile(
    r"pg_try_advisory\w*\(headrace\._?(?:advisory_lock\('(\w+)'\)|(instance)_lock\()"
)

Users = dict[str, set[str]]


def listed(columns: int) -> Iterator[list[str]]:
    """The rows of the list's tables that have so many columns."""
    for line in LIST.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == columns:
            yield cells


def names(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


def functions() -> Iterator[tuple[str, str]]:
    """Each function with its text, without comments: one of the schema headrace by its bare name,
    and the rest of a file by the file's."""
    for path in (PACKAGE / "sql").rglob("*.sql"):
        text = re.sub("--.*", "", path.read_text(encoding="utf-8"))
        for part in re.split(r"^(?=create or replace )", text, flags=re.MULTILINE):
            named = FUNCTION.match(part)
            yield named[1].removeprefix("headrace.") if named else path.name, part


def row_locks() -> Users:
    """The first words of the row locks that the SQL takes, and the functions that take them."""
    taken: Users = defaultdict(set)
    for name, text in functions():
        body = text.partition("as $$")[2] or text
        for call in ROW_LOCK.finditer(body):
            said = ITS_NAME.match(body, call.end())
            assert said, f"{name} takes a row lock, and the call does not show its name"
            taken[said[1].split()[0]].add(name)
    return taken


def test_every_row_lock_is_listed_with_the_functions_that_take_it() -> None:
    rows = {names(row)[0].split()[0]: set(names(by)) for row, _, by in listed(3)}
    assert rows == row_locks()


def test_every_advisory_lock_is_listed_with_the_functions_that_take_it() -> None:
    taken: Users = defaultdict(set)
    for name, text in functions():
        for purpose, instance in TRIED.findall(text):
            taken[purpose or f"{instance}s"].add(name)
    assert {names(purpose)[0]: set(names(by)) for purpose, _, _, by in listed(4)} == taken


def test_the_numbers_are_those_that_the_database_has(db: Database) -> None:
    numbers = {names(purpose)[0]: int(number) for purpose, number, _, _ in listed(4)}
    assert numbers
    for purpose, number in numbers.items():
        assert db.sql("select headrace._advisory_lock(%s)", [purpose]) == [(number,)]
    [(source,)] = db.sql("select prosrc from pg_proc where proname = '_advisory_lock'")
    assert {int(number) for number in re.findall(r"\d{5,}", source)} == set(numbers.values())


def test_the_rows_without_a_number_are_there_from_the_beginning(empty_db: Database) -> None:
    headrace.install.migrate.migrate(empty_db.connect())
    rows = {names(row)[0] for row, _, _ in listed(3)}
    there = {name for (name,) in empty_db.sql("select name from headrace.locks")}
    assert there == {row for row in rows if " " not in row}


def test_each_stands_for_one_thing() -> None:
    rows, numbers = [*listed(3)], [*listed(4)]
    said = [
        *(names(row)[0].split()[0] for row, _, _ in rows),
        *(names(purpose)[0] for purpose, _, _, _ in numbers),
        *(number for _, number, _, _ in numbers),
        *(meaning for _, meaning, _ in rows),
        *(meaning for _, _, meaning, _ in numbers),
    ]
    assert [one for one, times in Counter(said).items() if times > 1] == []


def test_python_takes_no_lock_of_its_own() -> None:
    taking = re.compile(
        r"pg_\w*advisory(?!_unlock)\w*lock\w*\(|headrace\._?(?:try_)?lock\(|12124337"
    )
    found = [
        path.name
        for path in PACKAGE.rglob("*.py")
        if taking.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []

"""The essay at the top of the schema names every table, every type and every file of the schema."""

import re

from tests.house.measure import SQL

FILES = sorted((SQL / "schema").glob("*.sql"))
TEXTS = {one.stem: one.read_text(encoding="utf-8") for one in FILES}
ESSAY = TEXTS["0_essay"]
NAMED = set(re.findall(r"\w+", ESSAY))
DIRECTORY = ESSAY[ESSAY.index("WHERE EVERYTHING IS") :]


def made(text: str) -> set[str]:
    """The tables and types that a file of the schema makes."""
    return set(re.findall(r"^create (?:unlogged )?(?:table|type) headrace\.(\w+)", text, re.M))


def listed(file: str) -> list[str]:
    """The tables and types that the essay's directory lists under a file."""
    [section] = re.findall(rf"^  {file}\n(.*?)(?=^$|^\*/)", DIRECTORY, re.M | re.S)
    return re.findall(r"^ {6}(\w+) ", section, re.M)


def test_the_essay_names_every_table_and_type() -> None:
    everything = set().union(*map(made, TEXTS.values()))
    assert {"ready", "samplings", "low_water"} <= everything
    assert everything - NAMED == set()


def test_the_essay_names_every_file() -> None:
    assert set(TEXTS) - NAMED == set()


def test_the_directory_lists_each_table_and_type_once_under_its_file() -> None:
    files = [file for file in TEXTS if file != "0_essay"]
    assert {file: sorted(listed(file)) for file in files} == {
        file: sorted(made(TEXTS[file])) for file in files
    }


def test_the_directory_names_functions_that_exist() -> None:
    functions = {one.stem for one in SQL.glob("**/*.sql")}
    assert set(re.findall(r"\b_\w+", DIRECTORY)) - functions == set()

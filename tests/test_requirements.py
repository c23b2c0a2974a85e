import ast

import pytest

from tests.requirements import (
    Catalogue,
    Citation,
    Document,
    Home,
    Requirement,
    catalogue,
    citations_in,
    names,
    pages,
    problems,
)

ASKED = Catalogue(
    documents={
        "A": Document("Asked", "asked.md", "What was asked."),
        "G": Document("Promised", "promised.md", "What is promised."),
    },
    requirements={
        "A-1": Requirement("a|b", True),
        "A-2": Requirement("two", False),
        "G1": Requirement("**It holds.**", True),
    },
    homes={"A-1": Home("functions/publish/publish.sql", "Nearly")},
)


def citations(source: str) -> list[Citation]:
    return list(citations_in(ast.parse(source).body, "tests/test_x.py"))


def test_a_test_a_class_and_a_module_can_cite() -> None:
    source = """
pytestmark = [pytest.mark.long, requirement("A-1")]

@requirement("A-2", "A-3")
class TestThings:
    @requirement("A-4")
    async def test_one(self): ...

@pytest.mark.parametrize("x", [pytest.param(1, marks=requirement("A-5"))])
def test_two(x): ...
"""
    assert citations(source) == [
        ("A-1", "tests/test_x.py"),
        ("A-2", "tests/test_x.py::TestThings"),
        ("A-3", "tests/test_x.py::TestThings"),
        ("A-4", "tests/test_x.py::TestThings::test_one"),
        ("A-5", "tests/test_x.py::test_two"),
    ]


def test_what_is_not_a_test_cannot_cite() -> None:
    with pytest.raises(SystemExit, match="not a test"):
        citations('@requirement("A-1")\ndef helper(): ...')


def test_finished_work_needs_a_test_and_a_home_and_unknown_ids_are_refused() -> None:
    shown = [Citation("A-1", "tests/test_x.py"), Citation("G1", "tests/test_x.py")]
    assert problems(ASKED, shown) == []
    assert problems(ASKED, shown[1:]) == ["Finished, but without a test: A-1."]
    assert problems(ASKED._replace(homes={}), shown) == ["Finished, but living nowhere: A-1."]
    stranger = Citation("A-9", "tests/test_x.py")
    assert "A-9, which is unknown" in problems(ASKED, [*shown, stranger])[0]


def test_a_page_says_where_each_part_lives_and_is_shown() -> None:
    twice = [Citation("A-1", f"tests/test_x.py::test_{name}") for name in ("one", "two")]
    shown = [*twice, Citation("A-1", "tests/y/test_y.py"), Citation("G1", "tests/test_x.py")]
    made = pages(ASKED, shown)
    tests = "[test_x.py](../../tests/test_x.py) (2), [test_y.py](../../tests/y/test_y.py)"
    lives = "[functions/publish/publish.sql](../../src/headrace/sql/functions/publish/publish.sql). Nearly"
    assert made["documents/asked.md"].splitlines()[-2:] == [
        rf"| A-1 | a\|b | {lives} | {tests} |",
        "| A-2 | two |  | later |",
    ]
    assert (
        "## G1\n\n**It holds.**\n\nTests: [test_x.py](../../tests/test_x.py)."
        in (made["documents/promised.md"])
    )
    assert "| [Asked](documents/asked.md) | 2 | 3 |" in made["requirements.md"]


def test_the_tests_of_a_requirement_are_named_on_request() -> None:
    shown = [Citation("A-1", "tests/test_x.py::test_it_holds"), Citation("G1", "tests/test_x.py")]
    assert list(names(["A-1"], shown)) == ["A-1  tests/test_x.py: it holds"]


def test_a_home_is_one_file_that_is_there() -> None:
    with pytest.raises(SystemExit, match="is not there"):
        pages(ASKED._replace(homes={"A-1": Home("nowhere.sql")}), [])


def test_every_requirement_is_on_a_page() -> None:
    known = catalogue()
    text = "".join(pages(known, []).values())
    gone = [id for id in known.requirements if f"| {id} |" not in text and f"## {id}\n" not in text]
    assert gone == []
    assert known.homes.keys() <= known.requirements.keys()

import ast

import pytest

from tests.requirements import Citation, Requirement, catalogue, citations_in, page, problems


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


def test_finished_work_needs_a_test_and_unknown_ids_are_refused() -> None:
    asked = {"A-1": Requirement("one", True), "A-2": Requirement("two", False)}
    assert problems(asked, [Citation("A-1", "tests/test_x.py")]) == []
    assert problems(asked, []) == ["Finished, but without a test: A-1."]
    assert "A-9, which is unknown" in problems(asked, [Citation("A-9", "tests/test_x.py")])[0]


def test_the_page_says_where_each_is_shown() -> None:
    asked = {"A-1": Requirement("a|b", True), "A-2": Requirement("two", False)}
    text = page({"A": "Asked"}, asked, [Citation("A-1", "tests/test_x.py::test_one")])
    assert r"| A-1 | a\|b | [test_one](../tests/test_x.py) |" in text
    assert "| A-2 | two | later |" in text


def test_every_requirement_is_on_the_page() -> None:
    documents, requirements = catalogue()
    text = page(documents, requirements, [])
    assert [id for id in requirements if f"| {id} |" not in text] == []

"""The defects of tests/defects can be made in this tree, and the tests that catch them are there."""

import ast

import pytest

from tests.defects import LIST, ROOT, Defect, defects, table

ALL = defects()


@pytest.mark.parametrize("defect", ALL, ids=[defect.name for defect in ALL])
def test_a_defect_can_be_made_and_somebody_is_to_catch_it(defect: Defect) -> None:
    for path, text in defect.changes(ROOT).items():
        assert text != path.read_text(encoding="utf-8")
    assert defect.what
    assert defect.tests
    for test in defect.tests:
        assert is_there(*test.partition("[")[0].split("::")), test


def test_they_are_listed() -> None:
    assert len(ALL) == 44
    assert LIST.read_text(encoding="utf-8") == table(), "python -m tests.defects --table"


def is_there(file: str, *names: str) -> bool:
    found: list[ast.AST] = [ast.parse((ROOT / file).read_text(encoding="utf-8"))]
    for name in names:
        found = [
            one
            for place in found
            for one in ast.iter_child_nodes(place)
            if getattr(one, "name", None) == name
        ]
    return bool(names and found)

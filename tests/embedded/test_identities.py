import os
import pwd
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.embedded.identity import namespace

from .processes import Process, Refused, is_running, postmaster

Make = Callable[..., Process]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

NO_PTRACE = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")  # as in a container


@pytest.fixture
def nobody() -> int:
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        pytest.skip("there is no user nobody")


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in [folder, *folder.rglob("*")]}


def give(folder: Path, uid: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, uid, -1)


def runs_as(data: Path) -> int:
    return Path(f"/proc/{postmaster(data)}").stat().st_uid


def test_root_needs_no_chown_in_a_user_namespace(place: Path, process: Make) -> None:
    if not list(namespace()):
        pytest.skip("user namespaces are not permitted here")
    data = place / "private" / "data"
    data.parent.mkdir(mode=0o700)
    one, other = process(data, kind="InNamespace"), process(data)
    assert one.start() == other.start()
    assert other.query("SELECT 1") == [[1]]
    assert owners(place) == {0}
    assert not one.close()
    assert other.close()


def test_root_without_namespaces_gives_the_folder_to_an_unprivileged_user(
    place: Path, process: Make, nobody: int
) -> None:
    data = place / "data"
    before = place.stat()
    one, other = process(data, kind="AsNobody"), process(data)
    assert one.start() == other.start()
    assert other.query("SELECT 1") == [[1]]
    assert runs_as(data) == nobody
    assert owners(data) == {nobody}
    after = place.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, 0, before.st_gid)
    assert not one.close()
    assert other.close()
    again = process(data)
    again.start()
    assert runs_as(data) == nobody
    assert again.close()


def test_root_in_a_container_stops_the_server_of_another_user(
    own_data: Path, process: Make, nobody: int
) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv")
    one = process(own_data, kind="AsNobody", wrapped_in=NO_PTRACE)
    one.start()
    assert runs_as(own_data) == nobody
    assert one.close()
    assert not is_running(own_data)


def test_a_cluster_of_roots_changes_hands_when_it_must(
    own_data: Path, process: Make, nobody: int
) -> None:
    one = process(own_data, kind="AsNobody")
    one.start()
    assert owners(own_data) == {nobody}
    assert one.close()


def test_a_long_path_works_for_an_unprivileged_user(
    place: Path, seed: Path, process: Make, nobody: int
) -> None:
    data = place / ("long" * 30)
    shutil.copytree(seed, data)
    one = process(data, kind="AsNobody")
    one.start()
    assert (data / "sock").readlink().stat().st_uid == nobody
    assert one.query("SELECT 1") == [[1]]
    assert one.close()


def test_a_folder_that_no_unprivileged_user_can_reach_gets_a_clear_sentence(
    place: Path, process: Make
) -> None:
    private = place / "private"
    private.mkdir(mode=0o700)
    with pytest.raises(Refused, match="choose a data folder whose parents everybody may enter"):
        process(private / "data", kind="AsUnprivileged").start()
    assert owners(private) == {0}


def test_a_plain_user_runs_it_as_itself(place: Path, process: Make, nobody: int) -> None:
    home = place / "home"
    home.mkdir(mode=0o700)
    os.chown(home, nobody, -1)
    one, other = process(home / "data", user=nobody), process(home / "data", user=nobody)
    assert one.start() == other.start()
    assert runs_as(home / "data") == nobody
    assert not one.close()
    assert other.query("SELECT 1") == [[1]]
    assert other.close()


def test_a_user_without_a_name_runs_it_in_a_namespace(place: Path, process: Make) -> None:
    if not list(namespace()):
        pytest.skip("user namespaces are not permitted here")
    uid = max(user.pw_uid for user in pwd.getpwall() if user.pw_uid < 60_000) + 1
    os.chown(place, uid, uid)
    one = process(place / "data", user=uid)
    one.start()
    assert runs_as(place / "data") == uid
    assert one.close()


def test_root_and_the_owner_of_the_folder_share_a_server(
    own_data: Path, process: Make, nobody: int
) -> None:
    for lock in own_data.glob("*.lock"):
        if lock.name != "gate.lock":
            lock.unlink()
    give(own_data, nobody)
    root, owner = process(own_data), process(own_data, user=nobody)
    assert root.start() == owner.start()
    assert runs_as(own_data) == nobody
    assert owners(own_data) == {nobody}
    assert not root.close()
    assert owner.query("SELECT 1") == [[1]]
    assert owner.close()


def test_a_plain_user_in_somebody_elses_folder_gets_a_clear_sentence(
    data: Path, process: Make, nobody: int
) -> None:
    with pytest.raises(Refused, match=r"cannot keep a PostgreSQL in .*Permission denied"):
        process(data, user=nobody).start()
    assert owners(data) == {0}


def test_root_follows_no_link_in_somebody_elses_folder(
    own_data: Path, place: Path, process: Make, nobody: int
) -> None:
    precious = place / "precious"
    precious.write_text("root's")
    (own_data / "use.lock").unlink()
    give(own_data, nobody)
    (own_data / "use.lock").symlink_to(precious)
    with pytest.raises(Refused):
        process(own_data).start()
    assert precious.stat().st_uid == 0


def test_root_in_the_root_folder_keeps_its_data_in_var_lib(process: Make) -> None:
    environment = {"HEADRACE_DATA": ""}
    inside = process(None, cwd=Path("/"), environment=environment)
    assert inside.ask("default folder") == "/var/lib/headrace"

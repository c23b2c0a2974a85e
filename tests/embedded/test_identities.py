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
    with pytest.raises(Refused, match="choose a data folder whose parents every user may enter"):
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
    with pytest.raises(Refused, match=r"belongs to another user \(root\).*HEADRACE_DATA"):
        process(data, user=nobody).start()
    assert owners(data) == {0}


def planted(place: Path, own_data: Path, owner: int) -> Path:
    """A working folder in which everybody may write, with the `.headrace` of another user in it."""
    place.chmod(0o1777)
    give(own_data, owner)
    own_data.chmod(0o755)
    return own_data.rename(place / ".headrace")


HERE = {"HEADRACE_DATA": ""}


@pytest.mark.parametrize("variable", [False, True])
def test_a_plain_user_does_not_join_the_server_of_a_planted_folder(
    place: Path, own_data: Path, process: Make, nobody: int, variable: bool
) -> None:
    """Its files are open to everybody, and a server of the other user runs in it."""
    data = planted(place, own_data, nobody)
    theirs = process(data, user=nobody)
    theirs.start()
    for path in (data, *data.glob("*.lock"), data / "pg", data / "pg" / "postmaster.pid"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    victim = max(user.pw_uid for user in pwd.getpwall() if 0 < user.pw_uid < 60_000)
    said = {"HEADRACE_DATA": str(data)} if variable else HERE
    with pytest.raises(Refused, match=r"belongs to another user \(nobody\)"):
        process(None, user=victim, cwd=place, environment=said).start()
    assert theirs.close()


def test_root_does_not_use_a_planted_folder_that_it_only_finds(
    place: Path, own_data: Path, process: Make, nobody: int
) -> None:
    data = planted(place, own_data, nobody)
    with pytest.raises(Refused, match=f"If you trust nobody, name the folder: --data {data}"):
        process(None, cwd=place, environment=HERE).start()
    assert not is_running(data)
    one = process(data)
    one.start()
    assert runs_as(data) == nobody
    assert one.close()


def test_root_finds_its_folder_again_after_it_gave_it_to_an_unprivileged_user(
    place: Path, process: Make, nobody: int
) -> None:
    one = process(None, kind="AsNobody", cwd=place, environment=HERE)
    one.start()
    assert one.close()
    assert owners(place / ".headrace") == {nobody}
    again = process(None, cwd=place, environment=HERE)
    again.start()
    assert again.close()


def test_sudo_finds_the_folder_of_the_user_who_called_it(
    place: Path, own_data: Path, process: Make, nobody: int
) -> None:
    os.chown(place, nobody, -1)
    give(own_data, nobody)
    data = own_data.rename(place / ".headrace")
    one = process(None, cwd=place, environment={**HERE, "SUDO_UID": str(nobody)})
    one.start()
    assert runs_as(data) == nobody
    assert one.close()


def test_a_file_that_another_user_left_in_the_folder_is_refused(
    own_data: Path, process: Make, nobody: int
) -> None:
    other = max(user.pw_uid for user in pwd.getpwall() if 0 < user.pw_uid < 60_000)
    give(own_data, nobody)
    os.chown(own_data / "pg", other, -1)
    with pytest.raises(Refused, match=r"pg belongs to another user .*Remove the file"):
        process(own_data, user=nobody).start()


def test_a_socket_folder_that_another_user_put_in_its_place_is_not_used(
    place: Path, seed: Path, process: Make, nobody: int
) -> None:
    data = place / ("long" * 40)
    shutil.copytree(seed, data)
    one = process(data)
    one.start()
    folder = (data / "sock").readlink()
    away = folder.rename(folder.with_name(f"{folder.name}-away"))
    folder.mkdir()
    os.chown(folder, nobody, -1)
    try:
        with pytest.raises(Refused, match="replaced by another user's"):
            process(data).start()
    finally:
        folder.rmdir()
        away.rename(folder)
    assert one.close()


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

"""The laboratory works: a short experiment comes out even, and accounts that are not even are noticed."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.folders import short_folder
from tests.laboratory import report, results, soak
from tests.laboratory.accounting import Accounts, Publishers, Start
from tests.laboratory.experiments import EXPERIMENTS
from tests.laboratory.measuring import (
    MOST_LINES,
    Absence,
    Disturbances,
    Recovery,
    hold_to_the_bound,
    recoveries,
)
from tests.laboratory.running import replaced
from tests.laboratory.secrecy import Secrets
from tests.requirements import requirement

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["kills", "lost-answers"])
def test_a_short_experiment_comes_out_even(name: str) -> None:
    with short_folder() as folder:
        accounts = BY_NAME[name].run(folder, seed=1, scale=0.3)
    assert accounts.wrong == {}
    assert accounts.figures["published"] > 0


CLUSTERED = [name for name in BY_NAME if name.startswith("cluster-")]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        "cluster-kill",
        *(pytest.param(name, marks=pytest.mark.matrix) for name in CLUSTERED[1:]),
    ],
)
@requirement("G1", "G2", "G20")
def test_nothing_is_lost_by_what_happens_to_a_cluster(name: str) -> None:
    if why := BY_NAME[name].needs():
        pytest.skip(why)
    with short_folder() as folder:
        accounts = BY_NAME[name].run(folder, seed=1, scale=0.2)
    assert accounts.wrong == {}
    assert all(accounts.figures.get(what) for what in BY_NAME[name].meets)


SHARDED = [name for name in BY_NAME if name.startswith("shards-")]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        "shards-move",
        *(
            pytest.param(name, marks=pytest.mark.matrix)
            for name in SHARDED
            if name != "shards-move"
        ),
    ],
)
@requirement("G1", "G2")
def test_nothing_is_lost_by_what_happens_to_shards(name: str) -> None:
    if why := BY_NAME[name].needs():
        pytest.skip(why)
    with short_folder() as folder:
        accounts = BY_NAME[name].run(folder, seed=1, scale=0.3)
    assert accounts.wrong == {}


def test_a_publisher_that_lives_must_know_and_one_that_was_killed_need_not(tmp_path: Path) -> None:
    for name in ("living", "killed"):
        lines = [["intent", f"{name}.{n}", "plain"] for n in range(3)] + [
            ["ok", f"{name}.0", 7, 0.1]
        ]
        (tmp_path / f"{name}.ledger").write_text("".join(json.dumps(x) + "\n" for x in lines))
    told = Publishers(sorted(tmp_path.glob("*.ledger")), killed={"killed"})
    assert told.undecided == {"living.1", "living.2"}
    assert told.ok == {"living.0": 7, "killed.0": 7}


def test_every_experiment_says_what_happens_in_it() -> None:
    assert len(BY_NAME) == len(EXPERIMENTS)
    assert all(one.what.endswith(".") for one in EXPERIMENTS)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_short_soak_comes_out_even() -> None:
    with short_folder() as folder:
        accounts = soak.run(folder, seed=1, events=5_000)
    assert accounts.wrong == {}
    assert accounts.figures["published"] >= 5_000
    assert accounts.figures["restarts of PostgreSQL"] == 6


def test_a_secret_is_seen_wherever_it_is_written(tmp_path: Path) -> None:
    told, silent = tmp_path / "told.log", tmp_path / "silent.log"
    told.write_text("connecting with password=lab-0123456789 to …")
    silent.write_text("connecting with password=*** to …")
    secrets = Secrets("lab-0123456789")
    secrets.look_at_files([told, silent, tmp_path / "gone.log"])
    assert secrets.seen == {"told.log"}


def test_a_secret_is_seen_in_a_command_line() -> None:
    secret = f"lab-{os.getpid()}-in-a-command-line"
    secrets = Secrets(secret)
    secrets.look_at_processes()
    assert secrets.seen == set()
    command = ["sh", "-c", "echo here; read line", secret]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # a process that has just begun has no command line yet
        secrets.look_at_processes()
        process.communicate(b"go\n")
    assert secrets.seen == {"the command line of sh"}


def test_recovery_is_counted_from_the_moment_when_the_node_was_struck() -> None:
    starts = {
        "killed": [
            Start("plain", 5, 1, 5.0),
            Start("plain", 1, 1, 10.0),
            Start("plain", 2, 1, 10.5),
        ],
        "poisoned": [Start("plain", 3, 1, 20.0), Start("poison", 4, 1, 20.5)],
        "other": [
            Start("plain", 5, 2, 9.0),
            Start("plain", 1, 2, 14.0),
            Start("plain", 3, 2, 24.0),
            Start("poison", 4, 2, 25.0),
        ],
    }
    # 2 was finished in time, and 5 was lost while its node lived.
    abandoned = {(1, 1): 13.0, (3, 1): 23.0, (4, 1): 23.0, (5, 1): 8.0}
    found = list(recoveries(starts, {"killed": [11.0]}, abandoned))
    assert found == [Recovery(2.0, 3.0), Recovery(2.5, 3.5), Recovery(2.5, 4.5)]


def test_who_talks_too_much_while_postgresql_is_away_is_noticed(tmp_path: Path) -> None:
    log = tmp_path / "node-1.log"
    log.write_text("before\n")
    disturbances = Disturbances(tmp_path)
    with disturbances.absence(), log.open("a") as file:
        file.write("away\n" * (MOST_LINES + 1) + '{"event_id": 1}\n')
    [absence] = disturbances.absences
    assert absence.lines == {"node-1": MOST_LINES + 1}
    accounts = Accounts()
    hold_to_the_bound(accounts, [absence])
    assert accounts.wrong
    hold_to_the_bound(accounts := Accounts(), [Absence(10.0, {"node-1": MOST_LINES})])
    assert not accounts.wrong
    assert (
        accounts.figures["most lines logged by a process a minute, in the longest"]
        == 6 * MOST_LINES
    )


def test_the_soak_counts_what_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "a.ledger"
    file.write_text('["intent", 1]\n["ok", 1]\n["ok", 2')
    counted = soak.Counted(tmp_path, "*.ledger", b'["ok"')
    assert counted.so_far() == 1
    with file.open("a") as more:
        more.write(']\n["ok", 3]\n')
    counted.look_again()
    assert counted.so_far() == 3


def test_what_is_run_again_takes_its_place_among_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    first = [{"name": name, "seed": 1} for name in ("kills", "calm")]
    results.keep("faults", replaced(first, {"disk": "only root can", "clocks": "there is none"}))
    results.keep("faults", replaced([{"name": name, "seed": 2} for name in ("kills", "disk")], {}))
    kept = results.kept("faults")
    assert kept is not None
    assert kept["found"] == [
        {"name": "calm", "seed": 1},
        {"name": "kills", "seed": 2},
        {"name": "disk", "seed": 2},
    ]
    assert kept["skipped"] == {"clocks": "there is none"}
    monkeypatch.setattr(results, "machine", lambda: "another machine")
    assert replaced([], {}) == {"found": [], "skipped": {}}


def test_the_report_is_the_text_with_what_was_found_last() -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.page(), "make faults writes it"
    assert "@" not in report.page()

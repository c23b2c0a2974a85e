"""The laboratory works: a short experiment comes out even, and accounts that are not even are noticed."""

import json
from pathlib import Path

import pytest

from tests.folders import short_folder
from tests.laboratory.accounting import Publishers
from tests.laboratory.experiments import EXPERIMENTS

BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["kills", "lost-answers"])
def test_a_short_experiment_comes_out_even(name: str) -> None:
    with short_folder() as folder:
        accounts = BY_NAME[name].run(folder, seed=1, scale=0.3)
    assert accounts.wrong == {}
    assert accounts.figures["published"] > 0


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

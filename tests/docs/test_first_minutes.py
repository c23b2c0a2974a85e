"""What a newcomer does first, done literally: the quickstart in a new environment, `make run` in a new clone."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.cli.demo.suggestions import commands
from tests.docs.reading import PROJECT, blocks, words
from tests.docs.test_documents import NEWCOMER, mistake
from tests.folders import short_folder

README = (PROJECT / "README.md").read_text("utf-8")
PATIENCE = 600  # seconds: most of it is pip's


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.long
@pytest.mark.timeout(PATIENCE)
def test_the_quickstart_works_word_for_word_in_a_new_folder_and_a_new_environment() -> None:
    install, quickstart, *_ = blocks(section("Quickstart"))
    assert (install.language, quickstart.language) == ("console", "python")
    assert len(quickstart.code.splitlines()) <= 10
    with short_folder() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        command = install.code.removeprefix("$ ").replace("headrace[", f"{release()}[")
        path = f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}"
        environment = {**NEWCOMER, "PATH": path, "PYTHONPATH": ""}
        subprocess.run(["sh", "-ec", command], cwd=folder, env=environment, check=True)
        (folder / "quickstart.py").write_text(quickstart.code, "utf-8")
        done = subprocess.run(
            ["python", "quickstart.py"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("order.created {'order': 42} attempt 1\nStats(ready=0, ")
    assert done.stderr == ""


def release() -> Path:
    """What stands for the release on PyPI: the wheel that make built, or else the project, which pip builds."""
    return next((PROJECT / "dist").glob("*.whl"), PROJECT)


@pytest.mark.long
@pytest.mark.timeout(PATIENCE)
def test_make_run_in_a_new_clone_says_where_the_dashboard_is_and_what_to_try_and_events_flow() -> (
    None
):
    [first, *_] = blocks(section("Demo"))
    assert words(first.code.splitlines()[0].removeprefix("$ ")) == ["make", "run"]
    with short_folder() as folder:
        clone = folder / "headrace"
        shutil.copytree(PROJECT, clone, ignore=shutil.ignore_patterns(".*", "dist", "site"))
        process = subprocess.Popen(
            ["make", f"PYTHON={sys.executable}", "run"],
            cwd=clone,
            env={**NEWCOMER, "PYTHONPATH": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        said = ""
        try:
            while not re.search(r"completed [1-9]", said):
                line = process.stdout.readline()
                assert line, f"it ended by itself:\n{said}"
                said += line
            waited = time.time() - (clone / ".venv" / ".runnable").stat().st_mtime
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate(timeout=60)
    assert waited < 60  # since pip was done
    assert re.search(r"^Dashboard: http://127\.0\.0\.1:\d+$", said, re.MULTILINE)
    assert "Try, in another terminal here:" in said
    assert ".venv/bin/headrace tail" in said


def test_what_the_terminal_says_to_try_are_commands_that_there_are() -> None:
    suggested = [shlex.split(typed) for typed in commands("http://127.0.0.1:8080").values()]
    ours = [one for one in suggested if one[0].endswith("headrace")]
    assert len(ours) >= 3
    assert [mistake(["headrace", *arguments]) for _, *arguments in ours] == [None] * len(ours)

"""The page on testing, read by somebody whose tests these are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_documents import NEWCOMER, PROJECT, program


@pytest.mark.rest
def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    text = (PROJECT / "docs" / "testing.md").read_text(encoding="utf-8")
    (tmp_path / "test_page.py").write_text(program(text, "python"), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "headrace.testing", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**NEWCOMER, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, run.stdout
    assert "3 passed" in run.stdout

"""Golden files: what something must be like, to be read and compared by people."""

import os
from difflib import unified_diff
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def check(text: str, name: str, variable: str) -> None:
    """Compare a text with a golden file. The variable of the environment has it written instead."""
    file = HERE / name
    if os.environ.get(variable):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    known = file.read_text(encoding="utf-8")
    if text != known:
        lines = unified_diff(
            known.splitlines(), text.splitlines(), "golden", "now", n=1, lineterm=""
        )
        pytest.fail("\n".join([f"{name}, which {variable}=1 writes anew:", *lines]), pytrace=False)

"""docs/http.md is what there is, and what it shows works."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import headrace.server
from headrace.server.http.refusal import TABLE
from headrace.server.http.routing import OPERATIONS
from tests.server.running import Running

TEXT = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")


SOURCES = Path(headrace.server.__file__).parent.glob("*.py")


@pytest.mark.parametrize("path", sorted({one.path for one in OPERATIONS if not one.hidden}))
def test_every_path_is_documented(path: str) -> None:
    """By itself, or as a word behind another that ends otherwise."""
    above, _, word = path.rpartition("/")
    whole = re.compile(rf"(?:GET|POST|PATCH|DELETE|\$URL|`) ?`?{re.escape(path)}[`?\" ]")
    shortened = re.compile(rf"{re.escape(above)}/\w+` .*`{re.escape(word)}`")
    lines = TEXT.replace("$id", "{id}").splitlines()
    assert any(whole.search(line) or shortened.search(line) for line in lines)


def test_every_code_is_documented() -> None:
    codes = {code for _, code in TABLE.values()}
    for source in SOURCES:
        codes |= set(re.findall(r"\b[45]\d\d,\s*\"([a-z_]+)\"", source.read_text("utf-8")))
    codes -= {"not_found", "conflict"}  # whose members are told
    codes -= {"internal_error", "disconnected"}  # which nobody is ever told, or is there to be told
    assert sorted(code for code in codes if f"`{code}`" not in TEXT) == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="the document uses curl")
def test_what_it_shows_works(house: Running) -> None:
    script = "".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL))
    assert script.count("curl") >= 6
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        env={"PATH": "/usr/bin:/bin", "HEADRACE_URL": house.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert '"action":"COMPLETED"' in done.stdout

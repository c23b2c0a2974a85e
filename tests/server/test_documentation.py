"""docs/http.md is what there is, and what it shows works."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from headrace.server.claims import OPERATIONS as CLAIMS
from headrace.server.events import OPERATIONS as EVENTS
from headrace.server.failures import TABLE
from tests.server.running import Running

TEXT = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted({operation.path for operation in (*EVENTS, *CLAIMS)}))
def test_every_path_is_documented(path: str) -> None:
    assert re.search(rf"(?:GET|POST|\$URL) ?{re.escape(path)}[`?\" ]", TEXT.replace("$id", "{id}"))


def test_every_code_is_documented() -> None:
    codes = {code for _, code in TABLE.values()} - {"not_found", "conflict"}
    assert [code for code in codes if f"`{code}`" not in TEXT] == []


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

"""The example scripts, run by a plain shell with curl."""

import os
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.requirements import requirement
from tests.server.running import Running

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the examples need curl")


def run(script: str, house: Running, api: httpx.Client, **environment: str) -> str:
    done = subprocess.run(
        ["sh", EXAMPLES / script],
        env={
            "PATH": os.environ["PATH"],
            "HEADRACE_URL": house.url,
            "NAMESPACE": api.params["namespace"],
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@requirement("API-1", "API-19")
def test_process_a_publishes_and_process_b_works(house: Running, api: httpx.Client) -> None:
    id = int(run("process_a.sh", house, api))
    said = run("process_b.sh", house, api, ONCE="1")
    assert f"event {id}, attempt 1\n" in said
    assert f"event {id}: complete, status 200" in said
    event = api.get(f"/events/{id}", params={"include_logs": "true"}).json()
    assert event["title"] == "Batch Report Generation"
    assert event["payload"] == {"report_type": "sales", "month": "2025-12"}
    assert event["status"] == "COMPLETED"
    assert [entry["action"] for entry in event["logs"]] == ["PICKED", "COMPLETED"]


@requirement("G2")
def test_process_a_may_be_run_again(house: Running, api: httpx.Client) -> None:
    ids = {run("process_a.sh", house, api, IDEMPOTENCY_KEY="report-1") for _ in range(2)}
    assert len(ids) == 1


@requirement("API-10")
def test_process_b_reports_what_went_wrong(house: Running, api: httpx.Client) -> None:
    payload = {"attempt": 99, "id": 98}
    id = api.post("/events", json={"tags": "mine", "payload": payload}).json()["id"]
    work = EXAMPLES.parent / "tests" / "server" / "failing_work.sh"
    said = run("process_b.sh", house, api, ONCE="1", TAGS="mine", WORK=f"sh {work}")
    assert f"event {id}: fail, status 200" in said
    [*_, entry] = api.get(f"/events/{id}", params={"include_logs": "true"}).json()["logs"]
    assert (entry["action"], entry["status_code"]) == ("FAILED", 500)
    assert entry["error_message"].startswith("exit code 7: it said no, and")


def test_process_b_has_nothing_to_do(house: Running, api: httpx.Client) -> None:
    api.post("/events", json={"tags": "somebody-elses"})
    assert run("process_b.sh", house, api, ONCE="1", TAGS="mine") == ""

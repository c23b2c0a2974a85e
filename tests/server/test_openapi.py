"""/openapi.json and /docs: whole, valid, and what the server does."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from headrace.server.http.routing import OPERATIONS
from tests.server.running import Running

HERE = Path(__file__).parent


@pytest.fixture
def api(house: Running) -> Iterator[httpx.Client]:
    with house.client() as client:
        yield client


@pytest.fixture
def description(api: httpx.Client) -> Any:
    return api.get("/openapi.json").json()


def described(description: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_it_is_openapi_3_1(description: Any) -> None:
    assert description["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(description).validate()


def test_every_operation_is_in_it(description: Any) -> None:
    told = {(method, path) for method, path, _ in described(description)}
    assert told == {(one.method, one.path) for one in OPERATIONS if not one.hidden}
    names = [operation["operationId"] for *_, operation in described(description)]
    assert len(set(names)) == len(names)


def test_everything_says_what_it_is(description: Any) -> None:
    tags = {tag["name"] for tag in description["tags"]}
    for *_, operation in described(description):
        assert operation["summary"]
        assert set(operation["tags"]) <= tags
        assert {"400", "503"} <= set(operation["responses"])
    for name, schema in description["components"]["schemas"].items():
        assert schema.get("description"), name


def test_it_is_what_the_types_say(description: Any) -> None:
    subscribe = description["paths"]["/events/subscribe"]["get"]
    by_name = {parameter["name"]: parameter for parameter in subscribe["parameters"]}
    assert by_name["worker_id"]["required"] is True
    assert by_name["tags"]["schema"] == {
        **{"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 100},
    }
    assert (by_name["tags"]["style"], by_name["tags"]["explode"]) == ("form", False)
    assert by_name["wait"]["schema"]["maximum"] == 20
    assert by_name["wait"]["description"] == "Seconds to wait for an event if none is ready."
    assert subscribe["security"] == [{"token": []}]
    assert subscribe["x-scope"] == "consume"
    schemas = description["components"]["schemas"]
    assert "status_code" not in schemas["LogBody"]["required"]  # absent where it is not known
    assert "next_retry_at" in schemas["EventBody"]["required"]
    assert "security" not in description["paths"]["/healthz"]["get"]
    headers = description["paths"]["/events"]["post"]["parameters"]
    assert "Idempotency-Key" in {parameter["name"] for parameter in headers}


def test_the_page_needs_no_other_host(api: httpx.Client) -> None:
    page = api.get("/docs")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    files = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert set(files) == {"/docs/docs.css", "/docs/docs.js", "/openapi.json"}
    for file in files:
        text = api.get(file)
        assert text.is_success
        assert not re.search(r"https?://", text.text.replace("http://127.0.0.1", ""))
    assert not re.search(r"<script(?! src)|<style| on\w+=", page.text)
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_page_puts_nothing_on_itself_as_markup(api: httpx.Client) -> None:
    script = api.get("/docs/docs.js").text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.usefixtures(
    "description"
)  # is made when it is first asked for, and waited for ten seconds there
def test_the_server_does_what_it_says(house: Running, tmp_path: Path) -> None:
    """Thousands of requests made from the description, right ones and wrong ones; every check there is."""
    token = house.db.queue().create_token("schemathesis", ["admin"])
    ran = subprocess.run(
        [
            *(Path(sys.executable).with_name("schemathesis"), "--config-file"),
            *(HERE / "schemathesis.toml", "run", f"{house.url}/openapi.json"),
            *("--header", f"Authorization: Bearer {token}", "--checks", "all"),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "10"),
            *("--exclude-path", "/events/stream"),  # it does not end
            *(
                "--max-response-time",
                "25",
                "--request-timeout",
                "30",
                "--suppress-health-check",
                "all",
            ),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE), "SCHEMATHESIS_HOOKS": "ndjson"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout[-20000:]

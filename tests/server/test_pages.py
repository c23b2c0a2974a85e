"""The dashboard's files, and who is told that he may use it."""

import re
from collections.abc import Iterator

import httpx
import pytest

from headrace.server.http import pages
from tests.database import Database
from tests.server.running import Running, running

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
FILES = sorted(pages.folder("dashboard"))


@pytest.fixture
def api(house: Running) -> Iterator[httpx.Client]:
    with house.client() as client:
        yield client


def test_a_browser_is_shown_the_dashboard(api: httpx.Client) -> None:
    page = api.get("/", headers=BROWSER)
    assert page.status_code == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Vary"] == "Accept"
    other = api.get("/", headers={"Accept": "application/json"})
    assert (other.status_code, other.headers["Location"]) == (307, "/docs")


@pytest.mark.parametrize("path", ["/", "/docs", "/docs/docs.js", "/dashboard/latest/index.html"])
def test_whatever_a_browser_is_shown_may_load_and_run_nothing_but_its_own(
    api: httpx.Client, path: str
) -> None:
    headers = api.get(path, headers=BROWSER).headers
    assert headers["Content-Security-Policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_the_page_and_its_files_need_no_other_host(api: httpx.Client) -> None:
    page = api.get("/", headers=BROWSER).text
    assert not re.search(r"<script(?! (type=\"module\" )?src)|<style| on\w+=| style=", page)
    for address in re.findall(r'(?:src|href)="(/dashboard/[^"]+)"', page):
        assert pages.edition() in address
        assert api.get(address).is_success
    for path in FILES:
        text = api.get(f"/dashboard/latest/{path}").text
        assert not re.search(r"(?:src|href|url|import|from|fetch)\W{1,3}(?:https?:)?//", text), path
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), path


def test_a_file_of_this_edition_is_kept_and_one_of_another_is_asked_for_again(
    api: httpx.Client,
) -> None:
    kept = api.get(f"/dashboard/{pages.edition()}/index.html").headers["Cache-Control"]
    assert kept == "public, max-age=31536000, immutable"
    other = api.get("/dashboard/older/index.html")
    assert other.headers["Cache-Control"] == "no-cache"
    for path in ("/", "/docs", "/dashboard/older/index.html"):
        tag = api.get(path, headers=BROWSER).headers["ETag"]
        again = api.get(path, headers={**BROWSER, "If-None-Match": f'"x", W/{tag}'})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["ETag"] == tag


@pytest.mark.parametrize(
    "path",
    ["nothing.js", "..%2fpages.py", "../pages.py", "%2e%2e/app.py", "views/..%2f..%2fapp.py"],
)
def test_there_are_no_files_but_the_dashboards(api: httpx.Client, path: str) -> None:
    answer = api.get(f"/dashboard/latest/{path}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_without_tokens_everybody_is_told_so(api: httpx.Client) -> None:
    told = api.get("/whoami").json()
    assert told.pop("version")
    assert told == {
        "open": True,
        "name": "127.0.0.1",
        "scopes": ["admin", "consume", "publish", "read"],
        "namespaces": None,
    }


def test_a_token_tells_what_it_is_good_for(db: Database) -> None:
    db.sql("select headrace.create_namespace('shop')")
    token = db.queue().create_token("till", ["publish"], namespaces=["shop"])
    with running(db) as house, house.client() as api:
        assert api.get("/whoami").status_code == 401
        wrong = api.get("/whoami", headers={"Authorization": "Bearer hr_wrong"})
        assert (wrong.status_code, wrong.json()["code"]) == (401, "invalid_token")
        told = api.get("/whoami", headers={"Authorization": f"Bearer {token}"}).json()
        assert told.pop("version")
        assert told == {
            "open": False,
            "name": "till",
            "scopes": ["publish"],
            "namespaces": ["shop"],
        }
        assert api.get("/", headers=BROWSER).status_code == 200  # which asks for the token

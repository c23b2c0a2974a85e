"""The site that `make docs` builds: whole, and with nothing from anybody else's host."""

import functools
import http.server
import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.browser.visitor import launch
from tests.docs.reading import LINK, PROJECT

LLMS = PROJECT / "docs" / "llms.txt"
# Their indexes, requirements.md and decisions/index.md, are in llms.txt and list them.
LISTED_ELSEWHERE = ("documents/", "decisions/0")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly: a link, an anchor or a page that is not there fails."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("what builds the site is not installed: make docs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return folder


@pytest.mark.rest
def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    """A link may lead away; what a page is made of may not."""
    loaded = re.compile(
        r"<(?:script|img|iframe|source|video|audio|link)\b[^>]*?(?:src|href)=[\"']?(?:https?:)?//([^\"'/\s>]+)"
    )
    imported = re.compile(r"(?:url\(|@import )\s*[\"']?(?:https?:)?//([\w.-]+)")
    pages = {page: page.read_text("utf-8") for page in site.rglob("*.html")}
    styles = {style: style.read_text("utf-8") for style in site.rglob("*.css")}
    assert len(pages) > 30
    assert {
        (file.name, host) for file, text in pages.items() for host in loaded.findall(text)
    } == set()
    assert {
        (file.name, host)
        for file, text in (pages | styles).items()
        for host in imported.findall(text)
    } == set()


@pytest.mark.rest
def test_every_page_is_there_as_markdown_too_and_its_links_lead_somewhere(site: Path) -> None:
    for page in site.rglob("*.md"):
        links = [link.partition("#")[0] for link in LINK.findall(page.read_text("utf-8"))]
        gone = [one for one in links if one and ":" not in one and not (page.parent / one).exists()]
        assert gone == [], page


def navigation(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        match entry:
            case str():
                yield entry
            case dict():
                for inner in entry.values():
                    yield from navigation([inner] if isinstance(inner, str) else inner)


def test_what_is_written_for_machines_leads_to_every_page_and_to_nothing_else() -> None:
    """llms.txt is on the site, where README.md is index.md."""
    settings = yaml.safe_load((PROJECT / "mkdocs.yml").read_text("utf-8"))
    pages = set(navigation(settings["nav"]))
    linked = set(LINK.findall(LLMS.read_text("utf-8")))
    assert linked <= pages
    assert pages - linked - {page for page in pages if page.startswith(LISTED_ELSEWHERE)} == {
        "contributing.md"
    }


@pytest.mark.rest
def test_in_a_browser_every_page_asks_only_its_own_host(served: str) -> None:
    # Playwright wants a thread of its own for each of its loops, and tests/browser has this one's.
    with ThreadPoolExecutor(1) as thread:
        asked, complaints = thread.submit(visit, served).result()
    assert {url for url in asked if not url.startswith((served, "data:", "blob:"))} == set()
    assert complaints == []


def visit(site: str) -> tuple[list[str], list[str]]:
    """Look at some pages and search: what the browser asked for, and what it complained of."""
    asked: list[str] = []
    complaints: list[str] = []
    playwright, browser = launch()
    try:
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        for name in ("index", "concepts", "http", "operations/monitoring", "requirements"):
            page.goto(f"{site}/{name}.html", wait_until="networkidle", timeout=60_000)
            if page.locator("h1").count() != 1:
                complaints.append(f"{name} has no heading")
        page.keyboard.press("/")
        page.keyboard.type("lease")
        page.locator(".md-search-result__link").first.wait_for(timeout=60_000)
    finally:
        browser.close()
        playwright.stop()
    return asked, complaints


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *said: object) -> None: ...

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()

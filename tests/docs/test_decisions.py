"""The decisions are numbered without holes; their index and the site's navigation list all of them."""

import re

import yaml

from tests.docs.reading import PROJECT
from tests.docs.test_site import navigation

FOLDER = PROJECT / "docs" / "decisions"
PAGES = sorted(page for page in FOLDER.glob("*.md") if page.name != "index.md")


def test_decisions_are_numbered_from_one_without_holes() -> None:
    assert [page.name[:5] for page in PAGES] == [f"{n:04}-" for n in range(1, len(PAGES) + 1)]


def test_the_index_lists_every_decision_by_its_title() -> None:
    index = (FOLDER / "index.md").read_text("utf-8")
    listed = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.+) \|$", index, re.MULTILINE)
    titles = [page.read_text("utf-8").splitlines()[0].removeprefix("# ") for page in PAGES]
    assert listed == [
        (page.name[:4], page.name, title) for page, title in zip(PAGES, titles, strict=True)
    ]


def test_the_navigation_lists_every_decision() -> None:
    settings = yaml.safe_load((PROJECT / "mkdocs.yml").read_text("utf-8"))
    listed = [page for page in navigation(settings["nav"]) if page.startswith("decisions/")]
    assert listed == ["decisions/index.md", *(f"decisions/{page.name}" for page in PAGES)]

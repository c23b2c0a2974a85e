"""What the site needs beyond the folder docs/: the README as its first page, links that lead out of docs/, Markdown.

The documents link to one another and to files of the project as they lie in the repository, so that they can be read there.
On the site README.md is index.md, and what lies outside docs/ is copied to files/: no other host is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PROJECT = Path(__file__).parents[1]
FROM_ABOVE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
TAKEN = {".json", ".yaml", ".service"}
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FENCE = re.compile(r"^( *)```.*?^\1```\s*$", re.MULTILINE | re.DOTALL)
HIDDEN = re.compile(r"^<!--.*?-->\n?", re.MULTILINE | re.DOTALL)

_texts: dict[str, str] = {}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    _texts.clear()
    for name, uri in FROM_ABOVE.items():
        files.append(
            File.generated(config, uri, content=(PROJECT / name).read_text(encoding="utf-8"))
        )
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    place = {to: name for name, to in FROM_ABOVE.items()}.get(uri, f"docs/{uri}")

    def target(link: re.Match[str]) -> str:
        before, path, anchor, after = link.groups()
        if ":" in path or path.startswith("/"):
            return link[0]
        found = normpath(join(dirname(place), path))
        there = _on_the_site(found, config, files)
        return f"{before}{relpath(there, dirname(uri) or '.')}{anchor or ''}{after}"

    kept = _outside_fences(HIDDEN.sub("", markdown), lambda text: LINK.sub(target, text))
    _texts[uri] = kept
    return kept


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The theme's search has no name for who hears the page."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def on_post_build(config: MkDocsConfig) -> None:
    """Each page as Markdown, too: what llms.txt leads to."""
    for uri, text in _texts.items():
        (Path(config.site_dir) / uri).write_text(text, encoding="utf-8")


def _on_the_site(path: str, config: MkDocsConfig, files: Files) -> str:
    if path in FROM_ABOVE:
        return FROM_ABOVE[path]
    if path.startswith("docs/"):
        inside = path.removeprefix("docs/")
        return join(inside, "index.md") if (PROJECT / path).is_dir() else inside
    source = PROJECT / path
    if not source.is_file():
        return path  # mkdocs says that it is not there
    # What is to be read is shown by every browser as text; what is to be taken keeps its name.
    copy = f"files/{path}" if source.suffix in TAKEN else f"files/{path}.txt"
    if files.get_file_from_path(copy) is None:
        files.append(File.generated(config, copy, content=source.read_text(encoding="utf-8")))
    return copy


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])

"""Defects that a queue may have, each kept as a patch of this tree, and the tests that notice it.

A patch is a unified diff, and what stands above it says what is wrong and by which tests it is caught. Where its lines have
moved it still applies; where they have changed it does not, and tests/test_defects.py says so.

    make defects                    applies each to a copy of the tree and wants its tests red
    python -m tests.defects 07 12   only these
    python -m tests.defects --table writes the list of them, README.md, anew
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
LIST = FOLDER / "README.md"
ROOT = FOLDER.parents[1]
HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class DoesNotApply(Exception):
    """The tree is not what the patch was made for."""


@dataclass(frozen=True)
class Hunk:
    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Defect:
    name: str
    what: str
    tests: tuple[str, ...]
    hunks: tuple[Hunk, ...]

    def changes(self, root: Path) -> dict[Path, str]:
        """The files that it changes, as they are with it."""
        files: dict[Path, str] = {}
        for hunk in self.hunks:
            path = root / hunk.path
            text = files.get(path) or path.read_text(encoding="utf-8")
            if text.count(hunk.old) != 1:
                raise DoesNotApply(
                    f"{self.name}: {hunk.path} has not exactly one place for\n{hunk.old}"
                )
            files[path] = text.replace(hunk.old, hunk.new)
        return files


def table() -> str:
    """What README.md says."""
    lines = [
        "# Defects that the tests catch",
        "",
        "`make defects` makes each of these in a copy of the tree and wants the tests beside it red. Written by",
        "`python -m tests.defects --table`.",
        "",
        "| | what is wrong | caught by |",
        "|---|---|---|",
    ]
    for one in defects():
        number, links = one.name[:2], "<br>".join(map(_link, one.tests))
        lines.append(f"| [{number}]({one.name}.patch) | {one.what} | {links} |")
    return "\n".join(lines) + "\n"


def _link(test: str) -> str:
    file, _, names = test.partition("::")
    return f"[{names}](../{file.removeprefix('tests/')})"


def defects() -> list[Defect]:
    return [read(path) for path in sorted(FOLDER.glob("*.patch"))]


def read(path: Path) -> Defect:
    text = path.read_text(encoding="utf-8")
    head, _, diff = text.partition("--- ")
    what = " ".join(
        line for line in head.splitlines() if line and not line.startswith("Caught by:")
    )
    tests = re.findall(r"^Caught by: (.*)$", head, re.MULTILINE)
    return Defect(path.stem, what, tuple(tests), tuple(_hunks(f"--- {diff}")))


def _hunks(diff: str) -> Iterator[Hunk]:
    path = ""
    lines = iter(diff.splitlines(keepends=True))
    for line in lines:
        if line.startswith("+++ "):
            path = line[4:].strip().removeprefix("b/")
        elif sizes := HUNK.match(line):
            left, old, new = [int(size or 1) for size in sizes.groups()], "", ""
            while any(left):
                sign, text = (one := next(lines))[0], one[1:]
                if sign != "+":
                    left[0], old = left[0] - 1, old + text
                if sign != "-":
                    left[1], new = left[1] - 1, new + text
            yield Hunk(path, old, new)

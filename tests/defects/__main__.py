"""Applies each defect to a copy of the tree and runs the tests that must notice it.

They are run on the tree as it is first: a test that is always red would catch everything.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.defects import LIST, ROOT, Defect, defects, table
from tests.laboratory import report, results

COPIED = (
    "src",
    "tests",
    "docs",
    "examples",
    "bench",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
)
PATIENCE = 600.0  # seconds for the tests of one defect


class Tree:
    """A copy of the tree, to be spoiled."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "tree"
        self._report = folder / "report.xml"
        self._root.mkdir()
        for name in COPIED:
            place = ROOT / name
            if place.is_dir():
                shutil.copytree(
                    place, self._root / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            elif place.exists():
                shutil.copy(place, self._root / name)

    def run(self, tests: Sequence[str]) -> tuple[int, str]:
        """How many of them have failed, and what pytest said. One that could not begin has shown nothing."""
        self._report.unlink(missing_ok=True)
        options = [
            "-q",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            f"--junitxml={self._report}",
        ]
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self._root,
            env={
                **os.environ,
                "PYTHONPATH": str(self._root / "src"),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        if ran.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(tests)} cannot be run ({ran.returncode}):\n{ran.stdout}")
        report = ElementTree.parse(self._report)
        if any("on setup" in error.get("message", "") for error in report.iter("error")):
            raise SystemExit(f"{' '.join(tests)} cannot begin:\n{ran.stdout}")
        return len(list(report.iter("failure"))), ran.stdout

    def has(self, defect: Defect) -> "Spoiled":
        return Spoiled(defect, self._root)


class Spoiled:
    """While it lasts, the tree has a defect."""

    def __init__(self, defect: Defect, root: Path) -> None:
        self._spoiled = defect.changes(root)
        self._good = {path: path.read_text(encoding="utf-8") for path in self._spoiled}

    def __enter__(self) -> None:
        self._write(self._spoiled)

    def __exit__(self, *error: object) -> None:
        self._write(self._good)

    @staticmethod
    def _write(files: dict[Path, str]) -> None:
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.defects", description=__doc__)
    parser.add_argument("numbers", nargs="*", help="of defects; all, if there are none")
    parser.add_argument(
        "--table", action="store_true", help="write the list of them anew, and no more"
    )
    asked = parser.parse_args()
    if asked.table:
        LIST.write_text(table(), encoding="utf-8")
        return 0
    known = [one for one in defects() if not asked.numbers or one.name[:2] in asked.numbers]
    with tempfile.TemporaryDirectory(prefix="hr-defects-") as folder:
        tree = Tree(Path(folder))
        failed, said = tree.run(sorted({test for one in known for test in one.tests}))
        if failed:
            print(f"Not all of the tests pass on the tree as it is:\n{said}")
            return 1
        caught = sum(shown(tree, one) for one in known)
    print(f"defects caught: {caught} of {len(known)}")
    if not asked.numbers:  # some of them are not the result
        results.keep("defects", {"caught": caught, "of": len(known)})
        report.write()
    return caught != len(known)


def shown(tree: Tree, defect: Defect) -> bool:
    with tree.has(defect):
        failed, _ = tree.run(["-x", *defect.tests])
    print(
        f"{'caught' if failed else 'MISSED'}  {defect.name}: {', '.join(defect.tests)}", flush=True
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

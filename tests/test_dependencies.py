"""What is installed with Headrace is known, and what is not known of it is not taken for harmless."""

from typing import Any

import pytest

from tests.dependencies import Package, Packages, pruned, runtime, verdict

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
    ("dependencies", "said", "is_good", "is_good_if_strict"),
    [
        ([told("a-b"), told("c")], "None of 2 dependencies is known", True, True),
        ([told("a-b"), told("c", "X-1", "X-2")], "vulnerable: c 2.0 (X-1, X-2).", False, False),
        ([{"name": "a-b", "skip_reason": "?"}, told("c", "X-1")], "vulnerable: c", False, False),
        ([{"name": "a-b", "skip_reason": "?"}, told("c")], "Of 1 of 2 dependencies", True, False),
        (None, "Of 2 of 2 dependencies", True, False),
    ],
)
def test_what_the_registry_does_not_say_is_not_taken_for_good(
    dependencies: Any, said: str, is_good: bool, is_good_if_strict: bool
) -> None:
    report = None if dependencies is None else {"dependencies": dependencies}
    for strict, expected in ((False, is_good), (True, is_good_if_strict)):
        found = verdict(report, TWO, strict=strict)
        assert said in found.sentence
        assert found.is_good is expected

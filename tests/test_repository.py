"""The files by which a project is taken part in. They cannot run here, so their form is checked, and all that they name."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).parents[1]
GITHUB = PROJECT / ".github"
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
FORMS = sorted(set(GITHUB.glob("ISSUE_TEMPLATE/*.yml")) - {GITHUB / "ISSUE_TEMPLATE/config.yml"})
SCHEMAS = [
    ("github-workflows", WORKFLOWS),
    ("github-workflows-require-timeout", WORKFLOWS),
    ("github-issue-forms", FORMS),
    ("github-issue-config", [GITHUB / "ISSUE_TEMPLATE/config.yml"]),
    ("dependabot", [GITHUB / "dependabot.yml"]),
]


def workflow(name: str) -> Any:
    return yaml.safe_load((GITHUB / "workflows" / name).read_text(encoding="utf-8"))


def validated(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema"]
    if schema.startswith("github-workflows"):
        schema = f"{'custom' if schema.endswith('timeout') else 'vendor'}.{schema}"
    else:
        schema = f"vendor.{schema}"
    return subprocess.run(
        [*command, "--builtin-schema", schema, *files], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("schema", "files"), SCHEMAS, ids=[name for name, _ in SCHEMAS])
def test_the_files_have_the_form_that_the_host_wants(schema: str, files: list[Path]) -> None:
    assert files
    told = validated(schema, *files)
    assert told.returncode == 0, told.stdout


def test_a_file_of_another_form_is_noticed(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text("jobs: {one: {steps: 7}}\n", encoding="utf-8")
    assert validated("github-workflows", wrong).returncode == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_targets_and_files_that_there_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    matrix = [
        target
        for job in yaml.safe_load(text)["jobs"].values()
        for target in job.get("strategy", {}).get("matrix", {}).get("target", [])
    ]
    named = {
        word
        for line in re.findall(r"run: make ([a-z -]+?)(?: [A-Z]|$)", text, re.MULTILINE)
        for word in line.split()
    }
    assert named | set(matrix) <= targets
    for file in re.findall(r"bash (\S+)", text):
        assert (PROJECT / file).is_file()


def test_workflows_try_every_python_and_postgresql_that_is_supported() -> None:
    jobs = workflow("ci.yml")["jobs"]
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = {one.rpartition(" ")[2] for one in project["classifiers"] if " :: 3." in one}
    tried = set(jobs["python"]["strategy"]["matrix"]["python"])
    [setup] = [one for one in jobs["all"]["steps"] if "setup-python" in one.get("uses", "")]
    assert tried | {setup["with"]["python-version"]} == supported
    assert jobs["postgresql"]["strategy"]["matrix"]["postgresql"] == [15, 16, 17, 18]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_no_right_that_it_does_not_name(path: Path) -> None:
    described = workflow(path.name)
    assert described["permissions"] == {"contents": "read"}
    for job in described["jobs"].values():
        for step in job["steps"]:
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_no_secret_is_needed_for_a_release() -> None:
    text = (GITHUB / "workflows/release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    publish = workflow("release.yml")["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}


def test_what_a_commit_runs_is_installed_by_make() -> None:
    hooks = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    entries = [hook["entry"] for repo in hooks["repos"] for hook in repo["hooks"]]
    assert entries
    assert all(entry.startswith(".venv/bin/") for entry in entries)


def test_every_area_of_the_owners_exists() -> None:
    lines = (GITHUB / "CODEOWNERS").read_text(encoding="utf-8").splitlines()
    areas = [line.split()[0] for line in lines if line and not line.startswith("#")]
    assert areas
    assert all(area == "*" or (PROJECT / area.strip("/")).exists() for area in areas)

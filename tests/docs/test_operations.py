"""What an operator copies: units, manifests, rules and the board name only what there is."""

import configparser
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from headrace.node.health.vitals import resting
from headrace.server.http.routing import OPERATIONS
from tests.docs.reading import FENCE, PROJECT
from tests.docs.test_documents import mistake

EXAMPLES = PROJECT / "examples"
MONITORING = EXAMPLES / "monitoring"
EXCERPT = re.compile(r"<!-- (examples/\S+) -->\n")


def test_what_a_document_shows_of_a_file_is_the_file() -> None:
    shown = {}
    for document in PROJECT.glob("docs/**/*.md"):
        text = document.read_text("utf-8")
        for marker in EXCERPT.finditer(text):
            fence = FENCE.match(text, marker.end())
            assert fence is not None, marker[1]
            shown[marker[1]] = fence["code"]
    assert len(shown) >= 3
    assert shown == {name: (PROJECT / name).read_text("utf-8") for name in shown}


def units() -> Iterator[configparser.ConfigParser]:
    for path in sorted(EXAMPLES.glob("systemd/*.service")):
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(path.read_text("utf-8"))
        yield unit


def test_units_of_systemd_run_commands_that_there_are_and_wait_for_their_end() -> None:
    assert len(list(units())) == 2
    for unit in units():
        program, *arguments = shlex.split(unit["Service"]["ExecStart"])
        assert Path(program).name == "headrace"
        assert mistake(["headrace", *arguments]) is None
        if "--grace" in arguments:
            grace = float(arguments[arguments.index("--grace") + 1])
            assert float(unit["Service"]["TimeoutStopSec"]) > grace + 1


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLES / "kubernetes" / "headrace.yaml").read_text("utf-8")))


def test_manifests_run_commands_that_there_are_and_probe_paths_that_there_are() -> None:
    paths = {operation.path for operation in OPERATIONS}
    kinds = [manifest["kind"] for manifest in manifests()]
    assert kinds == ["Job", "Deployment", "Service", "Deployment"]
    for manifest in manifests():
        pod = manifest["spec"].get("template", {}).get("spec", {})
        for container in pod.get("containers", []):
            assert mistake(container["command"]) is None
            ports = {port["name"] for port in container.get("ports", [])}
            for probe in (container.get(f"{kind}Probe") for kind in ("liveness", "readiness")):
                if probe:
                    assert probe["httpGet"]["path"] in paths
                    assert probe["httpGet"]["port"] in ports
            if "--grace" in container["command"]:
                grace = float(container["command"][container["command"].index("--grace") + 1])
                assert pod["terminationGracePeriodSeconds"] > grace + 1


def test_selectors_select() -> None:
    labels = [
        manifest["spec"]["template"]["metadata"]["labels"]
        for manifest in manifests()
        if manifest["kind"] == "Deployment"
    ]
    for manifest in manifests():
        match manifest:
            case {"kind": "Deployment", "spec": {"selector": {"matchLabels": wanted}}}:
                assert wanted == manifest["spec"]["template"]["metadata"]["labels"]
            case {"kind": "Service", "spec": {"selector": wanted}}:
                assert wanted in labels


def exported() -> set[str]:
    """The names that Prometheus is told: a node's own, and a server's as they stand in its code."""
    node = {family.name for family in resting("n", "default", "main").families(lag=0)}
    server = (PROJECT / "src" / "headrace" / "server" / "api" / "metrics.py").read_text("utf-8")
    return node | set(re.findall(r"\"(headrace_\w+)\"", server))


def metrics(expression: str) -> set[str]:
    names = set(re.findall(r"\bheadrace_\w+", expression))
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def board() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((MONITORING / "board.json").read_text("utf-8"))
    return loaded


def test_rules_and_board_ask_for_metrics_that_are_exported() -> None:
    asked = [rule["expr"] for rule in rules()]
    asked += [target["expr"] for panel in board()["panels"] for target in panel.get("targets", [])]
    asked += [str(variable["query"]) for variable in board()["templating"]["list"]]
    assert len(asked) > 30
    assert {name for one in asked for name in metrics(one)} - exported() == set()


def test_every_metric_is_documented() -> None:
    told = "".join(
        (PROJECT / "docs" / name).read_text("utf-8") for name in ("http.md", "workers.md")
    )
    assert {name for name in exported() if f"`{name}" not in told} == set()


def test_every_alert_says_what_to_do_and_is_documented() -> None:
    told = (PROJECT / "docs" / "operations" / "monitoring.md").read_text("utf-8")
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "do"}
        assert f"`{rule['alert']}`" in told


def test_panels_of_the_board_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells

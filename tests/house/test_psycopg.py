"""The driver is the only room that knows psycopg; every other import of it is on this list, with a reason."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "headrace"

# The public API of psycopg: what a module of ours may use that is on the list below.
PUBLIC = {
    "psycopg",
    "psycopg.conninfo",
    "psycopg.errors",
    "psycopg.rows",
    "psycopg.sql",
    "psycopg_pool",
}

ERRORS = "catches psycopg's errors: the driver lets those through that are not ours"
HANDLERS = "tells the plain connection of a handler from an async one, and catches psycopg's errors"
OWN = "runs SQL of its own on a connection of psycopg's, before or beside the engine"
LISTED = {
    "cli.bench.measure": ERRORS,
    "cli.bench.place": OWN,
    "cli.commands.migrate": OWN,
    "cli.commands.publish_lines": ERRORS,
    "cli.commands.replay": ERRORS,
    "cli.commands.tail": ERRORS,
    "cli.demo.demo": OWN,
    "cli.source": OWN,
    "cli.terminal.errors": ERRORS,
    "doctor": OWN,
    "doctor.checks.connection": OWN,
    "doctor.checks.replication": OWN,
    "doctor.checks.schema": ERRORS,
    "doctor.database": OWN,
    "embedded.server": OWN,
    "install.migrate": OWN,
    "node.finish.finisher": ERRORS,
    "node.handler.clients": HANDLERS,
    "node.lease.keeper": ERRORS,
    "node.lease.registration": ERRORS,
    "node.run.async_run": ERRORS,
    "node.run.attempt": ERRORS,
    "node.run.transaction": HANDLERS,
    "node.service": ERRORS,
    "server.api.stream": ERRORS,
    "server.feed": ERRORS,
    "server.figures": ERRORS,
    "server.http.gate": ERRORS,
    "server.http.operation": ERRORS,
    "server.http.refusal": ERRORS,
    "server.http.routing": ERRORS,
    "server.upkeep": ERRORS,
    "testing.database": OWN,
    "testing.drain": OWN,
}


def test_only_the_driver_and_the_listed_modules_import_psycopg() -> None:
    found = {module for module, _ in imports()}
    assert found - LISTED.keys() == set(), "these are not listed here: use the driver, or say why"
    assert LISTED.keys() - found == set(), "these do not import it any more: take them off the list"


def test_the_insides_of_psycopg_are_known_to_the_driver_alone() -> None:
    assert [(module, name) for module, name in imports() if name not in PUBLIC] == []


@cache
def imports() -> list[tuple[str, str]]:
    """The modules outside the driver that import psycopg, and what of it."""
    return list(_imports())


def _imports() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module.startswith("driver."):
            continue
        text = path.read_text(encoding="utf-8")
        if "psycopg" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                # `from psycopg import errors` is an import of psycopg.errors.
                names = [
                    f"{node.module}.{one.name}" if one.name[0].islower() else str(node.module)
                    for one in node.names
                ]
                names = [
                    name if name in PUBLIC or name.count(".") < 2 else name.rpartition(".")[0]
                    for name in names
                ]
            else:
                continue
            yield from ((module, name) for name in names if name.startswith("psycopg"))

"""A name that begins with an underscore belongs to its module: no other module imports it, or reaches into its objects for it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import headrace

SOURCE = Path(headrace.__file__).parent
# Of NamedTuple, of os, of sys: underscored, and documented all the same.
PUBLIC = {"_replace", "_asdict", "_fields", "_make", "_exit", "_getframe", "_current_frames"}
# Module and name of what is still reached into: to be shortened, never extended.
KNOWN = {
    # psycopg and asyncio have no public way to these.
    ("driver/session.py", "_prepared_idx"),
    ("driver/async_session.py", "_prepared_idx"),
    ("driver/session_reset.py", "_adapters"),
    ("driver/session_reset.py", "_dumpers"),
    ("driver/session_reset.py", "_dumpers_by_oid"),
    ("driver/session_reset.py", "_loaders"),
    ("driver/session_reset.py", "_notice_handlers"),
    ("driver/session_reset.py", "_notify_handlers"),
    ("driver/session_reset.py", "_registry"),
    ("server/bulkheads.py", "_value"),
}


def test_nobody_touches_a_private_name_of_another_module() -> None:
    found = {
        (path.relative_to(SOURCE).as_posix(), name)
        for path in sorted(SOURCE.rglob("*.py"))
        for name in touched(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found - KNOWN == set()
    assert KNOWN - found == set(), "these are gone, and need not be listed any more"


def touched(module: ast.Module) -> Iterator[str]:
    own = set(defined(module))
    for node in ast.walk(module):
        match node:
            case ast.ImportFrom():
                yield from (alias.name for alias in node.names if is_private(alias.name))
            case ast.Attribute(value, name) if is_private(name) and name not in own:
                if not is_self(value):
                    yield name


def defined(module: ast.Module) -> Iterator[str]:
    """The private names that are made in a module: functions, classes, variables, and fields of its objects."""
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield name
            case ast.Name(name, ast.Store()):
                yield name
            case ast.Attribute(ast.Name("self" | "cls"), name, ast.Store()):
                yield name


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")

"""Every name in the SQL that we send from Python has its schema: sessions keep the search_path of whoever lends or borrows them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import headrace

SOURCE = Path(headrace.__file__).parent
# These set search_path for the transaction before anything else; what tests have is a database of their own, just made.
FIXED = ("doctor", "testing", "install")
SQL = re.compile(
    r"\s*(select|with|where|insert|update|delete)\b|.*\bheadrace\.\w+\(|.*%s::",
    re.IGNORECASE | re.DOTALL,
)
LITERAL = re.compile(r"'[^']*'")
SYNTAX = {"array", "any", "all", "coalesce", "case", "exists", "lateral", "materialized", "operator", "values", "in", "as", "and", "when", "row", "select"}  # fmt: skip
CALL = re.compile(r"(?<![\w.])([a-z_]\w*)\s*\(")
TYPES = {"bigint", "int", "integer", "smallint", "boolean", "interval", "numeric", "real"}
CAST = re.compile(r"::\s*([\w.]+)")
OPERATOR = re.compile(
    r"(?<![=<>:!|*+-])(=|<>|!=|<|>|<=|>=|\|\||\?|->|->>|[+-])(?![=>|<])(?=\s)|\bbetween\b|\bdistinct from\b|\blike\b"
)
RELATION = re.compile(r"\b(?:from|join)\s+([a-z_]\w*)\s+(?!\()")


def strings() -> Iterator[tuple[Path, int, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).parts[0] in FIXED:
            continue
        tree = ast.parse(path.read_text())
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in prose:
                continue
            match node:
                case ast.Constant(value=str(text)) | ast.Constant(value=bytes(text)):
                    yield (
                        path,
                        node.lineno,
                        text if isinstance(text, str) else text.decode("latin1"),
                    )


def statements() -> list[tuple[str, str]]:
    return [
        (f"{path.relative_to(SOURCE)}:{line}", text)
        for path, line, text in strings()
        if SQL.match(text) and re.search(r"headrace\.|pg_|%s|\bcurrent_|'", text)
    ]


def unqualified(text: str) -> set[str]:
    """A text that begins with a call goes on after `headrace.`."""
    said = LITERAL.sub("''", re.sub(r"^\w+\(", "", text))
    said = re.sub(r"operator\(pg_catalog\.[^)]+\)", "", said)
    return (
        {call for call in CALL.findall(said) if call not in SYNTAX}
        | {cast for cast in CAST.findall(said) if cast not in TYPES and "." not in cast}
        | {found[0] for found in OPERATOR.finditer(said)}
        | {name for name in RELATION.findall(said) if name.startswith("pg_")}
    )


def test_every_name_has_its_schema() -> None:
    found = statements()
    assert len(found) > 80
    assert {place: names for place, text in found if (names := unqualified(text))} == {}


def test_a_name_without_one_is_noticed() -> None:
    for text, name in {
        "select now()": "now",
        "select %s::jsonb": "jsonb",
        "select 1 where a = %s": "=",
        "select a from b where a is distinct from %s": "distinct from",
        "select relname from pg_class where true": "pg_class",
    }.items():
        assert unqualified(text) == {name}

"""Finds the names and values in a document: identifiers in code and prose, paths, columns, defaults. Its sentences stay where they are."""

import re
from collections.abc import Iterator

# Words that look like names and are none: keywords, products, formats.
_WORDS = """API GET HTTP ID ISO ISO8601 JSON POST PostgreSQL RabbitMQ SQL TypeScript CPU URI DLQ S3 NULL OK No
    WHILE EACH SKIP LOCKED FOR UPDATE SELECT BEGIN COMMIT ROLLBACK TRANSACTION INSERT INTO VALUES CONFLICT READ THEN ELSE EXISTS
    FROM WHERE DEFAULT UNIQUE PRIMARY KEY NOT AS DO SET ON IF AND OR Optional
    e.g for while val run try catch throw continue const await async interface return participant activate deactivate alt end else
    sequenceDiagram Note over true false minutes day replace string number Promise void unknown optional
    Continue Sleep Execute Returns Acknowledge Extract Lookup Get Move Decorate Usage Example Default"""
WORDS = frozenset(_WORDS.split())
_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_KEY = re.compile(r'"(\w+)": ')
_SHOUTED = re.compile(r'"([A-Z_]{4,})"')
_CHOICES = re.compile(r"// [^(\n]*\((\w+(?:, \w+)+)\)")
_MEMBER = re.compile(r"(?<![\w\"])(\w+)\??: ")
_ARGUMENT = re.compile(r"(?<=[(, ])(\w+) ?= ?(?:true|false|\[)")
_SIGNATURE = re.compile(r"^ *- `?(\w+)\(([^)]*)\)", re.MULTILINE)
_INSERT = re.compile(r"INSERT INTO ([\w.]+)\(([^)]*)\)")  # also in a string
_LOCK = re.compile(r"FOR UPDATE (SKIP LOCKED)")
_CONTEXT = re.compile(r"\{ (\w+) \}")
_FIELD = re.compile(r"^\| (\w+) \| ([A-Z]+(?:\(\d+\))?) \|", re.MULTILINE)
_PATH = re.compile(r"(?:\b(GET|POST) )?(/events[\w/{}]*)")
_LOOKS = re.compile(  # snake_case, camelCase, dots, capitals, a call
    r"(?<![\w.@-])("
    r"[A-Za-z]\w*(?:\.\w+)+|[A-Za-z]+(?:_\w+)+|_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*|[A-Z]{4,}|[a-z]\w*(?=\()"
    r")(?![\w@-])"
)
_PLAIN = re.compile(r"[A-Za-z_][\w.]*[A-Za-z0-9]")
_VALUE = re.compile(
    r"\b(\d[\d_]*)[ -]?(minutes?|min|seconds?|ms|MB|messages|months?|characters?|retries)\b"
)
_NUMBER = re.compile(r"\b(\d+_\d+)\b")
_DEFAULT = re.compile(r"default=(\w+)")


def names_in(text: str) -> set[str]:
    """What the document calls by a name, and the values that it sets."""
    found = {name.strip(".") for name in _names(text)}
    return {name for name in found if name and name not in WORDS and not name.isdigit()}


def _names(text: str) -> Iterator[str]:
    for language, code in _FENCE.findall(text):
        if language == "json":
            yield from (*_KEY.findall(code), *_SHOUTED.findall(code))
            yield from (one for said in _CHOICES.findall(code) for one in said.split(", "))
        elif language in ("typescript", "kotlin"):
            yield from (*_MEMBER.findall(_STRING.sub('""', code)), *_CONTEXT.findall(code))
        elif not language:  # a request, with its body
            yield from _KEY.findall(code)
        if language != "json":
            yield from _ARGUMENT.findall(code)
    for span in _SPAN.findall(_FENCE.sub("", text)):
        yield from _PLAIN.findall(span)
    for name, arguments in _SIGNATURE.findall(text):
        yield from (name, *_PLAIN.findall(arguments))
    for table, columns in _INSERT.findall(text):
        yield from (table, *_PLAIN.findall(columns))
    yield from _LOCK.findall(text)
    yield from _LOOKS.findall(_STRING.sub('""', text))  # what a string says is a sample's
    yield from (part for field in _FIELD.findall(text) for part in field)
    yield from (f"{verb} {path}" if verb else path for verb, path in _PATH.findall(text))
    yield from (f"{number} {unit}" for number, unit in _VALUE.findall(text))
    yield from _NUMBER.findall(text)
    yield from (f"default={value}" for value in _DEFAULT.findall(text))

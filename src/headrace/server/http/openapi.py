"""The description of the API, made of its operations and types: /openapi.json, and /docs."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeAlias, get_args, get_type_hints

import msgspec
from starlette.responses import Response

from headrace.server.http.operation import (
    Call,
    Operation,
    Query,
    answer,
)
from headrace.server.http.pages import folder

Schema: TypeAlias = dict[str, Any]

ABOUT = """\
A durable event queue and bus that lives in PostgreSQL. Publish events, claim and finish them, \
look at them, administer queues.

Every call is in a `namespace` (`default`) and most are in a `queue` of it (`main`). Times are \
UTC, to the second. An error is `{"error": "<a sentence>", "code": "<stable_code>"}`; 429 and 503 come \
with `Retry-After`."""

TAGS = {
    "events": "Publish events, and look at them.",
    "claims": "Workers claim events, extend their leases, and finish them.",
    "stream": "Follow the log live.",
    "queues": "The queues of a namespace, each with its own filter, settings and dead letters.",
    "states": "The state of a queue, its checkpoints and recoveries, its export and import.",
    "namespaces": "Namespaces separate events, queues and schedules.",
    "schedules": "Events that are published by cron expression.",
    "dead_letters": "Events without retries left: list them, group them by error, retry them.",
    "administration": "Nodes, workers, and the log of administration.",
    "overview": "History, problems, and the identity of the caller.",
    "shards": "The shards of an installation of several databases.",
    "metrics": "Metrics for Prometheus.",
    "health": "Liveness and readiness of the server.",
    "description": "This description.",
}


class Error(msgspec.Struct, frozen=True):
    """An error; some have more fields."""

    error: str
    """The problem, in a sentence."""
    code: str
    """The kind of error: a stable name."""


def describe(operations: Iterable[Operation]) -> Schema:
    """OpenAPI 3.1."""
    described = [one for one in operations if not one.hidden]
    types = _types(described)
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip(types, schemas, strict=True))
    _explain(types, components)
    paths: dict[str, Schema] = {}
    for one in described:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, by_type, components)
    queries = {by_type[one.query]["$ref"].rpartition("/")[2] for one in described}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Headrace", "version": release(), "description": ABOUT},
        "tags": [{"name": name, "description": said} for name, said in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {name: its for name, its in components.items() if name not in queries},
            "responses": {f"Error{status}": _error(status) for status in _ERRORS},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Created by `headrace tokens create`. A server on a loopback "
                    "address requires no token until the first one exists.",
                }
            },
        },
    }


def _types(operations: list[Operation]) -> list[Any]:
    """Every type once, in their order."""
    found: dict[Any, None] = {Error: None}
    for one in operations:
        for kind in (one.query, one.body, *one.answers.values()):
            if kind is not None:
                found[kind] = None
    return list(found)


def _operation(one: Operation, by_type: dict[Any, Schema], components: dict[str, Schema]) -> Schema:
    said = _unwrapped(inspect.getdoc(one.handle) or "")
    query = components[by_type[one.query]["$ref"].rpartition("/")[2]]
    described: Schema = {
        "operationId": one.name,
        "tags": [_tag(one)],
        "summary": re.split(r"(?<=[.:;])\s", said)[0].rstrip(".:;"),
        "description": said,
        "parameters": [*_path_parameters(one), *_query_parameters(query), *_header_parameters(one)],
        "responses": {
            **{
                str(status): _answer(one, status, kind, by_type)
                for status, kind in one.answers.items()
            },
            **{
                str(status): {"$ref": f"#/components/responses/Error{status}"}
                for status in _errors(one)
                if status not in one.answers
            },
        },
    }
    if one.scope is not None:
        described["security"] = [{"token": []}]
        described["x-scope"] = one.scope
    if one.body is not None:
        content = {
            media_type: {"schema": by_type[one.body] if media_type == "application/json" else {}}
            for media_type in one.media_types
        }
        described["requestBody"] = {"content": content, "required": True}
    return described


def _tag(one: Operation) -> str:
    """The module of an operation, or its folder: server/api has one for each tag. The operations
    of this module describe the others."""
    module = one.handle.__module__
    return "description" if module == __name__ else module.split(".")[3]


def _answer(one: Operation, status: int, kind: Any, by_type: dict[Any, Schema]) -> Schema:
    described: Schema = {"description": HTTPStatus(status).phrase}
    if kind is not None:
        schema = by_type[kind]
        if status in _errors(one):
            schema = {"anyOf": [schema, by_type[Error]]}
        described["content"] = {one.produces: {"schema": schema}}
    return described


def _errors(one: Operation) -> Iterator[int]:
    yield 400
    if one.scope is not None:
        yield from (401, 403, 404)
    if one.body is not None:
        yield from (408, 413, 415)
    if one.scope is not None and not one.is_safe:
        yield 409
    if one.scope == "publish" or one.name == "run_schedule":
        yield 429
    yield 503
    if one.method != "GET":
        yield 504


_ERRORS = (400, 401, 403, 404, 408, 409, 413, 415, 429, 503, 504)


def _error(status: int) -> Schema:
    return {
        "description": HTTPStatus(status).phrase,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }


_IN_PATH = {
    "id": {"type": "integer", "minimum": 1, "maximum": 2**63 - 1},
    "namespace": {"type": "string", "minLength": 1},
    "queue": {"type": "string", "minLength": 1},
    "name": {"type": "string", "minLength": 1},
}


def _path_parameters(one: Operation) -> Iterator[Schema]:
    for name in re.findall(r"{(\w+)}", one.path):
        yield {"name": name, "in": "path", "required": True, "schema": _IN_PATH[name]}


def _query_parameters(query: Schema) -> Iterator[Schema]:
    for name, schema in query.get("properties", {}).items():
        schema = dict(schema)
        parameter = {"name": name, "in": "query", "required": name in query.get("required", ())}
        if said := schema.pop("description", None):
            parameter["description"] = said
        schema = _without_null(schema)
        if schema.get("type") == "array":
            parameter |= {"style": "form", "explode": False}
        yield {**parameter, "schema": schema}


def _without_null(schema: Schema) -> Schema:
    """A URL cannot say null: the parameter is left out instead."""
    kinds = schema.pop("anyOf", None)
    if kinds is not None:
        [kind] = [kind for kind in kinds if kind != {"type": "null"}]
        schema |= kind
    if schema.get("default", ...) is None:
        del schema["default"]
    return schema


def _header_parameters(one: Operation) -> Iterator[Schema]:
    for name, said in one.headers.items():
        yield {
            "name": name,
            "in": "header",
            "required": False,
            "description": said,
            "schema": {"type": "string"},
        }


def _explain(types: Iterable[Any], components: dict[str, Schema]) -> None:
    """Add the docstrings of structs and fields; fields that may be absent are not `required`."""
    for kind in _structs(types):
        schema = components[kind.__name__]
        schema["description"] = _unwrapped(inspect.getdoc(kind) or "")
        schema["required"] = [
            name for name in schema.get("required", ()) if name not in _absentees(kind)
        ]
        docs = _field_docs(kind)
        for field in schema["properties"].keys() & docs.keys():
            schema["properties"][field] = {
                **schema["properties"][field],
                "description": docs[field],
            }


def _absentees(kind: type) -> set[str]:
    """The fields that may be absent in an answer."""
    hints = get_type_hints(kind)
    return {name for name, hint in hints.items() if msgspec.UnsetType in get_args(hint)}


def _structs(types: Iterable[Any]) -> Iterator[type[msgspec.Struct]]:
    """The structs among types, and those of their fields."""
    seen: set[Any] = set()
    waiting = [msgspec.inspect.type_info(kind) for kind in types]
    while waiting:
        info = waiting.pop()
        match info:
            case msgspec.inspect.StructType(cls=cls):
                if cls in seen:
                    continue
                seen.add(cls)
                yield cls
                waiting += [field.type for field in info.fields]
            case msgspec.inspect.UnionType(types=kinds):
                waiting += kinds
            case (
                msgspec.inspect.ListType(item_type=item)
                | msgspec.inspect.VarTupleType(item_type=item)
            ):
                waiting.append(item)


def _field_docs(kind: type) -> dict[str, str]:
    """The string below each field, of the class and its bases. A shape has those of its record,
    where `None` is null."""
    docs: dict[str, str] = {}
    for above in reversed(kind.__mro__):
        if record := vars(above).get("RECORD"):
            docs |= {name: _in_json(said) for name, said in _field_docs(record).items()}
            continue
        if not above.__module__.startswith("headrace."):
            continue
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(above))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(name)),
                    ast.Expr(value=ast.Constant(value=str(said))),
                ):
                    docs[name] = _unwrapped(inspect.cleandoc(said))
    return docs


def _in_json(said: str) -> str:
    return re.sub(r"\bNone\b", "null", re.sub(r"^None\b", "Null", said))


def _unwrapped(text: str) -> str:
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def release() -> str:
    """The version of Headrace."""
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "0"


async def docs(call: Call) -> Response:
    """The reference of this API, to read and try out in a browser."""
    name = call.request.url.path.removeprefix("/docs").lstrip("/")
    return folder("docs")[name or "index.html"].answer(call.request)


def with_description(*operations: Operation) -> tuple[Operation, ...]:
    """These operations, and those that describe them all."""

    async def openapi(call: Call) -> Response:
        """The description of this API, in OpenAPI 3.1."""
        return answer(description())

    pages = (
        Operation("GET", "/openapi.json", openapi, None, Query, answers={200: dict[str, Any]}),
        Operation("GET", "/docs", docs, None, Query, answers={200: str}, produces="text/html"),
        *(
            Operation("GET", f"/docs/{name}", docs, None, Query, answers={200: str}, hidden=True)
            for name in folder("docs")
            if name != "index.html"
        ),
    )
    described = (*operations, *pages)
    description = cache(lambda: describe(described))
    return described

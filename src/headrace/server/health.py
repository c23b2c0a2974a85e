"""Whether the server is alive, and whether it is of use."""

from __future__ import annotations

import asyncio

import msgspec
import psycopg
from psycopg_pool import PoolTimeout
from starlette.responses import Response

from headrace import statements
from headrace.errors import SchemaError
from headrace.migrate import check_version
from headrace.server.failures import Refusal
from headrace.server.operations import Call, Operation, Query, answer

PATIENCE = 2.0  # seconds for the database to answer


class Health(msgspec.Struct, frozen=True):
    """How the server is."""

    status: str


async def alive(call: Call) -> Response:
    """Whether this process answers, whatever the database does: restart it when it does not."""
    return answer(Health("ok"))


async def ready(call: Call) -> Response:
    """Whether requests can be served: the database answers, its schema is one this release can work with, and
    the server is not stopping. Else 503."""
    if call.services.stopping.is_set():
        raise _not_ready("stopping", "The server is stopping.")
    try:
        async with asyncio.timeout(PATIENCE):
            version = await call.services.directory.ask(statements.version(), reserved=True)
        check_version(version)
    except SchemaError as error:
        raise _not_ready("schema_mismatch", str(error)) from error
    except (psycopg.Error, PoolTimeout, TimeoutError) as error:
        raise _not_ready("database_unavailable", "The database does not answer.") from error
    return answer(Health("ready"))


def _not_ready(code: str, sentence: str) -> Refusal:
    return Refusal(503, code, sentence, headers={"Retry-After": "1"})


OPERATIONS = (
    Operation("GET", "/healthz", alive, None, Query, answers={200: Health}),
    Operation("GET", "/readyz", ready, None, Query, answers={200: Health}),
)

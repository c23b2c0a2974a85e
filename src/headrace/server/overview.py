"""What somebody who looks is told first: who he is here."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from headrace.server.description import release
from headrace.server.operations import Call, Operation, Query, answer


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and what he may do."""

    open: bool
    """Nobody is asked for a token here."""
    name: str
    """As it is in the logs: the token's, or where the request comes from."""
    scopes: list[str]
    namespaces: list[str] | None
    """Those he may know of; null: all."""
    version: str
    """Of the server."""


async def whoami(call: Call) -> Response:
    """Who asks, and what he may do: any token will do that is good for something."""
    caller = call.caller
    return answer(
        Identity(
            open=caller.is_anybody,
            name=caller.name,
            scopes=sorted(caller.scopes),
            namespaces=None if caller.namespaces is None else sorted(caller.namespaces),
            version=release(),
        )
    )


OPERATIONS = (Operation("GET", "/whoami", whoami, "any", Query, answers={200: Identity}),)

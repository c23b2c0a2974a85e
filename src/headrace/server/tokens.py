"""Who comes in: tokens and what they are good for, and no pages of other hosts."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import time
from dataclasses import dataclass, replace

import psycopg
from psycopg_pool import PoolTimeout
from starlette.requests import Request

from headrace import statements
from headrace.errors import InvalidInput, NamespaceNotFound
from headrace.server.directory import Directory
from headrace.server.failures import Refusal
from headrace.server.operations import Caller, Gate, Operation
from headrace.statements import LiveToken

LAST = 2.0  # seconds for which what is known of tokens is relied upon
STALE = 30.0  # seconds, while the database cannot be asked
PACE = 0.25  # seconds between two looks, though somebody show unknown tokens all the time

OPEN = (
    "There is no token yet, so everybody on this machine may do everything; the first one that "
    "`headrace tokens create` makes ends that."
)

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="headrace"'}
_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class _Known:
    """The tokens, as they were at a time."""

    live: dict[bytes, LiveToken]
    ever: bool  # there are or were some: nobody comes in without, though all be revoked
    at: float
    read_at: float


class Tokens:
    """The tokens that are good now. All of them are read every few seconds, if anybody asks: so one that is
    revoked is good for no longer than that, and who tries out tokens costs the database nothing."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._known: _Known | None = None
        self._reading = asyncio.Lock()

    async def in_use(self) -> bool:
        return (await self._known_since(time.monotonic() - LAST)).ever

    async def find(self, token: str) -> LiveToken | None:
        now = time.monotonic()
        digest = hashlib.sha256(token.encode("latin-1")).digest()
        known = await self._known_since(now - LAST)
        if digest not in known.live:  # it may have been made a moment ago
            known = await self._known_since(now)
        return known.live.get(digest)

    async def _known_since(self, moment: float) -> _Known:
        """What was known at this time, or later."""
        known = self._known
        if known is not None and known.at >= moment:
            return known
        async with self._reading:
            known = self._known
            if known is None or known.at < moment:
                if known is not None:
                    await asyncio.sleep(known.at + PACE - time.monotonic())
                known = self._known = await self._look_again(known)
            return known

    async def _look_again(self, known: _Known | None) -> _Known:
        now = time.monotonic()
        try:
            return await self._read()
        except (psycopg.Error, PoolTimeout):
            if known is None or now - known.read_at > STALE:
                raise
            return replace(known, at=now)  # nobody changes anything without the database

    async def _read(self) -> _Known:
        began = time.monotonic()
        live = await self._directory.ask(statements.live_tokens(), reserved=True)
        if not live:
            revoked = await self._directory.ask(statements.tokens(), reserved=True)
            return _Known({}, bool(revoked), began, began)
        return _Known(live, True, began, began)


class TokenGate:
    """Lets in who has a token. `open_without`: as long as there never was any token, everybody on this machine
    is let in, so that one can begin without; the first token closes it."""

    def __init__(self, tokens: Tokens, *, open_without: bool, notice: str | None = None) -> None:
        self._tokens = tokens
        self._open_without = open_without
        self.notice = notice

    async def admit(self, request: Request, operation: Operation, namespace: str | None) -> Caller:
        _refuse_foreign_pages(request, operation)
        if operation.scope is None:
            return Caller("anybody", namespaces=frozenset())
        authorization = request.headers.get("authorization")
        if authorization is None:
            return await self._admit_without(request)
        token = await self._tokens.find(_bearer(authorization))
        if token is None:
            raise Refusal(
                401,
                "invalid_token",
                "The token is unknown, revoked or expired.",
                headers=_CHALLENGE,
            )
        caller = Caller(token.name, token.namespaces, token.scopes, is_anybody=False)
        if namespace is not None and not caller.may_see(namespace):
            raise NamespaceNotFound(f"there is no namespace {quoted(namespace)}")
        if not token.scopes & {operation.scope, "admin"} and operation.scope != "any":
            raise Refusal(
                403,
                "insufficient_scope",
                f"The token does not have the scope {operation.scope}.",
                scope=operation.scope,
            )
        return caller

    async def _admit_without(self, request: Request) -> Caller:
        if not self._open_without or await self._tokens.in_use():
            raise Refusal(
                401,
                "token_required",
                "A token is needed: Authorization: Bearer hr_...",
                headers=_CHALLENGE,
            )
        _refuse_foreign_names(request)
        return _peer(request)


class InsecureGate:
    """Lets everybody in, because somebody said so in so many words."""

    notice = "Whoever reaches this address may do everything: nobody is asked for a token."

    async def admit(self, request: Request, operation: Operation, namespace: str | None) -> Caller:
        _refuse_foreign_pages(request, operation)
        return _peer(request)


async def open_gate(directory: Directory, host: str, *, insecure: bool = False) -> Gate:
    """The gate for a server that listens on an address. Beyond this machine there must be tokens, unless
    `insecure`; raises InvalidInput."""
    if insecure:
        return InsecureGate()
    tokens = Tokens(directory)
    local, in_use = is_loopback(host), await tokens.in_use()
    if not local and not in_use:
        raise InvalidInput(
            f"there is no token yet, and {host} can be reached by others: make one by "
            "`headrace tokens create`, or say --insecure-no-auth if everybody may do everything"
        )
    return TokenGate(tokens, open_without=local, notice=None if in_use else OPEN)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _bearer(authorization: str) -> str:
    kind, _, token = authorization.partition(" ")
    if kind.lower() != "bearer" or not token.strip(" "):
        raise Refusal(
            401,
            "invalid_token",
            "The header Authorization is not `Bearer` and a token.",
            headers=_CHALLENGE,
        )
    return token.strip(" ")


def _refuse_foreign_pages(request: Request, operation: Operation) -> None:
    """A page of another host may not have a visitor's browser change anything here."""
    if operation.is_safe:
        return
    headers = request.headers
    origin = headers.get("origin")
    own = origin is None or origin.partition("://")[2] == headers.get("host", "")
    if not own or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refusal(403, "cross_origin", "Pages of another origin may not change anything here.")


def _refuse_foreign_names(request: Request) -> None:
    """A name that somebody else has pointed at this machine would make his page one of ours."""
    host = request.headers.get("host", "")
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    if name.lower() not in _LOOPBACK_NAMES and not is_loopback(name):
        raise Refusal(
            403,
            "foreign_host",
            "Without tokens this server answers to localhost only, and not to another name.",
        )


def _peer(request: Request) -> Caller:
    return Caller(request.client.host if request.client else "http")


def quoted(name: str) -> str:
    """As PostgreSQL quotes it in the same sentence: it must not be told from a namespace that is not there."""
    text = "'" + name.replace("'", "''") + "'"
    return f"E{text}".replace("\\", "\\\\") if "\\" in name else text

"""Who comes in: tokens and what they are good for."""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass, replace

import psycopg
from psycopg_pool import PoolTimeout
from starlette.requests import Request

from headrace import statements
from headrace.calls import token_digest
from headrace.errors import InvalidInput, NamespaceNotFound
from headrace.server.bulkheads import uncharged
from headrace.server.directory import Directory
from headrace.server.failures import Refusal
from headrace.server.operations import Caller, Gate, Operation
from headrace.server.origins import Hosts, is_loopback, refuse_foreign_pages
from headrace.statements import LiveToken, NewToken

LAST = 2.0  # seconds for which what is known of tokens is relied upon
STALE = 30.0  # seconds, while the database cannot be asked
PACE = 0.25  # seconds between two looks, though somebody show unknown tokens all the time

SHORTEST = 20  # characters of a token that somebody chose

NO_PROXY = "Never put it behind a proxy: whoever reaches that would be administrator, too."
OPEN_YET = (
    "There is no token yet: every user of this machine is administrator here. The first one that "
    f"`headrace tokens create` makes ends that. {NO_PROXY}"
)
OPEN_HERE = (
    f"Nobody is asked for a token: every user of this machine is administrator here. {NO_PROXY}"
)
OPEN = (
    f"Nobody is asked for a token: whoever reaches this address is administrator here. {NO_PROXY}"
)
UNKNOWN = (
    "This database has tokens, and the one given is not among them: it was not stored, and will be "
    "refused."
)

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="headrace"'}


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
        with uncharged():
            live = await self._directory.ask(statements.live_tokens(), lane="finish")
        if not live:
            with uncharged():
                revoked = await self._directory.ask(statements.tokens(), lane="finish")
            return _Known({}, bool(revoked), began, began)
        return _Known(live, True, began, began)


@dataclass(frozen=True)
class Access:
    """Who may come in, as it was said when the server was started."""

    open: bool = False
    """Everybody may do everything."""
    open_until_token: bool = False
    """So it is on an address of this machine alone, until there is a token."""
    first_token: str | None = None
    """An administrator's, which is made if there never was a token."""
    hosts: tuple[str, ...] = ()
    """Names by which the server may be asked, besides those of this machine; `*` is any."""


class TokenGate:
    """Lets in who has a token. `open_without`: as long as there never was any token, everybody on this machine
    is let in, so that one can begin without; the first token closes it."""

    def __init__(
        self, tokens: Tokens, hosts: Hosts, *, open_without: bool, notice: str | None = None
    ) -> None:
        self._tokens = tokens
        self._hosts = hosts
        self._open_without = open_without
        self.notice = notice

    async def admit(self, request: Request, operation: Operation, namespace: str | None) -> Caller:
        refuse_foreign_pages(request, operation)
        if operation.scope is None:
            return Caller("anybody", namespaces=frozenset())
        authorization = request.headers.get("authorization")
        if authorization is None:
            return await self._admit_without(request)
        self._hosts.check(request)
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
            self._hosts.check(request)
            raise Refusal(
                401,
                "token_required",
                "A token is needed: Authorization: Bearer hr_...",
                headers=_CHALLENGE,
            )
        self._hosts.check_open(request)
        return _peer(request)


class AdministratorsGate:
    """Lets everybody in, because somebody said so: whoever comes from this machine, or by a name that was allowed."""

    def __init__(self, hosts: Hosts, notice: str) -> None:
        self._hosts = hosts
        self.notice = notice

    async def admit(self, request: Request, operation: Operation, namespace: str | None) -> Caller:
        refuse_foreign_pages(request, operation)
        if operation.scope is None:
            return Caller("anybody", namespaces=frozenset())
        self._hosts.check_open(request)
        return _peer(request)


async def open_gate(directory: Directory, host: str, access: Access) -> Gate:
    """The gate for a server that listens on an address; raises InvalidInput if nobody said who may come in."""
    hosts, tokens = Hosts(access.hosts), Tokens(directory)
    local = is_loopback(host)
    if access.open:
        return AdministratorsGate(hosts, OPEN_HERE if local else OPEN)
    unknown = await _make_first(directory, tokens, access.first_token)
    if await tokens.in_use():
        return TokenGate(tokens, hosts, open_without=False, notice=unknown)
    if not (local and access.open_until_token):
        raise InvalidInput(
            "there is no token yet. Give the first one in HEADRACE_TOKEN or by --token-file, or make one: "
            f"headrace tokens create. If everybody who reaches {host} may do everything, say --open"
        )
    return TokenGate(tokens, hosts, open_without=True, notice=OPEN_YET)


async def _make_first(directory: Directory, tokens: Tokens, given: str | None) -> str | None:
    """Make the first token of all; tells if one was given that is good for nothing."""
    if given is None:
        return None
    _check_token(given)
    if await tokens.find(given) is not None:
        return None
    if await tokens.in_use():
        return UNKNOWN
    # Two servers that start at once: the other one may make it.
    with suppress(InvalidInput):
        await directory.ask(
            statements.create_token(
                NewToken("first", token_digest(given), ["admin"], None, None, "headrace serve")
            )
        )
    return None if await tokens.find(given) is not None else UNKNOWN


def _check_token(token: str) -> None:
    if len(token) < SHORTEST or not (token.isascii() and token.isprintable()) or " " in token:
        raise InvalidInput(
            f"the first token (HEADRACE_TOKEN, --token-file) has at least {SHORTEST} ASCII characters "
            "and no blank: openssl rand -hex 32 makes one"
        )


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


def _peer(request: Request) -> Caller:
    return Caller(request.client.host if request.client else "http")


def quoted(name: str) -> str:
    """As PostgreSQL quotes it in the same sentence: it must not be told from a namespace that is not there."""
    text = "'" + name.replace("'", "''") + "'"
    return f"E{text}".replace("\\", "\\\\") if "\\" in name else text

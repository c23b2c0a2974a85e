"""The gate: which requests are let in, by token, host and origin."""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass, replace

import psycopg
from psycopg_pool import PoolTimeout
from starlette.requests import Request

from headrace.engine.tokens import LiveToken, NewToken, create_token, live_tokens, token_digest
from headrace.engine.tokens import tokens as all_tokens
from headrace.errors import InvalidInput, NamespaceNotFound, Unavailable
from headrace.server.bulkheads import uncharged
from headrace.server.clients import Directory
from headrace.server.http.operation import AdmittedClient, Gate, Operation
from headrace.server.http.origins import Hosts, is_loopback, refuse_foreign_pages
from headrace.server.http.refusal import Refusal

LAST = 2.0  # seconds for which the list of tokens is used
STALE = 30.0  # seconds, while the database is away
PACE = 0.25  # seconds between two reads, even if a client sends unknown tokens all the time

SHORTEST = 20  # characters of a token that the user chose

NO_PROXY = "Never put it behind a proxy: every client of the proxy would have full access."
OPEN_YET = (
    "No tokens exist: any local user has full access. Run `headrace tokens create` to require "
    f"them. {NO_PROXY}"
)
OPEN_HERE = f"No token is required: any local user has full access. {NO_PROXY}"
OPEN = f"No token is required: every client that reaches this address has full access. {NO_PROXY}"
UNKNOWN = (
    "The given token is not one of the tokens in this database: it was not stored, and requests "
    "with it will be refused."
)

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="headrace"'}


@dataclass(frozen=True)
class _Known:
    """The tokens at a time."""

    live: dict[bytes, LiveToken]
    ever: bool  # tokens exist or existed: one is required, even if all are revoked
    at: float
    read_at: float


class Tokens:
    """The valid tokens. All of them are read every few seconds, while there are requests: so a
    revoked token is valid for no longer than that, and guessing tokens costs the database
    nothing."""

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
        if digest not in known.live:  # it may be a moment old
            known = await self._known_since(now)
        return known.live.get(digest)

    async def _known_since(self, moment: float) -> _Known:
        """The tokens at this time, or later."""
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
        except (psycopg.Error, PoolTimeout, Unavailable):
            if known is None or now - known.read_at > STALE:
                raise
            return replace(known, at=now)  # tokens cannot change while the database is away

    async def _read(self) -> _Known:
        began = time.monotonic()
        with uncharged():
            live = await self._directory.ask(live_tokens(), lane="finish")
        if not live:
            with uncharged():
                revoked = await self._directory.ask(all_tokens(), lane="finish")
            return _Known({}, bool(revoked), began, began)
        return _Known(live, True, began, began)


@dataclass(frozen=True)
class Access:
    """The rules for letting requests in: the options that the server was started with."""

    open: bool = False
    """No token is required."""
    open_until_token: bool = False
    """On a loopback address, no token is required until the first one exists."""
    first_token: str | None = None
    """A token with the scope admin, which is created if there never was a token."""
    hosts: tuple[str, ...] = ()
    """Host names that the server accepts, besides those of this machine; `*` is any."""


class TokenGate:
    """Lets in requests with a token. `open_without`: as long as there never was a token, local
    requests need none, so that a new user can begin at once; the first token ends that."""

    def __init__(
        self, tokens: Tokens, hosts: Hosts, *, open_without: bool, notice: str | None = None
    ) -> None:
        self._tokens = tokens
        self._hosts = hosts
        self._open_without = open_without
        self.notice = notice

    async def admit(
        self, request: Request, operation: Operation, namespace: str | None
    ) -> AdmittedClient:
        refuse_foreign_pages(request, operation)
        if operation.scope is None:
            return AdmittedClient("anybody", namespaces=frozenset())
        authorization = request.headers.get("authorization")
        if authorization is None:
            return await self._admit_without(request)
        self._hosts.check(request)
        token = await self._tokens.find(_bearer(authorization))
        if token is None:
            raise Refusal(
                401,
                "invalid_token",
                "The token is unknown, revoked or expired: use another one.",
                headers=_CHALLENGE,
            )
        caller = AdmittedClient(token.name, token.namespaces, token.scopes, is_anybody=False)
        if namespace is not None and not caller.may_see(namespace):
            raise NamespaceNotFound(f"there is no namespace {quoted(namespace)}")
        if not token.scopes & {operation.scope, "admin"} and operation.scope != "any":
            raise Refusal(
                403,
                "insufficient_scope",
                f"The token lacks the scope {operation.scope}: use one that has it.",
                scope=operation.scope,
            )
        return caller

    async def _admit_without(self, request: Request) -> AdmittedClient:
        if not self._open_without or await self._tokens.in_use():
            self._hosts.check(request)
            raise Refusal(
                401,
                "token_required",
                "The request has no token: send the header Authorization: Bearer hr_...",
                headers=_CHALLENGE,
            )
        self._hosts.check_open(request)
        return _peer(request)


class AdministratorsGate:
    """Lets in requests without a token (--open): from this machine, or by an allowed host name."""

    def __init__(self, hosts: Hosts, notice: str) -> None:
        self._hosts = hosts
        self.notice = notice

    async def admit(
        self, request: Request, operation: Operation, namespace: str | None
    ) -> AdmittedClient:
        refuse_foreign_pages(request, operation)
        if operation.scope is None:
            return AdmittedClient("anybody", namespaces=frozenset())
        self._hosts.check_open(request)
        return _peer(request)


async def open_gate(directory: Directory, host: str, access: Access) -> Gate:
    """The gate of a server that listens on an address; raises InvalidInput if access is undefined:
    no token exists, and the server is not to be open."""
    hosts, tokens = Hosts(access.hosts), Tokens(directory)
    local = is_loopback(host)
    if access.open:
        return AdministratorsGate(hosts, OPEN_HERE if local else OPEN)
    unknown = await _make_first(directory, tokens, access.first_token)
    if await tokens.in_use():
        return TokenGate(tokens, hosts, open_without=False, notice=unknown)
    if not (local and access.open_until_token):
        raise InvalidInput(
            "there is no token yet. Set the first one with HEADRACE_TOKEN or --token-file, or "
            f"create one: headrace tokens create. To give every client that reaches {host} full "
            "access, use --open"
        )
    return TokenGate(tokens, hosts, open_without=True, notice=OPEN_YET)


async def _make_first(directory: Directory, tokens: Tokens, given: str | None) -> str | None:
    """Create the first token; returns a notice if the given one is not valid."""
    if given is None:
        return None
    _check_token(given)
    if await tokens.find(given) is not None:
        return None
    if await tokens.in_use():
        return UNKNOWN
    # Of two servers that start at once, the other one may create it.
    with suppress(InvalidInput):
        await directory.change_all(
            create_token(
                NewToken("first", token_digest(given), ["admin"], None, None, "headrace serve")
            )
        )
    return None if await tokens.find(given) is not None else UNKNOWN


def _check_token(token: str) -> None:
    if len(token) < SHORTEST or not (token.isascii() and token.isprintable()) or " " in token:
        raise InvalidInput(
            f"the first token (HEADRACE_TOKEN, --token-file) must have at least {SHORTEST} "
            "printable ASCII characters and no spaces: openssl rand -hex 32 creates one"
        )


def _bearer(authorization: str) -> str:
    kind, _, token = authorization.partition(" ")
    if kind.lower() != "bearer" or not token.strip(" "):
        raise Refusal(
            401,
            "invalid_token",
            "The header Authorization is not valid: it must be `Bearer` and a token.",
            headers=_CHALLENGE,
        )
    return token.strip(" ")


def _peer(request: Request) -> AdmittedClient:
    return AdmittedClient(request.client.host if request.client else "http")


def quoted(name: str) -> str:
    """As PostgreSQL quotes it in the same sentence: the answer must not differ from that for a
    namespace that does not exist."""
    text = "'" + name.replace("'", "''") + "'"
    return f"E{text}".replace("\\", "\\\\") if "\\" in name else text

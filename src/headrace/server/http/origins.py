"""The origin of a request: its Host, the page that sent it, a proxy in between."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Scope

from headrace.errors import InvalidInput
from headrace.server.http.operation import Operation
from headrace.server.http.refusal import Refusal

ANY = "*"
FORWARDED = ("forwarded", "via", "x-real-ip")  # and x-forwarded-*
_OWN_SITES = ("none", "same-origin")


class Hosts:
    """The host names that the server accepts. Another site can point a name of its own at this
    machine (DNS rebinding); to a browser, its pages are then pages of this server."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(map(_allowed_name, allowed))

    def check(self, request: Request) -> None:
        """With tokens: names are checked; an address cannot be pointed elsewhere."""
        name = _name(request.headers.get("host", ""))
        if not (self._is_allowed(name) or _is_own(name, request) or _address(name)):
            raise _foreign(name)

    def check_open(self, request: Request) -> None:
        """Without tokens: a request for another name, or through a proxy, may come from anywhere. A
        proxy that adds no header cannot be recognised."""
        name = _name(request.headers.get("host", ""))
        if self._is_allowed(name):
            return
        if not _is_own(name, request):
            raise _foreign(name)
        if _is_forwarded(request):
            raise Refusal(
                403,
                "forwarded",
                "The request came through a proxy, and this server requires no token. Create one: "
                "headrace tokens create. Or, to give every client of the proxy full access, start "
                "the server with --allow-host and the name that the proxy passes on.",
            )

    def _is_allowed(self, name: str) -> bool:
        return name in self._allowed or ANY in self._allowed


def refuse_two_hosts(scope: Scope) -> None:
    """A proxy may have used the one, and this server would use the other."""
    if sum(name == b"host" for name, _ in scope["headers"]) > 1:
        raise Refusal(
            400, "invalid_request", "The request has more than one header Host: send one."
        )


def refuse_foreign_pages(request: Request, operation: Operation) -> None:
    """A page of another host may not make the browser of a visitor change anything here."""
    if operation.is_safe:
        return
    headers = request.headers
    host = headers.get("host", "")
    origin, referer = headers.get("origin"), headers.get("referer")
    if (
        (origin is not None and origin.partition("://")[2] != host)
        or (referer is not None and _authority(referer) != host)
        or headers.get("sec-fetch-site", "none") not in _OWN_SITES
    ):
        raise Refusal(
            403,
            "cross_origin",
            "The request comes from a page of another origin, which may not change anything here.",
        )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _is_own(name: str, request: Request) -> bool:
    """Whether it is a name of this machine, or the address at which the request arrived."""
    if is_loopback(name):
        return True
    server = request.scope.get("server")
    address = _address(name)
    return address is not None and server is not None and address == _address(server[0])


def _is_forwarded(request: Request) -> bool:
    """Whether the request has signs of a proxy. Older nginx adds no header by default, but uses
    HTTP/1.0, which clients no longer do. HAProxy by default, and nginx with HTTP/1.1, look like
    any client."""
    if request.scope.get("http_version") == "1.0":
        return True
    names = (name.decode("latin-1") for name, _ in request.scope["headers"])
    return any(name in FORWARDED or name.startswith("x-forwarded-") for name in names)


def _foreign(name: str) -> Refusal:
    return Refusal(
        403,
        "foreign_host",
        f"The host name {name[:100]!r} is not allowed. To allow it, start the server with "
        "--allow-host and the name.",
    )


def _name(host: str) -> str:
    """Of a header Host, without the port."""
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def _allowed_name(given: str) -> str:
    name = given if _address(given) else _name(given)
    if not name or set(given) & set("/@ \t"):
        raise InvalidInput(f"{given!r} is not a valid host name, like queue.example.com")
    return name.lower()


def _authority(address: str) -> str | None:
    try:
        return urlsplit(address).netloc
    except ValueError:
        return None


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return None

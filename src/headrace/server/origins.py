"""Where a request comes from: the name it asks for, the page that sent it, a proxy in between."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Scope

from headrace.errors import InvalidInput
from headrace.server.failures import Refusal
from headrace.server.operations import Operation

ANY = "*"
FORWARDED = ("forwarded", "via", "x-real-ip")  # and x-forwarded-*
_OWN_SITES = ("none", "same-origin")


class Hosts:
    """The names by which the server may be asked. A page of another site can point a name of its own at
    this machine (DNS rebinding), and is then, to the browser, a page of this server."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(map(_allowed_name, allowed))

    def check(self, request: Request) -> None:
        """Where a token is asked for: names are checked, addresses cannot be pointed elsewhere."""
        name = _name(request.headers.get("host", ""))
        if not (self._is_allowed(name) or _is_own(name, request) or _address(name)):
            raise _foreign(name)

    def check_open(self, request: Request) -> None:
        """Where nobody is asked for a token: what came by another name, or through a proxy, may come
        from anywhere. A proxy that does not say that it is one cannot be recognised."""
        name = _name(request.headers.get("host", ""))
        if self._is_allowed(name):
            return
        if not _is_own(name, request):
            raise _foreign(name)
        if _is_forwarded(request):
            raise Refusal(
                403,
                "forwarded",
                "The request says that it came through a proxy, and this server asks nobody for a token. Make one: "
                "headrace tokens create. Or start the server with --allow-host and the name that the "
                "proxy passes on, if everybody behind it may do everything.",
            )

    def _is_allowed(self, name: str) -> bool:
        return name in self._allowed or ANY in self._allowed


def refuse_two_hosts(scope: Scope) -> None:
    """A proxy may have gone by the one, and we by the other."""
    if sum(name == b"host" for name, _ in scope["headers"]) > 1:
        raise Refusal(400, "invalid_request", "The request has more than one header Host.")


def refuse_foreign_pages(request: Request, operation: Operation) -> None:
    """A page of another host may not have a visitor's browser change anything here."""
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
        raise Refusal(403, "cross_origin", "Pages of another origin may not change anything here.")


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
    """Whether the request says so. Older nginx adds no header unless it is told to, but speaks HTTP/1.0, as no
    client has done for long. HAProxy as it comes, and nginx with HTTP/1.1, look like any client."""
    if request.scope.get("http_version") == "1.0":
        return True
    names = (name.decode("latin-1") for name, _ in request.scope["headers"])
    return any(name in FORWARDED or name.startswith("x-forwarded-") for name in names)


def _foreign(name: str) -> Refusal:
    return Refusal(
        403,
        "foreign_host",
        f"This server does not answer to the name {name[:100]!r}. If it is to, start it with "
        "--allow-host and the name.",
    )


def _name(host: str) -> str:
    """Of a header Host, without the port."""
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def _allowed_name(given: str) -> str:
    name = given if _address(given) else _name(given)
    if not name or set(given) & set("/@ \t"):
        raise InvalidInput(f"{given!r} is not the name of a host, like queue.example.com")
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

"""Pages for a browser: static files, which use no other host and insert no data as markup."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import Response

from headrace.server.http.operation import Call, Operation, Query
from headrace.server.http.refusal import Refusal

POLICY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
_ASKED_AGAIN = {"Cache-Control": "no-cache"}  # the browser asks whether it has changed
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}
_HERE = "/dashboard/latest/"
"""The path of the files in the page of the dashboard; it is served with the edition instead of
`latest`."""


@dataclass(frozen=True)
class File:
    """A file to serve."""

    content: bytes
    media_type: str

    @property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    def answer(self, request: Request, headers: dict[str, str] = _ASKED_AGAIN) -> Response:
        """The file, or 304 if it has not changed."""
        said = {**POLICY, **headers, "ETag": self.tag}
        known = request.headers.get("if-none-match", "")
        if self.tag in [one.strip().removeprefix("W/") for one in known.split(",")]:
            return Response(status_code=304, headers=said)
        return Response(self.content, media_type=self.media_type, headers=said)


@cache
def folder(name: str) -> dict[str, File]:
    """The files of a folder of headrace.server and of its subfolders, by path."""
    return dict(_files(resources.files("headrace.server") / name, PurePosixPath()))


def _files(place: Traversable, path: PurePosixPath) -> Iterator[tuple[str, File]]:
    for one in place.iterdir():
        if one.is_dir():
            yield from _files(one, path / one.name)
        elif media_type := _MEDIA_TYPES.get(PurePosixPath(one.name).suffix):
            yield str(path / one.name), File(one.read_bytes(), media_type)


@cache
def edition() -> str:
    """The edition of the dashboard, which changes with every change of a file. It is part of the
    addresses of the files, so that a browser can cache them for good, and never mixes old and new
    ones."""
    files = sorted(folder("dashboard").items())
    return hashlib.sha256(repr([(path, file.tag) for path, file in files]).encode()).hexdigest()[
        :16
    ]


@cache
def _front() -> File:
    page = folder("dashboard")["index.html"]
    mine = page.content.replace(_HERE.encode(), f"/dashboard/{edition()}/".encode())
    return File(mine, page.media_type)


async def start(call: Call) -> Response:
    """The dashboard, for a browser; other clients are sent to /docs."""
    vary = {"Vary": "Accept"}
    if "text/html" in call.request.headers.get("accept", ""):
        return _front().answer(call.request, {**_ASKED_AGAIN, **vary})
    return Response(status_code=307, headers={"Location": "/docs", **vary})


async def dashboard(call: Call) -> Response:
    """A file of the dashboard. For another edition it is the current file, which is not cached: so
    a page of the previous release works until it is reloaded."""
    named = call.request.path_params
    path = "/".join(named[part] for part in ("folder", "file") if part in named)
    file = folder("dashboard").get(path)
    if file is None:
        raise Refusal(404, "not_found", f"The path {call.request.url.path[:200]} does not exist.")
    return file.answer(call.request, _KEPT if named["edition"] == edition() else _ASKED_AGAIN)


def page(path: str) -> Operation:
    """An operation that shows a file of the dashboard."""
    return Operation("GET", path, dashboard, None, Query, answers={200: str}, hidden=True)


OPERATIONS = (
    Operation("GET", "/", start, None, Query, answers={200: str, 307: None}, hidden=True),
    page("/dashboard/{edition}/{file}"),
    page("/dashboard/{edition}/{folder}/{file}"),
)

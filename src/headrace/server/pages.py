"""What a browser is shown: files of our own, which ask no other host for anything and put nothing on a page as markup."""

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

from headrace.server.failures import Refusal
from headrace.server.operations import Call, Operation, Query

POLICY = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
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
_ASKED_AGAIN = {"Cache-Control": "no-cache"}  # whether it is still the same
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}
_HERE = "/dashboard/latest/"
"""How the dashboard's page refers to its files; it is served with the edition instead of `latest`."""


@dataclass(frozen=True)
class File:
    """A file, as it is served."""

    content: bytes
    media_type: str

    @property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    def answer(self, request: Request, headers: dict[str, str] = _ASKED_AGAIN) -> Response:
        """The file, or that it has not changed since."""
        said = {**POLICY, **headers, "ETag": self.tag}
        known = request.headers.get("if-none-match", "")
        if self.tag in [one.strip().removeprefix("W/") for one in known.split(",")]:
            return Response(status_code=304, headers=said)
        return Response(self.content, media_type=self.media_type, headers=said)


@cache
def folder(name: str) -> dict[str, File]:
    """The files of a folder beside this module, and of those in it, by their paths."""
    return dict(_files(resources.files("headrace.server") / name, PurePosixPath()))


def _files(place: Traversable, path: PurePosixPath) -> Iterator[tuple[str, File]]:
    for one in place.iterdir():
        if one.is_dir():
            yield from _files(one, path / one.name)
        elif media_type := _MEDIA_TYPES.get(PurePosixPath(one.name).suffix):
            yield str(path / one.name), File(one.read_bytes(), media_type)


@cache
def edition() -> str:
    """Of the dashboard: another one whenever any of its files has changed. It is in the addresses of the files, so that
    a browser can keep them for good, and never has the old of one and the new of another."""
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
    """The dashboard, for a browser; others are shown where to begin."""
    vary = {"Vary": "Accept"}
    if "text/html" in call.request.headers.get("accept", ""):
        return _front().answer(call.request, {**_ASKED_AGAIN, **vary})
    return Response(status_code=307, headers={"Location": "/docs", **vary})


async def dashboard(call: Call) -> Response:
    """A file of the dashboard. Of another edition than ours it is ours, which is not kept: a page of the release before
    goes on until it is loaded again."""
    named = call.request.path_params
    path = "/".join(named[part] for part in ("folder", "file") if part in named)
    file = folder("dashboard").get(path)
    if file is None:
        raise Refusal(404, "not_found", f"There is nothing at {call.request.url.path[:200]}.")
    return file.answer(call.request, _KEPT if named["edition"] == edition() else _ASKED_AGAIN)


def page(path: str) -> Operation:
    """An operation that shows a file of the dashboard."""
    return Operation("GET", path, dashboard, None, Query, answers={200: str}, hidden=True)


OPERATIONS = (
    Operation("GET", "/", start, None, Query, answers={200: str, 307: None}, hidden=True),
    page("/dashboard/{edition}/{file}"),
    page("/dashboard/{edition}/{folder}/{file}"),
)

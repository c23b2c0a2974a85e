"""Any exception as text that can be stored and read: reporting a failure must not fail.

Python's own traceback module writes out an argument of 50 megabytes, follows every cause and
searches for the name that a misspelt one may have meant; a caller can cut the text only after that.
Here the text never becomes long.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from pathlib import Path
from reprlib import Repr
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

MOST = 8_192  # characters of a text
MESSAGE = 2_000  # of what one exception says
LINE = 300  # of a name, a path, a line of source
FIRST_FRAMES, LAST_FRAMES = 8, 16
LINKS = 8  # exceptions of a chain
MEMBERS = 8  # exceptions of a group
ALL = 24  # exceptions in all, in chains and groups
NOTES = 8

CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"

_PACKAGE = f"{Path(__file__).parents[1]}/"
_RUNNERS = re.compile(r"[/\\](asyncio|concurrent[/\\]futures|contextlib\.py|threading\.py)")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_GETTERS = {name: vars(BaseException)[name].__get__ for name in ("__cause__", "__context__")}
_traceback = vars(BaseException)["__traceback__"].__get__
_suppressed = vars(BaseException)["__suppress_context__"].__get__
_arguments = vars(BaseException)["args"].__get__

_short = Repr()
_short.maxstring = _short.maxother = 400
_short.maxlevel = 4


def failure_text(error: BaseException) -> str:
    """The traceback of an error: at most 8,192 characters that PostgreSQL can store. Never raises."""
    try:
        text = "".join(_told(error, [ALL]))
    except Exception as trouble:
        text = f"{_name(type(error))} (its traceback could not be written: {_name(type(trouble))})"
    return shortened(storable(text).strip(), MOST)


def failure_line(error: BaseException) -> str:
    """The message of an error as one line of a log, as safely."""
    try:
        line = _last_line(error).partition("\n")[0]
    except Exception:
        line = _name(type(error))
    return storable(line)[:LINE]


def storable(text: str) -> str:
    """Escapes characters that can neither be stored nor shown, as Python does: \\x00 for NUL."""
    return _UNPRINTABLE.sub(_escaped, text) if _UNPRINTABLE.search(text) else text


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters: a third of its beginning, the rest from its end."""
    if len(text) <= most:
        return text
    gap = f"\n[… {len(text) - most} characters …]\n"
    head = most // 3
    return f"{text[:head]}{gap}{text[head + len(gap) - most :]}"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class _Link(NamedTuple):
    error: BaseException
    bridge: str
    """The sentence between it and the error that it caused."""


def _told(error: BaseException, left: list[int]) -> Iterator[str]:
    """An error after what led to it, as Python tells it; of a group also each member, last."""
    for link in _chain(error):
        left[0] -= 1
        yield from _alone(link.error)
        if isinstance(link.error, BaseExceptionGroup):
            yield from _members(link.error, left)
        yield link.bridge


def _chain(error: BaseException) -> list[_Link]:
    links, seen = [_Link(error, "")], {id(error)}
    while len(links) < LINKS:
        link = _before(links[-1].error)
        if link is None or id(link.error) in seen:
            return links[::-1]
        seen.add(id(link.error))
        links.append(link)
    return links[::-1]


def _before(error: BaseException) -> _Link | None:
    cause: BaseException | None = _GETTERS["__cause__"](error)
    if cause is not None:
        return _Link(cause, CAUSED)
    context: BaseException | None = _GETTERS["__context__"](error)
    return None if context is None or _suppressed(error) else _Link(context, DURING)


def _members(group: BaseExceptionGroup[Any], left: list[int]) -> Iterator[str]:
    members = vars(BaseExceptionGroup)["exceptions"].__get__(group)
    for place, member in enumerate(members[:MEMBERS], 1):
        if left[0] <= 0:
            return
        yield f"\nSub-exception {place} of {len(members)}:\n\n"
        yield from _told(member, left)


def _alone(error: BaseException) -> Iterator[str]:
    places = _places(_traceback(error))
    if places:
        yield "Traceback (most recent call last):\n"
        yield from _frames(places)
    yield f"{_last_line(error)}\n"
    yield from (f"{note}\n" for note in _notes(error))


def _last_line(error: BaseException) -> str:
    name, said = _name(type(error)), _said(error)
    return f"{name}: {said}" if said else name


class _Place(NamedTuple):
    frame: FrameType
    line: int | None

    @property
    def code(self) -> CodeType:
        return self.frame.f_code


def _places(trace: TracebackType | None) -> list[_Place]:
    """The frames of a traceback, without those that called the handler; all frames if there are no
    others."""
    places = []
    while trace is not None:
        places.append(_Place(trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    for first, place in enumerate(places):
        file = place.code.co_filename
        if not file.startswith(_PACKAGE) and not _RUNNERS.search(file):
            return places[first:]
    return places


def _frames(places: list[_Place]) -> Iterator[str]:
    between = len(places) - FIRST_FRAMES - LAST_FRAMES
    if between <= 0:
        yield from map(_frame, places)
        return
    yield from map(_frame, places[:FIRST_FRAMES])
    yield f"  [… {between} more …]\n"
    yield from map(_frame, places[-LAST_FRAMES:])


def _frame(place: _Place) -> str:
    file, name = place.code.co_filename, place.code.co_qualname
    source = _source(place)
    return f'  File "{file[-LINE:]}", line {place.line}, in {name[:LINE]}\n' + (
        f"    {source}\n" if source else ""
    )


def _source(place: _Place) -> str:
    try:
        linecache.lazycache(place.code.co_filename, place.frame.f_globals)
        return linecache.getline(place.code.co_filename, place.line or 0).strip()[:LINE]
    except Exception:
        return ""


def _said(error: BaseException) -> str:
    """The message of an exception. Its class may raise anything here, even SystemExit; that must
    not reach the node."""
    try:
        said = _words(error)
        return shortened(str.__getitem__(said, slice(None)), MESSAGE)
    except BaseException as trouble:
        return f"(its __str__ raised {_name(type(trouble))})"


def _words(error: BaseException) -> str:
    spoken = type(error).__str__
    if spoken is not BaseException.__str__ and spoken is not KeyError.__str__:
        return str(error)
    # The message of these two is their arguments, however long.
    match _arguments(error):
        case ():
            return ""
        case (str() as said,) if spoken is not KeyError.__str__:
            return said
        case (argument,):
            return _short.repr(argument)
        case several:
            return _short.repr(several)


def _notes(error: BaseException) -> Iterator[str]:
    notes = error.__dict__.get("__notes__") if hasattr(error, "__dict__") else None
    if isinstance(notes, list):
        for note in notes[:NOTES]:
            if isinstance(note, str):
                yield shortened(str.__getitem__(note, slice(None)), MESSAGE)


def _name(kind: type) -> str:
    module, name = (
        type.__getattribute__(kind, "__module__"),
        type.__getattribute__(kind, "__qualname__"),
    )
    return str(name)[:LINE] if module == "builtins" else f"{module}.{name}"[:LINE]

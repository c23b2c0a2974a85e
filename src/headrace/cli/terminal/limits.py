"""Limits of queues on the command line: how they are written, and how they are shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import typer

from headrace.cli.terminal import times
from headrace.cli.terminal.settings import json_object
from headrace.cli.terminal.table import Column, Show
from headrace.cli.terminal.text import number
from headrace.model import Limit, LimitedGroup, Queue
from headrace.model.duration import duration_text


def limit(text: str) -> Any:
    """A limit in words, or as JSON: the scope, for types and tags what they are (a prefix ends with
    a colon), and its bounds."""
    if text.lstrip().startswith("{"):
        return json_object(text)
    scope, *words = text.split() or [""]
    said: dict[str, Any] = {"scope": scope}
    for word in words:
        one = _said(scope, word, text)
        if twice := one.keys() & said.keys():
            raise typer.BadParameter(
                f"{text!r:.80} has two values for {min(twice)}; a name with blanks is written in JSON"
            )
        said |= one
    return said


def _said(scope: str, word: str, text: str) -> dict[str, Any]:
    name, equals, value = word.partition("=")
    if not equals:
        is_prefix = scope == "tag" and word.endswith(":")
        return {"prefix" if is_prefix else "match": word}
    if name == "rate":
        many, slash, per = value.partition("/")
        length = {"per": times.duration(per).total_seconds()} if slash else {}
        return {"rate": _whole(many, text), **length}
    if name in ("match", "prefix"):
        return {name: value}
    return {name.replace("-", "_"): _whole(value, text)}


def _whole(text: str, limit: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise typer.BadParameter(
            f"{limit!r:.80} has {text!r} where a whole number belongs; write a limit as "
            "'tag tenant: at-once=5 rate=100/1m burst=20'"
        )
    return int(text)


def limit_text(limit: Limit) -> str:
    """A limit in words, or as JSON, as `limit` reads it."""
    if any(blank.isspace() for blank in (limit.prefix or "") + (limit.match or "")):
        return json.dumps(msgspec.to_builtins(limit))
    its: list[str] = [limit.scope]
    if limit.prefix is not None:
        is_plain = limit.scope == "tag" and limit.prefix.endswith(":") and "=" not in limit.prefix
        its.append(limit.prefix if is_plain else f"prefix={limit.prefix}")
    if limit.match is not None:
        is_plain = not limit.match.endswith(":") and "=" not in limit.match
        its.append(limit.match if is_plain else f"match={limit.match}")
    if limit.at_once is not None:
        its.append(f"at-once={limit.at_once}")
    if limit.rate is not None and limit.per is not None:
        its.append(f"rate={limit.rate}/{limit.per:.15g}s")
    if limit.burst is not None:
        its.append(f"burst={limit.burst}")
    return " ".join(its)


def fair_by(text: str) -> Any:
    return json_object(text) if text.lstrip().startswith("{") else {"tag": text}


Limits = Annotated[
    list[Any] | None,
    typer.Option(
        "--limit",
        parser=limit,
        metavar="LIMIT",
        help="A limit of a group: 'tag tenant: at-once=5', 'type mail.* rate=100/1m burst=20', "
        "'queue at-once=50', 'key rate=1/10s', or JSON. Repeat for several; they replace all "
        "earlier limits.",
        show_default=False,
    ),
]
FairBy = Annotated[
    Any,
    typer.Option(
        "--fair-by",
        parser=fair_by,
        metavar="PREFIX",
        help="Prefix of the tags that take turns: tenant:",
        show_default=False,
    ),
]
Aging = Annotated[
    timedelta | None,
    typer.Option(
        "--aging",
        parser=times.duration,
        metavar="TIME",
        help="Raise the priority of a waiting event by one each time this has passed: 10m.",
        show_default=False,
    ),
]


GROUPS = (
    Show(Column("group", 0, 12), lambda one: f"{one.scope} {one.name}".strip()),
    Show(Column("in progress", 1, right=True), lambda one: _of(one.in_progress, one.at_once)),
    Show(Column("rate", 3), lambda one: _rate(one)),
    Show(Column("room", 2, right=True), lambda one: number(one.room)),
    Show(Column("waiting", 1, right=True), lambda one: number(one.waiting)),
    Show(Column("since", 2), lambda one: times.ago(one.waiting_since) if one.waiting else ""),
    Show(Column("next", 4), lambda one: times.exact(one.next_at) if one.next_at else ""),
)


def _of(number: int | None, most: int | None) -> str:
    return "" if number is None else f"{number:,} of {most:,}"


def _rate(group: LimitedGroup) -> str:
    if group.rate is None or group.per is None:
        return ""
    burst = f", burst {group.burst:,}" if group.burst else ""
    return f"{group.rate:,} per {duration_text(group.per)}{burst}"


def facts(queue: Queue) -> Iterator[tuple[str, str]]:
    """The names and values of what a queue has of limits and fairness."""
    for one in queue.limits or ():
        yield "limit", limit_text(one)
    if queue.fair_by:
        yield "fair by", f"tag {queue.fair_by['tag']}"
    if queue.aging is not None:
        yield "aging", duration_text(queue.aging.total_seconds())

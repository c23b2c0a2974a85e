"""`headrace tokens`: who may use the HTTP API."""

from __future__ import annotations

import getpass
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, cast, get_args

import msgspec
import typer
from rich.console import Console
from rich.table import Table

import headrace
from headrace.cli.options import Data, Dsn
from headrace.cli.source import database
from headrace.errors import InvalidInput
from headrace.model import Scope, Token

tokens = typer.Typer(
    no_args_is_help=True, help="Tokens of the HTTP API: who may publish, consume, read, administer."
)

Scopes = StrEnum("Scopes", {scope: scope for scope in get_args(Scope)})  # type: ignore[misc]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@tokens.command()
def create(
    name: Annotated[str, typer.Argument(help="What it is called, in lists and in the log.")],
    scope: Annotated[
        list[Scopes],
        typer.Option(
            "--scope", "-s", help="What it may; admin may everything. Repeat for several."
        ),
    ],
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Good for this namespace alone. Repeat for several; without: for all.",
            show_default=False,
        ),
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option(help="Good for so long: 90d, 12h, 30m.", show_default=False)
    ] = None,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Make a token and print it: nobody can be shown it again, for only its hash is stored."""
    lasts = None if expires_in is None else _duration(expires_in)
    with _opened(dsn, data) as queue:
        token = queue.create_token(
            name,
            [cast(Scope, one.value) for one in scope],
            namespaces=namespace or None,
            expires_at=None if lasts is None else datetime.now(UTC) + lasts,
            actor=_me(),
        )
    typer.echo(token)
    if sys.stdout.isatty():
        typer.echo(
            "Keep it: it is not shown again. Use it as: Authorization: Bearer hr_…", err=True
        )


@tokens.command("list")
def list_(
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that were revoked or have expired.")
    ] = False,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """List the tokens: what they may, and until when."""
    with _opened(dsn, data) as queue:
        found = [token for token in queue.tokens() if token.live or everything]
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
        return
    table = Table("name", "may", "in", "made", "expires", *(["state"] if everything else []))
    for token in found:
        table.add_row(*_row(token), *([_state(token)] if everything else []))
    Console().print(table if found else "There are no tokens.")


@tokens.command()
def revoke(
    name: Annotated[str, typer.Argument(help="Its name, as `list` has it.")],
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Revoke a token: within seconds no server takes it any more."""
    with _opened(dsn, data) as queue:
        queue.revoke_token(name, actor=_me())
    typer.echo(f"Revoked: {name}")


@contextmanager
def _opened(dsn: str | None, data: Path | None) -> Iterator[headrace.EventQueue]:
    with (
        database(dsn, data) as where,
        headrace.connect(where.dsn, migrate=where.embedded, pool_size=1) as queue,
    ):
        yield queue


def _me() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def _duration(text: str) -> timedelta:
    parts = re.fullmatch(r"([1-9]\d{0,5})([smhdw])", text)
    if parts is None:
        raise InvalidInput(
            f"{text!r} is no length of time: it looks like 90d, 12h or 30m (s, m, h, d, w)"
        )
    return timedelta(seconds=int(parts[1]) * _UNITS[parts[2]])


def _row(token: Token) -> list[str]:
    return [
        token.name,
        ", ".join(token.scopes),
        "all namespaces" if token.namespaces is None else ", ".join(token.namespaces),
        f"{token.created_at:%Y-%m-%d} by {token.created_by}",
        "never" if token.expires_at is None else f"{token.expires_at:%Y-%m-%d %H:%M} UTC",
    ]


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return f"revoked {token.revoked_at:%Y-%m-%d} by {token.revoked_by}"
    return "live" if token.live else "expired"

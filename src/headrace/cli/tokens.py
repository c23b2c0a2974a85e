"""`headrace tokens`: who may use the HTTP API."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, cast, get_args

import typer

from headrace.cli import times
from headrace.cli.help import Group, described
from headrace.cli.options import Data, Dsn, Json
from headrace.cli.showing import Column, Show, clean, listed, print_json, print_table, remark, say
from headrace.cli.source import opened
from headrace.model import Scope, Token

tokens = typer.Typer(
    cls=Group,
    help="Tokens of the HTTP API: who may publish, consume, read, administer. Without a command: list.",
)

Scopes = StrEnum("Scopes", {scope: scope for scope in get_args(Scope)})  # type: ignore[misc]

TOKENS = (
    Show(Column("name", 0, 10), lambda token: token.name),
    Show(Column("may", 1), lambda token: listed(token.scopes)),
    Show(Column("in", 2, 10), lambda token: listed(token.namespaces, "all namespaces")),
    Show(Column("expires", 2, right=True), lambda token: _expires(token)),
    Show(Column("made", 4, right=True), lambda token: times.ago(token.created_at)),
    Show(Column("by", 5, 10), lambda token: token.created_by),
)
STATE = Show(Column("state", 1), lambda token: _state(token))


@described(
    tokens,
    examples="""
    headrace tokens create ci --scope publish --namespace shop --expires-in 90d
    headrace tokens create dashboard --scope read
    """,
)
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What it is called, in lists and in the log.")
    ],
    scope: Annotated[
        list[Scopes],
        typer.Option(
            "--scope",
            "-s",
            metavar="SCOPE",
            help="What it may: publish, consume, read, or admin, which may everything. Repeat for several.",
        ),
    ],
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Good for this namespace alone. Repeat for several; without: for all.",
            show_default=False,
        ),
    ] = None,
    expires_in: Annotated[
        timedelta | None,
        typer.Option(
            parser=times.duration,
            metavar="TIME",
            help="Good for so long: 90d, 12h, 30m.",
            show_default=False,
        ),
    ] = None,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Make a token and print it: nobody can be shown it again, for only its hash is stored."""
    with opened(dsn, data) as queue:
        token = queue.create_token(
            name,
            [cast(Scope, one.value) for one in scope],
            namespaces=namespace or None,
            expires_at=None if expires_in is None else datetime.now(UTC) + expires_in,
        )
    typer.echo(token)
    if sys.stdout.isatty():
        remark("Keep it: it is not shown again. Use it as: Authorization: Bearer hr_…")


@described(
    tokens,
    "list",
    examples="""
    headrace tokens
    headrace tokens list --all
    """,
)
def list_(
    json: Json = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that were revoked or have expired.")
    ] = False,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """List the tokens: what they may, and until when."""
    with opened(dsn, data) as queue:
        found = [token for token in queue.tokens() if token.live or everything]
    if json:
        print_json(found)
    elif found:
        print_table([*TOKENS, *([STATE] if everything else [])], found)
    else:
        say("There are no tokens.")


@described(tokens, examples="headrace tokens revoke ci")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name, as `list` has it.")],
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Revoke a token: within seconds no server takes it any more. It is done at once, without asking."""
    with opened(dsn, data) as queue:
        queue.revoke_token(name)
    say(f"Revoked: {clean(name)}")


def _expires(token: Token) -> str:
    return "never" if token.expires_at is None else times.ago(token.expires_at)


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return f"revoked {times.ago(token.revoked_at)} by {token.revoked_by}"
    return "live" if token.live else "expired"

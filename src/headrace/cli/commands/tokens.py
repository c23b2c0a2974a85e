"""`headrace tokens`: access to the HTTP API."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, cast, get_args

import typer

from headrace.cli.source import InDatabase
from headrace.cli.terminal import times
from headrace.cli.terminal.command import Group
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Json
from headrace.cli.terminal.table import Column, Show, print_table
from headrace.cli.terminal.text import clean, listed, remark, say
from headrace.model import Scope, Token

tokens = Group(
    "tokens",
    "Tokens of the HTTP API: permission to publish, consume, read, administer. Without a command: list.",
)

Scopes = StrEnum("Scopes", {scope: scope for scope in get_args(Scope)})  # type: ignore[misc]

TOKENS = (
    Show(Column("name", 0, 10), lambda token: token.name),
    Show(Column("scopes", 1), lambda token: listed(token.scopes)),
    Show(Column("namespaces", 2, 10), lambda token: listed(token.namespaces, "all")),
    Show(Column("expires", 2, right=True), lambda token: _expires(token)),
    Show(Column("created", 4, right=True), lambda token: times.ago(token.created_at)),
    Show(Column("by", 5, 10), lambda token: token.created_by),
)
STATE = Show(Column("state", 1), lambda token: _state(token))


@tokens.command(
    examples="""
    headrace tokens create ci --scope publish --namespace shop --expires-in 90d
    headrace tokens create dashboard --scope read
    """,
)
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the token, for lists and the log.")
    ],
    scope: Annotated[
        list[Scopes],
        typer.Option(
            "--scope",
            "-s",
            metavar="SCOPE",
            help="Permission: publish, consume, read, or admin for all. Repeat for several.",
        ),
    ],
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Valid in this namespace only. Repeat for several; default: all.",
            show_default=False,
        ),
    ] = None,
    expires_in: Annotated[
        timedelta | None,
        typer.Option(
            parser=times.duration,
            metavar="TIME",
            help="Expires after this time: 90d, 12h, 30m.",
            show_default=False,
        ),
    ] = None,
    *,
    where: InDatabase,
) -> None:
    """Create a token and print it. It cannot be shown again: only its hash is stored."""
    with where.opened() as queue:
        token = queue.create_token(
            name,
            [cast(Scope, one.value) for one in scope],
            namespaces=namespace or None,
            expires_at=None if expires_in is None else datetime.now(UTC) + expires_in,
        )
    typer.echo(token)
    if sys.stdout.isatty():
        remark("Save it now: it is not shown again. Use it as: Authorization: Bearer hr_…")


@tokens.command(
    "list",
    examples="""
    headrace tokens
    headrace tokens list --all
    """,
)
def list_(
    json: Json = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Include revoked and expired tokens.")
    ] = False,
    *,
    where: InDatabase,
) -> None:
    """List the tokens, their scopes and when they expire."""
    with where.opened() as queue:
        found = [token for token in queue.tokens() if token.live or everything]
    if json:
        print_json(found)
    elif found:
        print_table([*TOKENS, *([STATE] if everything else [])], found)
    else:
        say("There are no tokens.")


@tokens.command(examples="headrace tokens revoke ci")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token, as in `list`.")],
    *,
    where: InDatabase,
) -> None:
    """Revoke a token, without confirmation: within seconds every server rejects it."""
    with where.opened() as queue:
        queue.revoke_token(name)
    say(f"Revoked: {clean(name)}")


def _expires(token: Token) -> str:
    return "never" if token.expires_at is None else times.ago(token.expires_at)


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return f"revoked {times.ago(token.revoked_at)} by {token.revoked_by}"
    return "live" if token.live else "expired"

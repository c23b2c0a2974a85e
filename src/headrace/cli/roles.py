"""`headrace roles`: which roles of the database work in which namespaces."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli import times
from headrace.cli.help import Group, described
from headrace.cli.options import Data, Dsn, Json
from headrace.cli.showing import Column, Show, clean, listed, print_json, print_table, say
from headrace.cli.source import opened

roles = typer.Typer(
    cls=Group,
    help="Roles of the database that are bound to namespaces. Without a command: list.",
)

Role = Annotated[str, typer.Argument(metavar="ROLE", help="A role of the database.")]

ROLES = (
    Show(Column("role", 0, 10), lambda one: one.role),
    Show(Column("in", 1, 10), lambda one: listed(one.namespaces, "no namespace")),
    Show(Column("bound", 2, right=True), lambda one: times.ago(one.bound_at)),
    Show(Column("by", 3, 10), lambda one: one.bound_by),
)


@described(
    roles,
    examples="""
    headrace roles bind shop_worker --namespace shop
    headrace roles bind reports --namespace shop --namespace billing
    """,
)
def bind(
    role: Role,
    namespace: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="It may work in this namespace. Repeat for several; without: in none.",
            show_default=False,
        ),
    ] = None,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Bind a role to namespaces: in others it can do and see nothing, whatever it is granted. What was said before no longer counts."""
    with opened(dsn, data) as queue:
        queue.bind_role(role, namespace or [])
    say(f"Bound: {clean(role)} works in {clean(listed(namespace or [], 'no namespace'))}")


@described(roles, "list", examples="headrace roles")
def list_(json: Json = False, dsn: Dsn = None, data: Data = None) -> None:
    """List the roles that are bound, and to which namespaces. All others are free."""
    with opened(dsn, data) as queue:
        found = queue.bound_roles()
    if json:
        print_json(found)
    elif found:
        print_table(ROLES, found)
    else:
        say("No role is bound: each works in every namespace.")


@described(roles, examples="headrace roles unbind shop_worker")
def unbind(role: Role, dsn: Dsn = None, data: Data = None) -> None:
    """Let a role work in every namespace again."""
    with opened(dsn, data) as queue:
        was = queue.unbind_role(role)
    say(f"Free: {clean(role)}" if was else f"It was not bound: {clean(role)}")

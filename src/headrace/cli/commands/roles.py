"""`headrace roles`: database roles that are bound to namespaces."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.source import InDatabase
from headrace.cli.terminal import times
from headrace.cli.terminal.command import Group
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Json
from headrace.cli.terminal.table import Column, Show, print_table
from headrace.cli.terminal.text import clean, listed, say

roles = Group("roles", "Database roles that are bound to namespaces. Without a command: list.")

Role = Annotated[str, typer.Argument(metavar="ROLE", help="Name of a database role.")]

ROLES = (
    Show(Column("role", 0, 10), lambda one: one.role),
    Show(Column("namespaces", 1, 10), lambda one: listed(one.namespaces, "none")),
    Show(Column("bound", 2, right=True), lambda one: times.ago(one.bound_at)),
    Show(Column("by", 3, 10), lambda one: one.bound_by),
)


@roles.command(
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
            help="Allow this namespace. Repeat for several; default: none.",
            show_default=False,
        ),
    ] = None,
    *,
    where: InDatabase,
) -> None:
    """Bind a role to namespaces: in others it can do and see nothing, whatever its grants. This
    replaces an earlier binding."""
    with where.opened() as queue:
        queue.bind_role(role, namespace or [])
    say(f"Bound: {clean(role)} to {listed(namespace, 'no namespace')}")


@roles.command("list", examples="headrace roles")
def list_(json: Json = False, *, where: InDatabase) -> None:
    """List the bound roles and their namespaces. All other roles are unrestricted."""
    with where.opened() as queue:
        found = queue.bound_roles()
    if json:
        print_json(found)
    elif found:
        print_table(ROLES, found)
    else:
        say("No role is bound: every role works in all namespaces.")


@roles.command(examples="headrace roles unbind shop_worker")
def unbind(role: Role, *, where: InDatabase) -> None:
    """Let a role work in all namespaces again."""
    with where.opened() as queue:
        was = queue.unbind_role(role)
    say(f"Unbound: {clean(role)}" if was else f"Was not bound: {clean(role)}")

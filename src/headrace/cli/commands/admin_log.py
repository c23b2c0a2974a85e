"""`headrace admin-log`: the log of administration."""

from __future__ import annotations

from headrace.cli.source import InNamespace
from headrace.cli.terminal import options, times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.json import json_line, print_json
from headrace.cli.terminal.options import Everywhere, Json
from headrace.cli.terminal.table import Column, Show, print_table
from headrace.cli.terminal.text import say
from headrace.model import AdminAction

ACTIONS = (
    Show(Column("id", 2, right=True), lambda one: str(one.id)),
    Show(Column("at", 1), lambda one: times.exact(one.created_at)),
    Show(Column("ago", 4, right=True), lambda one: times.ago(one.created_at)),
    Show(Column("action", 0), lambda one: one.action),
    Show(Column("target", 1, 10), lambda one: one.target or "–"),
    Show(Column("by", 1, 10), lambda one: one.actor),
    Show(Column("namespace", 3, 8), lambda one: one.namespace or "–"),
    Show(Column("details", 5, 16), lambda one: _details(one)),
)


@command(
    examples="""
    headrace admin-log
    headrace admin-log --everywhere --limit 100
    """,
)
def admin_log(
    everywhere: Everywhere = False,
    limit: options.Limit = 20,
    before: options.Before = None,
    json: Json = False,
    *,
    where: InNamespace,
) -> None:
    """Show administrative actions and who took them: pause, create, cancel, redrive and so on."""
    with where.opened() as source:
        found = source.admin_log(everywhere=everywhere, limit=limit, before=before)
    if json:
        print_json(found)
    elif found:
        print_table(ACTIONS, found)
    else:
        say("The log is empty.")


def _details(action: AdminAction) -> str:
    return json_line(dict(action.details)) if action.details else "–"

"""`headrace attention`: problems that need a person."""

from __future__ import annotations

import msgspec
from rich.text import Text

from headrace.cli.source import InNamespace
from headrace.cli.terminal import times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Everywhere, Json
from headrace.cli.terminal.text import clean, say, say_wrapped

LEVELS = {"critical": "bold red", "warning": "yellow", "notice": "cyan"}


@command(
    examples="""
    headrace attention
    headrace attention --everywhere --json | jq 'select(.level == "critical")'
    """,
)
def attention(everywhere: Everywhere = False, json: Json = False, *, where: InNamespace) -> None:
    """List problems that need attention now, the most serious first."""
    with where.opened() as source:
        found = source.attention(everywhere=everywhere)
    if json:
        print_json([{**msgspec.structs.asdict(one), "sentence": one.sentence} for one in found])
        return
    for one in found:
        line = Text(one.level.ljust(8), style=LEVELS[one.level])
        place = "" if one.namespace in (None, where.namespace) else f"{clean(one.namespace)}: "
        since = (
            ""
            if one.since is None
            else f" (since {times.exact(one.since)}, {times.ago(one.since)})"
        )
        line.append(f"  {place}{clean(one.sentence)}", style="not bold default")
        line.append(since, style="not bold dim")
        say_wrapped(line, 10)
    if not found:
        say("Nothing needs attention.")

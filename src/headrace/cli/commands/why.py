"""`headrace why`: why an event is not being handled."""

from __future__ import annotations

import msgspec
from rich.text import Text

from headrace.cli.commands.show import Id
from headrace.cli.source import AllQueues
from headrace.cli.terminal import times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Json
from headrace.cli.terminal.text import clean, say_wrapped


@command(
    examples="""
    headrace why 42
    headrace why 42 --json | jq .code
    """,
)
def why(id: Id, json: Json = False, *, where: AllQueues) -> None:
    """Explain why an event is not being handled: what it waits for, which worker has it, or how it
    ended."""
    with where.opened("main") as source:
        found = source.why(id, queue=where.queue)
    if json:
        print_json([msgspec.structs.asdict(one) for one in found])
        return
    width = max(len(clean(one.queue or "–")) for one in found)
    for one in found:
        line = Text(clean(one.queue or "–").ljust(width), style="bold")
        line.append(f"  {clean(one.message)}", style="not bold")
        if one.since is not None:
            line.append(f" (since {times.ago(one.since)})", style="not bold dim")
        say_wrapped(line, width + 2)

"""What somebody who sees Headrace for the first time may try next."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text


def suggestions(url: str) -> Group:
    """Commands for another terminal in this folder."""
    table = Table.grid(padding=(0, 2))
    for words, typed in commands(url).items():
        table.add_row(Text(f"  {words}", style="dim"), Text(typed))
    return Group(Text("Try, in another terminal here:"), table)


def commands(url: str) -> dict[str, str]:
    headrace = _headrace()
    return {
        "follow the log": f"{headrace} tail",
        "publish something": f"{headrace} publish order.created '{{\"number\": 1}}'",
        "see what has died": f"{headrace} dead list",
        "ask over HTTP": f"curl '{url}/events?limit=3'",
        "kill a worker": "kill -9 and its number: its events come back",
    }


def _headrace() -> str:
    """How this program is called from here."""
    program = Path(sys.argv[0]).absolute()
    if program.name == "headrace" and program.is_relative_to(Path.cwd()):
        return str(program.relative_to(Path.cwd()))
    return "headrace"

"""What somebody who sees Headrace for the first time may try next."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text


def suggestions(url: str, data: Path | None = None) -> Group:
    """Commands for another terminal in this folder."""
    table = Table.grid(padding=(0, 2))
    for words, typed in commands(url, data).items():
        table.add_row(Text(f"  {words}", style="dim"), Text(typed))
    return Group(Text("Try, in another terminal here:"), table)


def commands(url: str, data: Path | None = None) -> dict[str, str]:
    """What to type; `data` is the folder of the embedded PostgreSQL, which is named if it would not be found."""
    headrace, where = _headrace(), _where(data)
    return {
        "follow the log": f"{headrace} tail{where}",
        "publish something": f'{headrace} publish order.created \'{{"number": 1, "items": 3}}\'{where}',
        "see what has died": f"{headrace} dead list{where}",
        "ask over HTTP": f"curl '{url}/events?limit=3'",
        "kill a worker": "kill -9 and its number: its events come back",
    }


def _where(data: Path | None) -> str:
    from headrace.embedded.folder import data_folder

    found = "HEADRACE_DATA" not in os.environ and data == data_folder()
    return "" if data is None or found else f" --data {shlex.quote(str(data))}"


def _headrace() -> str:
    """How this program is called from here."""
    program = Path(sys.argv[0]).absolute()
    if program.name == "headrace" and program.is_relative_to(Path.cwd()):
        return str(program.relative_to(Path.cwd()))
    return "headrace"

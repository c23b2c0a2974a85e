"""Commands to try next, for a newcomer."""

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
    """The commands; they name the folder of the embedded PostgreSQL if it is not the default."""
    headrace, where = _headrace(), _where(data)
    return {
        "follow the log": f"{headrace} tail{where}",
        "publish something": f'{headrace} publish order.created \'{{"number": 1, "items": 3}}\'{where}',
        "list dead letters": f"{headrace} dead list{where}",
        "query over HTTP": f"curl '{url}/events?limit=3'",
        "kill a worker": "kill -9 and its number; its events come back",
    }


def _where(data: Path | None) -> str:
    from headrace.embedded.folder import data_folder

    found = "HEADRACE_DATA" not in os.environ and data == data_folder()
    return "" if data is None or found else f" --data {shlex.quote(str(data))}"


def _headrace() -> str:
    """The name of this program from this folder."""
    program = Path(sys.argv[0]).absolute()
    if program.name == "headrace" and program.is_relative_to(Path.cwd()):
        return str(program.relative_to(Path.cwd()))
    return "headrace"

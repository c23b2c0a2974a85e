"""The reference of the command line in `docs/cli.md`, made from the commands themselves.

`python -m tests.commands` writes it; with `--check` it only says whether it is current.
"""

import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import typer

from headrace.cli.app import app
from headrace.cli.terminal.help import commands as sections
from headrace.cli.terminal.help import parameters, usage

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
MARK = "<!-- What follows is made from the commands by `make commands`. -->\n"
HIDDEN = {"--dsn DSN", "--data FOLDER", "-h, --help"}  # nearly every command has them
OFTEN = 3  # commands with the same option: it is described once; so is one of two commands
ALIKE = 4  # options shared by two commands: the later one refers to the earlier
Row = tuple[str, str]


def contexts() -> Iterator[Any]:
    """Every command that does something, in the order of `headrace --help`."""
    root = typer.main.get_command(app)
    with root.make_context("headrace", ["--version"], resilient_parsing=True) as ctx:
        yield from _below(ctx)


def _below(ctx: Any) -> Iterator[Any]:
    names = [name for _, pairs in sections(ctx) for name, _ in pairs]
    for name in names:
        command = ctx.command.commands[name]
        below = type(ctx)(command, parent=ctx, info_name=name)
        if hasattr(command, "commands"):
            yield from _below(below)
        else:
            yield below


def reference() -> str:
    every = list(contexts())
    common = _common(every)
    entries = [line for ctx in every for line in _entry(ctx, common, every)]
    return "\n".join([*_table(sorted(common, key=lambda row: (row[0].lstrip("-"), row))), *entries])


def _common(every: list[Any]) -> set[Row]:
    """Options that several commands have, with the same help in each."""
    sets = [{row for row in _rows(ctx) if row[0].startswith("-")} for ctx in every]
    counted = Counter(row for rows in sets for row in rows)
    often = {row for row, times in counted.items() if times >= OFTEN}
    alike = [one & other - often for one, other in combinations(sets, 2)]
    few = {row for rows in alike if len(rows) < ALIKE for row in rows}
    return often | {row for row in few if row[0] not in {left for left, _ in often}}


def _rows(ctx: Any) -> list[Row]:
    """A command's options and arguments, without those that its usage explains."""
    pairs = [pair for _, pairs in parameters(ctx) for pair in pairs if pair[0] not in HIDDEN]
    return [(left, right) for left, right in pairs if not _evident(left, right)]


def _evident(left: str, right: str) -> bool:
    """`QUEUE`: "Name of the queue.", and the like."""
    return left.isupper() and bool(
        re.fullmatch(r"Name of (the|a) [\w ]+(; default: main)?\.|Event ids?\.", right)
    )


def _entry(ctx: Any, common: set[Row], every: list[Any]) -> Iterator[str]:
    yield f"### {ctx.command_path}\n"
    rows = [row for row in _rows(ctx) if row not in common]
    shared = [f"[{_short(row)}]" for row in _rows(ctx) if row in common]
    words = [usage(ctx).removesuffix(" [OPTIONS]"), *shared, *(["[OPTIONS]"] if rows else [])]
    if (line := " ".join(words)) not in (ctx.command_path, f"{ctx.command_path} [OPTIONS]"):
        yield f"`{line}`\n"
    for paragraph in inspect.cleandoc(ctx.command.help or "").split("\n\n"):
        yield f"{_escaped(' '.join(paragraph.split()))}\n"
    earlier, alike = _earlier(ctx, rows, every)
    yield from _table([row for row in rows if row not in alike])
    if alike:
        names = ", ".join(f"`{_short(row)}`" for row in alike)
        anchor = earlier.replace(" ", "-")
        yield f"As for [{earlier}](#{anchor}): {names}.\n"
    yield f"```text\n{ctx.command.epilog}\n```\n"


def _earlier(ctx: Any, rows: list[Row], every: list[Any]) -> tuple[str, list[Row]]:
    """The earlier command that has most of the same options, and these."""
    paths = [one.command_path for one in every]
    before = every[: paths.index(ctx.command_path)]
    found = [(one.command_path, [row for row in rows if row in _rows(one)]) for one in before]
    path, alike = max(found, key=lambda pair: len(pair[1]), default=("", []))
    return path, alike if len(alike) >= ALIKE else []


def _short(row: Row) -> str:
    """`-n` of `-n, --namespace NAME`; both of `--core, --no-core`."""
    left = row[0]
    if left.startswith("--"):
        return " ".join(word for word in left.split() if word.startswith("--"))
    return left.partition(",")[0]


def _table(rows: Sequence[Row]) -> Iterator[str]:
    if rows:
        yield "| | |\n|---|---|"
        for left, right in rows:
            yield f"| `{left}` | {_escaped(right)} |"
        yield ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def page() -> str:
    """What the page should be: its introduction as it is, and the reference as it is now."""
    introduction, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    return f"{introduction}{MARK}\n{reference()}"


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        if page() != PAGE.read_text(encoding="utf-8"):
            sys.exit("docs/cli.md is not current: make commands")
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

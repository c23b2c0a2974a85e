"""The reference of the command line in `docs/cli.md`, made from the commands themselves.

`python -m tests.commands` writes it; with `--check` it only says whether it is current.
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from headrace.cli.app import app
from headrace.cli.help import commands as sections
from headrace.cli.help import parameters, usage

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
MARK = "<!-- What follows is made from the commands by `make commands`. -->\n"
COMMON = {
    *("--dsn DSN", "--data FOLDER"),  # nearly every command has them: see the introduction
    "-h, --help",
}


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
    return "\n".join(line for ctx in contexts() for line in _entry(ctx))


def _entry(ctx: Any) -> Iterator[str]:
    yield f"### {ctx.command_path}\n"
    yield f"`{usage(ctx)}`\n"
    for paragraph in inspect.cleandoc(ctx.command.help or "").split("\n\n"):
        yield f"{_escaped(' '.join(paragraph.split()))}\n"
    rows = [
        (left, right) for _, pairs in parameters(ctx) for left, right in pairs if left not in COMMON
    ]
    if rows:
        yield "| | |\n|---|---|"
        for left, right in rows:
            yield f"| `{left}` | {_escaped(right)} |"
        yield ""
    yield f"```text\n{ctx.command.epilog}\n```\n"


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

"""The output of `--help`: one layout for every command, here and in the documents."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from headrace.cli.terminal import times

WIDEST, INDENT, HELP_AT = 100, 2, 30
OPTIONS = "Options"


class Command(TyperCommand):
    """A command with the help of this module; its epilog holds examples, one per line."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(Page(ctx).text())


class Group(TyperGroup):
    """Commands, in sections. A group that has a `list` runs it when no command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell asks for completions
            return super().parse_args(ctx, args)
        if "list" in self.commands and (not args or _is_option(args[0])):
            args = ["list", *args]
        elif not args:
            typer.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(Page(ctx).text())


def _is_option(word: str) -> bool:
    """Whether this is an option of the command; --help is the group's."""
    return word.startswith("-") and word not in ("--help", "-h")


class Page:
    """The help of a command, for the width of the terminal."""

    def __init__(self, ctx: Any, width: int | None = None, bold: bool | None = None) -> None:
        self._ctx, self._command = ctx, ctx.command
        self._width = min(width or shutil.get_terminal_size().columns, WIDEST)
        self._bold = is_coloured() if bold is None else bold

    def text(self) -> str:
        parts = [self._heading("Usage:") + f" {usage(self._ctx)}", *self._paragraphs()]
        for title, pairs in (*commands(self._ctx), *parameters(self._ctx)):
            parts.append("\n".join([self._heading(f"{title}:"), *self._rows(pairs)]))
        if self._command.epilog:
            lines = textwrap.indent(self._command.epilog, " " * INDENT)
            parts.append(f"{self._heading('Examples:')}\n{lines}")
        return "\n\n".join(parts) + "\n"

    def _paragraphs(self) -> list[str]:
        paragraphs = inspect.cleandoc(self._command.help or "").split("\n\n")
        return [textwrap.fill(" ".join(one.split()), self._width) for one in paragraphs if one]

    def _rows(self, pairs: Iterable[tuple[str, str]]) -> list[str]:
        pairs = list(pairs)
        column = min(max((len(left) for left, _ in pairs), default=0) + 2 * INDENT, HELP_AT)
        column = min(column, max(self._width // 3, 12))
        lines: list[str] = []
        for left, right in pairs:
            wrapped = textwrap.wrap(right, max(self._width - column, 16))
            if len(left) + 2 * INDENT > column:
                lines.append(" " * INDENT + left)
            elif wrapped:
                lines.append(f"{' ' * INDENT}{left}".ljust(column) + wrapped.pop(0))
            else:
                lines.append(" " * INDENT + left)
            lines += [" " * column + line for line in wrapped]
        return lines

    def _heading(self, words: str) -> str:
        return f"\x1b[1m{words}\x1b[0m" if self._bold else words


def is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def usage(ctx: Any) -> str:
    """The usage of a command, on one line."""
    arguments = [_usage_of(one) for one in ctx.command.params if one.param_type_name == "argument"]
    last = ["COMMAND"] if isinstance(ctx.command, TyperGroup) else []
    return " ".join([ctx.command_path, *arguments, *last, "[OPTIONS]"])


def _usage_of(argument: Any) -> str:
    name = f"{_metavar(argument)}{'...' if argument.nargs == -1 else ''}"
    return name if argument.required else f"[{name}]"


def commands(ctx: Any) -> list[tuple[str, list[tuple[str, str]]]]:
    """The commands of a group by section, each with its first sentence."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for name, command in getattr(ctx.command, "commands", {}).items():
        if not command.hidden:
            panel = command.rich_help_panel
            title = panel if isinstance(panel, str) else "Commands"
            sections.setdefault(title, []).append((name, _first_sentence(command.help or "")))
    return list(sections.items())


def _first_sentence(text: str) -> str:
    first = " ".join(text.split("\n\n")[0].split())
    return first.split(". ")[0].rstrip(".") + "." if first else ""


def parameters(ctx: Any) -> list[tuple[str, list[tuple[str, str]]]]:
    """The arguments and options of a command by section."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for one in ctx.command.get_params(ctx):
        if getattr(one, "hidden", False):
            continue
        if one.param_type_name == "argument":
            row = (_metavar(one), one.help or _annotated(ctx.command.callback, one.name))
            sections.setdefault("Arguments", []).append(row)
        else:
            panel = getattr(one, "rich_help_panel", None)
            title = panel if isinstance(panel, str) else OPTIONS
            sections.setdefault(title, []).append((_names(one), _explained(one)))
    rest = [title for title in sections if title not in ("Arguments", OPTIONS)]
    return [
        (title, sections[title]) for title in ("Arguments", OPTIONS, *rest) if title in sections
    ]


def _annotated(function: Any, name: str) -> str:
    """The declared help of an argument: with click 8.5, a typer before 0.26 forgets it."""
    hint = inspect.signature(function).parameters[name].annotation
    [said] = [one.help for one in getattr(hint, "__metadata__", ()) if hasattr(one, "help")] or [""]
    return said or ""


def _names(option: Any) -> str:
    names = sorted([*option.opts, *option.secondary_opts], key=lambda name: name.startswith("--"))
    return ", ".join(names) + ("" if _is_flag(option) else f" {_metavar(option)}")


def _is_flag(option: Any) -> bool:
    return bool(getattr(option, "is_flag", False))


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper().replace("_", "-"))


def _explained(option: Any) -> str:
    words = " ".join((option.help or "").split())
    default = (
        times.length(option.default) if isinstance(option.default, timedelta) else option.default
    )
    if option.show_default is False or default is None or callable(default) or _is_flag(option):
        return words
    return f"{words} [default: {default}]" if default not in ("", [], ()) else words

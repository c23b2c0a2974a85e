"""Runs a command, and turns an error into a sentence and an exit code."""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn

import typer
from rich.text import Text

from headrace.cli.app import app, shown
from headrace.cli.demo import lifeline
from headrace.cli.terminal.errors import INTERRUPTED, MISTAKE, TERMINATED, UsageError, complaint
from headrace.cli.terminal.signals import ending_in_order
from headrace.cli.terminal.text import clean_lines, err, out
from headrace.telemetry.redact import redacted


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command of these arguments, and exit: with a code that tells the kind of an error,
    and with a sentence about it on standard error."""
    with ending_in_order() as requests:
        lifeline.watch()
        try:
            _run(arguments)
        except SystemExit as ended:
            if requests.terminated and ended.code == INTERRUPTED:
                sys.exit(TERMINATED)
            raise


def _run(arguments: Sequence[str] | None) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show must not end a command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code: Any = _command()(arguments, prog_name="headrace", standalone_mode=False)
        out().file.flush()
    except BrokenPipeError:
        # The unwritten rest goes to /dev/null: Python would complain of it, and exit with 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except typer.Abort:
        _complain("\nNothing was changed.")
        sys.exit(INTERRUPTED)
    except Exception as error:
        sys.exit(_misused(error) if isinstance(error, UsageError) else _failed(error))
    sys.exit(code if isinstance(code, int) else 0)


@cache
def _command() -> Any:
    return typer.main.get_command(app)


def _misused(error: Any) -> int:
    path = error.ctx.command_path if getattr(error, "ctx", None) else "headrace"
    sentence = " ".join(_in_groups(error.format_message()).split()).replace(": Value error, ", ": ")
    ended = sentence if sentence.endswith((".", "?")) else f"{sentence}."
    _complain(f"{ended} (See: {path} --help)")
    return MISTAKE


def _in_groups(sentence: str) -> str:
    """For the name of a command in a group, suggest that command and not one that looks similar."""
    wanted = re.match(r"No such command '([\w-]+)'", sentence)
    groups = _command().commands.items()
    meant = [
        f"'{name} {wanted[1]}'"
        for name, group in groups
        if wanted and wanted[1] in getattr(group, "commands", {})
    ]
    return f"{wanted[0]}. Did you mean {' or '.join(meant)}?" if wanted and meant else sentence


def _failed(error: Exception) -> int:
    if shown["traceback"]:
        traceback.print_exception(error)
    found = complaint(error)
    if found is not None:
        _complain(found.sentence)
        return found.code
    said = f"{type(error).__name__}: {error}"
    _complain(f"{said} (unexpected error: headrace --traceback … shows where)")
    return 1


def _complain(sentence: str) -> None:
    words = Text("headrace: ", style="bold red")
    words.append(clean_lines(redacted(sentence)).strip(), style="not bold default")
    err().print(words, soft_wrap=not err().is_terminal)

"""Asks for confirmation before something is lost."""

from __future__ import annotations

import sys

import typer

from headrace.cli.terminal.errors import NotDone, WrongUse
from headrace.cli.terminal.text import clean


def confirm(what: str, *, yes: bool) -> None:
    """Return if the user confirms, with --yes or now; `what` is a sentence without full stop."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise WrongUse(f"{clean(what)}. Without a terminal, confirm it with --yes")
    if not typer.confirm(f"{clean(what)}. Continue?", err=True):
        raise NotDone("Nothing was changed.")

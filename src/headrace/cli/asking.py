"""Before something is lost: say what will happen, and ask once."""

from __future__ import annotations

import sys

import typer

from headrace.cli.failing import NotDone, WrongUse
from headrace.cli.showing import clean


def confirm(what: str, *, yes: bool) -> None:
    """Go on if the user says so, on the command line (--yes) or now; `what` is a sentence without its end."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise WrongUse(f"{clean(what)}: nobody is there to be asked, so say --yes")
    if not typer.confirm(f"{clean(what)}. Go on?", err=True):
        raise NotDone("Nothing was changed.")

"""The doctor's findings, calm to look at."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.text import Text

from headrace.cli.showing import clean, count, json_line, say, width
from headrace.doctor import CHECKS, Finding, State

MARKS: dict[State, tuple[str, str]] = {
    "fine": ("✓", "green"),
    "warning": ("!", "bold yellow"),
    "problem": ("✗", "bold red"),
    "unknown": ("?", "cyan"),
}
COLUMN = max(len(check.name) for check in CHECKS) + 6  # where what is said begins


def told(findings: Iterator[Finding]) -> list[Finding]:
    """Print findings as they come, for programs."""
    looked = []
    for one in findings:
        say(json_line(one))
        looked.append(one)
    return looked


def shown(name: str, findings: Iterator[Finding]) -> list[Finding]:
    """Print findings as they come, for people."""
    say(clean(name))
    looked: list[Finding] = []
    for about, group in groupby(findings, key=lambda one: one.about):
        say("")
        say(Text(about, style="bold"))
        before = None
        for one in group:
            _show(one, again=one.check == before)
            before = one.check
            looked.append(one)
    say("")
    say(summary(looked))
    return looked


def _show(finding: Finding, *, again: bool) -> None:
    mark, style = MARKS[finding.state]
    room = width()
    text = clean(finding.says)
    lines = textwrap.wrap(text, max(room - COLUMN, 30)) if room else [text]
    name = Text(("" if again else finding.check).ljust(COLUMN - 4))
    quiet = "dim" if finding.state == "fine" else ""
    say(Text.assemble("  ", (mark, style), " ", name, (lines[0], quiet)))
    for line in lines[1:]:
        say(Text(" " * COLUMN + line))
    if finding.mend is not None:
        # On one line, however long: it is there to be copied.
        say(Text.assemble(" " * COLUMN, ("→ ", style), (clean(finding.mend), "bold")))


def summary(findings: Sequence[Finding]) -> Text:
    states = Counter(one.state for one in findings)
    kinds: tuple[State, ...] = ("problem", "warning")
    found = [(count(states[kind], kind), MARKS[kind][1]) for kind in kinds if states[kind]]
    hidden = f"; {count(states['unknown'], 'check')} could not be made" if states["unknown"] else ""
    if not found:
        return Text.assemble(("Nothing to mend", "green"), f" in {len(CHECKS)} checks{hidden}.")
    return Text.assemble(*_joined(found), f" in {len(CHECKS)} checks{hidden}.")


def _joined(parts: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for n, part in enumerate(parts):
        if n:
            yield (", ", "")
        yield part

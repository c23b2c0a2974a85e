"""`headrace dead`: dead letters, their errors, and how to retry them."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from headrace.cli.commands.show import ENTRIES, Id, print_error
from headrace.cli.source import Where
from headrace.cli.terminal import options, times
from headrace.cli.terminal.command import Group
from headrace.cli.terminal.confirm import confirm
from headrace.cli.terminal.errors import WrongUse
from headrace.cli.terminal.json import pretty, print_json
from headrace.cli.terminal.options import Json, Reason, Yes
from headrace.cli.terminal.progress import in_steps
from headrace.cli.terminal.table import Column, Show, print_facts, print_table
from headrace.cli.terminal.text import clean, count, last_line, listed, number, remark, say, state
from headrace.model import DeadLetter

PAGE = 1000  # dead letters that are read at once

dead = Group("dead", "Dead letters: events that used up their retries. Without a command: list.")

LETTERS = (
    Show(Column("id", 0, right=True), lambda one: str(one.id)),
    Show(Column("type", 1, 12), lambda one: one.type),
    Show(Column("died", 2, right=True), lambda one: times.ago(one.died_at)),
    Show(Column("died at", 5), lambda one: times.exact(one.died_at)),
    Show(Column("attempts", 4, right=True), lambda one: number(one.attempts)),
    Show(Column("fingerprint", 6), lambda one: one.fingerprint or "–"),
    Show(Column("error", 1, 20), lambda one: last_line(one.error) if one.error else one.reason),
)
GROUPS = (
    Show(Column("letters", 0, right=True), lambda one: number(one.letters)),
    Show(Column("fingerprint", 1), lambda one: one.fingerprint or "–"),
    Show(Column("last died", 3, right=True), lambda one: times.ago(one.last_died_at)),
    Show(Column("first died", 4, right=True), lambda one: times.ago(one.first_died_at)),
    Show(Column("types", 2, 12), lambda one: listed(one.types)),
    Show(Column("last error", 1, 20), lambda one: last_line(one.message)),
    Show(Column("samples", 5, 8), lambda one: listed(one.sample_ids)),
)

Fingerprint = Annotated[
    str | None,
    typer.Option(
        metavar="FINGERPRINT",
        help="Only errors of one kind; `headrace dead list --groups` shows fingerprints.",
        show_default=False,
    ),
]
MaybeIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID", help="Event ids.", min=1, show_default=False),
]
Everything = Annotated[bool, typer.Option("--all", help="All dead letters of the queue.")]


@dead.command(
    "list",
    examples="""
    headrace dead
    headrace dead list --groups
    headrace dead list --type 'payment.*' --since 1d --json | jq -r .error
    """,
)
def list_(
    groups: Annotated[
        bool, typer.Option("--groups", help="Group by kind of error, most frequent first.")
    ] = False,
    types: options.Types = None,
    fingerprint: Fingerprint = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = 20,
    before: options.Before = None,
    payload: options.Payload = False,
    json: Json = False,
    *,
    where: Where,
) -> None:
    """List the dead letters of a queue, newest event first, or their kinds of errors."""
    if groups and (types or fingerprint or since or until or before):
        raise WrongUse("--groups covers all dead letters of a queue: leave the filters out")
    with where.opened() as source:
        found: list[DeadLetter] = []
        while not groups and len(found) < limit:
            wanted = min(limit - len(found), PAGE)
            page = source.dead_letters(
                types=types,
                fingerprint=fingerprint,
                since=since,
                until=until,
                limit=wanted,
                before=before,
                payload=payload and json,
            )
            found += page
            if len(page) < wanted:
                break
            before = page[-1].id
        kinds = source.dead_letter_groups(limit=limit) if groups else []
    if json:
        print_json(kinds if groups else found)
    elif groups and kinds:
        print_table(GROUPS, kinds)
    elif found:
        print_table(LETTERS, found)
        if len(found) == limit:
            remark(f"There may be more: use --before {found[-1].id} or a higher --limit.")
    else:
        say(f"No matching dead letters in {where.path()}.")


@dead.command(
    examples="""
    headrace dead show 42
    headrace dead show 42 --json | jq .payload
    """,
)
def show(
    id: Id,
    json: Json = False,
    *,
    where: Where,
) -> None:
    """Show one dead letter: payload, error and log."""
    with where.opened() as source:
        letter = source.dead_letter(id)
        log = [entry for entry in source.log(id) if entry.queue in (None, where.queue)]
    if json:
        print_json([{**msgspec.structs.asdict(letter), "log": log}])
        return
    title = state(letter.status)
    title.append(f"  {clean(letter.type)}", style="bold")
    say(title)
    print_facts(
        [
            ("id", str(letter.id)),
            ("title", letter.title if letter.title != letter.type else None),
            ("created", times.both(letter.created_at)),
            ("died", times.both(letter.died_at)),
            ("reason", letter.reason),
            (
                "attempts",
                f"{letter.attempts} ({letter.retry_count} failed, {letter.crashes} crashed)",
            ),
            ("error", last_line(letter.error) if letter.error else None),
            ("fingerprint", letter.fingerprint),
            ("tags", listed(letter.tags) if letter.tags else None),
            ("key", letter.key),
            ("correlation", letter.correlation_id),
            ("causation", letter.causation_id),
        ]
    )
    say("\nPayload")
    say(pretty(letter.payload))
    say("\nLog")
    print_table(ENTRIES, log)
    print_error(letter.error)


@dead.command(
    examples="""
    headrace dead redrive 42
    headrace dead redrive --fingerprint 0f5a1d2e9c3b4a68 --reason 'the bank is back'
    headrace dead redrive --all --rate 50
    """,
)
def redrive(
    ids: MaybeIds = None,
    everything: Everything = False,
    types: options.Types = None,
    fingerprint: Fingerprint = None,
    rate: options.Rate = None,
    reason: Reason = "",
    *,
    where: Where,
) -> None:
    """Retry dead letters: by id, by type, by kind of error, or all."""
    _must_choose(ids, types, fingerprint, everything)
    with where.opened() as source:
        done = in_steps(
            "Redriving",
            len(ids) if ids else None,
            lambda progress: source.redrive(
                ids or None,
                types=types,
                fingerprint=fingerprint,
                rate=rate,
                reason=reason,
                progress=progress,
            ),
            "redriven",
        )
    say(f"Redriven: {count(done, 'event')}.")
    _missing(ids, done)


@dead.command(
    examples="""
    headrace dead purge 42 43
    headrace dead purge --type 'test.*' --yes
    """,
)
def purge(
    ids: MaybeIds = None,
    everything: Everything = False,
    types: options.Types = None,
    fingerprint: Fingerprint = None,
    reason: Reason = "",
    yes: Yes = False,
    *,
    where: Where,
) -> None:
    """Remove dead letters permanently. The log of their events stays."""
    _must_choose(ids, types, fingerprint, everything)
    with where.opened() as source:
        which = f"{count(len(ids), 'dead letter')}" if ids else "the chosen dead letters"
        which = "all dead letters" if everything else which
        confirm(f"This permanently removes {which} of {where.namespace}/{where.queue}", yes=yes)
        done = in_steps(
            "Removing",
            len(ids) if ids else None,
            lambda progress: source.purge(
                "dead_letters",
                ids or None,
                types=types,
                fingerprint=fingerprint,
                reason=reason,
                progress=progress,
            ),
            "removed",
        )
    say(f"Removed: {count(done, 'dead letter')}.")
    _missing(ids, done)


def _must_choose(
    ids: list[int] | None, types: list[str] | None, fingerprint: str | None, everything: bool
) -> None:
    chosen = bool(ids or types or fingerprint)
    if chosen == everything:
        raise WrongUse(
            "--all cannot be combined with ids, --type or --fingerprint"
            if everything
            else "no dead letters chosen: give ids, --type, --fingerprint or --all"
        )


def _missing(ids: list[int] | None, done: int) -> None:
    if ids and done < len(set(ids)):
        missing = len(set(ids)) - done
        what = "is not a dead letter" if missing == 1 else "are not dead letters"
        remark(f"{missing:,} of the given ids {what}.", "yellow")

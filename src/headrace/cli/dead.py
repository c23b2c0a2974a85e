"""`headrace dead`: what used up its attempts, why, and how it is given another chance."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from headrace.cli import options, times
from headrace.cli.asking import confirm
from headrace.cli.failing import WrongUse
from headrace.cli.help import Group, described
from headrace.cli.options import Data, Dsn, Json, Namespace, Queue, Reason, Yes
from headrace.cli.progress import in_steps
from headrace.cli.show import ENTRIES, Id, last_line, print_error
from headrace.cli.showing import (
    Column,
    Show,
    clean,
    count,
    listed,
    number,
    pretty,
    print_facts,
    print_json,
    print_table,
    remark,
    say,
    state,
)
from headrace.cli.source import opened
from headrace.model import DeadLetter

PAGE = 1000

dead = typer.Typer(
    cls=Group,
    help="Dead letters: what used up its attempts. Without a command: list.",
)

LETTERS = (
    Show(Column("id", 0, right=True), lambda one: str(one.id)),
    Show(Column("type", 1, 12), lambda one: one.type),
    Show(Column("died", 2, right=True), lambda one: times.ago(one.died_at)),
    Show(Column("died at", 5), lambda one: times.exact(one.died_at)),
    Show(Column("attempts", 4, right=True), lambda one: number(one.attempts)),
    Show(Column("fingerprint", 6), lambda one: one.fingerprint or "–"),
    Show(Column("why", 1, 20), lambda one: last_line(one.error) if one.error else one.reason),
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
        help="Only errors of one kind, as `headrace dead list --groups` names it.",
        show_default=False,
    ),
]
MaybeIds = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID", help="The events' ids.", min=1, show_default=False),
]
Everything = Annotated[bool, typer.Option("--all", help="All that are dead in the queue now.")]


@described(
    dead,
    "list",
    examples="""
    headrace dead
    headrace dead list --groups
    headrace dead list --type 'payment.*' --since 1d --json | jq -r .error
    """,
)
def list_(
    groups: Annotated[
        bool, typer.Option("--groups", help="By kind of error, the most frequent first.")
    ] = False,
    types: options.Types = None,
    fingerprint: Fingerprint = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = 20,
    before: Annotated[
        int | None,
        typer.Option(metavar="ID", help="Page on: only older events.", show_default=False),
    ] = None,
    payload: Annotated[
        bool, typer.Option("--payload", help="With their payloads (in JSON).")
    ] = False,
    json: Json = False,
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """List the dead letters of a queue, the newest event first, or the kinds of errors."""
    if groups and (types or fingerprint or since or until or before):
        raise WrongUse("--groups is of all the dead letters of a queue: leave the filters out")
    with opened(dsn, data, namespace, queue) as source:
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
            remark(f"There may be more: --before {found[-1].id}, or a higher --limit.")
    else:
        say(f"There are no such dead letters in {clean(namespace)}/{clean(queue)}.")


@described(
    dead,
    examples="""
    headrace dead show 42
    headrace dead show 42 --json | jq .payload
    """,
)
def show(
    id: Id,
    json: Json = False,
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Show one dead letter: its payload, why it died, what happened before."""
    with opened(dsn, data, namespace, queue) as source:
        letter = source.dead_letter(id)
        log = [entry for entry in source.log(id) if entry.queue in (None, queue)]
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
    say("\nWhat happened")
    print_table(ENTRIES, log)
    print_error(letter.error)


@described(
    dead,
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
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            min=0.001,
            help="So many a second; else all at once.",
            show_default=False,
        ),
    ] = None,
    reason: Reason = "",
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Make dead letters deliveries again: those that are named, or of some types, or of one kind of error, or all."""
    _must_choose(ids, types, fingerprint, everything)
    with opened(dsn, data, namespace, queue) as source:
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


@described(
    dead,
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
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Remove dead letters for good. What happened to their events stays in the log."""
    _must_choose(ids, types, fingerprint, everything)
    with opened(dsn, data, namespace, queue) as source:
        which = f"{count(len(ids), 'dead letter')}" if ids else "the chosen dead letters"
        which = "all dead letters" if everything else which
        confirm(f"This removes {which} of {namespace}/{queue} for good", yes=yes)
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
            "--all is for all of them, without ids, --type or --fingerprint"
            if everything
            else "which ones? Name ids, --type or --fingerprint, or say --all"
        )


def _missing(ids: list[int] | None, done: int) -> None:
    if ids and done < len(set(ids)):
        remark(
            f"{count(len(set(ids)) - done, 'other')} of those named are not dead here.", "yellow"
        )

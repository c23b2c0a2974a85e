"""`headrace state`: a queue as a file, for a backup or a move to another database."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.source import ALONE, InDatabase, InNamespace, opened
from headrace.cli.terminal.command import Group
from headrace.cli.terminal.errors import Interrupted, NotDone, WrongUse
from headrace.cli.terminal.progress import Bar
from headrace.cli.terminal.text import clean, count, remark, say

if TYPE_CHECKING:
    from headrace.client import EventQueue
    from headrace.model import Imported

state = Group("state", "A queue as a file: a backup, or a move to another database.")


@state.command(
    "export",
    examples="""
    headrace state export main > main.jsonl
    headrace state export shop/billing --output billing.jsonl
    headrace pause billing && headrace state export billing --move --output billing.jsonl
    """,
)
def export(
    name: Annotated[
        str, typer.Argument(metavar="QUEUE", help="Name of the queue, or NAMESPACE/QUEUE.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Output file, which appears when it is complete; default: standard output.",
            show_default=False,
        ),
    ] = None,
    move: Annotated[
        bool,
        typer.Option(
            "--move",
            help="Move the queue: take back its claims. It must be paused or draining.",
        ),
    ] = False,
    *,
    where: InNamespace,
) -> None:
    """Write a queue to a file: its settings and all its events with payloads, dead letters
    included.

    The export is a consistent snapshot, and work continues meanwhile. With --move the current
    claims can no longer be finished, so that nothing is done twice after the import; the queue
    is then paused, and stays unchanged until you remove it."""
    space, queue = _named(name, where.namespace)
    if output is None and sys.stdout.isatty():
        raise WrongUse(
            "a state is not for the terminal: give --output FILE, or redirect standard output"
        )
    if where.shards():
        raise WrongUse(ALONE)
    with opened(where.dsn, where.data, space, queue) as source, _written(output) as file:
        done = _export(source, file, move=move)
    remark(f"Exported {clean(space)}/{clean(queue)}: {count(done, 'event')}.")


def _export(source: EventQueue, file: IO[bytes], *, move: bool) -> int:
    from headrace.engine.transfer import part_size

    done = 0
    try:
        with Bar("Exporting", None) as bar:
            for line in source.export_state(move=move):
                file.write(line)
                done += part_size(line)
                bar.at(done, len(line))
        file.flush()
    except KeyboardInterrupt:
        raise Interrupted(
            "Interrupted: the file is incomplete, and an import would refuse it."
        ) from None
    return done


@contextmanager
def _written(output: Path | None) -> Iterator[IO[bytes]]:
    """A file that appears when it is complete."""
    if output is None:
        yield sys.stdout.buffer
        return
    partial = output.with_name(f"{output.name}.part")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(output)
    except OSError as error:
        raise NotDone(f"cannot write {output}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


@state.command(
    "import",
    examples="""
    headrace state import main.jsonl
    headrace state import billing.jsonl --as shop/billing --dsn postgresql://elsewhere
    headrace state export main --dsn postgresql://here | headrace state import - --dsn postgresql://there
    """,
)
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Exported file; - is standard input.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAMESPACE/QUEUE",
            help="Import into this queue; default: the queue of the same name.",
            show_default=False,
        ),
    ] = None,
    *,
    where: InDatabase,
) -> None:
    """Import an exported queue: all of it, or nothing if the file is incomplete.

    A missing queue or namespace is created. Events that were in progress become ready; order,
    delays, counters and dead letters are kept. Events of an earlier import stay unchanged. No
    other queue gets an event."""
    from headrace.engine import transfer

    if where.shards():
        raise WrongUse(ALONE)
    with _read(file) as given, transfer.opened(given) as contents:
        space, queue = contents.queue if name is None else _named(name, None)
        bar = Bar("Importing", contents.events)
        try:
            with opened(where.dsn, where.data, space, queue) as source, bar:
                done = source.import_state(contents, progress=bar.at)
        except KeyboardInterrupt:
            raise Interrupted(
                "Interrupted: nothing was imported or, during the commit, everything. Import it again: that is safe."
            ) from None
    _tell(f"{clean(space)}/{clean(queue)}", done)


def _tell(where: str, done: Imported) -> None:
    made = "The queue was created with its settings" if done.is_new else "The queue existed"
    places = f"{done.ready:,} ready, {done.delayed:,} delayed, {done.dead:,} dead letters"
    say(f"Imported {where}: {places}.")
    if done.ready or done.delayed or done.dead:
        made += f". The events have {'kept their ids' if done.kept_ids else 'new ids'}"
    remark(f"{made}.")
    if done.already:
        remark(f"{count(done.already, 'event')} were in the queue already and stayed unchanged.")


@contextmanager
def _read(file: str) -> Iterator[Any]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as given:
            yield given
    except FileNotFoundError:
        raise WrongUse(f"{file} does not exist") from None
    except OSError as error:
        raise NotDone(f"cannot read {file}: {error.strerror or error}") from error


def _named(name: str, namespace: str | None) -> tuple[str, str]:
    """The namespace and the queue of a name with or without a slash."""
    space, slash, queue = name.rpartition("/")
    if not slash and namespace is None:
        raise WrongUse(f"--as must be NAMESPACE/QUEUE, not {name}")
    return (space, queue) if slash else (namespace or "default", name)

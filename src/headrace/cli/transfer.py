"""`headrace state`: a queue as a file, to be kept or to be moved to another database."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.failing import Interrupted, NotDone, WrongUse
from headrace.cli.help import Group, described
from headrace.cli.options import Data, Dsn, Namespace
from headrace.cli.progress import Bar
from headrace.cli.showing import clean, count, remark, say
from headrace.cli.source import opened

if TYPE_CHECKING:
    from headrace.client import EventQueue
    from headrace.model import Imported

state = typer.Typer(
    cls=Group, help="A queue as a file: to keep it, or to move it to another database."
)


@described(
    state,
    "export",
    examples="""
    headrace state export main > main.jsonl
    headrace state export shop/billing --output billing.jsonl
    headrace pause billing && headrace state export billing --move --output billing.jsonl
    """,
)
def export(
    name: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue, or NAMESPACE/QUEUE.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write it to this file, which appears when it is whole; else to standard output.",
            show_default=False,
        ),
    ] = None,
    move: Annotated[
        bool,
        typer.Option(
            "--move",
            help="The queue is to go elsewhere: take back what is claimed. It must be paused or draining.",
        ),
    ] = False,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Write a queue to a file: its settings and all its events with their payloads, dead letters too.

    All of it is of one moment, and work goes on meanwhile. With --move nobody can finish any more what is claimed now, so that
    nothing is done twice when it is imported elsewhere; the queue is paused then, and stays as it is until you remove it."""
    space, queue = _named(name, namespace)
    if output is None and sys.stdout.isatty():
        raise WrongUse("a state is for a file: give --output FILE, or redirect standard output")
    with opened(dsn, data, space, queue) as source, _written(output) as file:
        done = _export(source, file, move=move)
    remark(f"Exported {clean(space)}/{clean(queue)}: {count(done, 'event')}.")


def _export(source: EventQueue, file: IO[bytes], *, move: bool) -> int:
    from headrace.transfer import part_size

    done = 0
    try:
        with Bar("Exporting", None) as bar:
            for line in source.export_state(move=move):
                file.write(line)
                done += part_size(line)
                bar.at(done, len(line))
        file.flush()
    except KeyboardInterrupt:
        raise Interrupted("Interrupted: the file is not whole, and would be refused.") from None
    return done


@contextmanager
def _written(output: Path | None) -> Iterator[IO[bytes]]:
    """A file that is there when all of it was written."""
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
        raise NotDone(f"{output} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


@described(
    state,
    "import",
    examples="""
    headrace state import main.jsonl
    headrace state import billing.jsonl --as shop/billing --dsn postgresql://elsewhere
    headrace state export main --dsn postgresql://here | headrace state import - --dsn postgresql://there
    """,
)
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="What was exported; - is standard input.")
    ],
    name: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NAMESPACE/QUEUE",
            help="Import it into this queue; else into the one of the name that it had.",
            show_default=False,
        ),
    ] = None,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Import a queue that was exported, here or elsewhere: all of it, or nothing if the file is not whole.

    A queue or namespace that is not there is made. What was in progress is ready again; order, delays, counters and dead letters
    stay. What the queue had before, from an earlier import, is left as it is. No other queue gets anything."""
    from headrace import transfer

    with _read(file) as given, transfer.opened(given) as contents:
        space, queue = contents.queue if name is None else _named(name, None)
        bar = Bar("Importing", contents.events)
        try:
            with opened(dsn, data, space, queue) as source, bar:
                done = source.import_state(contents, progress=bar.at)
        except KeyboardInterrupt:
            raise Interrupted(
                "Interrupted: nothing was imported, or, at the very end, all of it. Import it again: that does no harm."
            ) from None
    _tell(f"{clean(space)}/{clean(queue)}", done)


def _tell(where: str, done: Imported) -> None:
    made = "Created the queue, with its settings" if done.is_new else "The queue was there"
    places = f"{done.ready:,} ready, {done.delayed:,} delayed, {done.dead:,} dead letters"
    say(f"Imported {where}: {places}.")
    if done.ready or done.delayed or done.dead:
        made += f". The events have {'the ids that they had' if done.kept_ids else 'new ids'}"
    remark(f"{made}.")
    if done.already:
        remark(
            f"{count(done.already, 'event')} had been in the queue before, and stayed as they are."
        )


@contextmanager
def _read(file: str) -> Iterator[Any]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as given:
            yield given
    except FileNotFoundError:
        raise WrongUse(f"there is no file {file}") from None
    except OSError as error:
        raise NotDone(f"{file} cannot be read: {error.strerror or error}") from error


def _named(name: str, namespace: str | None) -> tuple[str, str]:
    """The namespace and the queue that are meant by a name with a slash or without."""
    space, slash, queue = name.rpartition("/")
    if not slash and namespace is None:
        raise WrongUse(f"--as is NAMESPACE/QUEUE, not {name}")
    return (space, queue) if slash else (namespace or "default", name)

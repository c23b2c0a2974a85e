"""`headrace publish`: an event from the arguments, or one for each line of a file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from headrace.cli.source import InNamespace
from headrace.cli.terminal import options, settings, times
from headrace.cli.terminal.command import command, given
from headrace.cli.terminal.errors import WrongUse
from headrace.cli.terminal.json import json_line
from headrace.cli.terminal.options import Json
from headrace.cli.terminal.text import clean, remark, say
from headrace.model import NewEvent

Type = Annotated[
    str | None,
    typer.Argument(metavar="TYPE", help="Event type, as in order.created.", show_default=False),
]
Payload = Annotated[
    str | None,
    typer.Argument(
        metavar="JSON", help="Payload; - reads it from standard input.", show_default=False
    ),
]
Delay = Annotated[
    timedelta | None,
    typer.Option(
        parser=times.duration,
        metavar="TIME",
        help="Deliver it after this delay: 90s, 10m, 1d.",
        show_default=False,
    ),
]
At = Annotated[
    datetime | None,
    typer.Option(
        parser=times.instant,
        metavar="TIME",
        help="Deliver it at this time: 2026-03-01T12:00Z.",
        show_default=False,
    ),
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Idempotency key: publishing again with it adds no second event.",
        show_default=False,
    ),
]
Unique = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Unique key: no second event is added while an event with it is unfinished.",
        show_default=False,
    ),
]
Debounce = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Debounce key: supersedes the waiting event with the same key. Needs --settle.",
        show_default=False,
    ),
]
Settle = Annotated[
    timedelta | None,
    typer.Option(
        parser=times.duration,
        metavar="TIME",
        help="Quiet time after which a debounced event is delivered: 2s.",
        show_default=False,
    ),
]
AtLatest = Annotated[
    timedelta | None,
    typer.Option(
        parser=times.duration,
        metavar="TIME",
        help="Maximum delay of a debounced event, counted from the first one: 10s.",
        show_default=False,
    ),
]
Version = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Schema version of the payload.", show_default=False),
]
CorrelationId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="ID shared by related events.", show_default=False),
]
CausationId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="ID of the event that caused it.", show_default=False),
]
TraceId = Annotated[str | None, typer.Option(metavar="ID", help="Trace ID.", show_default=False)]
Producer = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the publisher.", show_default=False)
]


@dataclass(frozen=True)
class Fields:
    """The fields of an event but for its type and payload, under their names in NewEvent."""

    tags: options.EventTags = None
    delay: Delay = None
    at: At = None
    priority: options.Priority = None
    key: options.Key = None
    idempotency_key: IdempotencyKey = None
    unique: Unique = None
    debounce: Debounce = None
    settle: Settle = None
    at_latest: AtLatest = None
    max_retries: options.MaxRetries = None
    title: options.Title = None
    description: options.Description = None
    version: Version = None
    correlation_id: CorrelationId = None
    causation_id: CausationId = None
    trace_id: TraceId = None
    producer: Producer = None
    headers: settings.Headers = None


@command(
    examples="""
    headrace publish order.created '{"order": 42}' --tag priority-high
    headrace publish report.requested --delay 10m --key customer-7
    curl -s https://example.com/order.json | headrace publish order.imported -
    headrace publish order.created --lines orders.jsonl
    zcat events.jsonl.gz | headrace publish --lines -
    """,
)
def publish(
    type: Type = None,
    payload: Payload = None,
    lines: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Publish each line of this file (-: of standard input). With a TYPE a line is a "
            "payload of that type, else an event: an object with type, payload, tags, key, "
            "idempotency_key …",
            show_default=False,
            allow_dash=True,
        ),
    ] = None,
    from_line: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, help="With --lines: start at this line.")
    ] = 1,
    *,
    fields: Fields,
    json: Json = False,
    where: InNamespace,
) -> None:
    """Publish an event, or one for each line of a file.

    Lines are published in batches of a thousand, each committed on its own. If a line is
    invalid, or the command is interrupted, it reports the last published line, and --from-line
    continues after it. Lines with an idempotency_key may safely be published again."""
    common = given(fields)
    if lines is not None:
        if payload is not None:
            raise WrongUse("--lines reads payloads from the file: leave the JSON out")
        for name in ("idempotency_key", "unique", "debounce"):
            if getattr(fields, name) is not None:
                option, field = name.replace("_", "-"), f"{'an' if name[0] == 'i' else 'a'} {name}"
                raise WrongUse(
                    f"--{option} is for one event: with --lines, put {field} in each line"
                )
        from headrace.cli.commands.publish_lines import Lines, publish_lines

        source = Lines(lines, from_line, type, common)
        with where.opened() as queue:
            publish_lines(queue, source, json=json)
        return
    if type is None:
        raise WrongUse("publish needs a TYPE, or --lines with a file of events")
    event = NewEvent(type, _payload(payload), **common)
    with where.opened() as queue:
        [id] = made = queue.publish_many([event])
    if json:
        said = {"id": id, "type": type, "namespace": where.namespace, "pressure": made.pressure}
        say(json_line(said))
        return
    say(f"Published: event {id}")
    if made.pressure:
        remark("A queue that takes it is above its high watermark.", style="yellow")


def _payload(text: str | None) -> Any:
    if text is None:
        return None
    given = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    try:
        msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = "standard input" if text == "-" else clean(f"{text:.60}")
        raise WrongUse(
            f"{what} is not valid JSON ({error}); quote a string, as in '\"hello\"'"
        ) from None
    return msgspec.Raw(given.strip())

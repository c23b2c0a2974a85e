"""`headrace publish`: an event from the arguments, or one for each line of a file."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from headrace.cli import options, settings, times
from headrace.cli.failing import WrongUse
from headrace.cli.help import described
from headrace.cli.options import Data, Dsn, Json, Namespace
from headrace.cli.showing import clean, json_line, remark, say
from headrace.cli.source import opened
from headrace.model import NewEvent


def register(app: typer.Typer) -> None:
    described(
        app,
        panel="Events",
        examples="""
        headrace publish order.created '{"order": 42}' --tag priority-high
        headrace publish report.requested --delay 10m --key customer-7
        curl -s https://example.com/order.json | headrace publish order.imported -
        headrace publish order.created --lines orders.jsonl
        zcat events.jsonl.gz | headrace publish --lines -
        """,
    )(publish)


def publish(
    type: Annotated[
        str | None,
        typer.Argument(
            metavar="TYPE", help="The event's type, as in order.created.", show_default=False
        ),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Argument(
            metavar="JSON", help="Its payload; - reads it from standard input.", show_default=False
        ),
    ] = None,
    lines: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Publish every line of this file (-: of standard input). With a TYPE a line is a payload of it, else an "
            "event: an object with type, payload, tags, key, idempotency_key …",
            show_default=False,
            allow_dash=True,
        ),
    ] = None,
    from_line: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, help="With --lines: begin with this line.")
    ] = 1,
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="A tag. Repeat for several.", show_default=False),
    ] = None,
    delay: Annotated[
        timedelta | None,
        typer.Option(
            parser=times.duration,
            metavar="TIME",
            help="Not before this has passed: 90s, 10m, 1d.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option(
            parser=times.instant,
            metavar="TIME",
            help="Not before this time: 2026-03-01T12:00Z.",
            show_default=False,
        ),
    ] = None,
    priority: options.Priority = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Ordering key: events of one key are handed out one at a time, in order.",
            show_default=False,
        ),
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Published again with this key, it is the same event.",
            show_default=False,
        ),
    ] = None,
    max_retries: options.MaxRetries = None,
    title: options.ForPeople = None,
    description: options.ForPeople = None,
    version: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Of the payload's form.", show_default=False)
    ] = None,
    correlation_id: Annotated[
        str | None, typer.Option(metavar="ID", help="What it belongs to.", show_default=False)
    ] = None,
    causation_id: Annotated[
        str | None, typer.Option(metavar="ID", help="What caused it.", show_default=False)
    ] = None,
    trace_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Of its trace.", show_default=False)
    ] = None,
    producer: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who publishes it.", show_default=False)
    ] = None,
    headers: settings.Headers = None,
    json: Json = False,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Publish an event, or one for each line of a file.

    Lines are published in batches of a thousand, each committed on its own. If a line is wrong, or it is
    interrupted, it is said how far it came, and --from-line goes on from there. Lines with an idempotency_key may
    be published again without harm."""
    said: dict[str, Any] = {
        "tags": tags,
        "delay": delay,
        "at": at,
        "priority": priority,
        "key": key,
        "idempotency_key": idempotency_key,
        "max_retries": max_retries,
        "title": title,
        "description": description,
        "version": version,
        "correlation_id": correlation_id,
        "causation_id": causation_id,
        "trace_id": trace_id,
        "producer": producer,
        "headers": headers,
    }
    common = {name: value for name, value in said.items() if value is not None}
    if lines is not None:
        if payload is not None:
            raise WrongUse("with --lines the payloads are in the lines: leave the JSON out")
        if idempotency_key is not None:
            raise WrongUse(
                "an idempotency key is for one event: with --lines every line has its own"
            )
        from headrace.cli.lines import Lines, publish_lines

        source = Lines(lines, from_line, type, common)
        with opened(dsn, data, namespace) as queue:
            publish_lines(queue, source, json=json)
        return
    if type is None:
        raise WrongUse("publish needs a TYPE, or --lines with a file of events")
    event = NewEvent(type, _payload(payload), **common)
    with opened(dsn, data, namespace) as queue:
        [id] = made = queue.publish_many([event])
    if json:
        say(json_line({"id": id, "type": type, "namespace": namespace, "pressure": made.pressure}))
        return
    say(f"Published: event {id}")
    if made.pressure:
        remark("A queue that takes it has reached its high watermark.", style="yellow")


def _payload(text: str | None) -> Any:
    if text is None:
        return None
    given = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    try:
        msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = "what standard input has" if text == "-" else clean(f"{text:.60}")
        raise WrongUse(
            f"{what} is no JSON ({error}); a text is quoted, as in '\"hello\"'"
        ) from None
    return msgspec.Raw(given.strip())

"""The settings of a queue as options."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Literal

import typer

from headrace.cli.terminal import options, settings, times
from headrace.cli.terminal.limits import Aging, FairBy, Limits

MaxDepth = Annotated[
    int | None,
    typer.Option(
        "--max-queue-depth",
        metavar="NUMBER",
        min=1,
        help="Refuse new events while this many wait.",
        show_default=False,
    ),
]
HighWatermark = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        min=1,
        help="Tell publishers of pressure while this many wait.",
        show_default=False,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER", min=1, help="Maximum number of events per claim.", show_default=False
    ),
]
Interval = Annotated[
    timedelta | None,
    typer.Option(
        "--processing-interval",
        parser=times.duration,
        metavar="TIME",
        help="Poll interval of an idle worker: 1s.",
        show_default=False,
    ),
]
Threshold = Annotated[
    int | None,
    typer.Option(
        "--persistence-threshold",
        metavar="NUMBER",
        min=1,
        help="Save the queue's state as soon as this many wait.",
        show_default=False,
    ),
]
RequireToken = Annotated[
    bool | None,
    typer.Option(
        "--require-lease-token/--no-lease-token",
        help="Whether finishing or extending a claim requires its lease token.",
        show_default=False,
    ),
]
Order = Annotated[
    Literal["fair", "oldest"] | None,
    typer.Option(
        help="fair: types and tags take turns; oldest: strictly by priority and id.",
        show_default=False,
    ),
]
Lease = Annotated[
    timedelta | None,
    typer.Option(
        "--lease",
        parser=times.lease,
        metavar="TIME",
        help="Lease of a claim that sets none itself: 10m.",
        show_default=False,
    ),
]
MaxSnoozes = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Maximum number of snoozes of an event; a further one counts as a failure.",
        min=0,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Settings:
    """The settings of a queue, under the names that the client has for them."""

    max_retries: options.MaxRetries = None
    backoff: settings.Backoff = None
    max_queue_depth: MaxDepth = None
    high_watermark: HighWatermark = None
    batch_size: BatchSize = None
    processing_interval: Interval = None
    persistence_threshold: Threshold = None
    require_lease_token: RequireToken = None
    order: Order = None
    lease: Lease = None
    limits: Limits = None
    fair_by: FairBy = None
    aging: Aging = None
    max_snoozes: MaxSnoozes = None
    metadata: settings.Metadata = None

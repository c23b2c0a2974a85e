"""`headrace up` without an audience: the upkeep of a database, until it is told to stop."""

from __future__ import annotations

import threading
import time

import psycopg
import typer
from psycopg_pool import PoolTimeout

import headrace
from headrace.cli.signals import stop_on_signals
from headrace.cli.source import Source

INTERVAL = 1.0


def run(where: Source, seconds: float | None) -> None:
    """Tick once a second."""
    stop = threading.Event()
    end = None if seconds is None else time.monotonic() + seconds
    with stop_on_signals(stop), headrace.connect(where.dsn) as queue:
        typer.echo(f"Headrace is up: {where.name}")
        if where.embedded:  # an address of yours may hold a password
            typer.echo(f"  export HEADRACE_DSN='{where.dsn}'")
        typer.echo("Ctrl-C stops it.")
        well = True
        while not stop.wait(INTERVAL) and (end is None or time.monotonic() < end):
            well = beat(queue, well)
    typer.echo("Stopped.")


def beat(queue: headrace.EventQueue, well: bool) -> bool:
    """Do what is due. PostgreSQL may be away for a while: said once, and tried again until it is back."""
    try:
        while queue.tick().more:
            pass
    except (psycopg.Error, PoolTimeout) as error:
        if well:
            typer.echo(f"PostgreSQL is away, trying again: {str(error).splitlines()[0]}", err=True)
        return False
    if not well:
        typer.echo("PostgreSQL is back.", err=True)
    return True

"""`headrace migrate`: brings a database to this release, in one transaction."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.source import InDatabase
from headrace.cli.terminal.command import command
from headrace.cli.terminal.errors import Interrupted, WrongUse
from headrace.cli.terminal.progress import Bar
from headrace.cli.terminal.text import clean, remark

if TYPE_CHECKING:
    import psycopg

Sql = Annotated[bool, typer.Option("--sql", help="Print the SQL instead of running it.")]
Core = Annotated[
    bool | None,
    typer.Option("--core/--no-core", help="Views and functions in a schema named core."),
]
Partman = Annotated[
    bool | None,
    typer.Option("--partman/--no-partman", help="Let pg_partman manage monthly partitions."),
]
PgCron = Annotated[
    bool | None,
    typer.Option("--pg-cron/--no-pg-cron", help="Let pg_cron run the upkeep and the schedules."),
]
Pgmq = Annotated[
    bool | None,
    typer.Option("--pgmq/--no-pgmq", help="Functions of pgmq, for its clients."),
]

Stride = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER", help="Maximum number of shards, for ever: a power of two, 1 to 1024."
    ),
]
Shard = Annotated[
    int | None,
    typer.Option(metavar="NUMBER", help="Number of this shard, from 0. Never changes."),
]


@dataclass(frozen=True)
class Parts:
    """The optional parts: True adds one, False removes it, None leaves it."""

    core: Core = None
    partman: Partman = None
    pg_cron: PgCron = None
    pgmq: Pgmq = None


@command(
    examples="""
    headrace migrate
    headrace migrate --sql | less
    headrace migrate --core --pg-cron
    headrace migrate --stride 64 --shard 3
    headrace migrate --stride 64 --dsn postgresql://a/shop --dsn postgresql://b/shop
    """,
)
def migrate(
    *,
    sql: Sql = False,
    stride: Stride = None,
    shard: Shard = None,
    parts: Parts,
    where: InDatabase,
) -> None:
    """Bring a database to this release. Safe to repeat, also while workers run.

    Optional parts stay installed and upgraded until removed with --no-…. --stride makes a new
    database one of several that share the ids, or an existing one their shard 0. Of several --dsn
    the first is then shard 0, the next shard 1.
    """
    from headrace.driver.connect import open_session
    from headrace.install.migrate import script

    wishes = asdict(parts).items()
    add = [name for name, wanted in wishes if wanted is True]
    remove = [name for name, wanted in wishes if wanted is False]
    if sql:
        sys.stdout.write(script(add=add, remove=remove, stride=stride, shard=shard))
        return
    several = where.shards()
    if several and shard is not None:
        raise WrongUse("--shard is for one database: of several, the first is shard 0")
    with where.each_database() as sources:
        for place, source in enumerate(sources):
            number = place if several and stride is not None else shard
            with open_session(source.dsn) as connection:
                changed = migrate_with_bar(
                    connection, add=add, remove=remove, stride=stride, shard=number
                )
            typer.echo(f"{source.name}: {'migrated to this release' if changed else 'up to date'}.")


def migrate_with_bar(
    connection: psycopg.Connection,
    *,
    add: Collection[str],
    remove: Collection[str],
    stride: int | None,
    shard: int | None,
) -> bool:
    from headrace.install import migrate

    connection.add_notice_handler(_tell)
    committing = False
    with Bar("Migrating", None, unit="parts") as bar:

        def progress(done: int, total: int) -> None:
            nonlocal committing
            committing = done == total
            bar.at(done, total=total)

        try:
            return migrate.migrate(
                connection, add=add, remove=remove, stride=stride, shard=shard, progress=progress
            )
        except KeyboardInterrupt:
            raise Interrupted(
                "Interrupted during the commit: migrate again to be sure."
                if committing
                else "Interrupted: nothing was changed."
            ) from None


def _tell(notice: psycopg.errors.Diagnostic) -> None:
    """Print the notices of migrate; PostgreSQL itself sends many more."""
    if notice.message_primary and notice.message_primary.startswith("headrace: "):
        remark(clean(notice.message_primary), style="")

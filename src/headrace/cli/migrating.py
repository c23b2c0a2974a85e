"""Migrates with a bar. It is one transaction: interrupted, nothing was changed."""

from __future__ import annotations

from collections.abc import Collection

import psycopg

from headrace.cli.failing import Interrupted
from headrace.cli.progress import Bar
from headrace.cli.showing import clean, remark
from headrace.migrate import migrate


def migrate_with_bar(
    connection: psycopg.Connection, *, add: Collection[str], remove: Collection[str]
) -> bool:
    connection.add_notice_handler(_tell)
    committing = False
    with Bar("Migrating", None, unit="parts") as bar:

        def progress(done: int, total: int) -> None:
            nonlocal committing
            committing = done == total
            bar.at(done, total=total)

        try:
            return migrate(connection, add=add, remove=remove, progress=progress)
        except KeyboardInterrupt:
            raise Interrupted(
                "Interrupted at the last moment: migrate again, to be sure that it is done."
                if committing
                else "Interrupted: nothing was changed."
            ) from None


def _tell(notice: psycopg.errors.Diagnostic) -> None:
    """Pass on what migrate has to say; PostgreSQL itself says much more."""
    if notice.message_primary and notice.message_primary.startswith("headrace: "):
        remark(clean(notice.message_primary), style="")

"""Migrates with a bar. It is one transaction: interrupted, nothing was changed."""

from __future__ import annotations

from collections.abc import Collection

import psycopg

from headrace.cli.failing import Interrupted
from headrace.cli.progress import Bar
from headrace.migrate import migrate


def migrate_with_bar(
    connection: psycopg.Connection, *, add: Collection[str], remove: Collection[str]
) -> bool:
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

"""Whether PostgreSQL commits: the readiness of servers and nodes.

It is not enough that PostgreSQL answers. A primary without its synchronous standby answers every
query, and no commit ever ends; a standby, or a server that was made read-only, takes no commit.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

import psycopg

from headrace.driver.async_session import AsyncSession
from headrace.driver.connect import usable
from headrace.driver.run import run_async
from headrace.driver.session_state import ABANDON
from headrace.engine import database
from headrace.errors import HeadraceError, SchemaError
from headrace.install.migrate import check_version

LASTS = 1.0  # seconds from one commit to the next, however many ask
PATIENCE = 2.0  # seconds that a commit may take
LATELY = 10.0  # seconds after which pools have connected again to a database that was away
BOUND = 10.0  # seconds until another is tried, on another connection


class Trouble(NamedTuple):
    """Why not."""

    code: str
    sentence: str


AWAY = Trouble("database_unavailable", "The database does not answer.")
STUCK = Trouble(
    "database_unavailable",
    f"The database has not committed within {PATIENCE:g} seconds: its synchronous standby may "
    "be down.",
)
READ_ONLY = Trouble("database_unavailable", "The database is read-only.")


class Readiness:
    """Proves it by a commit, on a connection of its own, when a caller asks. Callers within the
    same second share the result."""

    def __init__(self, dsn: str) -> None:
        self._dsn = usable(dsn)
        self._session: AsyncSession | None = None
        self._proof: asyncio.Task[Trouble | None] | None = None
        self._began = 0.0
        self._seen: tuple[float, Trouble] | None = None

    async def trouble(self) -> Trouble | None:
        """None: a commit has just worked."""
        now = monotonic()
        if self._proof is None or (self._proof.done() and now >= self._began + LASTS):
            self._began = now
            self._proof = asyncio.create_task(self._prove(), name="headrace readiness")
        proof = self._proof
        await asyncio.wait({proof}, timeout=max(0.0, self._began + PATIENCE - now))
        found = proof.result() if proof.done() else STUCK
        if found is not None:
            self._seen = monotonic(), found
        return found

    async def trouble_lately(self) -> Trouble | None:
        """Or what the trouble was until a moment ago, by which pools may have no connection yet."""
        found = await self.trouble()
        if found is None and self._seen is not None and monotonic() < self._seen[0] + LATELY:
            return self._seen[1]
        return found

    async def without(self) -> list[str]:
        """Of several shards, those with some trouble."""
        return []

    async def close(self) -> None:
        if self._proof is not None:
            self._proof.cancel()
            await asyncio.wait({self._proof})
        await self._hang_up()

    async def _prove(self) -> Trouble | None:
        was_kept = self._session is not None
        try:
            if self._session is None:
                self._session = await AsyncSession.connect_within(
                    BOUND, self._dsn, autocommit=True, prepare_threshold=None
                )
            proof = await run_async(self._session, database.prove_commit(), prepare=False)
            check_version(proof.version)
        except SchemaError as error:
            return Trouble("schema_mismatch", str(error))
        except (psycopg.Error, HeadraceError, OSError):
            is_lost = self._session is not None and self._session.closed
            await self._hang_up()
            # A connection that was lost while nobody asked says nothing about the next one.
            return await self._prove() if was_kept and is_lost else AWAY
        except asyncio.CancelledError:
            await self._hang_up()
            raise
        return READ_ONLY if proof.read_only else None

    async def _hang_up(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        try:
            with suppress(Exception):  # else what it waits for would stay on the server
                await session.cancel_safe(timeout=ABANDON)
        finally:
            session.pgconn.finish()

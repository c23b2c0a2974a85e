"""What a server does besides answering."""

import asyncio
import logging

import pytest

from headrace.engine.statement import Turns
from headrace.server import upkeep
from headrace.server.clients import Directory, open_directory
from tests.database import Database


@pytest.mark.anyio
async def test_it_goes_on_after_what_nobody_has_thought_of(
    db: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopping, planned = asyncio.Event(), 0

    def plan(directory: Directory) -> Turns[None]:
        nonlocal planned
        planned += 1
        if planned < 3:
            raise KeyError("a zone that this machine does not know")
        stopping.set()
        yield 0.0

    monkeypatch.setattr(upkeep, "_plan", plan)
    monkeypatch.setattr(upkeep, "INTERVAL", 0.001)
    monkeypatch.setattr(upkeep, "PLAN_EVERY", 0)
    caplog.set_level(logging.INFO, "headrace.server")
    async with open_directory(db.dsn, connections=3) as directory, asyncio.timeout(20):
        await upkeep.keep_up(directory, stopping)
    said = [record for record in caplog.records if record.name == "headrace.server"]
    assert ["a zone" in record.getMessage() for record in said] == [True, False]
    assert said[0].exc_info

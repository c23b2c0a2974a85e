"""Warns when file descriptors run out: the event loop would then drop new connections silently."""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
from pathlib import Path

INTERVAL = 1.0  # seconds between two looks
FEW, ENOUGH = 0.95, 0.8  # of the limit that are in use

logger = logging.getLogger("headrace.server")


async def watch_descriptors(stopping: asyncio.Event) -> None:
    """Watch until the server stops: one line when they run out, and one when it is over."""
    running_out = False
    while not stopping.is_set():
        used, limit = _used_and_limit()
        if not running_out and used >= FEW * limit:
            running_out = True
            logger.warning(
                "file descriptors run out: %d of %d are in use, and further clients are dropped. "
                "Raise the limit: ulimit -n, or LimitNOFILE of systemd",
                *(used, limit),
            )
        elif running_out and used < ENOUGH * limit:
            running_out = False
            logger.info("enough file descriptors again: %d of %d are in use", used, limit)
        try:
            await asyncio.wait_for(stopping.wait(), INTERVAL)
        except TimeoutError:
            continue


def _used_and_limit() -> tuple[int, float]:
    if sys.platform == "win32":
        return 0, float("inf")
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = float("inf") if soft == resource.RLIM_INFINITY else soft
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir()), limit
    except OSError as error:
        return (soft if error.errno in (errno.EMFILE, errno.ENFILE) else 0), limit

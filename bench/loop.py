"""An event loop that lasts from turn to turn, so that connections stay open: uvloop where it is installed."""

import asyncio
import importlib.util


def runner() -> asyncio.Runner:
    if has_uvloop():
        import uvloop

        return asyncio.Runner(loop_factory=uvloop.new_event_loop)
    return asyncio.Runner()


def has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None

"""Where it was measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any

from bench.loop import has_uvloop
from bench.server import Server


def machine(server: Server) -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "psycopg": importlib.metadata.version("psycopg"),
        "uvloop": has_uvloop(),
        "postgresql": server.version,
        "fsync": server.setting("fsync"),
        "fsync_ms": server.fsync_ms(),
        "autovacuum": server.setting("autovacuum"),
    }

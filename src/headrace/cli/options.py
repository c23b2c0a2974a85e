"""Options that many commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Dsn = Annotated[
    str | None,
    typer.Option(
        help="PostgreSQL to use; else HEADRACE_DSN, DATABASE_URL, or an embedded one.",
        show_default=False,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the embedded PostgreSQL; else HEADRACE_DATA, or .headrace here.",
        show_default=False,
    ),
]

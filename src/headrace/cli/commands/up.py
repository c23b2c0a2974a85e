"""`headrace up`: everything on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.commands import serve
from headrace.cli.source import InDatabase
from headrace.cli.terminal.command import Only, command

Demo = Annotated[
    bool, typer.Option("--demo", help="Publish sample events and kill a worker now and then.")
]
Options = Annotated[
    serve.Options,
    Only("host", "port", "seconds", "open", "token_file", "allow_host", "lease"),
]


@command(
    examples="""
    headrace up
    headrace up --demo
    headrace up --host 0.0.0.0 --port 8080 --token-file token
    """,
)
def up(*, demo: Demo = False, options: Options, where: InDatabase) -> None:
    """Start PostgreSQL with the schema, the HTTP API and the upkeep here. Ctrl-C stops it all."""
    from headrace.cli.demo.screen import run
    from headrace.driver.connect import open_session
    from headrace.install.migrate import migrate

    with where.database() as source:
        with open_session(source.dsn) as connection:
            migrate(connection)
        if demo:
            with serve.beside(source, options, open_until_token=True) as url:
                run(source, options.seconds, url)
        else:
            serve.run(source, options, greeting="Headrace is up", open_until_token=True)

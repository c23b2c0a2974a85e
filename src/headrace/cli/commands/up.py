"""`headrace up`: everything on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.commands import serve
from headrace.cli.source import InDatabase, Source, over_shards
from headrace.cli.terminal.command import Only, command
from headrace.cli.terminal.errors import WrongUse
from headrace.cli.terminal.text import count, remark

Demo = Annotated[
    bool, typer.Option("--demo", help="Publish sample events and kill a worker now and then.")
]
Options = Annotated[
    serve.Options,
    Only("host", "port", "seconds", "open", "token_file", "allow_host", "lease"),
]


Shards = Annotated[
    int | None,
    typer.Option(
        "--shards",
        metavar="NUMBER",
        min=1,
        max=64,
        help="Start so many servers, the shards of one installation. More may be added later.",
        show_default=False,
    ),
]


@command(
    examples="""
    headrace up
    headrace up --shards 3
    headrace up --demo
    headrace up --host 0.0.0.0 --port 8080 --token-file token
    """,
)
def up(*, demo: Demo = False, shards: Shards = None, options: Options, where: InDatabase) -> None:
    """Start PostgreSQL with the schema, the HTTP API and the upkeep here. Ctrl-C stops it all."""
    from headrace.cli.demo.screen import run
    from headrace.driver.connect import open_session
    from headrace.install.migrate import migrate

    if shards is not None:
        if demo or where.dsn:
            raise WrongUse("--shards starts servers of its own: leave --demo and --dsn out")
        with _shards(shards, where.data) as source:
            serve.run(source, options, greeting="Headrace is up", open_until_token=True)
        return
    with where.database() as source:
        with open_session(source.dsn) as connection:
            migrate(connection)
        if demo:
            with serve.beside(source, options, open_until_token=True) as url:
                run(source, options.seconds, url)
        else:
            serve.run(source, options, greeting="Headrace is up", open_until_token=True)


STRIDE = 64


@contextmanager
def _shards(number: int, data: Path | None) -> Iterator[Source]:
    """Servers below a folder, with the slots of keys spread over them. A server that is new gets the
    settings of the others first."""
    from headrace.driver.connect import open_session
    from headrace.embedded import EmbeddedPostgres
    from headrace.embedded.folder import data_folder
    from headrace.install.migrate import migrate

    folder = data_folder(data)
    there = len(list(folder.glob("shard-*")))
    if there > number:
        raise WrongUse(
            f"there are {there} shards in {folder}, and none can be left out: --shards {there}"
        )
    with ExitStack() as opened:
        dsns = []
        for shard in range(number):
            postgres = EmbeddedPostgres(folder / f"shard-{shard}", supervised=True)
            dsns.append(opened.enter_context(postgres).dsn)
            with open_session(dsns[-1]) as connection:
                migrate(connection, stride=STRIDE, shard=shard)
        if number > 1:
            with over_shards(dsns, "default", "main") as client:
                client.settle()
                moves = client.spread_slots(timeout=1)
            waiting = sum(len(one.slots) for one in moves if not one.is_over)
            if waiting:
                remark(f"{count(waiting, 'slot')} of keys arrive when their old home is empty.")
                threading.Thread(target=_go_on, args=[dsns], daemon=True).start()
        yield serve.all_shards(dsns, embedded=True)


def _go_on(dsns: list[str]) -> None:
    with over_shards(dsns, "default", "main") as client:
        client.spread_slots()

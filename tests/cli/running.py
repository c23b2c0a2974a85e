"""Commands run in this process, which is quick; in a terminal they are run by test_terminal.py."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.cli.program import run
from tests.database import Database


@dataclass(frozen=True)
class Said:
    """What a command has said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class CommandLine:
    """`headrace`, on a test's database."""

    def __init__(
        self,
        db: Database | str | None,
        capsys: pytest.CaptureFixture[str],
        where: list[str] | None = None,
    ) -> None:
        """The database, its address, or None: the commands name none."""
        self._capsys = capsys
        if where is None:
            dsn = db.dsn if isinstance(db, Database) else db
            where = [] if dsn is None else ["--dsn", dsn]
        self._where = where

    def tried(self, *arguments: str) -> Said:
        """Whatever comes of it; but never a traceback."""
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run([*arguments, *self._where])
        said = self._capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, said.out, said.err)

    def __call__(self, *arguments: str) -> Said:
        """Which must succeed."""
        said = self.tried(*arguments)
        assert said.code == 0, said.err
        return said

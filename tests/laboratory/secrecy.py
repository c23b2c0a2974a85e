"""The secrets of an experiment, a password and an API token, and where they must not be found: in what our programs and
PostgreSQL write, in what is stored, and in the process list, which everybody on a machine can read."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.laboratory.house import House

STORED = """
select c.oid::regclass::text from pg_class c
where c.relnamespace = 'headrace'::regnamespace and c.relkind = 'r'
"""


class Secrets:
    """What must stay hidden, and where it was seen."""

    def __init__(self, *secrets: str) -> None:
        self._secrets = [secret.encode() for secret in secrets]
        self.seen: set[str] = set()

    def look_at_processes(self) -> None:
        """At the command lines of all that run just now."""
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = file.read_bytes()
                if self._is_in(words):
                    self.seen.add(f"the command line of {words.split(bytes(1))[0].decode()}")

    def look_at_files(self, files: Iterable[Path]) -> None:
        for file in files:
            with suppress(FileNotFoundError):
                if self._is_in(file.read_bytes()):
                    self.seen.add(file.name)

    def look_at_tables(self, house: House) -> None:
        """At every row there is: the errors of handlers are among them, with their tracebacks."""
        for (table,) in house.sql(STORED):
            for secret in self._secrets:
                [(found,)] = house.sql(
                    f"select exists (select from {table} t where position(%s in t::text) > 0)",
                    secret.decode(),
                )
                if found:
                    self.seen.add(table)

    def _is_in(self, text: bytes) -> bool:
        return any(secret in text for secret in self._secrets)

"""Measures the house: how much a stranger must know to find a place and to make a change. `make house` prints it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[2]
SRC = PROJECT / "src" / "headrace"
SQL = SRC / "sql"

# What stands for a change: the files that name it are those that a change of its kind touches, but for those that give
# the sample a meaning of its own.
VERB = "resume_schedule"
EVENT_FIELD = "trace_id"
QUEUE_SETTING = "persistence_threshold"
OF_ITS_OWN = {
    VERB: {
        "sql/parts/core/_change_task.sql",  # the document's table is changed through it
        "sql/functions/schedules/pause_schedule.sql",  # whose comment says how to go on
    },
    EVENT_FIELD: {
        "telemetry/tracing.py",  # it is the trace
        "node/handler/context.py",  # an event that a handler emits has it from the event handled
        "server/api/cloudevents.py",  # CloudEvents call it traceparent
        "server/api/states.py",  # the state document has it
        "sql/functions/state/_state_events.sql",
    },
    QUEUE_SETTING: {
        "sql/functions/state/_save_states.sql",  # which it is for
        "sql/schema/5_state_transfer.sql",
        "server/api/states.py",  # the state document has its name, too
        "sql/functions/state/_state_config.sql",
        "sql/functions/queues/_plain_settings.sql",
    },
}

AT_FIRST = {
    "layers in the import contract": "19",
    "modules directly in src/headrace": "30 (7,600 lines)",
    "module names that are gerunds": "38",
    "module names in more than one room": "15",
    "SQL functions: public, private without `_`": "92, 159",
    "files that name a verb": "8",
    "files that name an event field": "17",
    "files that name a queue setting": "25",
    "lines of the clients and the verbs": "2,502",
    "longest Python file": "861",
    "longest SQL body": "168",
    "SQL lines over 120 characters": "814",
    "migrations before the first release": "13",
    "lines of Python": "27,935",
}


def python_files() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


def sql_files() -> list[Path]:
    return sorted(SQL.rglob("*.sql"))


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def layers() -> int:
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    [layered] = [
        one for one in contracts["tool"]["importlinter"]["contracts"] if one["type"] == "layers"
    ]
    return len(layered["layers"])


def flat_modules() -> list[Path]:
    return sorted(SRC.glob("*.py"))


def gerunds() -> list[str]:
    """The package `headrace.testing` is public, and called as its kind is called everywhere."""
    names = {file.stem for file in python_files()}
    return sorted(
        name for name in names if name.endswith("ing") and name not in {"routing", "testing"}
    )


def homonyms() -> list[str]:
    """The names that modules of several rooms have."""
    names = Counter(file.stem for file in python_files() if file.stem != "__init__")
    return sorted(name for name, times in names.items() if times > 1)


def functions() -> Iterator[Path]:
    yield from sorted((SQL / "functions").rglob("*.sql"))


def granted() -> set[str]:
    """The functions that roles are granted: the public ones."""
    roles = (SQL / "roles.sql").read_text(encoding="utf-8")
    return set(re.findall(r"^\s*(\w+): (?:publisher|worker|reader|admin)", roles, re.M))


def misnamed_functions() -> list[str]:
    """Public functions with an underscore, and private ones without."""
    public = granted()
    names = [file.stem for file in functions()]
    return sorted(name for name in names if name.startswith("_") == (name in public))


def naming(pattern: str) -> list[str]:
    """The files of the package that name something, in any spelling, and not only in a comment of SQL."""
    camel = re.sub(r"_(\w)", lambda match: match[1].upper(), pattern)
    dashed = pattern.replace("_", "-")
    wanted = re.compile(rf"(?<![A-Za-z_-])({pattern}|{camel}|{dashed})(?![A-Za-z_])")
    files = [file for kind in ("*.py", "*.sql", "*.js") for file in SRC.rglob(kind)]
    return sorted(
        file.relative_to(SRC).as_posix()
        for file in files
        if wanted.search(code(file)) and file.relative_to(SRC).as_posix() not in OF_ITS_OWN[pattern]
    )


@cache
def code(file: Path) -> str:
    """The text of a file; of the engine's SQL without comments, but for those of the functions that users call."""
    text = file.read_text(encoding="utf-8")
    return text if file.suffix != ".sql" or not is_private(file.stem) else re.sub("--.*", "", text)


def longest_python() -> tuple[int, str]:
    return max((len(lines(file)), file.relative_to(SRC).as_posix()) for file in python_files())


def bodies(file: Path) -> Iterator[int]:
    """The lengths of the function bodies in a file."""
    for body in re.findall(r"\bas (\$\w*\$)(.*?)\1", file.read_text(encoding="utf-8"), re.S):
        yield len(body[1].strip("\n").splitlines())


def longest_body() -> tuple[int, str]:
    return max((length, file.stem) for file in sql_files() for length in bodies(file))


def wide_sql() -> int:
    return sum(len(line) > 120 for file in sql_files() for line in lines(file))


def of_clients() -> int:
    """The lines of the two clients and of what they borrow: the classes of verbs, without their statements."""
    files = [SRC / "client.py", SRC / "async_client.py", SRC / "driver" / "borrow.py"]
    verbs = [
        node.end_lineno - node.lineno + 1
        for file in (SRC / "engine").glob("*.py")
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Verbs") and node.end_lineno
    ]
    return sum(len(lines(file)) for file in files) + sum(verbs)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def now() -> dict[str, str]:
    flat = flat_modules()
    longest, length = longest_python(), longest_body()
    public = granted()
    unmarked = [
        file.stem for file in functions() if file.stem not in public and not is_private(file.stem)
    ]
    return {
        "layers in the import contract": f"{layers()}",
        "modules directly in src/headrace": f"{len(flat)} ({sum(len(lines(one)) for one in flat):,} lines)",
        "module names that are gerunds": f"{len(gerunds())}",
        "module names in more than one room": f"{len(homonyms())}",
        "SQL functions: public, private without `_`": f"{len(public)}, {len(unmarked)}",
        "files that name a verb": f"{len(naming(VERB))}",
        "files that name an event field": f"{len(naming(EVENT_FIELD))}",
        "files that name a queue setting": f"{len(naming(QUEUE_SETTING))}",
        "lines of the clients and the verbs": f"{of_clients():,}",
        "longest Python file": f"{longest[0]} ({longest[1]})",
        "longest SQL body": f"{length[0]} ({length[1]})",
        "SQL lines over 120 characters": f"{wide_sql():,}",
        "migrations before the first release": f"{len(list((SQL / 'migrations').glob('*.sql')))}",
        "lines of Python": f"{sum(len(lines(one)) for one in python_files()):,}",
    }


def main() -> None:
    print(f"{'':45}{'0.1':>18}   now")
    for name, said in now().items():
        print(f"{name:45}{AT_FIRST[name]:>18}   {said}")
    if "--files" in sys.argv:
        for title, pattern in (
            ("A verb", VERB),
            ("An event field", EVENT_FIELD),
            ("A queue setting", QUEUE_SETTING),
        ):
            print(f"\n{title}, {pattern}:", *naming(pattern), sep="\n  ")
        print("\nGerunds:", *gerunds(), "\nIn several rooms:", *homonyms())


if __name__ == "__main__":
    main()

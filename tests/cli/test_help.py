"""Every command says what it does, what its options are, and how it is used."""

import shlex
import subprocess
import sys
from itertools import groupby
from typing import Any

import pytest
import typer

from headrace.cli.app import app
from headrace.cli.program import run
from headrace.cli.terminal.help import Page, parameters
from tests.cli.test_commands import command, environment
from tests.commands import PAGE, contexts, page

CONTEXTS = list(contexts())
ROOT: Any = typer.main.get_command(app)
READS = {
    *("events", "show", "tail", "stats", "nodes", "workers", "admin-log", "bench", "publish"),
    *("dead list", "dead show", "queues list", "namespaces list", "schedules list", "tokens list"),
}


def name(ctx: Any) -> str:
    return ctx.command_path.removeprefix("headrace ")


@pytest.mark.parametrize("ctx", CONTEXTS, ids=name)
def test_a_command_explains_itself_with_examples(ctx: Any) -> None:
    assert ctx.command.help
    for _, pairs in parameters(ctx):
        for left, right in pairs:
            assert right.strip(), f"{left} is not explained"
    for line in ctx.command.epilog.splitlines():
        assert f"headrace {name(ctx).removesuffix(' list')}" in line, line
    assert "--dsn DSN" in Page(ctx).text()


@pytest.mark.parametrize("ctx", CONTEXTS, ids=name)
def test_the_examples_of_a_command_are_understood(ctx: Any) -> None:
    """By a parser, without being run."""
    for line in ctx.command.epilog.splitlines():
        words = shlex.split(line)
        for ours, part in groupby(words, lambda word: word not in ("|", "||", "&&", "<", ">")):
            first, *rest = part
            if ours and first == "headrace":
                _parse(rest)


def _parse(words: list[str]) -> None:
    with ROOT.make_context("headrace", list(words)) as ctx:
        while hasattr(ctx.command, "commands"):
            rest = [*getattr(ctx, "_protected_args", []), *ctx.args]
            found, below, left = ctx.command.resolve_command(ctx, rest)
            ctx = below.make_context(found, left, parent=ctx)


@pytest.mark.parametrize("ctx", CONTEXTS, ids=name)
def test_the_help_fits_a_narrow_terminal(ctx: Any) -> None:
    text = Page(ctx, width=50).text().partition("\nExamples:")[0]
    longest = max(text.splitlines(), key=len)
    assert len(longest) <= 50 or " " not in longest.strip() or longest.startswith("Usage")


def test_every_command_that_shows_something_has_json() -> None:
    with_json = {
        name(ctx)
        for ctx in CONTEXTS
        if any("--json" in getattr(one, "opts", ()) for one in ctx.command.params)
    }
    assert with_json >= READS


def test_the_commands_are_those_of_the_design() -> None:
    names = {name(ctx) for ctx in CONTEXTS}
    assert names >= {
        *("up", "serve", "worker", "migrate", "publish", "events", "show", "tail", "stats"),
        *("nodes", "workers", "namespaces list", "pause", "resume", "drain", "cancel", "reset"),
        *("queues list", "queues create", "queues set", "queues remove", "bench", "erase"),
        *("dead list", "dead show", "dead redrive", "tokens create", "tokens revoke"),
        *("schedules list", "schedules add", "schedules pause", "schedules resume"),
        *("schedules run", "schedules remove"),
    }


def test_the_reference_in_the_documents_is_current() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "make commands"


def test_help_is_in_sections_and_comes_without_a_command_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = []
    for arguments in ([], ["--help"], ["-h"]):
        with pytest.raises(SystemExit) as ended:
            run(arguments)
        assert ended.value.code == 0
        shown.append(capsys.readouterr().out)
    assert len(set(shown)) == 1
    assert "Events:\n  publish " in shown[0]
    assert "\x1b" not in shown[0]


@pytest.mark.parametrize(
    "shell",
    ["bash", *(pytest.param(one, marks=pytest.mark.rest) for one in ("zsh", "fish"))],
)
@pytest.mark.parametrize(("words", "offered"), [("que", "queues"), ("queues ", "purge")])
def test_a_shell_completes_commands(shell: str, words: str, offered: str) -> None:
    line = f"headrace {words}"
    typed = {
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
        "_TYPER_COMPLETE_ARGS": line,
    }
    asked = {"_HEADRACE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run(
        command(),
        env={**environment(), **typed, **asked},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert offered in done.stdout
    assert "Traceback" not in done.stderr


def test_help_needs_no_database_and_little_else() -> None:
    """What is loaded for --help and completion is what every press of a key waits for."""
    program = "import sys, headrace.cli.app; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True).split()
    heavy = {"psycopg", "asyncio", "starlette", "headrace.client", "headrace.node"}
    assert heavy.intersection(loaded) == set()


def test_what_typer_forgets_of_an_argument_is_said_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [ctx] = [one for one in CONTEXTS if name(one) == "publish"]
    told = parameters(ctx)
    for argument in ctx.command.params:
        if argument.param_type_name == "argument":
            monkeypatch.setattr(argument, "help", None)
    assert parameters(ctx) == told

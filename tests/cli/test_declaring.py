"""Commands are declared with groups of options, and listed in one table."""

import importlib
import pkgutil
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from headrace.cli import commands
from headrace.cli.app import COMMANDS
from headrace.cli.terminal.command import Command, Group, Only, command, given
from headrace.cli.terminal.errors import UsageError


@dataclass(frozen=True)
class Options:
    first: Annotated[str | None, typer.Option(help="The first.")] = None
    second: Annotated[int, typer.Option(help="The second.")] = 2


def called(declared: Command, *arguments: str) -> None:
    app = typer.Typer()
    declared.add_to(app)
    typer.main.get_command(app)(list(arguments), standalone_mode=False)


def test_the_fields_of_a_group_are_options() -> None:
    seen: list[object] = []

    @command(examples="headrace both")
    def both(own: str, *, options: Options) -> None:
        seen.append((own, options, given(options)))

    called(both, "mine", "--second", "3")
    assert seen == [("mine", Options(None, 3), {"second": 3})]


def test_a_command_may_have_some_options_of_a_group_only() -> None:
    seen: list[Options] = []

    @command(examples="headrace some")
    def some(*, options: Annotated[Options, Only("first")]) -> None:
        seen.append(options)

    called(some, "--first", "a")
    assert seen == [Options("a")]
    with pytest.raises(Exception, match="No such option") as refused:
        called(some, "--second", "3")
    assert isinstance(refused.value, UsageError)


def test_every_declared_command_is_in_the_table_once() -> None:
    modules = [
        importlib.import_module(f"{commands.__name__}.{one.name}")
        for one in pkgutil.iter_modules(commands.__path__)
    ]
    declared = {
        id(value)
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Command | Group)
    }
    listed = [id(one) for section in COMMANDS.values() for one in section]
    assert declared <= set(listed)
    assert len(listed) == len(set(listed))

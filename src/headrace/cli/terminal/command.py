"""Declares commands: a function with its options, its name and its examples.

A parameter whose type is a dataclass stands for a group of options: each field of the dataclass is
one option. So the options that several commands share are written once, and a command's function
names only its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

import typer

from headrace.cli.terminal import help

Function = TypeVar("Function", bound=Callable[..., Any])


class Only:
    """In `Annotated[Options, Only("a", "b")]`: a command has only these options of the group."""

    def __init__(self, *names: str) -> None:
        self.names = names


@dataclass(frozen=True)
class Command:
    """A declared command; the table in cli/app.py, or a group, gives it its place."""

    run: Callable[..., Any]
    name: str
    examples: str

    def add_to(self, app: typer.Typer, section: str | None = None) -> None:
        app.command(self.name, cls=help.Command, epilog=self.examples, rich_help_panel=section)(
            self.run
        )


class Group:
    """Commands under one noun, as `headrace queues`. A `list` runs when no command is named."""

    def __init__(self, name: str, about: str) -> None:
        self._name = name
        self._app = typer.Typer(cls=help.Group, help=about)

    def command(self, name: str | None = None, *, examples: str) -> Callable[[Function], Function]:
        """Add a command to the group."""

        def add(function: Function) -> Function:
            declared(function, name, examples).add_to(self._app)
            return function

        return add

    def add_to(self, app: typer.Typer, section: str | None = None) -> None:
        app.add_typer(self._app, name=self._name, rich_help_panel=section)


def command(name: str | None = None, *, examples: str) -> Callable[[Callable[..., Any]], Command]:
    """Declare a command, with one example per line."""
    return lambda function: declared(function, name, examples)


def declared(function: Callable[..., Any], name: str | None, examples: str) -> Command:
    named = name or function.__name__.replace("_", "-")
    return Command(with_groups_expanded(function), named, inspect.cleandoc(examples))


def with_groups_expanded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as typer can read it: each field of a group is a parameter of its own."""
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, tuple[Any, list[inspect.Parameter]]] = {}
    parameters: list[inspect.Parameter] = []
    for one in inspect.signature(function).parameters.values():
        kind = getattr(hints[one.name], "__origin__", hints[one.name])
        if isinstance(kind, type) and is_dataclass(kind):
            groups[one.name] = (kind, list(_options(kind, hints[one.name])))
            parameters += groups[one.name][1]
        else:
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(one.replace(kind=keyword, annotation=hints[one.name]))

    @wraps(function)
    def run(**given: Any) -> Any:
        for name, (kind, options) in groups.items():
            given[name] = kind(**{one.name: given.pop(one.name) for one in options})
        return function(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _options(kind: Any, hint: Any) -> Iterator[inspect.Parameter]:
    only = [one.names for one in getattr(hint, "__metadata__", ()) if isinstance(one, Only)]
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        if not only or field.name in only[0]:
            yield inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=hints[field.name],
                default=inspect.Parameter.empty if field.default is MISSING else field.default,
            )


def given(group: Any) -> dict[str, Any]:
    """The options of a group that the user named, by their names."""
    values = {field.name: getattr(group, field.name) for field in fields(group)}
    return {name: value for name, value in values.items() if value is not None}

"""Settings on the command line: a named setting is changed, and --default restores a default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
import typer

from headrace.cli.terminal import times
from headrace.cli.terminal.errors import WrongUse


def json_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise typer.BadParameter(f"{text!r:.60} is not valid JSON ({error})") from None


def json_object(text: str) -> Any:
    value = json_value(text)
    if not isinstance(value, dict):
        raise typer.BadParameter(
            f'{text!r:.60} is not a JSON object; an object looks like {{"team": "orders"}}'
        )
    return value


def backoff(text: str) -> Any:
    """A fixed delay, or a policy as JSON."""
    return json_object(text) if text.lstrip().startswith("{") else times.duration(text)


Metadata = Annotated[
    Any,
    typer.Option(
        "--metadata",
        parser=json_object,
        metavar="JSON",
        help="Custom metadata, a JSON object.",
        show_default=False,
    ),
]
Config = Annotated[
    Any,
    typer.Option(
        "--config",
        parser=json_object,
        metavar="JSON",
        help="Settings under their names in the state document: "
        '{"maxQueueDepth": 10000, "processingInterval": 1000}.',
        show_default=False,
    ),
]
Headers = Annotated[
    Any,
    typer.Option(
        "--headers",
        parser=json_object,
        metavar="JSON",
        help="Headers for the handler besides the payload, a JSON object.",
        show_default=False,
    ),
]
Backoff = Annotated[
    Any,
    typer.Option(
        "--backoff",
        parser=backoff,
        metavar="POLICY",
        help="Backoff between retries: a fixed delay (30s, 5m), or a policy as JSON: "
        '{"kind": "exponential", "delay": 5, "factor": 2, "max_delay": 3600}.',
        show_default=False,
    ),
]
Default = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SETTING",
        help="Restore the default of a setting, as in --default metadata. Repeat for several.",
        show_default=False,
    ),
]


def chosen(
    said: Mapping[str, Any], default: Iterable[str] | None, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The settings to change, by their own names or those of the state document; None restores a
    default."""
    settings = {name: value for name, value in said.items() if value is not None} | dict(
        config or {}
    )
    for name in [one.replace("-", "_") for one in default or ()]:
        if name not in said:
            known = ", ".join(one.replace("_", "-") for one in said)
            raise WrongUse(f"unknown setting {name!r}; known settings: {known}")
        if name in settings:
            raise WrongUse(f"{name.replace('_', '-')} is both set and restored to its default")
        settings[name] = None
    if not settings:
        raise WrongUse("no setting to change: name at least one (see --help)")
    return settings

"""Settings on the command line: those that are named are changed, and --default brings a default back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
import typer

from headrace.cli import times
from headrace.cli.failing import WrongUse


def json_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise typer.BadParameter(f"{text!r:.60} is no JSON ({error})") from None


def json_object(text: str) -> Any:
    value = json_value(text)
    if not isinstance(value, dict):
        raise typer.BadParameter(f'{text!r:.60} is no JSON object, as {{"team": "orders"}} is')
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
        help="An object of yours to keep with it.",
        show_default=False,
    ),
]
Config = Annotated[
    Any,
    typer.Option(
        "--config",
        parser=json_object,
        metavar="JSON",
        help="Settings by the names that the state document has for them: "
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
        help="An object for whoever handles it, besides the payload.",
        show_default=False,
    ),
]
Backoff = Annotated[
    Any,
    typer.Option(
        "--backoff",
        parser=backoff,
        metavar="POLICY",
        help="When to try again what has failed: a fixed delay (30s, 5m), or a policy as JSON: "
        '{"kind": "exponential", "delay": 5, "factor": 2, "max_delay": 3600}.',
        show_default=False,
    ),
]


def chosen(
    said: Mapping[str, Any], default: Iterable[str] | None, config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What to change: what was said, by its own name or that of the state document, and None for what becomes a default again."""
    settings = {name: value for name, value in said.items() if value is not None} | dict(
        config or {}
    )
    for name in [one.replace("-", "_") for one in default or ()]:
        if name not in said:
            known = ", ".join(one.replace("_", "-") for one in said)
            raise WrongUse(f"there is no setting {name!r}: there are {known}")
        if name in settings:
            raise WrongUse(f"{name.replace('_', '-')} cannot be set and become the default at once")
        settings[name] = None
    if not settings:
        raise WrongUse("nothing is to be changed: name a setting (see --help)")
    return settings

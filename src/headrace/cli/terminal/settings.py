"""Settings on the command line: a named setting is changed, and --default restores a default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
import typer

from headrace.cli.terminal import times
from headrace.cli.terminal.errors import WrongUse
from headrace.model import Limit


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


def limit(text: str) -> Any:
    """A limit in words, or as JSON: the scope, for types and tags what they are (a prefix ends with
    a colon), and its bounds."""
    if text.lstrip().startswith("{"):
        return json_object(text)
    scope, *words = text.split() or [""]
    said: dict[str, Any] = {"scope": scope}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            is_prefix = scope == "tag" and word.endswith(":")
            said["prefix" if is_prefix else "match"] = word
        elif name == "rate":
            many, slash, per = value.partition("/")
            said |= {"rate": _whole(many, text)}
            said |= {"per": times.duration(per).total_seconds()} if slash else {}
        elif name in ("match", "prefix"):
            said[name] = value
        else:
            said[name.replace("-", "_")] = _whole(value, text)
    return said


def _whole(text: str, limit: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise typer.BadParameter(
            f"{limit!r:.80} has {text!r} where a whole number belongs; write a limit as "
            "'tag tenant: at-once=5 rate=100/1m burst=20'"
        )
    return int(text)


def limit_text(limit: Limit) -> str:
    """A limit in words, as `limit` reads it."""
    its = [limit.scope]
    if limit.prefix is not None:
        is_plain = limit.scope == "tag" and limit.prefix.endswith(":")
        its.append(limit.prefix if is_plain else f"prefix={limit.prefix}")
    if limit.match is not None:
        its.append(f"match={limit.match}" if limit.match.endswith(":") else limit.match)
    if limit.at_once is not None:
        its.append(f"at-once={limit.at_once}")
    if limit.rate is not None and limit.per is not None:
        its.append(f"rate={limit.rate}/{limit.per:g}s")
    if limit.burst is not None:
        its.append(f"burst={limit.burst}")
    return " ".join(its)


def fair_by(text: str) -> Any:
    return json_object(text) if text.lstrip().startswith("{") else {"tag": text}


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

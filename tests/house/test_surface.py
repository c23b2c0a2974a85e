"""What others can see of Headrace: the public names with their signatures, and the description of the server's API.

Texts for people are left out, and so are the modules that things live in. `HEADRACE_WRITE_SURFACE=1` has the golden files written
anew, and the difference reviewed. The exit codes of the command line are held by tests/cli.
"""

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import headrace
from tests.database import Database
from tests.house import golden
from tests.server.running import running

WRITE = "HEADRACE_WRITE_SURFACE"
WORDS = {"description", "summary"}
MODULE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])")  # headrace.model.Duration, typing.Any
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def test_the_public_names_have_the_same_signatures() -> None:
    lines = [line for name in sorted(headrace.__all__) for line in described(name)]
    golden.check("\n".join([*lines, ""]), "surface/names.txt", WRITE)


def test_the_api_is_described_as_before(db: Database) -> None:
    with running(db) as house, house.client() as client:
        described = client.get("/openapi.json").json()
    text = json.dumps(without_words(described), indent=1, sort_keys=True)
    golden.check(f"{text}\n", "surface/openapi.json", WRITE)


def described(name: str) -> Iterator[str]:
    thing = getattr(headrace, name)
    if not inspect.isclass(thing):
        yield f"{kind(thing)} {name}{signature(thing)}"
        return
    bases = ", ".join(base.__name__ for base in thing.__bases__ if is_known(base))
    yield f"class {name}({bases}){signature(thing)}"
    for member in sorted(members(thing)):
        value = inspect.getattr_static(thing, member)
        if isinstance(value, staticmethod | classmethod):
            yield f"    {type(value).__name__} {member}{signature(value.__func__)}"
        elif callable(getattr(thing, member)):
            function = getattr(thing, member)
            yield f"    {kind(function)} {member}{signature(function)}"
        else:
            yield f"    {shown(value)} {member}"


def members(thing: type) -> set[str]:
    """Those of a class, and of bases that have no public name themselves."""
    own = [thing, *(base for base in thing.__mro__[1:] if not is_known(base))]
    ours = [one for one in own if one.__module__.startswith("headrace")]
    return {name for one in ours for name in vars(one) if not name.startswith("_")}


def is_known(base: type) -> bool:
    """Whether people know a base by its name: it is public, or Python's."""
    ours = base.__module__.startswith("headrace")
    return base.__name__ in headrace.__all__ if ours else base is not object


def kind(function: Any) -> str:
    return "async def" if inspect.iscoroutinefunction(function) else "def"


def shown(value: Any) -> str:
    """What a member is: a property, a field, or a value that is part of the contract."""
    if isinstance(value, property):
        return f"property -> {annotation(inspect.signature(value.fget).return_annotation)}"
    if isinstance(value, str | int | float | bool | type(None)):
        return f"= {value!r}:"
    return "field"


def signature(function: Any) -> str:
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    parameters = [
        one.replace(annotation=inspect.Parameter.empty)
        if one.annotation is inspect.Parameter.empty or one.name.startswith("_")
        else one.replace(annotation=Plain(annotation(one.annotation)))
        for one in found.parameters.values()
    ]
    returned = found.return_annotation
    text = str(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    if returned is not inspect.Signature.empty:
        text = f"{text} -> {annotation(returned)}"
    return ADDRESS.sub("", text)


class Plain(str):
    """Is printed as it is."""

    def __repr__(self) -> str:
        return str(self)


def annotation(told: Any) -> str:
    text = told if isinstance(told, str) else inspect.formatannotation(told)
    return MODULE.sub("", text)


def without_words(described: Any) -> Any:
    """A property may be called `description`: it is a schema then, and no text."""
    if isinstance(described, dict):
        return {
            key: without_words(value)
            for key, value in described.items()
            if not (key in WORDS and isinstance(value, str))
        }
    return list(map(without_words, described)) if isinstance(described, list) else described

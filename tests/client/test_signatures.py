import inspect
from typing import Any, get_type_hints

import pytest

import headrace
from headrace import AsyncEventQueue, EventQueue, errors
from headrace.engine.verbs import Verbs

pytestmark = pytest.mark.one_database("the clients of one server")

# What a verb is made of, and what a node or an export asks for; the clients' callers do not.
NOT_BORROWED = {
    *(
        "after_fork",
        "bury",
        "catch_up",
        "claim",
        "claim_unread",
        "fence",
        "pauses",
        "poll_for",
        "publish_asked",
        "publish_event",
        "publish_many_asked",
        "replay_on",
    ),
}


def public(kind: type) -> dict[str, Any]:
    return {name: member for name, member in vars(kind).items() if not name.startswith("_")}


def verbs() -> dict[str, Any]:
    found = {name: member for kind in Verbs.__mro__ for name, member in public(kind).items()}
    return {name: verb for name, verb in found.items() if name not in NOT_BORROWED}


@pytest.mark.parametrize("client", [EventQueue, AsyncEventQueue])
def test_a_client_borrows_every_verb(client: type) -> None:
    assert public(client).keys() - {"close", "decode"} == verbs().keys()
    for name, verb in verbs().items():
        method = getattr(client, name)
        assert method.__wrapped__ is verb
        assert (method.__name__, method.__qualname__) == (name, f"{client.__name__}.{name}")
        assert method.__doc__ == verb.__doc__


@pytest.mark.parametrize("name", verbs())
def test_both_clients_take_the_same_and_give_the_same(name: str) -> None:
    plain, awaited = getattr(EventQueue, name), getattr(AsyncEventQueue, name)
    given, returned = get_type_hints(plain), get_type_hints(awaited)
    assert str(returned.pop("return")).replace("AsyncIterator", "Iterator") == str(
        given.pop("return")
    )
    assert given == returned
    assert inspect.signature(plain).parameters == inspect.signature(awaited).parameters
    assert inspect.iscoroutinefunction(awaited) == (name not in ("replay", "export_state"))


def test_both_clients_are_made_of_the_same() -> None:
    plain, awaited = map(inspect.signature, (EventQueue, AsyncEventQueue))
    assert plain == awaited


def test_both_ways_to_connect_take_the_same_arguments() -> None:
    plain, awaited = map(inspect.signature, (headrace.connect, headrace.connect_async))
    assert plain.parameters == awaited.parameters


def test_what_is_published_in_bulk_takes_the_arguments_of_publish() -> None:
    parameters = list(inspect.signature(EventQueue.publish).parameters)[1:-2]
    assert list(headrace.NewEvent.__struct_fields__) == parameters


def test_every_public_method_says_what_it_does() -> None:
    assert [name for name, member in public(EventQueue).items() if not member.__doc__] == []


def test_every_error_of_the_tree_is_public_and_drawn() -> None:
    kinds = [errors.HeadraceError, *errors.BY_SQLSTATE.values()]
    assert {kind.__name__ for kind in kinds} <= set(headrace.__all__)
    for kind in kinds:
        assert kind.__name__ in (errors.__doc__ or "")


def test_every_error_has_a_sqlstate_of_its_own() -> None:
    def tree(root: type[errors.HeadraceError]) -> list[type[errors.HeadraceError]]:
        return [root, *(kind for branch in root.__subclasses__() for kind in tree(branch))]

    states = [kind.sqlstate for kind in tree(errors.HeadraceError) if vars(kind).get("sqlstate")]
    assert sorted(states) == sorted(errors.BY_SQLSTATE)
    assert all(state.startswith("QU") for state in errors.BY_SQLSTATE)

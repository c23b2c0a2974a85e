import inspect

import pytest

import headrace
from headrace import AsyncEventQueue, EventQueue, errors


def public(kind: type) -> dict[str, object]:
    return {name: member for name, member in vars(kind).items() if not name.startswith("_")}


def test_both_clients_have_the_same_methods() -> None:
    assert public(EventQueue).keys() == public(AsyncEventQueue).keys()


@pytest.mark.parametrize("name", [*public(EventQueue), "__init__"])
def test_both_clients_have_the_same_signatures_and_say_the_same_of_them(name: str) -> None:
    plain, awaited = getattr(EventQueue, name), getattr(AsyncEventQueue, name)
    returned = str(inspect.signature(awaited).return_annotation).replace(
        "AsyncIterator", "Iterator"
    )
    assert inspect.signature(plain).parameters == inspect.signature(awaited).parameters
    assert str(inspect.signature(plain).return_annotation) == returned
    assert plain.__doc__ == awaited.__doc__
    assert inspect.iscoroutinefunction(awaited) == (
        name not in ("__init__", "replay", "export_state")
    )


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

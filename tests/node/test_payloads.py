"""Payloads as the types that handlers ask for."""

import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pydantic.dataclasses
import pytest

from headrace import Claimed, Event, InvalidInput
from headrace.node.handler.payload import PayloadMismatch, reader


class Kind(Enum):
    BOOK = "book"


class Item(msgspec.Struct):
    name: str
    price: Decimal = Decimal(1)


class Order(msgspec.Struct):
    number: int
    items: list[Item] = []


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    number: int


class Paid(msgspec.Struct, tag=True):
    amount: int


class Refused(msgspec.Struct, tag=True):
    reason: str


@dataclass
class Invoice:
    number: int
    at: datetime
    kind: Kind = Kind.BOOK
    lines: dict[int, str] = field(default_factory=dict)


@dataclass
class Positive:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("negative")


class Typed(TypedDict):
    number: int


class Pair(NamedTuple):
    one: int
    two: str


class Address(pydantic.BaseModel):
    street: str


class Customer(pydantic.BaseModel):
    name: str
    since: datetime | None = None
    addresses: list[Address] = []


class Company(pydantic.BaseModel):
    title: str


@pydantic.dataclasses.dataclass
class Point:
    x: Annotated[int, pydantic.Field(gt=0)]


class Parcel(msgspec.Struct):
    address: Address


class Unknown:
    pass


ID = "5f2c3a1e-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("annotation", "payload", "expected"),
    [
        (Order, {"number": 1}, Order(1)),
        (Order, {"number": 1, "more": 2}, Order(1)),
        (
            Order,
            {"number": 1, "items": [{"name": "a", "price": "1.10"}]},
            Order(1, [Item("a", Decimal("1.10"))]),
        ),
        (
            Invoice,
            {"number": 1, "at": "2030-01-01T00:00:00Z", "lines": {"7": "x"}},
            Invoice(1, datetime(2030, 1, 1, tzinfo=UTC), Kind.BOOK, {7: "x"}),
        ),
        (Typed, {"number": 1}, {"number": 1}),
        (Pair, [1, "x"], Pair(1, "x")),
        (dict, {"a": [1]}, {"a": [1]}),
        (dict[str, Any], {"a": 1}, {"a": 1}),
        (list[Order], [{"number": 1}], [Order(1)]),
        (UUID, ID, UUID(ID)),
        (str, "text", "text"),
        (Order | None, None, None),
        (Order | None, {"number": 1}, Order(1)),
        (Paid | Refused, {"type": "Refused", "reason": "no"}, Refused("no")),
        (Literal["a", "b"], "b", "b"),
        (Customer, {"name": "Ada"}, Customer(name="Ada")),
        (
            Customer,
            {"name": "Ada", "since": "2030-01-01T00:00:00Z", "addresses": [{"street": "x"}]},
            Customer(
                name="Ada",
                since=datetime(2030, 1, 1, tzinfo=UTC),
                addresses=[Address(street="x")],
            ),
        ),
        (Customer | None, None, None),
        (Customer | Company, {"title": "x"}, Company(title="x")),
        (list[Address], [{"street": "x"}], [Address(street="x")]),
        (dict[str, list[Address]], {"a": [{"street": "x"}]}, {"a": [Address(street="x")]}),
        (Point, {"x": 1}, Point(1)),
        (Parcel, {"address": {"street": "x"}}, Parcel(Address(street="x"))),
    ],
)
def test_a_payload_becomes_what_is_asked_for(annotation: Any, payload: Any, expected: Any) -> None:
    read = reader(annotation)
    assert read is not None
    assert read(payload) == expected


@pytest.mark.parametrize(
    ("annotation", "payload", "problem"),
    [
        (
            Order,
            {"number": "1"},
            "the payload does not match Order: Expected `int`, got `str` - at `$.number`",
        ),
        (Order, {}, "the payload does not match Order: Object missing required field `number`"),
        (Order, None, "the payload does not match Order: Expected `object`, got `null`"),
        (
            Order,
            {"number": 1, "items": [{"name": "a"}, {"name": 2}]},
            "the payload does not match Order: Expected `str`, got `int` - at `$.items[1].name`",
        ),
        (
            Strict,
            {"number": 1, "x": 2},
            "the payload does not match Strict: Object contains unknown field `x`",
        ),
        (Positive, {"number": -1}, "the payload does not match Positive: negative"),
        (Invoice, {"number": 1, "at": "today"}, "Invalid RFC3339 encoded datetime - at `$.at`"),
        (Typed, {}, "the payload does not match Typed: Object missing required field `number`"),
        (Paid | Refused, {"type": "Lost"}, "Invalid value 'Lost' - at `$.type`"),
        (Customer, {}, "the payload does not match Customer: Field required - at `$.name`"),
        (
            Customer,
            {"name": "Ada", "addresses": [{}, {"street": 1}]},
            "the payload does not match Customer: Field required - at `$.addresses.0.street`; "
            "Input should be a valid string - at `$.addresses.1.street`",
        ),
        (
            Point,
            {"x": 0},
            "the payload does not match Point: Input should be greater than 0 - at `$.x`",
        ),
        (Parcel, {"address": {}}, "street"),
    ],
)
def test_what_does_not_fit_is_told_with_the_field(
    annotation: Any, payload: Any, problem: str
) -> None:
    read = reader(annotation)
    assert read is not None
    with pytest.raises(PayloadMismatch) as caught:
        read(payload)
    assert problem in str(caught.value)


def test_the_reason_is_short_and_can_be_stored() -> None:
    read = reader(Paid | Refused)
    assert read is not None
    with pytest.raises(PayloadMismatch) as caught:
        read({"type": "\0" + "x" * 1_000_000})
    assert len(str(caught.value)) <= 1_000
    assert "\0" not in str(caught.value)
    str(caught.value).encode()


@pytest.mark.parametrize("annotation", [Any, object, Claimed])
def test_some_annotations_ask_for_the_event_itself(annotation: Any) -> None:
    assert reader(annotation) is None


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (Unknown, "no payload can be read as Unknown: it is neither a msgspec struct"),
        (Order | Item, "no payload can be read as .*all Struct types must be tagged"),
        ("Order", "no payload can be read as Order"),
        (7, "no payload can be read as 7"),
        (Event, "an event comes as headrace.Claimed"),
        (Claimed | None, "headrace.Claimed"),
    ],
)
def test_what_no_payload_can_be_is_refused(annotation: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        reader(annotation)


def test_pydantic_is_never_imported_for_others() -> None:
    program = (
        "import sys, msgspec; from headrace.node.handler.payload import reader; "
        "reader(msgspec.defstruct('A', ['a'])); print('pydantic' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"

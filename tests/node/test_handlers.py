"""What a handler asks for, and what its ends mean."""

import asyncio
import functools
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headrace import (
    Claimed,
    Completed,
    Discard,
    Done,
    Exponential,
    Failed,
    Fixed,
    InvalidInput,
    Retry,
)
from headrace.engine.backoff import policy
from headrace.node.handler.handler import Handler, made
from headrace.node.handler.payload import PayloadMismatch
from headrace.node.handler.registry import Handlers
from tests.node.claims import claimed
from tests.requirements import requirement

EVENT = claimed()
ERROR = "Handler error"


def handler(function: Callable[..., Any], *patterns: str, **options: Any) -> Handler:
    return made(function, patterns or ("order.*",), **options)


class Order(msgspec.Struct):
    number: int


@dataclass
class Invoice:
    number: int


def plain(event: Claimed) -> Any:
    return event


async def awaited(event: Claimed) -> Any:
    return event


class Service:
    def method(self, event: Claimed) -> Any:
        return event

    async def awaited(self, event: Claimed) -> Any:
        return event

    @classmethod
    def of_class(cls, event: Claimed) -> Any:
        return event

    @staticmethod
    def static(event: Claimed) -> Any:
        return event


class Called:
    def __call__(self, event: Claimed) -> Any:
        return event


class AsyncCalled:
    async def __call__(self, event: Claimed) -> Any:
        return event


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **named: Any) -> Any:
        return function(*args, **named)

    return wrapper


def with_more(event: Claimed, greeting: str, *, number: int = 3) -> Any:
    return event


async def awaited_with_more(greeting: str, event: Claimed) -> Any:
    return event


@pytest.mark.parametrize(
    ("function", "is_async", "name"),
    [
        (plain, False, "plain"),
        (awaited, True, "awaited"),
        (Service().method, False, "Service.method"),
        (Service().awaited, True, "Service.awaited"),
        (Service.of_class, False, "Service.of_class"),
        (Service.static, False, "Service.static"),
        (Called(), False, "Called"),
        (AsyncCalled(), True, "AsyncCalled"),
        (functools.partial(with_more, greeting="hi"), False, "with_more"),
        (functools.partial(awaited_with_more, "hi"), True, "awaited_with_more"),
        (functools.partial(functools.partial(awaited_with_more, "hi")), True, "awaited_with_more"),
        (functools.partial(AsyncCalled()), True, "AsyncCalled"),
        (decorated(plain), False, "plain"),
    ],
)
def test_everything_that_can_be_called_can_be_a_handler(
    function: Callable[..., Any], is_async: bool, name: str
) -> None:
    one = handler(function)
    assert (one.is_async, one.name) == (is_async, f"tests.node.test_handlers.{name}")
    assert (one.wants_connection, one.wants_context, one.reads) == (False, False, None)
    returned = one.call(EVENT, None, None)
    assert (asyncio.run(returned) if is_async else returned) is EVENT


def asks_all(event: Claimed, connection: Any, context: Any) -> Any:
    return event, connection, context


def asks_other_order(context: Any, connection: Any, event: Claimed) -> Any:
    return event, connection, context


def asks_by_name(*, event: Claimed, context: Any, connection: Any) -> Any:
    return event, connection, context


def asks_by_position(event: Claimed, connection: Any, /, *, context: Any) -> Any:
    return event, connection, context


def asks_with_defaults(
    event: Any = None, connection: Any = None, context: Any = None, more: int = 1, **rest: Any
) -> Any:
    assert (more, rest) == (1, {})
    return event, connection, context


@pytest.mark.parametrize(
    "function",
    [asks_all, asks_other_order, asks_by_name, asks_by_position, asks_with_defaults],
)
def test_parameters_are_given_by_name(function: Callable[..., Any]) -> None:
    one = handler(function)
    assert (one.wants_connection, one.wants_context) == (True, True)
    assert one.call(EVENT, "connection", "context") == (EVENT, "connection", "context")


def test_a_handler_may_ask_for_nothing_or_for_less() -> None:
    assert handler(lambda: 1).call(EVENT, 2, 3) == 1
    assert handler(lambda context: context).call(EVENT, 2, 3) == 3
    assert handler(lambda *all: all).call(EVENT, 2, 3) == (EVENT,)
    assert handler(lambda **named: named).call(EVENT, 2, 3) == {}
    given = functools.partial(asks_all, connection="mine", context=None)
    assert not handler(given).wants_connection
    assert handler(given).call(EVENT, 2, 3) == (EVENT, "mine", None)


def test_a_function_that_does_not_tell_its_parameters_gets_the_event() -> None:
    assert handler(dir).call(EVENT, None, None) == dir(EVENT)


def welcome(event: Claimed, foo: int) -> None: ...


def generating(event: Claimed) -> Iterator[int]:
    yield 1


async def generating_later(event: Claimed) -> AsyncIterator[int]:
    yield 1


def for_events(events: list[Order], connection: Any) -> Any:
    return events


def of_unknown(event: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def of_type_checker(event: "model.Claimed") -> Any:  # type: ignore[name-defined]  # noqa: F821
    return event


def of_socket(event: Called) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "problem"),
    [
        (
            welcome,
            {},
            r"a handler may take event, connection and context; tests.node.test_handlers.welcome asks for foo",
        ),
        (Service.method, {}, r"asks for self; register a method bound to its object"),
        (plain, {"batch": 10}, r"may take events and connection; .*plain asks for event"),
        (for_events, {}, r"may take event, connection and context; .* asks for events"),
        (generating, {}, r"a handler must return once, and .*\.generating is a generator"),
        (generating_later, {}, r"generating_later is a generator"),
        (functools.partial(generating), {}, r"generating is a generator"),
        (Called, {}, r"a handler must be a function"),
        (7, {}, r"a handler must be a function, and 7 is not"),
        (of_unknown, {}, r"of_unknown asks for its event as Missing, which cannot be resolved"),
        (of_socket, {}, r"of_socket cannot be a handler: no payload can be read as Called"),
        (plain, {"tags": "vip"}, r"tags must be a list of strings: \['vip'\]"),
        (plain, {"tags": []}, r"tags must name at least one"),
        (plain, {"tags": ["a,b"]}, r"a tag has 1 to 100 characters"),
        (plain, {"tags": [" "]}, r"a tag has 1 to 100 characters"),
        (plain, {"max_retries": -1}, r"max_retries must be a whole number from 0 to 1000, not -1"),
        (plain, {"max_retries": 1.5}, r"max_retries must be a whole number"),
        (plain, {"max_retries": True}, r"max_retries must be a whole number"),
        (
            plain,
            {"backoff": "often"},
            r"a backoff must be Fixed, Linear or Exponential, .* not str",
        ),
        (
            plain,
            {"backoff": -1},
            r"the delay of a backoff must be from a millisecond to a year, or 0",
        ),
        (
            plain,
            {"backoff": {"kind": "often"}},
            r"the kind of a backoff must be fixed, linear or expon",
        ),
        (plain, {"timeout": 0}, r"a timeout must be longer than 0 seconds"),
        (plain, {"timeout": -3}, r"a timeout must be longer than 0 seconds"),
        (plain, {"timeout": "3"}, r"timeout must be a number of seconds or a timedelta"),
        (plain, {"timeout": float("nan")}, r"timeout must be a number of seconds or a timedelta"),
        (plain, {"concurrency": 0}, r"concurrency must be a whole number from 1"),
        (for_events, {"batch": -1}, r"the largest batch must be a whole number"),
        (
            plain,
            {"rules": {int: Done()}},
            r"a rule must be for an exception class, not for <class 'int",
        ),
        (
            plain,
            {"rules": {ValueError: 7}},
            r"the rule for ValueError must be Done\(…\), Retry\(…\), Snooze\(…\) or Disc",
        ),
        (plain, {"rules": {ValueError: Retry}}, r"the rule for ValueError must be Done"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_written(
    function: Any, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInput, match=problem):
        made(function, ["a"], **options)


@pytest.mark.parametrize("pattern", ["", "a" * 201, "a,b", "a\nb", 7, None])
def test_a_type_that_no_event_can_have_is_refused(pattern: Any) -> None:
    with pytest.raises(InvalidInput, match="a type"):
        made(plain, [pattern])


def test_a_handler_is_for_something() -> None:
    with pytest.raises(InvalidInput, match="at least one type"):
        made(plain, [])


def test_options_are_made_plain() -> None:
    one = handler(
        plain,
        "a",
        "b",
        "a",
        tags=["y ", "x", "y"],
        timeout=timedelta(minutes=1),
        backoff=60,
        rules={(ValueError, KeyError): Discard("bad"), OSError: Retry()},
    )
    assert one.patterns == ("a", "b")
    assert one.tags == ("x", "y")
    assert one.timeout == 60.0
    assert one.policy == policy(Fixed(60))
    assert one.rules == {ValueError: Discard("bad"), KeyError: Discard("bad"), OSError: Retry()}
    assert handler(plain, backoff={"kind": "fixed", "delay": 1}).policy == {
        "kind": "fixed",
        "delay": 1,
    }


def of_order(event: Order) -> Any:
    return event


async def of_invoice(event: "Invoice", context: Any) -> Any:
    return event


def test_a_payload_comes_as_the_type_that_is_asked_for() -> None:
    event = claimed(payload={"number": 3})
    assert handler(of_order).call(event, None, None) == Order(3)
    assert asyncio.run(handler(of_invoice).call(event, None, None)) == Invoice(3)
    assert handler(of_type_checker).call(event, None, None) is event
    assert handler(decorated(of_order)).call(event, None, None) == Order(3)


def test_a_type_may_be_local_to_where_the_handler_is() -> None:
    class Local(msgspec.Struct):
        number: int

    def inner() -> Handler:
        def of_local(event: "Local") -> Any:
            return event

        return handler(decorated(of_local))

    assert inner().call(claimed(payload={"number": 3}), None, None) == Local(3)


def test_a_failure_is_told_from_the_handler_on() -> None:
    def failing(event: Claimed) -> None:
        raise ValueError("mine")

    one = handler(failing)
    with pytest.raises(ValueError, match="mine") as caught:
        one.call(EVENT, None, None)
    trace = caught.value.__traceback__
    assert trace is not None
    result = one.failed(EVENT, caught.value.with_traceback(trace.tb_next))
    assert isinstance(result, Failed)
    assert re.findall(r", in (?:.*<locals>\.)?(\S+)$", str(result.error), re.MULTILINE) == [
        "failing"
    ]


def test_a_payload_that_does_not_fit_is_dead_lettered_with_the_reason() -> None:
    one = handler(of_order, max_retries=5)
    event = claimed(payload={"number": "three"})
    with pytest.raises(PayloadMismatch) as caught:
        one.call(event, None, None)
    said = "the payload does not match Order: Expected `int`, got `str` - at `$.number`"
    assert one.failed(event, caught.value, 2) == Failed(
        event,
        f"tests.node.test_handlers.of_order: {said}",
        2,
        reason=f"Payload mismatch: {said}",
    )


@requirement("EQ-13")
@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (None, Completed(EVENT, 12)),
        (Done(), Completed(EVENT, 12)),
        (Done(204), Completed(EVENT, 12, 204)),
        (
            Retry(),
            Failed(EVENT, "", 12, last_reason=ERROR, max_retries=5, backoff=policy(Exponential())),
        ),
        (
            Retry(after=timedelta(seconds=3), reason="busy"),
            Failed(
                EVENT,
                "busy",
                12,
                retry_in=timedelta(seconds=3),
                last_reason=ERROR,
                max_retries=5,
                backoff=policy(Exponential()),
            ),
        ),
        (Discard("spam"), Failed(EVENT, "spam", 12, reason="spam")),
    ],
)
def test_what_is_returned_says_how_it_ended(returned: Any, expected: Any) -> None:
    one = handler(plain, max_retries=5, backoff=Exponential())
    assert one.result(EVENT, returned, 12) == expected


def test_other_values_say_nothing_and_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    one = handler(plain)
    with caplog.at_level(logging.WARNING):
        assert one.result(EVENT, {"ok": True}, 12) == Completed(EVENT, 12)
        assert one.result(EVENT, False, 12) == Completed(EVENT, 12)
    (record,) = caplog.records
    assert "tests.node.test_handlers.plain returned a value of the type dict" in record.message


@requirement("G18")
@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (Retry, "the class Retry itself"),
        (ValueError, "the class ValueError itself"),
        (ValueError("x"), "the exception ValueError"),
        ((Retry(after=1), "y"), "a tuple with Retry in it"),
        ([Discard], "a list with Discard in it"),
        ({"status": "failed"}, "a dict with the key 'status'"),
        ({"error": "no", "code": 7}, "a dict with the key 'error'"),
    ],
)
def test_what_looks_like_an_outcome_and_is_none_is_a_failure(returned: Any, said: str) -> None:
    one = handler(plain, max_retries=5)
    result = one.result(EVENT, returned, 12)
    assert isinstance(result, Failed)
    assert f"plain returned {said}, which is not an outcome: a handler returns" in str(result.error)
    assert (result.reason, result.max_retries) == (None, 5)


def test_a_coroutine_that_nobody_awaits_is_a_failure() -> None:
    one = handler(decorated(awaited))
    result = one.result(EVENT, one.call(EVENT, None, None), 12)
    assert isinstance(result, Failed)
    assert "awaited is a plain function and returned an awaitable" in str(result.error)
    assert result.reason is None


class Busy(OSError):
    pass


RULES = {
    ValueError: Discard("bad input"),
    OSError: Retry(after=30),
    Busy: Retry(after=1),
    LookupError: Done(404),
}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("x"), Failed(EVENT, "ValueError: x", 1, reason="bad input")),
        (
            UnicodeError("x"),
            Failed(EVENT, "UnicodeError: x", 1, reason="bad input"),
        ),
        (
            OSError("x"),
            Failed(EVENT, "OSError: x", 1, retry_in=30, max_retries=2, last_reason=ERROR),
        ),
        (
            Busy("x"),
            Failed(
                EVENT,
                "tests.node.test_handlers.Busy: x",
                1,
                retry_in=1,
                max_retries=2,
                last_reason=ERROR,
            ),
        ),
        (KeyError("x"), Completed(EVENT, 1, 404)),
        (TypeError("x"), Failed(EVENT, "TypeError: x", 1, max_retries=2, last_reason=ERROR)),
    ],
)
def test_the_nearest_rule_decides_what_an_exception_means(error: Exception, expected: Any) -> None:
    assert handler(plain, rules=RULES, max_retries=2).failed(EVENT, error, 1) == expected


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([OSError("x"), OSError("y")], 30),
        ([OSError("x"), ExceptionGroup("inner", [OSError("y")])], 30),
        ([OSError("x"), Busy("y")], None),
        ([OSError("x"), TypeError("y")], None),
        ([TypeError("y")], None),
    ],
)
def test_a_group_is_what_all_its_members_are(errors: list[Exception], expected: Any) -> None:
    one = handler(plain, rules=RULES)
    result = one.failed(EVENT, ExceptionGroup("a task group", errors), 1)
    assert isinstance(result, Failed)
    assert result.retry_in == expected
    mine = handler(plain, rules={**RULES, ExceptionGroup: Retry(after=7)})
    result = mine.failed(EVENT, ExceptionGroup("a task group", errors), 1)
    assert isinstance(result, Failed)
    assert result.retry_in == 7


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Done("200"), "a status code must be a whole number, not '200'"),
        (lambda: Done(True), "a status code must be a whole number"),
        (lambda: Done(2**31), "a status code must be a whole number"),
        (lambda: Retry(after=-1), "must be from 0 seconds to ten years"),
        (lambda: Retry(after=timedelta(days=4_000)), "must be from 0 seconds to ten years"),
        (lambda: Retry(after=float("nan")), "after must be a number of seconds or a timedelta"),
        (lambda: Retry(after="soon"), "after must be a number of seconds or a timedelta"),
        (lambda: Retry(reason=ValueError()), "a reason must be a string, not ValueError"),
        (lambda: Discard(None), "a reason must be a string, not NoneType"),
        (lambda: Discard(" "), "a reason that a person can read"),
    ],
)
def test_an_outcome_is_checked_where_it_is_made(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        make()


def test_a_batch_ends_alike_or_one_by_one() -> None:
    one = handler(for_events, batch=10)
    batch = [claimed(id=n) for n in (1, 2, 3)]
    assert one.results(batch, None, 5) == [Completed(event, 5) for event in batch]
    assert one.results(batch, [None, Discard("no"), Done()], 5) == [
        Completed(batch[0], 5),
        Failed(batch[1], "no", 5, reason="no"),
        Completed(batch[2], 5),
    ]
    for result in one.results(batch, [None], 5):
        assert isinstance(result, Failed)
        assert str(result.error).endswith("for_events returned 1 outcomes for 3 events")


def test_of_a_batch_only_those_that_do_not_fit_are_dead_lettered() -> None:
    one = handler(for_events, batch=10)
    good, bad = claimed(payload={"number": 1}), claimed(payload={})
    fitting, given, ended = one.read([good, bad])
    assert (fitting, given) == ([good], [Order(1)])
    (failed,) = ended
    assert isinstance(failed, Failed)
    assert failed.claimed is bad
    assert "missing required field `number`" in str(failed.reason)
    assert one.call(given, "connection", None) == [Order(1)]


@requirement("PG-16")
def test_the_handlers_of_an_event_come_in_the_order_of_registration() -> None:
    handlers = Handlers()
    every = handlers.add(handler(lambda event: 1, "*"))
    exact = handlers.add(handler(lambda event: 2, "order.created"))
    tagged = handlers.add(handler(lambda event: 3, "order.*", tags=["vip", "eu"]))
    strict = handlers.add(handler(lambda event: 4, "order.*", tags=["vip", "eu"], all_tags=True))
    assert handlers.of(claimed("order.created")) == (every, exact)
    assert handlers.of(claimed("order.paid")) == (every,)
    assert handlers.of(claimed("order.paid", tags=("eu",))) == (every, tagged)
    assert handlers.of(claimed("order.paid", tags=("x", "eu", "vip"))) == (every, tagged, strict)
    assert handlers.of(claimed("user.created", tags=("vip",))) == (every,)
    assert handlers.types == ("*", "order.*", "order.created")


def test_a_handler_that_is_added_is_found_at_once() -> None:
    handlers = Handlers()
    assert handlers.of(EVENT) == ()
    one = handlers.add(handler(plain))
    assert handlers.of(EVENT) == (one,)
    assert list(handlers) == [one]
    assert len(handlers) == 1


def test_names_differ() -> None:
    handlers = Handlers()
    names = [handlers.add(handler(plain, kind)).name for kind in ("a", "b", "c")]
    own = "tests.node.test_handlers.plain"
    assert names == [own, f"{own}#2", f"{own}#3"]


@requirement("PG-16")
def test_a_function_registered_twice_for_an_event_is_called_once() -> None:
    handlers, service = Handlers(), Service()
    first = handlers.add(handler(service.method, "order.*"))
    handlers.add(handler(service.method, "order.created"))
    assert handlers.of(EVENT) == (first,)


def test_what_is_handled_in_batches_has_one_handler() -> None:
    handlers = Handlers()
    handlers.add(handler(for_events, "order.*", batch=10))
    handlers.add(handler(plain, "user.*"))
    with pytest.raises(InvalidInput, match="handled in batches has one handler"):
        handlers.add(handler(plain, "*.created", tags=["x"]))
    with pytest.raises(InvalidInput, match="handled in batches has one handler"):
        handlers.add(handler(for_events, "user.created", batch=10))
    assert len(handlers) == 2


def test_handlers_that_share_a_transaction_are_all_async_or_all_plain() -> None:
    async def awaited_inside(event: Claimed, connection: Any) -> None: ...

    def inside(event: Claimed, connection: Any) -> None: ...

    handlers = Handlers(share_transaction=True)
    handlers.add(handler(awaited_inside, "order.*"))
    handlers.add(handler(plain, "order.*"))
    handlers.add(handler(inside, "user.*"))
    with pytest.raises(InvalidInput, match="both ask for its one connection"):
        handlers.add(handler(inside, "order.created"))
    each_its_own = Handlers()
    each_its_own.add(handler(awaited_inside, "order.*"))
    each_its_own.add(handler(inside, "order.created"))


def test_a_node_handles_a_thousand_types() -> None:
    handlers = Handlers()
    handlers.add(handler(plain, *(f"type.{n}" for n in range(1_000))))
    handlers.add(handler(plain, "type.7"))
    with pytest.raises(InvalidInput, match="at most 1000 types"):
        handlers.add(handler(plain, "another"))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.node.handler.registry.REMEMBERED", 10)
    handlers = Handlers()
    one = handlers.add(handler(plain, "*"))
    for n in range(100):
        assert handlers.of(claimed(f"type.{n}")) == (one,)
        assert len(handlers._known) <= 10


def test_a_call_and_its_end_cost_little() -> None:
    handlers = Handlers()
    one = handlers.add(handler(lambda event: None))
    started = time.thread_time()  # not the clock's: others may have the processor
    for _ in range(10_000):
        (found,) = handlers.of(EVENT)
        found.result(EVENT, found.call(EVENT, None, None), 1)
    assert (time.thread_time() - started) / 10_000 < 10e-6
    assert found is one

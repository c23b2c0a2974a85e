"""Exceptions as text, whatever they are."""

import asyncio
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace.model.failure_text import (
    CAUSED,
    DURING,
    FIRST_FRAMES,
    LAST_FRAMES,
    LINE,
    LINKS,
    MOST,
    failure_line,
    failure_text,
    shortened,
)
from tests.database import Database


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_it_is_the_traceback_as_python_writes_it() -> None:
    text = failure_text(raised(ValueError("no such order")))
    first, place, source, said = text.splitlines()
    assert first == "Traceback (most recent call last):"
    assert place.startswith(f'  File "{__file__}", line ')
    assert place.endswith(", in raised")
    assert source == "    raise error"
    assert said == "ValueError: no such order"


def test_an_exception_that_was_never_raised_is_one_line() -> None:
    assert failure_text(ValueError("a")) == "ValueError: a"
    assert failure_text(ValueError()) == "ValueError"
    assert failure_text(KeyError("a")) == "KeyError: 'a'"
    assert failure_text(ValueError("a", 1)) == "ValueError: ('a', 1)"
    assert failure_text(OSError(2, "No such file", "x")) == (
        "FileNotFoundError: [Errno 2] No such file: 'x'"
    )
    assert failure_text(failures_own()) == "tests.node.test_failures.failures_own.<locals>.Own: b"


def failures_own() -> Exception:
    class Own(Exception):
        pass

    return Own("b")


def test_a_log_gets_one_line() -> None:
    assert failure_line(raised(ValueError("a\0b\nc"))) == "ValueError: a\\x00b"
    assert failure_line(ValueError()) == "ValueError"
    assert failure_line(Raising(SystemExit())).endswith("Raising: (its __str__ raised SystemExit)")
    assert len(failure_line(ValueError("x" * 50_000_000))) == LINE


def test_causes_and_contexts_come_first() -> None:
    cause, context = KeyError("cause"), KeyError("context")
    error = ValueError("end")
    error.__cause__ = cause
    assert failure_text(error) == f"KeyError: 'cause'\n{CAUSED}ValueError: end"
    error.__cause__, error.__context__, error.__suppress_context__ = None, context, False
    assert failure_text(error) == f"KeyError: 'context'\n{DURING}ValueError: end"
    error.__suppress_context__ = True
    assert failure_text(error) == "ValueError: end"


def test_a_circle_of_causes_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert failure_text(one).count("ValueError") == 2


def test_a_long_chain_is_cut_where_it_began() -> None:
    error = ValueError("0")
    for n in range(1, 1_000):
        error, cause = ValueError(str(n)), error
        error.__cause__ = cause
    text = failure_text(error)
    assert text.endswith("ValueError: 999")
    assert text.count("ValueError") == LINKS


def test_members_of_a_group_are_told_one_by_one() -> None:
    group = ExceptionGroup("two", [raised(ValueError("a")), KeyError("b")])  # type: ignore[list-item]
    text = failure_text(group)
    assert text.startswith(
        "ExceptionGroup: two (2 sub-exceptions)\n\nSub-exception 1 of 2:\n\nTrace"
    )
    assert text.endswith("ValueError: a\n\nSub-exception 2 of 2:\n\nKeyError: 'b'")


def test_groups_within_groups_end() -> None:
    group: Exception = ValueError("leaf")
    for _ in range(200):
        group = ExceptionGroup("g", [group, ValueError("x")] * 20)
    assert len(failure_text(group)) <= MOST


def test_notes_are_told() -> None:
    error = ValueError("a")
    error.add_note("while importing")
    error.__notes__.append(7)  # type: ignore[arg-type]
    assert failure_text(error) == "ValueError: a\nwhile importing"
    error.__notes__ = "no list"  # type: ignore[assignment]
    assert failure_text(error) == "ValueError: a"


def test_what_cannot_be_stored_or_shown_is_escaped() -> None:
    text = failure_text(ValueError("a\0b\ud800c\x1b[31m\tü\n🎉"))
    assert text == "ValueError: a\\x00b\\ud800c\\x1b[31m\tü\n🎉"


class Raising(Exception):
    def __str__(self) -> str:
        raise self.args[0]


class NoText(Exception):
    def __str__(self) -> Any:
        return 7


class Endless(Exception):
    def __str__(self) -> str:
        return str(self)


class Sly(str):
    def __getitem__(self, place: Any) -> Any:
        raise SystemExit

    def __len__(self) -> int:
        raise SystemExit


class SlyError(Exception):
    def __str__(self) -> str:
        return Sly("sly")


class Hidden(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise ValueError

    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise ValueError


class OfNoModule(Exception):
    pass


OfNoModule.__module__ = None  # type: ignore[assignment]


class BadRepr:
    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Raising(ValueError()), "Raising: (its __str__ raised ValueError)"),
        (Raising(SystemExit()), "Raising: (its __str__ raised SystemExit)"),
        (Raising(asyncio.CancelledError()), "(its __str__ raised asyncio.exceptions.Cancelled"),
        (NoText(), "NoText: (its __str__ raised TypeError)"),
        (Endless(), "Endless: (its __str__ raised RecursionError)"),
        (SlyError(), "SlyError: sly"),
        (ValueError(Sly("sly")), "ValueError: sly"),
        (Hidden("hidden"), "Hidden: hidden"),
        (OfNoModule("lost"), "OfNoModule: lost"),
        (ValueError(BadRepr()), "ValueError: <BadRepr instance at"),
        (KeyError(BadRepr(), 1), "KeyError: (<BadRepr instance at"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_no_exception_breaks_it(error: BaseException, text: str) -> None:
    assert text in failure_text(error)
    assert text in failure_text(raised(error))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x" * 50_000_000),
        KeyError("x" * 50_000_000),
        ValueError(["x" * 1_000] * 1_000_000),
        ValueError({n: [n] * 100 for n in range(1_000)}, "x" * 50_000_000),
        UnicodeDecodeError("utf-8", b"x" * 10_000_000, 0, 10_000_000, "y" * 1_000_000),
    ],
    ids=["text", "key", "list", "several", "bytes"],
)
def test_fifty_megabytes_are_cut_before_they_are_copied(error: BaseException) -> None:
    tracemalloc.start()
    started = time.thread_time()  # not the clock's: others may have the processor
    text = failure_text(raised(error))
    took, (_, peak) = time.thread_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(text) <= MOST
    assert peak < 5_000_000
    assert took < 5


def test_of_a_long_text_head_and_tail_are_kept() -> None:
    text = shortened("a" * 5_000 + "b" * 5_000, 1_000)
    assert len(text) == 1_000
    assert text.startswith("a" * 333)
    assert text.endswith("b" * 600)
    assert "[… 9000 characters …]" in text


def test_a_deep_recursion_is_cut_in_the_middle() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("bottom")
        deep(n - 1)

    with pytest.raises(ValueError, match="bottom") as caught:
        deep(400)
    text = failure_text(caught.value)
    assert len(text) <= MOST
    assert text.count(", in test_a_deep_recursion_is_cut_in_the_middle.<locals>.deep") == (
        FIRST_FRAMES + LAST_FRAMES - 1
    )
    assert "  [… 378 more …]\n" in text
    assert text.endswith("ValueError: bottom")


def test_infinite_recursion_is_told() -> None:
    def endless() -> None:
        endless()

    with pytest.raises(RecursionError) as caught:
        endless()
    assert failure_text(caught.value).endswith("maximum recursion depth exceeded")


PLAINLY = "def run(function):\n    return function()"
IN_A_THREAD = """
from concurrent.futures import ThreadPoolExecutor

def run(function):
    with ThreadPoolExecutor() as threads:
        return threads.submit(function).result()
"""


def called_by_us(function: Callable[[], Any], source: str = PLAINLY) -> BaseException:
    """What it raises, called from a file of the package."""
    ours: dict[str, Any] = {}
    file = Path(headrace.__file__).parent / "node" / "run" / "run.py"
    exec(compile(source, str(file), "exec"), ours)
    with pytest.raises(Exception) as caught:  # noqa: PT011
        ours["run"](function)
    error = caught.value
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


def test_what_called_the_handler_is_left_out() -> None:
    def handler() -> None:
        asyncio.run(inner())

    async def inner() -> None:
        await asyncio.create_task(failing())

    async def failing() -> None:
        raise ValueError("mine")

    in_a_thread = failure_text(called_by_us(lambda: [][0], IN_A_THREAD))
    assert in_a_thread.count("  File ") == 1
    text = failure_text(called_by_us(handler))
    names = re.findall(r", in (?:.*<locals>\.)?(\w+)$", text, re.MULTILINE)
    assert (names[0], names[-1]) == ("handler", "failing")
    assert "node/run/run.py" not in text
    assert "asyncio" in text  # what the handler itself called stays


def test_where_all_of_it_is_ours_all_of_it_stays() -> None:
    text = failure_text(called_by_us(7))  # type: ignore[arg-type]
    assert "node/run/run.py" in text
    assert text.endswith("TypeError: 'int' object is not callable")


def line(db: Database, error: BaseException) -> str:
    """What the engine takes for the line that says most, by which dead letters are grouped."""
    [(told,)] = db.sql("select headrace._error_line('why', %s)", [failure_text(error)])
    return told


def test_the_engine_finds_the_line_that_says_most(db: Database) -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise ValueError("bottom")
        deep(n - 1)

    with pytest.raises(ValueError, match="bottom") as caught:
        deep(400)
    caused = raised(KeyError("later"))
    caused.__cause__ = caught.value
    noted = raised(ValueError("a\nb"))
    noted.add_note("a note")
    failed = [raised(OSError("x")), raised(OSError("y"))]
    for error, said in {
        caught.value: "ValueError: bottom",
        caused: "KeyError: 'later'",
        noted: "ValueError: a",
        raised(BaseExceptionGroup("unhandled errors in a TaskGroup", failed)): "OSError: y",
        ValueError("never raised"): "ValueError: never raised",
        raised(ValueError("x" * 100_000)): "ValueError: " + "x" * 666,
    }.items():
        assert line(db, error) == said


TEXTS = st.text(st.characters(), max_size=50) | st.integers(0, 20_000).map("x".__mul__)


def _group(errors: list[Exception]) -> Exception:
    return ExceptionGroup("group", errors)


@st.composite
def chains(draw: st.DrawFn, inner: st.SearchStrategy[Exception]) -> Exception:
    error, cause = draw(LEAVES), draw(inner)
    if draw(st.booleans()):
        error.__cause__ = cause
    else:
        error.__context__ = cause
    for note in draw(st.lists(TEXTS, max_size=2)):
        error.add_note(note)
    return error


LEAVES = st.builds(
    lambda kind, args: raised(kind(*args)),
    st.sampled_from([ValueError, KeyError, OSError, NoText, SlyError]),
    st.lists(TEXTS | st.lists(TEXTS), max_size=3),
)
ERRORS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(_group) | chains(inner),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(ERRORS)
def test_every_failure_can_be_stored(error: Exception) -> None:
    text = failure_text(error)
    assert 0 < len(text) <= MOST
    assert "\0" not in text
    assert text.encode()


def test_it_is_quick() -> None:
    error = raised(ValueError("a"))
    failure_text(error)
    started = time.thread_time()
    for _ in range(100):
        failure_text(error)
    assert (time.thread_time() - started) / 100 < 0.001

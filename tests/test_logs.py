"""Logs as JSON: a line an object, whatever is logged, and no password in any of them."""

import io
import json
import logging
import logging.config
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.model import Claimed
from headrace.node.handler.context import Context, Means
from headrace.telemetry import logs
from headrace.telemetry.current import current
from headrace.telemetry.logs import JsonFormatter, TextFormatter
from headrace.telemetry.redact import redacted


def claimed(id: int = 7, type: str = "order.paid", attempt: int = 2) -> Claimed:
    expires = datetime(2030, 1, 1, tzinfo=UTC)
    return Claimed(id, attempt, 1, False, type, (), {}, 5, 0, 0, 3, expires, b"\0" * 8, None)


class Lines:
    """A logger and what it has written."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.stream = io.StringIO()
        handler = logging.StreamHandler(self.stream)
        handler.setFormatter(formatter)
        self.logger = logging.Logger("shop.orders")  # noqa: LOG001 (one that nobody else has)
        self.logger.addHandler(handler)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def only(self) -> dict[str, Any]:
        [line] = self.text.splitlines()

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is no JSON")

        return json.loads(line, parse_constant=refuse)


@pytest.fixture
def lines() -> Lines:
    return Lines(JsonFormatter())


def test_a_line_says_when_how_bad_who_and_what(lines: Lines) -> None:
    before = datetime.now(UTC)
    lines.logger.warning("%d orders of %s\nare late", 3, "Zoë")
    line = lines.only()
    at = datetime.fromisoformat(line.pop("at"))
    assert abs((at - before).total_seconds()) < 10
    assert at.utcoffset() is not None
    assert line == {"level": "warning", "logger": "shop.orders", "message": "3 orders of Zoë\nare late"}  # fmt: skip


def test_extra_fields_are_fields(lines: Lines) -> None:
    extra = {"event_id": 5, "handler": "shop.welcome", "sizes": [1, {"a": None}], "none": None}
    lines.logger.info("done", extra=extra)
    line = lines.only()
    assert (line["event_id"], line["handler"], line["sizes"]) == (5, "shop.welcome", [1, {"a": None}])  # fmt: skip
    assert "none" not in line
    assert not line.keys() & {"args", "levelno", "process", "taskName"}


def test_an_error_comes_with_its_traceback(lines: Lines) -> None:
    try:
        raise ValueError("no such order") from KeyError("order")
    except ValueError:
        lines.logger.exception("it failed", stack_info=True)
    line = lines.only()
    assert "ValueError: no such order" in line["error"]
    assert "direct cause" in line["error"]
    assert "test_an_error_comes" in line["stack"]


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("-inf"), {"a": float("inf")}, b"bytes", {1, 2}, datetime.now(UTC), object(), Unspeakable(),
     CIRCLE, {(1, 2): 3}, "\ud800", "\0", "x" * 1_000_000, ["x" * 1_000_000], 10**400, Exception],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_whatever_is_logged_is_one_line_of_json(lines: Lines, value: Any) -> None:
    lines.logger.info("it is", extra={"what": value})
    assert lines.only()["what"] is not None
    assert len(lines.text) < 500_000


def test_who_logs_badly_is_told_and_nobody_else_suffers(lines: Lines) -> None:
    lines.logger.info("%d orders", "three")
    lines.logger.info("fine")
    bad, fine = map(json.loads, lines.text.splitlines())
    assert bad["message"].startswith("%d orders (cannot be formatted")
    assert fine["message"] == "fine"


def test_a_message_is_bounded(lines: Lines) -> None:
    lines.logger.info("x" * 1_000_000)
    assert len(lines.only()["message"]) == 65_536


@pytest.fixture
def handling() -> Iterator[Claimed]:
    event = claimed()
    means = Means(60, lambda lease: 0, print, print)
    token = current.set(SimpleNamespace(context=Context(event, means)))
    yield event
    current.reset(token)


def test_what_is_logged_inside_a_handler_says_for_which_event(
    lines: Lines, handling: Claimed
) -> None:
    lines.logger.info("charged")
    line = lines.only()
    assert (line["event_id"], line["event_type"], line["attempt"]) == (7, "order.paid", 2)


def test_who_names_another_event_means_it(lines: Lines, handling: Claimed) -> None:
    lines.logger.info("charged", extra={"event_id": 8})
    assert lines.only()["event_id"] == 8


SECRETS = [
    ("postgresql://me:s3cret@db/shop", "postgresql://me:***@db/shop"),
    ("POSTGRES://me:s3cret@db", "POSTGRES://me:***@db"),
    ("postgresql+psycopg://me:s3cret@db/shop?x=1", "postgresql+psycopg://me:***@db/shop?x=1"),
    ("postgresql://me:s3/cr@et@db/shop", "postgresql://me:***@db/shop"),
    ("postgresql://:s3cret@db", "postgresql://:***@db"),
    ("host=db password=s3cret user=me", "host=db password=*** user=me"),
    ("password = 's3 cr\\'et' user=me", "password = *** user=me"),
    ("sslpassword=s3cret", "sslpassword=***"),
    ("PGPASSWORD=s3cret psql", "PGPASSWORD=*** psql"),
    ("PGPASSWORD='s3 cret' psql", "PGPASSWORD=*** psql"),
    ('password="s3 cret" user=me', "password=*** user=me"),
    ("http://me:s3cret@proxy:80/a", "http://me:***@proxy:80/a"),
    (
        "postgresql://db/shop?user=me&password=s3cret&x=1",
        "postgresql://db/shop?user=me&password=***&x=1",
    ),
    ("postgresql://db/?sslpassword=s3cret", "postgresql://db/?sslpassword=***"),
    ("postgresql://me:1/s3cret@db", "postgresql://me:***@db"),
]
HARMLESS = [
    "postgresql://db:5432/shop",
    "postgresql://me@db/shop",
    "http://host:80/path?to=a@b",
    "the password is wrong",
]


@pytest.mark.parametrize(("text", "shown"), SECRETS)
def test_a_password_is_never_shown(text: str, shown: str) -> None:
    assert redacted(f"cannot reach {text}") == f"cannot reach {shown}"
    for formatter in (JsonFormatter(), TextFormatter()):
        lines = Lines(formatter)
        lines.logger.info("to %s", text, extra={"dsn": text, "all": [text]})
        try:
            raise ValueError(text)
        except ValueError:
            lines.logger.exception(text, stack_info=True)
        assert "s3" not in lines.text
        assert "et'" not in lines.text


def test_nor_is_one_that_stands_for_itself(lines: Lines) -> None:
    lines.logger.info("to", extra={"where": {"host": "db", "Password": "s3cret"}})
    assert lines.only()["where"] == {"host": "db", "Password": "***"}


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_password_is_left_alone(text: str) -> None:
    assert redacted(text) == text


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger, as it was before."""
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    yield root
    root.setLevel(before[0])
    root.handlers[:] = before[1]


@pytest.mark.parametrize("as_json", [True, False])
def test_configure_has_everything_logged_once(root: logging.Logger, as_json: bool) -> None:
    stream = io.StringIO()
    for _ in range(2):
        logs.configure(json=as_json, stream=stream)
    logging.getLogger("headrace.node").info("started")
    logging.getLogger("headrace.node").debug("not this")
    [line] = stream.getvalue().splitlines()
    assert line.startswith("{") is as_json
    assert "started" in line


def test_the_formatter_can_be_named_in_a_configuration(root: logging.Logger) -> None:
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": "headrace.logs.JsonFormatter"}},
            "handlers": {"err": {"class": "logging.StreamHandler", "formatter": "json"}},
            "root": {"handlers": ["err"], "level": "INFO"},
        }
    )
    assert isinstance(root.handlers[0].formatter, JsonFormatter)

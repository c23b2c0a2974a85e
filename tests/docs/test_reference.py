"""What can be called is documented: every function, method, exception, field of an event and setting of a queue. (tests/server looks at paths, tests/cli at commands.)"""

import re
import tomllib

import pytest

import headrace
from headrace.errors import HeadraceError
from headrace.server.api.queues import Config, QueueChange
from tests.docs.reading import PROJECT


def page(name: str) -> str:
    return (PROJECT / "docs" / name).read_text("utf-8")


def granted() -> set[str]:
    """The functions that somebody may call."""
    roles = (PROJECT / "src" / "headrace" / "sql" / "roles.sql").read_text("utf-8")
    found = re.search(r"grants constant text := '(.*?)'", roles, re.DOTALL)
    assert found is not None
    return set(re.findall(r"(\w+): ", found[1]))


def test_every_function_that_somebody_may_call_is_documented() -> None:
    pages = "".join(one.read_text("utf-8") for one in (PROJECT / "docs").glob("*.md"))
    told = set(re.findall(r"`(?:headrace\.)?(\w+)\(", pages))
    assert {"publish", "tick"} <= granted()
    assert granted() - told == set(), "docs/sql.md needs a line for these"


def test_every_method_of_a_client_is_documented() -> None:
    methods = {name for name in vars(headrace.EventQueue) if not name.startswith("_")} - {"close"}
    pages = "".join(one.read_text("utf-8") for one in (PROJECT / "docs").glob("*.md"))
    told = set(re.findall(r"`(?:queue\.)?(\w+)(?:\(|`)", pages))
    assert methods - told == set(), "docs/python.md needs a line for these"


@pytest.mark.parametrize("name", ["sql.md", "python.md", "http.md"])
def test_every_field_of_a_new_event_is_documented(name: str) -> None:
    of_python = {"max_attempts"} if name != "python.md" else set()
    fields = set(headrace.NewEvent.__struct_fields__) - {"type", "payload"} - of_python
    assert fields - told(name) == set()


def test_every_setting_of_a_queue_is_documented() -> None:
    settings = set(QueueChange.__struct_fields__) - set(Config.__struct_fields__)
    assert {"aging", "takes"} <= settings
    assert settings - told("sql.md") == set()


def told(name: str) -> set[str]:
    """The words of a page that are names."""
    return set(re.findall(r"`(\w+)`", page(name)))


def test_every_exception_is_documented() -> None:
    raised = {
        name
        for name in headrace.__all__
        if isinstance(getattr(headrace, name), type)
        and issubclass(getattr(headrace, name), HeadraceError)
    }
    assert len(raised) > 20
    told = set(re.findall(r"`(?:headrace\.)?([A-Z]\w+)`", page("python.md") + page("sql.md")))
    assert raised - told == set()


def test_every_promise_is_on_its_page() -> None:
    told = re.findall(
        r"^\| \[(G\d+)\]\(documents/promises\.md#(g\d+)\)", page("guarantees.md"), re.M
    )
    asked = tomllib.loads((PROJECT / "tests/requirements.toml").read_text(encoding="utf-8"))
    assert [id for id, _ in told] == [id for id in asked["requirements"] if re.match(r"G\d", id)]
    assert all(id.lower() == anchor for id, anchor in told)

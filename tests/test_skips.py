import pytest

pytest_plugins = ["pytester"]

SKIPPING = """
import pytest

def test_runs(): pass

def test_skips(): pytest.skip("no such server")

@pytest.mark.skip(reason="not on this system")
def test_is_skipped(): pass

@pytest.mark.xfail(strict=True)
def test_is_known_to_fail(): assert False
"""
SKIPPING_MODULE = "import pytest; pytest.importorskip('no_such_module')"


@pytest.mark.parametrize(
    ("test_all", "outcomes"),
    [
        pytest.param("", {"passed": 1, "skipped": 3, "xfailed": 1}, marks=pytest.mark.rest),
        ("1", {"passed": 1, "failed": 1, "errors": 2, "xfailed": 1}),
    ],
)
def test_a_skip_is_a_failure_where_nothing_may_be_missing(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    test_all: str,
    outcomes: dict[str, int],
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_ALL", test_all)
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
    pytester.makepyfile(test_one=SKIPPING, test_two=SKIPPING_MODULE)
    result = pytester.runpytest_subprocess(
        "-p", "tests.plugins.skips", "--continue-on-collection-errors"
    )
    result.assert_outcomes(**outcomes)

"""Under HEADRACE_TEST_ALL=1 a skipped test is a failure: there, nothing may be missing."""

import os
from collections.abc import Generator

import pytest

TEST_ALL = bool(os.environ.get("HEADRACE_TEST_ALL"))


def fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    # An expected failure is reported as skipped too, but it did run.
    if TEST_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason}\n(HEADRACE_TEST_ALL is set: a skipped test is a failure.)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    fail_if_skipped(report)
    return report

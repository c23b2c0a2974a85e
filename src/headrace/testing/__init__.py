"""Tests with a real Headrace: a pytest plugin, and functions for tests.

    from headrace.testing import advance, assert_published, drain

    def test_a_customer_is_welcomed(headrace_queue):
        headrace_queue.publish("user.created", {"name": "Ada"})
        drain(node)
        assert_published("mail.requested", {"to": "Ada"})

Each test begins with an empty database: see docs/testing.md.
"""

from headrace.testing.drain import Drained, drain, drain_async
from headrace.testing.fixtures import (
    headrace_database,
    headrace_dsn,
    headrace_namespace,
    headrace_queue,
)
from headrace.testing.world import advance, assert_published, published

__all__ = [
    "Drained",
    "advance",
    "assert_published",
    "drain",
    "drain_async",
    "headrace_database",
    "headrace_dsn",
    "headrace_namespace",
    "headrace_queue",
    "published",
]

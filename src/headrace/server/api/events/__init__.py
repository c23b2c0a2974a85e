"""Events: published, shown, listed, reset, run again, cancelled, erased."""

from headrace.server.api.events import change, look, publish

OPERATIONS = (*publish.OPERATIONS, *change.OPERATIONS, *look.OPERATIONS)

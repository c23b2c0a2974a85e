"""Claims: workers take events, extend their leases and finish their attempts."""

from headrace.server.api.claims import claim, finish

OPERATIONS = (*claim.OPERATIONS, *finish.OPERATIONS)

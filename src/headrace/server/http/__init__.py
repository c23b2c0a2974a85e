"""HTTP itself: connections, routing, requests, refusals, OpenAPI."""

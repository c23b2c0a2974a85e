"""The HTTP server: `create_app` gives an ASGI application, `headrace serve` runs it."""

"""How a node runs a claim: on the event loop, in threads, in a transaction."""

"""The health of a node, as it reports it."""

"""How a node keeps its leases and its registration alive."""

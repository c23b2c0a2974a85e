"""How a node claims: lanes, slots and the consuming loop."""

"""How a node reports what its handlers did."""

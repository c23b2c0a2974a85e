"""What a node reports about itself."""

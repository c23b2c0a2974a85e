"""`headrace bench`: how fast a user's own server is."""

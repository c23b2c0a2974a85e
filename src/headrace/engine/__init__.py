"""Every verb once, without I/O: its signature, its SQL and how its reply is read."""

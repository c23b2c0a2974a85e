"""How a statement reaches PostgreSQL: connections, pools, sessions. Nothing else uses psycopg's
insides."""

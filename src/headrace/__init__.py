"""Headrace: a durable event queue and bus that lives in PostgreSQL."""

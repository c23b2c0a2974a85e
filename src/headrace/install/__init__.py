"""Brings a database to this version: the schema, its functions, its optional parts."""

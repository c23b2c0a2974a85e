"""Nodes: the runtime that handlers are written against."""

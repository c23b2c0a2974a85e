"""Nodes: functions that handle events, and the processes that run them."""

from headrace.node.node import Node

__all__ = ["Node"]

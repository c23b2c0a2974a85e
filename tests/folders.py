"""Folders for servers and sockets: those of the plugin for tests."""

from headrace.testing.folders import roomy, short_folder

__all__ = ["roomy", "short_folder"]

"""Handlers: how they are registered, what they ask for, what they return."""

"""Logs, metrics and traces, and the redactor of passwords."""

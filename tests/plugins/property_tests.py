"""Hypothesis without deadlines: a test that talks to a database is sometimes slow, not wrong."""

from hypothesis import settings

settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")

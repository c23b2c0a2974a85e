"""The checks of `headrace doctor`, one module a subject."""

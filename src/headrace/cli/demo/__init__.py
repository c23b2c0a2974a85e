"""The demo of `headrace up --demo`."""

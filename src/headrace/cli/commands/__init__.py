"""The commands of `headrace`, one module each or one for a family."""

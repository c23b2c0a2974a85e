"""How the command line reads options and writes tables, progress and errors."""

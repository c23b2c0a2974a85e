"""The command line: `headrace`."""

import sys


def main() -> None:
    """Run the command line, or name the packages that it needs."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        sys.exit("The command line needs two more packages: pip install 'headrace[cli]'")
    from headrace.cli.program import run

    run()

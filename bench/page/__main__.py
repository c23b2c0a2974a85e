"""`make performance`, or `python -m bench.page`: keep what was measured last, and write the page, its charts and README."""

from __future__ import annotations

import argparse
import sys

from bench.page import measured, writing


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; say whether all is up to date"
    )
    options = parser.parse_args()
    if options.check:
        stale = writing.stale(measured.read())
        sys.exit(f"Not up to date: {', '.join(stale)} (make performance)" if stale else 0)
    measured.take()
    writing.write(measured.read())
    print(f"{writing.PAGE} and {writing.README} are written.")


if __name__ == "__main__":
    main()

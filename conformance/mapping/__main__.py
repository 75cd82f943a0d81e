"""`python -m conformance.mapping [--write]`: print the tables of docs/mapping.md, or update the
page.
"""

import argparse
from pathlib import Path

from conformance.mapping.page import renewed, tables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mapping.md"


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(prog="python -m conformance.mapping", description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/mapping.md")
    if parser.parse_args().write:
        PAGE.write_text(renewed(PAGE.read_text()))
    else:
        print(tables())


if __name__ == "__main__":
    main()

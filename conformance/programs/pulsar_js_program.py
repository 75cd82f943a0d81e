"""Pulsar's client in pure JavaScript, version as in `pulsar_js/package.json`: install and run.

The client around the C++ library (npm `pulsar-client`) fetches its native part from outside npm.
"""

import shutil
from pathlib import Path
from typing import Final

from conformance.programs.running import NotBuilt, build_in, lines_of, program_folder

SOURCES: Final = Path(__file__).parent / "pulsar_js"


def build() -> None:
    """Fetch the libraries. Raises NotBuilt."""
    folder = program_folder("pulsar-js")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    build_in(folder, "npm", "ci", "--no-audit", "--no-fund")


def run(pulsar: str, url: str) -> list[str]:
    """Return the program's lines; `url` is not used. Raises NotBuilt."""
    program, node = program_folder("pulsar-js") / "check.js", shutil.which("node")
    if node is None or not (program.parent / "node_modules").exists():
        raise NotBuilt("not built: python -m conformance.programs js")
    return lines_of([node, str(program), pulsar])

"""Pulsar's client in JavaScript alone, version as in `pulsar_js/package.json`: install and run.

The one around the C++ library (npm `pulsar-client`) fetches its native part from outside npm.
"""

import shutil
from pathlib import Path
from typing import Final

from conformance.programs.running import NotBuilt, build_in, lines_of, program_folder

SOURCES: Final = Path(__file__).parent / "pulsar_js"


def build() -> None:
    """Fetch its libraries. Raises NotBuilt."""
    folder = program_folder("pulsar-js")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    build_in(folder, "npm", "ci", "--no-audit", "--no-fund")


def run(pulsar: str, url: str) -> list[str]:
    """As of the Java program; `url` is not asked. Raises NotBuilt."""
    program, node = program_folder("pulsar-js") / "check.js", shutil.which("node")
    if node is None or not (program.parent / "node_modules").exists():
        raise NotBuilt("not built: python -m conformance.programs js")
    return lines_of([node, str(program), pulsar])

"""Compile requirements/*.txt: one file per extra with exact versions and hashes, no addresses.

Run by `make lock`. All files agree, because each is compiled against one resolution of everything,
and that resolution holds for every Python and platform that wheels exist for. Knows nothing of what
the packages are for.
"""

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "requirements"
PYTHON_OLDEST = "3.11"
HEADER = "# Written by `make lock` from pyproject.toml. Exact versions, hashes, no addresses.\n"
OPTIONS = (
    "--universal",
    f"--python-version={PYTHON_OLDEST}",
    "--no-header",
    "--no-annotate",
    "--no-emit-index-url",
    "--no-emit-find-links",
)


def main() -> None:
    """Write one requirements file for the core and one for each extra of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups: dict[str, list[str]] = {"core": project["project"]["dependencies"]}
    groups |= project["project"]["optional-dependencies"]
    groups["build"] = project["build-system"]["requires"]
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wanted = sorted({line for lines in groups.values() for line in lines})
        pins = Path(folder) / "pins.txt"
        pins.write_text(_compile(wanted, [], Path(folder)))
        for name, lines in groups.items():
            options = ["--generate-hashes", f"--constraints={pins}"]
            text = HEADER + _compile(lines, options, Path(folder))
            (OUT / f"{name}.txt").write_text(text)
            print(f"requirements/{name}.txt: {text.count('==')} lines")


def _compile(lines: Sequence[str], options: Sequence[str], folder: Path) -> str:
    source = folder / "wanted.in"
    source.write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "uv", "pip", "compile", *OPTIONS, *options, str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


if __name__ == "__main__":
    main()

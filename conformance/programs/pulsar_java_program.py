"""Pulsar's Java client and admin client, versions as in `pulsar_java/pom.xml`: build and run."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent / "pulsar_java"
BUILD_S: Final = 900  # Some 60 MB of libraries the first time.
RUN_S: Final = 300


class NotBuilt(Exception):
    """The program is not there; the text says how to get it."""


def folder() -> Path:
    """Where it is built: outside the tree, kept from one run to the next."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "braidlog" / "pulsar-java"


def build() -> None:
    """Compile the program and fetch its libraries. Raises NotBuilt."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NotBuilt("Maven (mvn) is not installed")
    shutil.copytree(SOURCES, folder(), dirs_exist_ok=True)
    goals = ["-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=libraries"]
    built = subprocess.run(
        [maven, *goals], cwd=folder(), timeout=BUILD_S, capture_output=True, text=True
    )
    if built.returncode:
        raise NotBuilt(f"mvn: {built.stdout[-2000:]}")


def run(pulsar: str, url: str) -> list[str]:
    """The lines that it prints, `ok` or `FAILED` and the step, on the broker with that address of
    Pulsar's and that URL. Raises NotBuilt.
    """
    java, libraries = shutil.which("java"), folder() / "libraries"
    if java is None or not libraries.exists():
        raise NotBuilt("not built: python -m conformance.programs")
    compiled = folder() / "target" / "classes"
    done = subprocess.run(
        [
            java,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp",
            f"{compiled}:{libraries.read_text().strip()}",
            "Check",
            pulsar,
            url,
        ],
        timeout=RUN_S,
        capture_output=True,
        text=True,
    )
    return [*done.stdout.splitlines(), *done.stderr.splitlines()[-5:]]

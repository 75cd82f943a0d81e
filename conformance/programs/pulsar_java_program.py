"""Pulsar's Java client and admin client, versions as in `pulsar_java/pom.xml`: build and run."""

import shutil
from pathlib import Path
from typing import Final

from conformance.programs.running import NotBuilt, build_in, lines_of, program_folder

SOURCES: Final = Path(__file__).parent / "pulsar_java"


def folder() -> Path:
    """Where it is built."""
    return program_folder("pulsar-java")


def build() -> None:
    """Compile the program and fetch its libraries. Raises NotBuilt."""
    shutil.copytree(SOURCES, folder(), dirs_exist_ok=True)
    goals = ["-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=libraries"]
    build_in(folder(), "mvn", *goals)


def run(pulsar: str, url: str) -> list[str]:
    """The lines that it prints, `ok` or `FAILED` and the step, on the broker with that address of
    Pulsar's and that URL. Raises NotBuilt.
    """
    java, libraries = shutil.which("java"), folder() / "libraries"
    if java is None or not libraries.exists():
        raise NotBuilt("not built: python -m conformance.programs")
    classes = f"{folder() / 'target' / 'classes'}:{libraries.read_text().strip()}"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    return lines_of([java, quiet, "-cp", classes, "Check", pulsar, url])

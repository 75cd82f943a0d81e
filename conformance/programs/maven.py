"""Programs in Java: built by Maven outside the tree, run with the libraries that Maven fetched."""

import shutil
from pathlib import Path

from conformance.programs.running import NotBuilt, build_in, lines_of, program_folder


def build(sources: Path, name: str) -> None:
    """Compile the program and fetch its libraries. Raises NotBuilt."""
    folder = program_folder(name)
    shutil.copytree(sources, folder, dirs_exist_ok=True)
    goals = ["-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile=libraries"]
    build_in(folder, "mvn", *goals)


def run(name: str, main: str, *arguments: str) -> list[str]:
    """Return the output lines of the class `main`, `ok` or `FAILED` and the step.
    Raises NotBuilt.
    """
    return lines_of(command_of(name, main, *arguments))


def command_of(name: str, main: str, *arguments: str) -> list[str]:
    """Return the command that runs the class `main` of a built program. Raises NotBuilt."""
    folder = program_folder(name)
    java, libraries = shutil.which("java"), folder / "libraries"
    if java is None or not libraries.exists():
        raise NotBuilt("not built: python -m conformance.programs")
    classes = f"{folder / 'target' / 'classes'}:{libraries.read_text().strip()}"
    short_lived = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    return [java, *short_lived, quiet, "-cp", classes, main, *arguments]

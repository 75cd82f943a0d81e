"""Iggy's clients in other languages: a small program per language, with a pinned client version.

The language's own tool builds the program into a cache folder, never into the source tree.
`python -m conformance.clients.iggy_programs` builds all programs that can be built here, which
takes minutes; tests run built programs only. The command is `PROGRAM work|read HOST:PORT`: see
`programs/iggy/scenario.rs`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.clients.iggy import NoClient, cache_folder

PROGRAMS = Path(__file__).parent.parent / "programs" / "iggy"
BUILD_TIMEOUT_S = 1800
BUILD_COMMAND = "python -m conformance.clients.iggy_programs"
SETTINGS = ("listeners.iggy.without_login=true",)  # Broker settings that Rust 0.0.60 (D0) needs.


@dataclass(frozen=True)
class IggyProgram:
    """A client: its language and version, which name its folder, and its dialect."""

    language: str
    version: str
    dialect: str

    def __str__(self) -> str:
        return f"{self.language} {self.version}"

    @property
    def folder(self) -> str:
        """Return the folder name in the cache; Rust versions also have a source folder of this
        name.
        """
        return f"{self.language}-{self.version}"


ALL = (
    IggyProgram("rust", "0.0.60", "D0"),
    IggyProgram("rust", "0.6.203", "D2"),
    IggyProgram("rust", "0.11.0", "V"),
    IggyProgram("rust", "0.11.1-edge.9", "W"),
    IggyProgram("java", "0.6.0", "D4"),
    IggyProgram("java", "0.7.0", "D5"),
    IggyProgram("java", "0.8.0", "D5"),
)


def command_of(program: IggyProgram) -> Sequence[str]:
    """Return the command of a built program. Raises NoClient if the program is not built."""
    built = cache_folder() / program.folder
    if program.language == "java":
        needed = built / "lib"
        command = ["java", _version_of(program), "-cp", f"{built}:{built}/lib/*", "Program"]
    else:
        needed = built / "iggy-rust"
        command = [str(needed)]
    if not needed.exists():
        raise NoClient(f"{program} is not built: {BUILD_COMMAND} does that")
    return command


def built_command(program: IggyProgram) -> Sequence[str]:
    """Return the command of a program; build a missing program first. Raises NoClient."""
    try:
        return command_of(program)
    except NoClient:
        build(program)
    return command_of(program)


def build(program: IggyProgram) -> None:
    """Build a program. Raises NoClient."""
    work = cache_folder() / f"{program.folder}.{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    try:
        BUILDERS[program.language](program, work)
        target = cache_folder() / program.folder
        shutil.rmtree(target, ignore_errors=True)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _build_rust(program: IggyProgram, work: Path) -> None:
    """Build a Rust program from a copy of the source: Cargo writes a lock file
    beside the source.
    """
    source = work / "source" / program.folder
    shutil.copytree(PROGRAMS / program.folder, source)
    shutil.copy(PROGRAMS / "scenario.rs", source.parent)
    target = cache_folder() / "cargo-target"
    _run("cargo", "build", "--quiet", "--target-dir", str(target), at=source)
    shutil.copy(target / "debug" / "iggy-rust", work / "iggy-rust")
    shutil.rmtree(work / "source")


def _version_of(program: IggyProgram) -> str:
    """Return the option that gives Maven and the program the client's version."""
    return f"-Diggy.version={program.version}"


def _build_java(program: IggyProgram, work: Path) -> None:
    """Build a Java program: a single source serves all versions."""
    source = PROGRAMS / "java"
    (work / "lib").mkdir(parents=True)
    options = _version_of(program), f"-DoutputDirectory={work / 'lib'}"
    _run("mvn", "-q", "-B", "dependency:copy-dependencies", *options, at=source)
    _run("javac", "-cp", f"{work}/lib/*", "-d", str(work), "Program.java", at=source)


BUILDERS: dict[str, Callable[[IggyProgram, Path], None]] = {
    "rust": _build_rust,
    "java": _build_java,
}


def _run(tool: str, *arguments: str, at: Path) -> None:
    program = shutil.which(tool)
    if program is None:
        raise NoClient(f"there is no {tool}")
    try:
        done = subprocess.run(
            [program, *arguments], cwd=at, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise NoClient(f"{tool} took too long") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise NoClient(f"{tool}: {lines[-1]}")


def main() -> int:
    """Build all programs; return the exit code."""
    failed = 0
    for program in ALL:
        try:
            build(program)
        except NoClient as reason:
            failed += 1
            print(f"{program}: {reason}")
        else:
            print(f"{program}: built")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())

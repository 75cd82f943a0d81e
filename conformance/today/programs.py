"""Which of today's Kafka clients there are, at which versions, and how each one's program is built.

Builds go into a folder outside the tree and are kept; what a machine has no tools for is skipped
with the reason.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.clients import ROOT

SOURCES = Path(__file__).parent
CACHE = Path(os.environ.get("BRAIDLOG_CLIENTS", Path.home() / ".cache" / "braidlog-clients"))
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BUILD_S = 600


class Unavailable(Exception):
    """The program cannot be built here; the text says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """One client library at one version; `build` gives the command to run its program."""

    name: str
    build: Callable[["Program"], list[str]]
    version: str = ""
    codecs: Sequence[str] = CODECS

    @property
    def folder(self) -> Path:
        """Where it is built."""
        return CACHE / f"{self.name}-{self.version}"

    def command(self) -> list[str]:
        """What to run, built if need be. Raises Unavailable."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.build(self)


def _run(command: Sequence[object], folder: Path) -> None:
    if shutil.which(str(command[0])) is None:
        raise Unavailable(f"{command[0]} is not on this machine")
    done = subprocess.run(
        list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=BUILD_S
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(f"{command[0]}: {lines[-1] if lines else 'no reason given'}")


def _java(program: Program) -> list[str]:
    folder = program.folder
    if not (folder / "Today.class").exists():
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        where = [f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
        version = f"-Dkafka.version={program.version}"
        _run(["mvn", "-q", "-B", version, copy, *where], SOURCES / "java")
        _run(["javac", "-cp", f"{folder}/*", "-d", folder, "Today.java"], SOURCES / "java")
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    return ["java", *quick, "-cp", f"{folder}:{folder}/*", "Today"]


def _go(program: Program) -> list[str]:
    built = program.folder / "today"
    if not built.exists():
        _run(["go", "build", "-o", built, "."], SOURCES / program.name)
    return [str(built)]


def _node(program: Program) -> list[str]:
    folder = program.folder
    if not (folder / "node_modules").exists():
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / "kafkajs" / name, folder)
        _run(["npm", "ci", "--no-audit", "--no-fund"], folder)
    shutil.copy(SOURCES / "kafkajs" / "today.mjs", folder)
    return ["node", str(folder / "today.mjs")]


def _python(program: Program) -> list[str]:
    python = program.folder / "bin" / "python"
    if not python.exists():
        _run([sys.executable, "-m", "venv", program.folder], ROOT)
        requirement = f"{program.name}=={program.version}"
        install = [python, "-m", "pip", "install", "-q", "--only-binary", ":all:", requirement]
        _run([*install, "cramjam>=2.11"], ROOT)
    return [str(python), str(SOURCES / "python" / f"{program.name.replace('-', '_')}_today.py")]


PROGRAMS = (
    Program("java", _java, "3.9.1"),
    Program("java", _java, "4.1.1"),
    Program("franz", _go, "1.20.4"),
    Program("sarama", _go, "1.46.3"),
    Program("kafkajs", _node, "2.2.4", ("none", "gzip", "snappy")),  # Others need native code.
    Program("aiokafka", _python, "0.14.0"),
    Program("confluent-kafka", _python, "2.16.1"),
)

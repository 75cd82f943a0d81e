"""Today's Kafka clients, with versions, and the builds of their programs.

Builds go into a folder outside the tree and are reused; a client without build tools on this
machine is skipped with the reason.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.clients.libraries import ROOT

SOURCES = Path(__file__).parent
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ALL = ("group", "admin", "transact")  # The attempts with a library besides the codecs.
NEW = (*ALL, "modern", "share")  # Besides: the consumer protocol and share groups.
MIGRATION = "migration"  # A group that changes its protocol with members.
BUILD_S = 600
INSTALLED = "installed"  # A copy of the list from which a folder's libraries were installed.


def cache() -> Path:
    """Return the folder of all builds."""
    default = Path.home() / ".cache" / "braidlog-clients"
    return Path(os.environ.get("CONFORMANCE_CLIENTS", default))


class ProgramUnavailable(Exception):
    """The program cannot be built here; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Program:
    """A version of a client library; `build` returns the command of its program."""

    name: str
    build: Callable[["Program"], list[str]]
    version: str = ""
    codecs: Sequence[str] = CODECS
    tries: Sequence[str] = ALL
    makes_topics: bool = False  # True: by the client's own admin calls, before producing

    @property
    def folder(self) -> Path:
        """Return the build folder."""
        return cache() / f"{self.name}-{self.version}"

    def command(self) -> list[str]:
        """Return the command, after a build if needed. Raises ProgramUnavailable."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.build(self)


def run_build(
    command: Sequence[object], folder: Path, environment: Mapping[str, str] | None = None
) -> None:
    """Run a step of a build. Raises ProgramUnavailable."""
    if shutil.which(str(command[0])) is None:
        raise ProgramUnavailable(f"{command[0]} is not on this machine")
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ProgramUnavailable(f"{command[0]}: {lines[-1] if lines else 'no reason given'}")


def is_older(built: Path, source: Path) -> bool:
    """Return True if a build is missing or older than its source."""
    return not built.exists() or built.stat().st_mtime < source.stat().st_mtime


def is_installed(folder: Path, listed: Path) -> bool:
    """Return True if a folder has the libraries of this list: the folder keeps a
    copy of the list.
    """
    marker = folder / INSTALLED
    return marker.exists() and marker.read_bytes() == listed.read_bytes()


def copy_jars(program: Program, place: Path) -> None:
    """Copy the jars of a project file into the program's folder."""
    pom = place / "pom.xml"
    if is_installed(program.folder, pom):
        return
    for old in program.folder.glob("*.jar"):
        old.unlink()
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    where = [f"-DoutputDirectory={program.folder}", "-DincludeScope=runtime"]
    versions = [f"-D{name}.version={program.version}" for name in ("kafka", "program")]
    run_build(["mvn", "-q", "-B", *versions, copy, *where], place)
    shutil.copy(pom, program.folder / INSTALLED)


def _java(program: Program) -> list[str]:
    folder, source = program.folder, SOURCES / "java" / "Today.java"
    copy_jars(program, SOURCES / "java")
    sources = [source, SOURCES / "java" / "Share.java"] if "share" in program.tries else [source]
    if any(is_older(folder / f"{each.stem}.class", each) for each in sources):
        run_build(["javac", "-cp", f"{folder}/*", "-d", folder, *sources], folder)
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    return ["java", *quick, "-cp", f"{folder}:{folder}/*", "Today"]


def _console(program: Program) -> list[str]:
    copy_jars(program, SOURCES / "console")
    return [sys.executable, str(SOURCES / "python" / "console_today.py"), str(program.folder)]


def _kcat(program: Program) -> list[str]:
    """Return kcat from PATH, or Debian's, unpacked without an installation."""
    script = str(SOURCES / "python" / "kcat_today.py")
    tool = shutil.which("kcat") or shutil.which("kafkacat")
    if tool is not None:
        return [sys.executable, script, tool]
    folder = program.folder
    kcat = folder / "usr" / "bin" / "kcat"
    if not kcat.exists():
        run_build(["apt-get", "download", "kcat", "librdkafka1", "libyajl2"], folder)
        for package in folder.glob("*.deb"):
            run_build(["dpkg", "-x", package, folder], folder)
    (libraries,) = folder.glob("usr/lib/*-linux-gnu*")
    return ["env", f"LD_LIBRARY_PATH={libraries}", sys.executable, script, str(kcat)]


def _go(program: Program) -> list[str]:
    built = program.folder / "today"
    if any(is_older(built, source) for source in (SOURCES / program.name).glob("*.go")):
        run_build(["go", "build", "-o", built, "."], SOURCES / program.name)
    return [str(built)]


def _node(program: Program) -> list[str]:
    folder, source = program.folder, SOURCES / program.name
    lock = source / "package-lock.json"
    if not is_installed(folder, lock):
        for listed in (source / "package.json", lock):
            shutil.copy(listed, folder)
        # kafkajs' plugin for zstd requests a C++ version that is too old for today's Node.
        run_build(["npm", "ci", "--no-audit", "--no-fund"], folder, {"CXXFLAGS": "-std=c++17"})
        shutil.copy(lock, folder / INSTALLED)
    shutil.copy(source / "today.mjs", folder)
    return ["node", str(folder / "today.mjs")]


def _python(program: Program) -> list[str]:
    python = program.folder / "bin" / "python"
    if not python.exists():
        run_build([sys.executable, "-m", "venv", program.folder], ROOT)
        requirement = f"{program.name}=={program.version}"
        install = [python, "-m", "pip", "install", "-q", "--only-binary", ":all:", requirement]
        run_build([*install, *PYTHON_CODECS[program.name]], ROOT)
    return [str(python), str(SOURCES / "python" / f"{program.name.replace('-', '_')}_today.py")]


PYTHON_CODECS = {
    "aiokafka": ["cramjam>=2.11"],
    "confluent-kafka": [],
    "kafka-python": ["python-snappy", "lz4", "zstandard"],
}

PROGRAMS = (
    Program("java", _java, "3.9.1", tries=(*ALL, "modern")),
    Program("java", _java, "4.3.1", tries=(*NEW, MIGRATION)),
    Program(
        "console", _console, "4.3.1", tries=("group", "modern", "share", "admin"), makes_topics=True
    ),
    Program("franz", _go, "1.22.3", tries=NEW),
    Program("sarama", _go, "1.61.1"),
    Program("kafkajs", _node, "2.2.4"),
    Program("aiokafka", _python, "0.14.0"),
    Program("confluent-kafka", _python, "2.16.1", tries=NEW),
    Program("kafka-python", _python, "3.0.12"),
    Program("kcat", _kcat, "1.7.1", tries=("group", "admin")),
    # This client takes zstd from Node 22.15 and later.
    Program(
        "platformatic",
        _node,
        "1.35.0",
        codecs=("none", "gzip", "snappy", "lz4"),
        tries=(*ALL, "modern"),
    ),
)

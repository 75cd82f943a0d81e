"""List of Kafka's old clients, and the build of each client's program.

Builds share the folder of the current clients' builds; a client without tools on this machine is
skipped with the reason.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.clients.iggy import NoClient, find_python
from conformance.clients.libraries import ROOT
from conformance.today.programs import Program, Unavailable, copy_jars, is_older, run_build

SOURCES = Path(__file__).parent
NATIVE = ("none", "gzip")  # Snappy needs an add-on in C that no longer builds.
NO_LZ4 = ("none", "gzip", "snappy")
ALL = (*NO_LZ4, "lz4")


def _python(
    series: str, script: str, *requirements: str, sources: bool = False
) -> Callable[[Program], list[str]]:
    """Build a library in an environment of its own, with a Python that the library supports."""

    def build(program: Program) -> list[str]:
        python = program.folder / "bin" / "python"
        if not (program.folder / "installed").exists():
            try:
                interpreter = find_python(series)
            except NoClient as reason:
                raise Unavailable(str(reason)) from None
            run_build([interpreter, "-m", "venv", program.folder], ROOT)
            install = [python, "-m", "pip", "install", "-q"]
            install += [] if sources else ["--only-binary", ":all:"]
            run_build([*install, f"{program.name}=={program.version}", *requirements], ROOT)
            (program.folder / "installed").touch()
        return [str(python), str(SOURCES / "python" / script)]

    return build


def _node(program: Program) -> list[str]:
    folder, source = program.folder, SOURCES / program.name
    if not (folder / "node_modules").exists():
        (folder / "package.json").write_bytes((source / "package.json").read_bytes())
        plain = ["--no-audit", "--no-fund", "--no-optional", "--ignore-scripts"]
        run_build(["npm", "install", *plain], folder)
    (folder / "old.js").write_bytes((source / "old.js").read_bytes())
    return ["node", str(folder / "old.js")]


def _java(program: Program) -> list[str]:
    folder, source = program.folder, SOURCES / "java" / "Old.java"
    copy_jars(program, SOURCES / "java")
    if is_older(folder / "Old.class", source):
        run_build(["javac", "-cp", f"{folder}/*", "-d", folder, source], folder)
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    return ["java", *quick, "-cp", f"{folder}:{folder}/*", "Old"]


def _program(
    name: str, version: str, build: Callable[[Program], list[str]], codecs: Sequence[str]
) -> Program:
    return Program(name, build, version, codecs)


PYTHON = "kafka_python_old.py"
PROGRAMS = (
    _program("java-0.8", "0.8.2.2", _java, NO_LZ4),
    _program("pykafka", "2.8.0", _python("3.8", "pykafka_old.py", sources=True), NATIVE),
    _program("no-kafka", "3.4.4", _node, NATIVE),
    _program("kafka-node", "5.0.0", _node, NATIVE),
    _program(
        "aiokafka",
        "0.7.2",
        _python("3.8", "aiokafka_old.py", "kafka-python==2.0.2", "python-snappy==0.6.1"),
        NO_LZ4,
    ),
    _program(
        "kafka-python", "0.9.5", _python("3.6", "kafka_python_0_9_old.py", sources=True), NATIVE
    ),
    _program("kafka", "1.3.5", _python("3.6", PYTHON), NATIVE),
    _program("kafka-python", "1.4.7", _python("3.8", PYTHON, "python-snappy==0.6.1", "lz4"), ALL),
    _program("kafka-python", "2.0.6", _python("3.8", PYTHON, "python-snappy==0.6.1", "lz4"), ALL),
)

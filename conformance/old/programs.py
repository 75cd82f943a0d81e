"""List of Kafka's old clients, and the build of each client's program.

Builds share the folder of the current clients' builds; a client without tools on this machine is
skipped with the reason.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.clients.iggy import NoClient, find_python
from conformance.clients.libraries import ROOT
from conformance.today.programs import Program, ProgramUnavailable, copy_jars, is_older, run_build

SOURCES = Path(__file__).parent
NATIVE = ("none", "gzip")  # Snappy needs an add-on in C that no longer builds.
NO_LZ4 = ("none", "gzip", "snappy")
ALL = (*NO_LZ4, "lz4")


def python_program(
    series: str, script: str, *requirements: str, sources: bool = False
) -> Callable[[Program], list[str]]:
    """Build a library in an environment of its own, with a Python that the library supports."""

    def build(program: Program) -> list[str]:
        python = program.folder / "bin" / "python"
        if not (program.folder / "installed").exists():
            try:
                interpreter = find_python(series)
            except NoClient as reason:
                raise ProgramUnavailable(str(reason)) from None
            run_build([interpreter, "-m", "venv", program.folder], ROOT)
            install = [python, "-m", "pip", "install", "-q"]
            install += [] if sources else ["--only-binary", ":all:"]
            run_build([*install, f"{program.name}=={program.version}", *requirements], ROOT)
            (program.folder / "installed").touch()
        return [str(python), str(SOURCES / "python" / script)]

    return build


def _node(program: Program) -> list[str]:
    return node_program(program, SOURCES / program.name / "old.js")


def node_program(program: Program, script: Path) -> list[str]:
    """Install the packages of a script's folder; return the script's command."""
    folder, source = program.folder, script.parent
    if not (folder / "node_modules").exists():
        (folder / "package.json").write_bytes((source / "package.json").read_bytes())
        plain = ["--no-audit", "--no-fund", "--no-optional", "--ignore-scripts"]
        run_build(["npm", "install", *plain], folder)
    (folder / script.name).write_bytes(script.read_bytes())
    return ["node", str(folder / script.name)]


def _java(program: Program) -> list[str]:
    return java_class(program, "Old")


def java_folder(program: Program) -> Path:
    """Return the folder of a program's list of jars and of its classes."""
    folder = SOURCES / f"{program.name}-{program.version.rpartition('.')[0]}"
    return folder if folder.is_dir() else SOURCES / program.name


def java_class(program: Program, name: str, *options: str) -> list[str]:
    """Build a class of a program's folder; return its command."""
    listed = java_folder(program)
    folder, source = program.folder, listed / f"{name}.java"
    copy_jars(program, listed)
    if source.exists() and is_older(folder / f"{name}.class", source):
        run_build(["javac", "-nowarn", "-cp", f"{folder}/*", "-d", folder, source], folder)
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", *options]
    quick.append(f"-Dlog4j.configuration=file:{SOURCES / 'java-0.8' / 'log4j.properties'}")
    return ["java", *quick, "-cp", f"{folder}:{folder}/*", name]


def java_program(version: str) -> Program:
    """Return the program with the jars of a release of Kafka 0.8. Raises ProgramUnavailable."""
    program = _program("java-0.8", version, _java, NO_LZ4)
    program.folder.mkdir(parents=True, exist_ok=True)
    copy_jars(program, java_folder(program))
    return program


def java_command(name: str, version: str = "0.8.2.2") -> list[str]:
    """Return the command of a class of this folder or of Kafka 0.8. Raises ProgramUnavailable."""
    return java_class(java_program(version), name)


def _program(
    name: str, version: str, build: Callable[[Program], list[str]], codecs: Sequence[str]
) -> Program:
    return Program(name, build, version, codecs)


def _tools(program: Program) -> list[str]:
    return java_command("kafka.admin.TopicCommand", program.version)


TOOLS = _program("kafka-tools", "0.8.2.2", _tools, ())
OLDER_TOOLS = _program("kafka-tools", "0.8.1.1", _tools, ())
PYTHON = "kafka_python_old.py"
PROGRAMS = (
    _program("java-0.8", "0.8.2.2", _java, NO_LZ4),
    _program("pykafka", "2.8.0", python_program("3.8", "pykafka_old.py", sources=True), NATIVE),
    _program("no-kafka", "3.4.4", _node, NATIVE),
    _program("kafka-node", "5.0.0", _node, NATIVE),
    _program(
        "aiokafka",
        "0.7.2",
        python_program("3.8", "aiokafka_old.py", "kafka-python==2.0.2", "python-snappy==0.6.1"),
        NO_LZ4,
    ),
    _program(
        "kafka-python",
        "0.9.5",
        python_program("3.6", "kafka_python_0_9_old.py", sources=True),
        NATIVE,
    ),
    _program("kafka", "1.3.5", python_program("3.6", PYTHON), NATIVE),
    _program(
        "kafka-python", "1.4.7", python_program("3.8", PYTHON, "python-snappy==0.6.1", "lz4"), ALL
    ),
    _program(
        "kafka-python", "2.0.6", python_program("3.8", PYTHON, "python-snappy==0.6.1", "lz4"), ALL
    ),
)

"""Programs of the age of Kafka 0.8 that are given ZooKeeper's address, and their builds.

A reader is called with `ZOOKEEPER TOPIC GROUP COUNT`: it reads as many records as a member of the
group, stores its position and writes the values. A tree program is called with `ZOOKEEPER ROOT`: it
works on nodes below the root and writes a line for each answer.
"""

from collections.abc import Callable
from typing import Final

from conformance.old.programs import SOURCES, java_class, node_program, python_program
from conformance.today.programs import Program, ProgramUnavailable, is_older, run_build

# Spark 1.6 was made for Java 7 and 8.
SPARK_OPENS: Final = ("java.lang", "java.nio", "java.util", "sun.nio.ch")
SPARK_OPTIONS: Final = (
    "-Xmx600m",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in SPARK_OPENS),
)


def _class(name: str, *options: str) -> Callable[[Program], list[str]]:
    return lambda program: java_class(program, name, *options)


def _node(program: Program) -> list[str]:
    return node_program(program, SOURCES / "kafka-node-2.6" / "reader.js")


def _go(program: Program) -> list[str]:
    built, source = program.folder / "tree", SOURCES / program.name
    if is_older(built, source / "main.go"):
        run_build(["go", "build", "-o", built, "."], source)
    return [str(built)]


def _by_hand(program: Program) -> list[str]:
    raise ProgramUnavailable(f"{program.name} is built by hand: conformance/old/README.md")


READERS: Final = (
    Program("java-0.8", _class("Reader"), "0.8.2.2"),
    Program("pykafka", python_program("3.8", "pykafka_reader.py", sources=True), "2.8.0"),
    Program("kafka-node", _node, "2.6.1"),
    Program("flume", _class("Flume"), "1.6.0"),
    Program("spark", _class("Spark", *SPARK_OPTIONS), "1.6.3"),
    Program("storm", _class("Storm"), "0.9.7"),
)
# Readers whose libraries are on no registry; `readers --command` runs the built program.
BY_HAND: Final = (Program("wvanbergen", _by_hand, "given"),)
# A spout is told its partitions by Storm, and no group of Kafka's.
SHARING: Final = frozenset(program.name for program in (*READERS, *BY_HAND)) - {"storm"}
TREES: Final = (
    Program("zookeeper", _class("Tree"), "3.4.12"),
    Program("zookeeper", _class("Tree"), "3.6.4"),
    Program("zookeeper", _class("Tree"), "3.9.3"),
    Program("zkclient", _class("Recipes"), "0.10"),
    Program("curator", _class("Recipes"), "2.13.0"),
    Program("go-zookeeper", _go, "1.0.4"),
)

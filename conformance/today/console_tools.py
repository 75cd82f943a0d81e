"""`python -m conformance.today.console_tools`: Kafka's command line tools, some 200 commands in
order: exit status and text are those that Kafka 4.3.1 gave
(`conformance/vectors/kafka/console-tools-4.3.1.txt`), or `console/differences.txt` has the reason.

`--kafka HOST:PORT --record` records the answers of a fresh Kafka with default settings. All tools
run in a single process of Java. Times, ids, addresses and folders are left out, and lines are
sorted.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from conformance.ending import end_on_signals
from conformance.server import RunningBroker
from conformance.today.programs import (
    SOURCES,
    Program,
    ProgramUnavailable,
    copy_jars,
    is_older,
    run_build,
)

VERSION: Final = "4.3.1"
PLACE: Final = SOURCES / "console"
RECORDED: Final = SOURCES.parent / "vectors" / "kafka" / f"console-tools-{VERSION}.txt"
LIMIT_S: Final = 40
TOOLS: Final = {
    "kafka-topics": "TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-share-groups": "consumer.group.ShareGroupCommand",
    "kafka-groups": "GroupsCommand",
    "kafka-acls": "AclCommand",
    "kafka-client-metrics": "ClientMetricsCommand",
    "kafka-features": "FeatureCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-streams-groups": "streams.StreamsGroupCommand",
    "kafka-transactions": "TransactionsCommand",
    "kafka-delegation-tokens": "DelegationTokenCommand",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-console-share-consumer": "consumer.ConsoleShareConsumer",
    "kafka-verifiable-producer": "VerifiableProducer",
}
# Tools that take the address before the command's own words, or behind the first word.
FIRST: Final = ("kafka-features", "kafka-metadata-quorum", "kafka-transactions")
SECOND: Final = ("kafka-cluster",)
FILES: Final = {
    "deleted.json": '{"partitions":[{"topic":"two","partition":0,"offset":0},'
    '{"topic":"two","partition":1,"offset":99}],"version":1}',
    "topics.json": '{"topics":[{"topic":"two"}],"version":1}',
    "moved.json": '{"version":1,"partitions":[{"topic":"two","partition":0,"replicas":[1],'
    '"log_dirs":["any"]}]}',
}
# Parts of the text that differ from run to run: replaced, in this order.
MASKS: Final = (
    (r"(?m)^(\tat |\t\.\.\. \d+ more|SLF4J|ConsoleTools\$Ended).*\n?", ""),
    (r"127\.0\.0\.1[: ]\d+", "ADDRESS"),
    (r"TopicId: \S+", "TopicId: ID"),
    (r"\[\d{4}-\d\d-\d\d[^\]]*\]", "[TIME]"),
    (r"\b\d{13}\b", "TIME"),
    (r"console-(share-)?consumer-[0-9a-f-]{36}", "MEMBER"),
    (r"(?<!\w)(/[\w.-]+){2,}/?", "FOLDER"),
    (r"(?<=Valid states are: ).*", "STATES"),
    (r"Epoch: \d+", "Epoch: N"),
    (r"\b\d[\d.]*ms\b", "N"),
    (r'"(size|target_throughput|avg_throughput)":-?[\d.]+', r'"\1":N'),
    (r"(LeaderEpoch|HighWatermark|MaxFollowerLagTimeMs|MaxFollowerLag): +\d+", r"\1: N"),
    (r"[ \t]+$", ""),
)


class ToolAnswer(NamedTuple):
    """A command, and the exit status and lines of its answer."""

    command: str
    lines: tuple[str, ...]


def commands() -> list[str]:
    return (PLACE / "commands.txt").read_text().splitlines()


def known_differences() -> dict[str, str]:
    """Return the reason of each known difference by its command."""
    lines = (PLACE / "differences.txt").read_text().splitlines()
    return dict(line.split("\t") for line in lines if not line.startswith("#"))


def line_for(command: str, address: str, folder: Path) -> str:
    """Return the line for the program in Java."""
    words, _, text = command.partition(" < ")
    tool, *rest = words.replace("{folder}", str(folder)).split(" ")
    name = TOOLS[tool]
    if not name.startswith("kafka."):
        name = f"org.apache.kafka.tools.{name}"
    at = 0 if tool in FIRST else 1 if tool in SECOND else len(rest)
    arguments = [*rest[:at], "--bootstrap-server", address, *rest[at:]]
    return "\t".join([name, text, *arguments])


def masked(text: str) -> tuple[str, ...]:
    """Return the exit status and the sorted lines without the parts that differ from run to run."""
    status, _, rest = text.partition("\n")
    for pattern, word in MASKS:
        rest = re.sub(pattern, word, rest, flags=re.MULTILINE)
    return status, *sorted(line for line in rest.splitlines() if line and line != "@err")


def build(program: Program) -> list[str]:
    """Return the command line of the program in Java. Raises ProgramUnavailable."""
    folder, source = program.folder, PLACE / "ConsoleTools.java"
    copy_jars(program, PLACE)
    if is_older(folder / "ConsoleTools.class", source):
        run_build(["javac", "-cp", f"{folder}/*", "-d", folder, source], folder)
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx400m"]
    return ["java", *quick, "-cp", f"{folder}:{folder}/*", "ConsoleTools", str(LIMIT_S)]


def answers(java: list[str], address: str) -> Iterator[ToolAnswer]:
    """Run all commands in order; yield each answer."""
    with tempfile.TemporaryDirectory(prefix="tools-") as scratch, started(java) as process:
        folder = Path(scratch)
        for name, content in FILES.items():
            (folder / name).write_text(content)
        assert process.stdin is not None and process.stdout is not None
        for command in commands():
            process.stdin.write(line_for(command, address, folder) + "\n")
            process.stdin.flush()
            text = ""
            while (line := process.stdout.readline()) != "@end\n":
                if not line:
                    raise RuntimeError(f"the tools ended at {command}")
                text += line
            yield ToolAnswer(command, masked(text))


@contextmanager
def started(java: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """Run the program in Java in the block."""
    process = subprocess.Popen(
        java,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def text_of(recorded: Iterator[ToolAnswer]) -> str:
    """Return answers as a file."""
    return "".join(
        f"$ {command}\n" + "".join(f"  {line}\n" for line in lines) for command, lines in recorded
    )


def read_answers(path: Path) -> dict[str, list[tuple[str, ...]]]:
    """Return the answers to each command in a file: a command may come more than once."""
    by_command: dict[str, list[tuple[str, ...]]] = {}
    for part in path.read_text().removeprefix("$ ").split("\n$ "):
        command, *lines = part.splitlines()
        by_command.setdefault(command, []).append(tuple(line[2:] for line in lines))
    return by_command


def compare(
    theirs: Mapping[str, list[tuple[str, ...]]], ours: Iterator[ToolAnswer]
) -> Iterator[tuple[str, str]]:
    """Yield (command, differing lines) of each answer that differs."""
    left = {command: list(lines) for command, lines in theirs.items()}
    for command, lines in ours:
        before = left[command].pop(0)
        if before != lines:
            gone = [f"- {line}" for line in before if line not in lines]
            new = [f"+ {line}" for line in lines if line not in before]
            yield command, "\n".join([*gone, *new]) or "the number of equal lines differs"


def main() -> int:
    """Return 0 if each answer is Kafka's but for the known differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a broker that is there already")
    parser.add_argument("--record", action="store_true", help="record the answers")
    options = parser.parse_args()
    try:
        java = build(Program("console", build, VERSION))
    except ProgramUnavailable as reason:
        print(f"skipped: {reason}")
        return 0
    if options.record:
        RECORDED.write_text(text_of(answers(java, options.kafka)))
        return 0
    if options.kafka:
        return report(answers(java, options.kafka))
    with RunningBroker() as broker:
        return report(answers(java, broker.addresses["kafka"]))


def report(answered: Iterator[ToolAnswer]) -> int:
    """Print the differences; return 1 if some are new, or known ones are gone."""
    known, seen = known_differences(), set()
    failures = 0
    for command, lines in compare(read_answers(RECORDED), answered):
        seen.add(command)
        if command not in known:
            print(f"{command}\n{lines}", flush=True)
            failures += 1
    for command in known.keys() - seen:
        print(f"{command}: the answer is Kafka's, the difference is gone")
    print(f"{len(commands())} commands: {len(seen)} differ, {failures} of them without a reason")
    return int(failures > 0 or bool(known.keys() - seen))


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())

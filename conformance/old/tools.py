"""The tools of Kafka 0.8, step by step: their output on this broker against their output on Kafka
0.8.2.2 with ZooKeeper 3.4.6 (`conformance/vectors/old-tools/`).

`python -m conformance.old.tools` runs all steps in turn; `--record`, with `--kafka` and
`--zookeeper`, records the output of the real servers. Times, ids and addresses are left out, and
lines whose order depends on the moment are sorted.
"""

import argparse
import difflib
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from conformance.ending import end_on_signals
from conformance.old.programs import TOOLS, java_command, java_program
from conformance.server import ANY_PORT, RunningBroker
from conformance.today.programs import Program, ProgramUnavailable

VECTORS: Final = Path(__file__).parent.parent / "vectors"
CHECKER, PRODUCER, CONSUMER = (
    f"kafka.tools.{name}"
    for name in ("ConsumerOffsetChecker", "ConsoleProducer", "ConsoleConsumer")
)
# Programs of release 0.8.1 with other names, and arguments with another form.
OLDER_PROGRAMS: Final = {
    PRODUCER: "kafka.producer.ConsoleProducer",
    CONSUMER: "kafka.consumer.ConsoleConsumer",
}
OLDER_ARGUMENTS: Final = (
    ("ConsumerOffsetChecker", "--zookeeper", "--zkconnect"),
    ("ConsoleConsumer", "--consumer.config {folder}/group.properties", "--group readers"),
    ("TopicCommand", "--delete-config", "--deleteConfig"),
)
LISTEN: Final = {"kafka": ANY_PORT, "zookeeper": ANY_PORT}
STEP_S: Final = 180.0
MIRROR_S: Final = 120.0
RECORDS: Final = "".join(f"key-{number}\tvalue-{number}\n" for number in range(12))
LEFT_OUT: Final = ("at ", "SLF4J", "log4j:", "... ")
# The topic that Kafka makes for positions, and a fetch that the end of a consumer interrupted.
ANYWHERE: Final = ("__consumer_offsets", "Reconnect due to socket error: null")
# Parts of the output that differ from run to run: replaced, in this order.
MASKS: Final = (
    (r"\b(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d+)", "TIME"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\b[a-z]+_[\w.-]+-\d{13}-[0-9a-f]{8}(-\d)?", "CONSUMER"),
    (r"/tmp/\S+/", "FOLDER/"),
    (r"\[\d{4}-\d\d-\d\d [\d:,]+\]", "[TIME]"),
    (r"\[zk: [^]]*\]", "[zk]"),
    (r"(?m)^(.Zxid|.time) = .*", r"\1"),
)


@dataclass(frozen=True, slots=True)
class ToolStep:
    """A tool, its arguments and its input; `{zookeeper}` and other names are filled in.

    `shows` is a file whose content counts as output. `is_sorted`: the lines have no order.
    """

    name: str
    program: str
    arguments: str
    text: str = ""
    shows: str = ""
    is_sorted: bool = False


TOPICS: Final = "kafka.admin.TopicCommand"
GROUP_FILE: Final = "{folder}/group.properties"
MOVES: Final = '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1]}]}'
STEPS: Final = (
    ToolStep("list no topics", TOPICS, "--zookeeper {zookeeper} --list"),
    ToolStep(
        "create a topic",
        TOPICS,
        "--zookeeper {zookeeper} --create --topic orders --partitions 3 --replication-factor 1",
    ),
    ToolStep(
        "create the topic again",
        TOPICS,
        "--zookeeper {zookeeper} --create --topic orders --partitions 3 --replication-factor 1",
    ),
    ToolStep(
        "create a topic with settings",
        TOPICS,
        "--zookeeper {zookeeper} --create --topic compacted --partitions 1 --replication-factor 1"
        " --config cleanup.policy=compact --config retention.ms=500000",
    ),
    ToolStep(
        "create a topic with too many replicas",
        TOPICS,
        "--zookeeper {zookeeper} --create --topic wide --partitions 1 --replication-factor 3",
    ),
    ToolStep(
        "create a topic with an unknown setting",
        TOPICS,
        "--zookeeper {zookeeper} --create --topic odd --partitions 1 --replication-factor 1"
        " --config no.such.setting=1",
    ),
    ToolStep("list topics", TOPICS, "--zookeeper {zookeeper} --list"),
    ToolStep("describe a topic", TOPICS, "--zookeeper {zookeeper} --describe --topic orders"),
    ToolStep("describe settings", TOPICS, "--zookeeper {zookeeper} --describe --topic compacted"),
    ToolStep(
        "describe topics with settings",
        TOPICS,
        "--zookeeper {zookeeper} --describe --topics-with-overrides",
    ),
    ToolStep(
        "grow a topic", TOPICS, "--zookeeper {zookeeper} --alter --topic orders --partitions 4"
    ),
    ToolStep(
        "shrink a topic", TOPICS, "--zookeeper {zookeeper} --alter --topic orders --partitions 2"
    ),
    ToolStep(
        "change settings",
        TOPICS,
        "--zookeeper {zookeeper} --alter --topic compacted --config max.message.bytes=50000"
        " --delete-config retention.ms",
    ),
    ToolStep("describe both", TOPICS, "--zookeeper {zookeeper} --describe"),
    ToolStep(
        "alter no topic", TOPICS, "--zookeeper {zookeeper} --alter --topic none --partitions 2"
    ),
    ToolStep(
        "produce",
        PRODUCER,
        "--broker-list {kafka} --topic orders --property parse.key=true",
        text=RECORDS,
    ),
    ToolStep(
        "consume",
        CONSUMER,
        f"--zookeeper {{zookeeper}} --topic orders --consumer.config {GROUP_FILE}"
        " --from-beginning --max-messages 12 --property print.key=true",
        is_sorted=True,
    ),
    ToolStep(
        "consume with a topic filter",
        CONSUMER,
        "--zookeeper {zookeeper} --whitelist ord.* --from-beginning --max-messages 12",
        is_sorted=True,
    ),
    ToolStep(
        "read a partition",
        "kafka.tools.SimpleConsumerShell",
        "--broker-list {kafka} --topic orders --partition 1 --no-wait-at-logend",
    ),
    ToolStep(
        "newest offsets",
        "kafka.tools.GetOffsetShell",
        "--broker-list {kafka} --topic orders --time -1",
        is_sorted=True,
    ),
    ToolStep(
        "oldest offsets",
        "kafka.tools.GetOffsetShell",
        "--broker-list {kafka} --topic orders --time -2",
        is_sorted=True,
    ),
    ToolStep(
        "check positions",
        CHECKER,
        "--zookeeper {zookeeper} --group readers --topic orders",
    ),
    ToolStep(
        "export positions",
        "kafka.tools.ExportZkOffsets",
        "--zkconnect {zookeeper} --group readers --output-file {folder}/positions",
        shows="{folder}/positions",
        is_sorted=True,
    ),
    ToolStep(
        "import positions",
        "kafka.tools.ImportZkOffsets",
        "--zkconnect {zookeeper} --input-file {folder}/moved",
    ),
    ToolStep(
        "check imported positions",
        CHECKER,
        "--zookeeper {zookeeper} --group readers --topic orders",
    ),
    ToolStep(
        "move positions to the oldest offset",
        "kafka.tools.UpdateOffsetsInZK",
        f"earliest {GROUP_FILE} orders",
        is_sorted=True,
    ),
    ToolStep(
        "check moved positions",
        CHECKER,
        "--zookeeper {zookeeper} --group readers --topic orders",
    ),
    ToolStep(
        "verify a rebalance",
        "kafka.tools.VerifyConsumerRebalance",
        "--zookeeper.connect {zookeeper} --group readers",
    ),
    ToolStep(
        "elect preferred replicas",
        "kafka.admin.PreferredReplicaLeaderElectionCommand",
        "--zookeeper {zookeeper} --path-to-json-file {folder}/elected.json",
    ),
    ToolStep(
        "plan a reassignment",
        "kafka.admin.ReassignPartitionsCommand",
        "--zookeeper {zookeeper} --topics-to-move-json-file {folder}/topics.json"
        " --broker-list 1 --generate",
    ),
    ToolStep(
        "reassign",
        "kafka.admin.ReassignPartitionsCommand",
        "--zookeeper {zookeeper} --reassignment-json-file {folder}/moves.json --execute",
    ),
    ToolStep(
        "verify the reassignment",
        "kafka.admin.ReassignPartitionsCommand",
        "--zookeeper {zookeeper} --reassignment-json-file {folder}/moves.json --verify",
    ),
    ToolStep(
        "zkCli",
        "org.apache.zookeeper.ZooKeeperMain",
        "-server {zookeeper}",
        text="create /cli hello\ncreate -s /cli/n- x\nls /cli\nget /cli\nset /cli world 0\n"
        "ls2 /cli\nstat /cli\ngetAcl /cli\nls /brokers/ids\ndelete /cli/n-0000000000\n"
        "delete /cli\nquit\n",
        is_sorted=True,
    ),
    ToolStep("delete a topic", TOPICS, "--zookeeper {zookeeper} --delete --topic compacted"),
    ToolStep("delete no topic", TOPICS, "--zookeeper {zookeeper} --delete --topic none"),
    ToolStep("list the topics left", TOPICS, "--zookeeper {zookeeper} --list"),
)
PAUSED: Final = {"list the topics left": 5.0, "verify the reassignment": 3.0}  # Seconds before.


def run_step(step: ToolStep, names: Mapping[str, str], version: str) -> str:
    """Return the masked output of a step. Raises ProgramUnavailable."""
    time.sleep(PAUSED.get(step.name, 0.0))
    program, arguments = of_release(step, version)
    done = subprocess.run(
        [*java_command(program, version), *arguments.format_map(names).split()],
        input=step.text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=STEP_S,
        check=False,
    )
    output = done.stdout
    if step.shows:
        output += Path(step.shows.format_map(names)).read_text()
    return masked(output, is_sorted=step.is_sorted)


def of_release(step: ToolStep, version: str) -> tuple[str, str]:
    """Return a step's program and arguments in a release of Kafka."""
    program, arguments = step.program, step.arguments
    if not version.startswith("0.8.1"):
        return program, arguments
    for name, newer, older in OLDER_ARGUMENTS:
        if program.endswith(name):
            arguments = arguments.replace(newer, older)
    return OLDER_PROGRAMS.get(program, program), arguments


def masked(output: str, *, is_sorted: bool = False) -> str:
    """Return output without times, ids, addresses and places in Java's code."""
    lines = [
        line.rstrip()
        for line in output.splitlines()
        if not line.lstrip().startswith(LEFT_OUT) and not any(text in line for text in ANYWHERE)
    ]
    lines = [_with_partitions_in_order(line) for line in lines]
    text = "\n".join(lines)
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    if is_sorted:
        text = "\n".join(sorted(text.split("\n")))
    return text.strip("\n") + "\n"


def _with_partitions_in_order(line: str) -> str:
    """Return a line; a list of partitions in JSON, whose order is that of a hash table, sorted."""
    before, start, text = line.partition('{"version"')
    if not start:
        return line
    value = json.loads(start + text)
    value["partitions"].sort(key=lambda at: (at["topic"], at["partition"]))
    return before + json.dumps(value)


def mirror(names: Mapping[str, str], version: str) -> str:
    """Run MirrorMaker from the broker into another broker; return the mirrored records, sorted."""
    with RunningBroker(listen={"kafka": ANY_PORT}, others=False) as target:
        folder = Path(names["folder"])
        producer = folder / "producer.properties"
        producer.write_text(
            f"metadata.broker.list={target.addresses['kafka']}\nrequest.required.acks=1\n"
            f"bootstrap.servers={target.addresses['kafka']}\nproducer.type=sync\n"
        )
        command = java_command("kafka.tools.MirrorMaker", version)
        arguments = ["--consumer.config", names["mirror"], "--producer.config", str(producer)]
        mirroring = subprocess.Popen(
            [*command, *arguments, "--whitelist", "orders"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return "\n".join(sorted(_mirrored(target.addresses["kafka"]))) + "\n"
        finally:
            mirroring.send_signal(signal.SIGTERM)
            mirroring.wait(60)


def _mirrored(address: str) -> list[str]:
    """Return the records of the mirror's topic, once all have arrived."""
    reader = Consumer({"bootstrap.servers": address, "group.id": "unused", "log_level": 0})
    deadline = time.monotonic() + MIRROR_S
    while time.monotonic() < deadline:
        topic = reader.list_topics("orders", 10.0).topics["orders"]
        places = [TopicPartition("orders", index, 0) for index in topic.partitions]
        ends = [reader.get_watermark_offsets(place, 10.0)[1] for place in places]
        if sum(ends) >= RECORDS.count("\n"):
            reader.assign(places)
            messages = reader.consume(sum(ends), 20.0)
            reader.close()
            return [f"{(m.key() or b'').decode()}\t{(m.value() or b'').decode()}" for m in messages]
        time.sleep(0.5)
    reader.close()
    return []


def prepared(folder: Path, kafka: str, zookeeper: str) -> dict[str, str]:
    """Write the files that the steps read; return the names in their arguments."""
    group = folder / "group.properties"
    group.write_text(
        f"zookeeper.connect={zookeeper}\ngroup.id=readers\nauto.offset.reset=smallest\n"
        "zookeeper.connection.timeout.ms=30000\nconsumer.timeout.ms=60000\n"
    )
    mirror_group = folder / "mirror.properties"
    mirror_group.write_text(group.read_text().replace("=readers", "=mirror"))
    moved = (f"/consumers/readers/offsets/orders/{index}:{index}\n" for index in range(4))
    (folder / "moved").write_text("".join(moved))
    (folder / "topics.json").write_text('{"version":1,"topics":[{"topic":"orders"}]}')
    (folder / "moves.json").write_text(MOVES)
    (folder / "elected.json").write_text('{"partitions":[{"topic":"orders","partition":0}]}')
    return {
        "kafka": kafka,
        "zookeeper": zookeeper,
        "folder": str(folder),
        "mirror": str(mirror_group),
    }


def outputs(kafka: str, zookeeper: str, version: str) -> Iterator[tuple[str, str]]:
    """Yield each step with its output."""
    with tempfile.TemporaryDirectory(prefix="old-tools-") as scratch:
        names = prepared(Path(scratch), kafka, zookeeper)
        for step in STEPS:
            if step.name == "delete a topic":
                yield "mirror the topic", mirror(names, version)
            try:
                yield step.name, run_step(step, names, version)
            except subprocess.TimeoutExpired:
                yield step.name, f"no end after {STEP_S:.0f} s\n"


def recorded(name: str, version: str = TOOLS.version) -> Path:
    """Return the file of a step's output on the real servers."""
    folder = "old-tools" if version == TOOLS.version else f"old-tools-{version}"
    return VECTORS / folder / f"{name.replace(' ', '-')}.txt"


def difference(name: str, output: str, version: str = TOOLS.version) -> str:
    """Return the first lines that differ from the real servers' output; "" if none."""
    wanted = recorded(name, version).read_text()
    lines = difflib.unified_diff(
        wanted.splitlines(), output.splitlines(), "Kafka 0.8.2.2", "Braidlog", lineterm="", n=0
    )
    return "\n".join(lines)


@contextmanager
def broker_at(kafka: str | None, zookeeper: str | None) -> Iterator[tuple[str, str]]:
    """Yield the addresses of given servers, or of a new broker."""
    if kafka and zookeeper:
        yield kafka, zookeeper
        return
    settings = ("topics.num_partitions=1",)
    with RunningBroker(listen=LISTEN, others=False, settings=settings) as broker:
        yield broker.addresses["kafka"], broker.addresses["zookeeper"]


def compare(kafka: str, zookeeper: str, version: str) -> Iterator[tuple[str, str]]:
    """Yield each step with its difference; "ok" if the output is the same."""
    for name, output in outputs(kafka, zookeeper, version):
        lines = difference(name, output, version)
        yield name, f"FAILED: {lines}" if lines else "ok"


def outcomes(program: Program) -> Iterator[tuple[str, str]]:
    """Yield (step, result) of the tools against a new broker."""
    try:
        program.command()
    except ProgramUnavailable as reason:
        yield "build", f"skipped: {reason}"
        return
    with broker_at(None, None) as (kafka, zookeeper):
        yield from compare(kafka, zookeeper, program.version)


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 1 if an output differs."""
    parser = argparse.ArgumentParser(prog="python -m conformance.old.tools", description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a broker that is there already")
    parser.add_argument("--zookeeper", metavar="HOST:PORT", help="and its ZooKeeper")
    parser.add_argument("--record", action="store_true", help="store the output as expected")
    parser.add_argument("--version", default=TOOLS.version, help="of Kafka's tools")
    options = parser.parse_args(arguments)
    try:
        java_program(options.version)
    except ProgramUnavailable as reason:
        print(f"skipped: {reason}")
        return 0
    with broker_at(options.kafka, options.zookeeper) as (kafka, zookeeper):
        if options.record:
            recorded("", options.version).parent.mkdir(exist_ok=True)
            for name, output in outputs(kafka, zookeeper, options.version):
                print(f"== {name}\n{output}", end="", flush=True)
                recorded(name, options.version).write_text(output)
            return 0
        failed = 0
        for name, outcome in compare(kafka, zookeeper, options.version):
            print(f"{name:40} {outcome}", flush=True)
            failed |= outcome != "ok"
    return int(failed)


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main(sys.argv[1:]))

"""Programs that are given ZooKeeper's address: their output on this broker against their output on
Kafka 0.8.2.2 with ZooKeeper 3.4.6 (`conformance/vectors/old-readers/`).

`python -m conformance.old.readers` runs all; `--record`, with `--kafka` and `--zookeeper`, records
the output of the real servers. `--command NAME='COMMAND'` runs a reader that is built elsewhere.
"""

import argparse
import difflib
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from conformance.clients.raw.kafka import KafkaWire, message
from conformance.clients.raw.zookeeper import NO_NODE, ZooKeeper, ZooKeeperError
from conformance.ending import end_on_signals
from conformance.old.tools import broker_at
from conformance.old.zookeeper_programs import READERS, SHARING, TREES
from conformance.today.programs import Program, ProgramUnavailable

VECTORS: Final = Path(__file__).parent.parent / "vectors" / "old-readers"
PARTITIONS, RECORDS, MORE = 3, 12, 6
# Seconds for a call, for members to share partitions, and for a new owner; and between two looks at
# other programs, which tell nobody of their progress.
CALL_S, SHARED_S, LED_S, LOOK_S = 120.0, 90.0, 30.0, 0.25
ENDLESS: Final = 1_000_000
# Parts of the output that differ from run to run: replaced, in this order.
MASKS: Final = (
    (r'"host":"127\.0\.0\.1","port":\d+', '"host":HOST,"port":PORT'),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
)
# These commit over Kafka's protocol: here ZooKeeper's nodes show that position too.
KAFKA_STORED: Final = {"pykafka"}
StepOutput = tuple[str, str]


class Servers:
    """Kafka and ZooKeeper by their raw protocols."""

    def __init__(self, kafka: str, zookeeper: str) -> None:
        self.zookeeper = zookeeper
        self._kafka = _parsed(kafka)
        self.connect()

    def connect(self) -> None:
        """Begin a new session: the session before may have expired while a program ran."""
        self.tree = ZooKeeper(40_000, answer_s=30.0)
        self.tree.connect(_parsed(self.zookeeper))

    def make(self, topic: str) -> None:
        """Create a topic as Kafka's tool does."""
        node = int(self.tree.children("/brokers/ids")[0][0])
        lists = {str(index): [node] for index in range(PARTITIONS)}
        data = json.dumps({"version": 1, "partitions": lists}).encode()
        self.tree.create(f"/brokers/topics/{topic}", data)

    def produce(self, topic: str, first: int, count: int) -> None:
        """Write numbered values, to all partitions in turn."""
        deadline = time.monotonic() + LED_S
        with KafkaWire(self._kafka) as wire:
            for number in range(first, first + count):
                piece = message(None, b"value-%d" % number)
                while code := wire.produce(topic, piece, partition=number % PARTITIONS)[0]:
                    # A new topic's partitions get their leaders soon.
                    if time.monotonic() > deadline:
                        raise AssertionError(f"error {code} of a produce")
                    time.sleep(LOOK_S)

    def names(self, path: str) -> list[str] | None:
        """Return the children of a node; None without the node."""
        try:
            return sorted(self.tree.children(path)[0])
        except ZooKeeperError as error:
            if error.code != NO_NODE:
                raise
            return None

    def nodes(self, path: str) -> Iterator[str]:
        """Yield a line for each node below a path, with the data."""
        names = self.names(path)
        if names is None:
            return
        data, _ = self.tree.get(path)
        yield f"{path} {(data or b'').decode()}".rstrip()
        for name in names:
            yield from self.nodes(f"{path}/{name}")

    def owners(self, group: str, topic: str) -> dict[str, str]:
        """Return the owner of each partition, as a group of 0.8 writes them."""
        owners = {}
        for named in (topic, f"b'{topic}'"):  # Pykafka writes a topic as Python shows bytes.
            path = f"/consumers/{group}/owners/{named}"
            for partition in self.names(path) or ():
                try:
                    data, _ = self.tree.get(f"{path}/{partition}")
                except ZooKeeperError:
                    continue
                # A thread's number may follow the member's name.
                owners[partition] = re.sub(r"[-_]\d$", "", (data or b"").decode())
        return owners


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def reader_steps(servers: Servers, name: str, command: Sequence[str]) -> Iterator[StepOutput]:
    """Yield the steps of a reader, with their output."""
    topic, group = f"read-{name}", f"group-{name}"
    servers.make(topic)
    servers.produce(topic, 0, RECORDS)
    call = [*command, servers.zookeeper, topic, group]
    yield "read from the beginning", _lines([*call, str(RECORDS)])
    servers.produce(topic, RECORDS, MORE)
    yield "go on at the position", _lines([*call, str(MORE)])
    servers.connect()
    stored = [*servers.nodes(f"/consumers/{group}"), *servers.nodes(f"/storm/{group}")]
    if name in KAFKA_STORED:
        stored = [line for line in stored if f"{group}/offsets" not in line]
    yield "nodes", masked("\n".join(stored))
    if name in SHARING:
        yield "two members", _shared(servers, [*call, str(ENDLESS)], group, topic)


def _lines(call: Sequence[str]) -> str:
    done = subprocess.run(call, capture_output=True, text=True, timeout=CALL_S, check=False)
    lines = sorted(done.stdout.splitlines())
    if done.returncode:
        lines += [f"exit code {done.returncode}", *done.stderr.splitlines()[-3:]]
    return "\n".join(lines)


def _shared(servers: Servers, call: Sequence[str], group: str, topic: str) -> str:
    """Start two members, and kill the first; return the numbers of owners and partitions."""
    members, shares = [], []
    try:
        for count in (1, 2):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            members.append(subprocess.Popen(call, **quiet))
            shares.append(_owned(servers, group, topic, count))
        first = members.pop(0)
        first.kill()
        first.wait()
        shares.append(_owned(servers, group, topic, 1))
    finally:
        for member in members:
            member.kill()
            member.wait()
    return "\n".join(shares)


def _owned(servers: Servers, group: str, topic: str, count: int) -> str:
    """Wait until as many members own all partitions; return the members and partitions seen."""
    deadline = time.monotonic() + SHARED_S
    while True:
        owners = servers.owners(group, topic)
        members = set(owners.values())
        is_shared = len(owners) == PARTITIONS and len(members) == count
        if is_shared or time.monotonic() > deadline:
            return f"{len(members)} own {len(owners)}"
        time.sleep(LOOK_S)


def tree_steps(servers: Servers, name: str, command: Sequence[str]) -> Iterator[StepOutput]:
    """Yield the output of a tree program, as a single step."""
    done = subprocess.run(
        [*command, servers.zookeeper, f"/tree-{name}"],
        capture_output=True,
        text=True,
        timeout=CALL_S,
        check=False,
    )
    ending = [f"exit code {done.returncode}"] if done.returncode else []
    lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip() != "]"]
    yield "operations on nodes", "\n".join([*lines, *ending])


def masked(text: str) -> str:
    """Return text without ids and addresses."""
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    return text


def steps(servers: Servers, program: Program, command: Sequence[str]) -> Iterator[StepOutput]:
    """Yield the steps of a program, with their output."""
    name = f"{program.name}-{program.version}"
    if program in TREES:
        return tree_steps(servers, name, command)
    return reader_steps(servers, program.name, command)


def recorded(program: Program) -> Path:
    """Return the file of a program's output on the real servers."""
    return VECTORS / f"{program.name}-{program.version}.txt"


def recorded_steps(text: str) -> dict[str, str]:
    """Return the output of each step of a file."""
    parts = re.split(r"^== (.*)\n", text, flags=re.MULTILINE)[1:]
    return {name: output.rstrip("\n") for name, output in zip(parts[::2], parts[1::2], strict=True)}


def compared(program: Program, outputs: Iterator[StepOutput]) -> Iterator[StepOutput]:
    """Yield each step with its difference; "ok" if the output is the same."""
    wanted = recorded_steps(recorded(program).read_text())
    for name, output in outputs:
        lines = difflib.unified_diff(
            wanted.get(name, "").splitlines(),
            output.splitlines(),
            "Kafka 0.8.2.2",
            "Braidlog",
            lineterm="",
            n=0,
        )
        text = "\n".join(lines)
        yield name, f"FAILED: {text}" if text else "ok"


def outcomes(program: Program) -> Iterator[StepOutput]:
    """Yield (step, result) of a program against a new broker."""
    try:
        command = program.command()
    except ProgramUnavailable as reason:
        yield "build", f"skipped: {reason}"
        return
    with broker_at(None, None) as (kafka, zookeeper):
        yield from compared(program, steps(Servers(kafka, zookeeper), program, command))


def record(program: Program, servers: Servers) -> None:
    """Store the output of a program as expected."""
    VECTORS.mkdir(exist_ok=True)
    text = ""
    for name, output in steps(servers, program, program.command()):
        text += f"== {name}\n{output}\n"
    print(f"#### {program.name} {program.version}\n{text}", flush=True)
    recorded(program).write_text(text)


def _program_of(text: str) -> Program:
    name, _, command = text.partition("=")
    return Program(name, lambda _: shlex.split(command), "given")


def main(arguments: Sequence[str]) -> int:
    """Return the exit code: 1 if an output differs."""
    parser = argparse.ArgumentParser(prog="python -m conformance.old.readers", description=__doc__)
    parser.add_argument("--only", action="append", help="a program's name")
    parser.add_argument("--command", action="append", type=_program_of, default=[])
    parser.add_argument("--kafka", metavar="HOST:PORT", help="a broker that is there already")
    parser.add_argument("--zookeeper", metavar="HOST:PORT", help="and its ZooKeeper")
    parser.add_argument("--record", action="store_true", help="store the output as expected")
    options = parser.parse_args(arguments)
    chosen = options.command or [
        program
        for program in (*READERS, *TREES)
        if not options.only or program.name in options.only
    ]
    failed = 0
    for program in chosen:
        if options.record:
            record(program, Servers(options.kafka, options.zookeeper))
            continue
        for step, outcome in outcomes(program):
            print(f"{program.name:14} {program.version:8} {step:24} {outcome}", flush=True)
            failed |= outcome.startswith("FAILED")
    return failed


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main(sys.argv[1:]))

"""`python -m conformance.old`: run Kafka's old clients against a broker, print each result.

See README.md in this folder.
"""

import base64
import platform
import sys
import uuid
from collections.abc import Iterator, Sequence
from functools import partial

from confluent_kafka import Consumer, TopicPartition

from conformance.old import readers, tools
from conformance.old.programs import OLDER_TOOLS, PROGRAMS, TOOLS
from conformance.old.zookeeper_programs import READERS, TREES
from conformance.today.command import run_programs
from conformance.today.programs import Program, ProgramUnavailable
from conformance.today.scenario import ClientProgram, ScenarioFailed

READ_S = 30.0
RECORDS = [(b"k0", b"v0"), (None, b"v1"), (b"k2", b"v2"), (b"k5", b"x" * 5000)]
COUNT = len(RECORDS)
STEPS_OF_THE_REPORT = (
    "Codecs: records that the client wrote and read itself; `today`: all of them as",
    "confluent-kafka reads them; `position`: a group's position that goes from the client to",
    "confluent-kafka and back. A client's other codecs need add-ons in C that are not built here.",
    "`kafka-tools`, and the clients over ZooKeeper: steps whose output is that of a real Kafka",
    "0.8.2.2 with ZooKeeper 3.4.6. A step without a remark went well.",
)
Row = tuple[int, bytes | None, bytes | None]


def outcomes(program: Program, address: str, seed_group: str) -> Iterator[tuple[str, str]]:
    """Yield (step, result); the group's position goes from library to library."""
    try:
        client = ClientProgram(program.command(), address)
    except ProgramUnavailable as reason:
        yield "build", f"skipped: {reason}"
        return
    topic = f"old-{program.name}-{uuid.uuid4().hex[:8]}"
    client.make(topic)
    for number, codec in enumerate(program.codecs):
        yield codec, _outcome(partial(check_codec, client, topic, codec, number))
    yield "today", _outcome(lambda: check_today(address, topic, COUNT * len(program.codecs)))
    yield "position", _outcome(lambda: check_position(client, address, topic, seed_group))


def _outcome(check: object) -> str:
    assert callable(check)
    try:
        check()
    except ScenarioFailed as failure:
        return f"FAILED: {failure}"
    return "ok"


def check_codec(client: ClientProgram, topic: str, codec: str, number: int) -> None:
    """Check that a library reads its own records of a codec. Raises PromiseBroken."""
    client.call("produce", topic, codec)
    lines = client.call("read", topic, (number + 1) * COUNT)[-COUNT:]
    rows = [(line["offset"], _bytes(line["key"]), _bytes(line["value"])) for line in lines]
    _compare(rows, number * COUNT)


def check_today(address: str, topic: str, count: int) -> None:
    """Check that a current client reads the same records. Raises PromiseBroken."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows: list[Row] = []
    while len(rows) < count:
        messages = consumer.consume(count - len(rows), READ_S)
        if not messages:
            raise ScenarioFailed(f"confluent-kafka read {len(rows)} of {count}")
        rows += [(message.offset() or 0, message.key(), message.value()) for message in messages]
    consumer.close()
    for start in range(0, count, COUNT):
        _compare(rows[start : start + COUNT], start)


def check_position(client: ClientProgram, address: str, topic: str, group: str) -> None:
    """Check that old and current client find each other's committed positions."""
    client.call("commit", topic, group, 2)
    _expect("the library", client.call("committed", topic, group)[0]["offset"], 2)
    today = Consumer({"bootstrap.servers": address, "group.id": group})
    (position,) = today.committed([TopicPartition(topic, 0)], READ_S)
    _expect("confluent-kafka", position.offset, 2)
    today.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    today.close()
    _expect("the library", client.call("committed", topic, group)[0]["offset"], 3)


def _expect(client: str, offset: int, wanted: int) -> None:
    if offset != wanted:
        raise ScenarioFailed(f"{client} found {offset} committed instead of {wanted}")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _compare(rows: Sequence[Row], start: int) -> None:
    wanted = [(start + at, *record) for at, record in enumerate(RECORDS)]
    if list(rows) != wanted:
        raise ScenarioFailed(f"{rows} instead of {wanted}")


def main() -> int:
    """Return the exit code: 0 without failures."""
    programs = (*PROGRAMS, TOOLS, OLDER_TOOLS, *READERS, *TREES)
    rows, report = run_programs(__doc__, programs, _run)
    if report is not None:
        text = ["# Kafka's old clients", "", "`python -m conformance.old`, "]
        text[-1] += f"Python {platform.python_version()} (`conformance/old/README.md`)."
        text += ["", *STEPS_OF_THE_REPORT, "", "| client | what was tried |", "| --- | --- |"]
        text += [f"| {name} | {', '.join(cells)} |" for name, cells in rows]
        report.write_text("\n".join(text) + "\n")
    return int(any("FAILED" in cell for _, cells in rows for cell in cells))


def _run(chosen: list[Program], address: str) -> Iterator[tuple[str, list[str]]]:
    group = f"g-{uuid.uuid4().hex[:8]}"
    for program in chosen:
        cells = []
        over_zookeeper = program in (*READERS, *TREES)
        if over_zookeeper:
            steps = readers.outcomes(program)
        elif program in (TOOLS, OLDER_TOOLS):
            steps = tools.outcomes(program)
        else:
            steps = outcomes(program, address, group)
        for check, outcome in steps:
            print(f"{program.name:14} {program.version:8} {check:8} {outcome}", flush=True)
            cells.append(check if outcome == "ok" else f"{check}: {outcome}")
        yield f"{program.name} {program.version}" + ", ZooKeeper" * over_zookeeper, cells


if __name__ == "__main__":
    sys.exit(main())

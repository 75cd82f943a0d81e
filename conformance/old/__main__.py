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

from conformance.old.programs import PROGRAMS
from conformance.today.command import run_programs
from conformance.today.programs import Program, Unavailable
from conformance.today.scenario import Client, Failed

READ_S = 30.0
RECORDS = [(b"k0", b"v0"), (None, b"v1"), (b"k2", b"v2"), (b"k5", b"x" * 5000)]
COUNT = len(RECORDS)
Row = tuple[int, bytes | None, bytes | None]


def outcomes(program: Program, address: str, seed_group: str) -> Iterator[tuple[str, str]]:
    """Yield (step, result); the group's position goes from library to library."""
    try:
        client = Client(program.command(), address)
    except Unavailable as reason:
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
    except Failed as failure:
        return f"FAILED: {failure}"
    return "ok"


def check_codec(client: Client, topic: str, codec: str, number: int) -> None:
    """Check that a library reads its own records of a codec. Raises Failed."""
    client.call("produce", topic, codec)
    lines = client.call("read", topic, (number + 1) * COUNT)[-COUNT:]
    found = [(one["offset"], _bytes(one["key"]), _bytes(one["value"])) for one in lines]
    _compare(found, number * COUNT)


def check_today(address: str, topic: str, count: int) -> None:
    """Check that a current client reads the same records. Raises Failed."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Row] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), READ_S)
        if not messages:
            raise Failed(f"confluent-kafka read {len(found)} of {count}")
        found += [(one.offset() or 0, one.key(), one.value()) for one in messages]
    consumer.close()
    for start in range(0, count, COUNT):
        _compare(found[start : start + COUNT], start)


def check_position(client: Client, address: str, topic: str, group: str) -> None:
    """Check that old and current client find each other's committed positions."""
    client.call("commit", topic, group, 2)
    _expect("the library", client.call("committed", topic, group)[0]["offset"], 2)
    today = Consumer({"bootstrap.servers": address, "group.id": group})
    (found,) = today.committed([TopicPartition(topic, 0)], READ_S)
    _expect("confluent-kafka", found.offset, 2)
    today.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    today.close()
    _expect("the library", client.call("committed", topic, group)[0]["offset"], 3)


def _expect(who: str, offset: int, wanted: int) -> None:
    if offset != wanted:
        raise Failed(f"{who} found {offset} committed instead of {wanted}")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _compare(found: Sequence[Row], start: int) -> None:
    wanted = [(start + at, *record) for at, record in enumerate(RECORDS)]
    if list(found) != wanted:
        raise Failed(f"{found} instead of {wanted}")


def main() -> int:
    """Return the exit code: 0 without failures."""
    rows, report = run_programs(__doc__, PROGRAMS, _run)
    if report is not None:
        text = ["# Kafka's old clients", "", "`python -m conformance.old`, "]
        text[-1] += f"Python {platform.python_version()} (`conformance/old/README.md`)."
        text += ["", "| client | what was tried |", "| --- | --- |"]
        text += [f"| {name} | {', '.join(told)} |" for name, told in rows]
        report.write_text("\n".join(text) + "\n")
    return int(any("FAILED" in one for _, told in rows for one in told))


def _run(chosen: list[Program], address: str) -> Iterator[tuple[str, list[str]]]:
    group = f"g-{uuid.uuid4().hex[:8]}"
    for program in chosen:
        told = []
        for what, outcome in outcomes(program, address, group):
            print(f"{program.name:14} {program.version:8} {what:8} {outcome}", flush=True)
            told.append(what if outcome == "ok" else f"{what}: {outcome}")
        yield f"{program.name} {program.version}", told


if __name__ == "__main__":
    sys.exit(main())

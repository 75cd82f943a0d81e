"""`python -m conformance.today.pipelines`: Kafka Connect, Kafka Streams and MirrorMaker 2 of Kafka
4.3.1 on a broker, each stopped and started again halfway.

MirrorMaker copies between the broker and a second broker, or a Kafka (`--kafka HOST:PORT`). The
libraries come from Maven, as those of `conformance.today`. The exit code is 1 if anything is lost,
doubled or refused.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from conformance.ending import end_on_signals
from conformance.ports import reserve_ports
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
JAVA: Final = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx300m")
LOGS: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
WORKER: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
FILE: Final = "org.apache.kafka.connect.file.FileStream"
GOES_ON_S, LOOK_S, ANSWER_S = 180.0, 0.3, 60.0  # Limits on a machine that is very busy.
FIRST, MORE = 150, 60  # Records before a program is stopped and after its new start.
POSITION: Final = 20
LINES: Final = dict.fromkeys(
    ("key.converter", "value.converter"), "org.apache.kafka.connect.storage.StringConverter"
)
ALONE: Final = dict.fromkeys(
    (
        "replication.factor",
        "checkpoints.topic.replication.factor",
        "heartbeats.topic.replication.factor",
        "offset-syncs.topic.replication.factor",
        "offset.storage.replication.factor",
        "status.storage.replication.factor",
        "config.storage.replication.factor",
    ),
    "1",
)
# How often MirrorMaker looks for topics, groups and positions.
QUICK: Final = {
    "emit.checkpoints.interval.seconds": "2",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "2",
    "refresh.topics.interval.seconds": "3",
    "refresh.groups.interval.seconds": "3",
    "offset.lag.max": "0",
}


class PipelineFailed(Exception):
    """A program lost or doubled something, or ended, as the text says."""


def build(program: Program) -> list[str]:
    """Return the beginning of a command line. Raises ProgramUnavailable."""
    place, folder = SOURCES / "streams", program.folder
    copy_jars(program, place)
    source = place / "Count.java"
    if is_older(folder / "Count.class", source):
        run_build(["javac", "-cp", f"{folder}/*", "-d", folder, source], folder)
    return [*JAVA, LOGS, "-cp", f"{folder}:{folder}/*"]


@dataclass(frozen=True, slots=True)
class Pipelines:
    """The means of all checks: a command line of Java, a broker, a folder for files and logs."""

    java: Sequence[str]
    address: str
    folder: Path

    @contextmanager
    def running(self, name: str, *arguments: str) -> Iterator[None]:
        """Run a class in the block, and stop the process at the end. Raises PipelineFailed."""
        with (self.folder / f"{name.rpartition('.')[2]}.log").open("ab") as log:
            process = subprocess.Popen([*self.java, name, *arguments], stdout=log, stderr=log)
            try:
                yield
                if process.poll() is not None:
                    raise PipelineFailed(f"{name} ended: {self.tail(name)}")
                process.send_signal(signal.SIGTERM)
                process.wait(GOES_ON_S)
            finally:
                process.kill()
                process.wait()

    def tail(self, name: str) -> str:
        """Return the end of a program's log."""
        log = self.folder / f"{name.rpartition('.')[2]}.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""

    def settings(self, name: str, values: Mapping[str, str]) -> str:
        """Write a file of settings; return its path."""
        path = self.folder / name
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return str(path)


def wait_for(event: str, condition: Callable[[], bool], limit_s: float = GOES_ON_S) -> None:
    """Return when a condition holds. Raises PipelineFailed."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise PipelineFailed(f"{event}: not within {limit_s:.0f} s")
        time.sleep(LOOK_S)


def make_topics(address: str, **partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    topics = [NewTopic(name, count, 1) for name, count in partitions.items()]
    for future in admin.create_topics(topics).values():
        future.result()


def produce(address: str, topic: str, values: Sequence[str]) -> None:
    producer = ck.Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce(topic, value, f"key-{value}")
    if producer.flush(ANSWER_S):
        raise PipelineFailed(f"{topic}: records without an answer")


def read(address: str, topic: str) -> list[tuple[str, str]]:
    """Return (key, value) of the records in partition 0; nothing if there is no such topic."""
    settings = {"bootstrap.servers": address, "group.id": "look", "enable.partition.eof": True}
    consumer = ck.Consumer(settings)
    try:
        if topic not in consumer.list_topics(timeout=ANSWER_S).topics:
            return []
        consumer.assign([ck.TopicPartition(topic, 0, 0)])
        records: list[tuple[str, str]] = []
        while True:
            message = consumer.poll(ANSWER_S)
            if message is None:
                raise PipelineFailed(f"{topic}: no record and no end")
            if (error := message.error()) is not None:
                if error.code() == ck.KafkaError._PARTITION_EOF:
                    return records
                raise PipelineFailed(f"{topic}: {error}")
            records.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
    finally:
        consumer.close()


def check_connect(pipelines: Pipelines) -> str:
    """Copy a file into a topic and the topic into a file by two connectors of a worker."""
    lines, copied = pipelines.folder / "lines.txt", pipelines.folder / "copied.txt"
    with ExitStack() as held:
        (port,) = reserve_ports(1, held)
        url = f"http://127.0.0.1:{port}"
        names = {kind: f"connect-{kind}" for kind in ("offset", "config", "status")}
        worker = pipelines.settings(
            "worker.properties",
            {
                "bootstrap.servers": pipelines.address,
                "group.id": "connect",
                "listeners": url,
                "offset.flush.interval.ms": "1000",
                **{f"{kind}.storage.topic": name for kind, name in names.items()},
                **{f"{kind}.storage.replication.factor": "1" for kind in names},
                **LINES,
            },
        )
        written: list[str] = []
        for count in (FIRST, MORE):
            with pipelines.running(WORKER, worker):
                wait_for("Connect's REST API", lambda: ask(f"{url}/connectors") is not None)
                if not written:
                    source = {"file": str(lines), "topic": "lines"}
                    create(url, "source", {**source, "connector.class": f"{FILE}SourceConnector"})
                    sink = {"file": str(copied), "topics": "lines"}
                    create(url, "sink", {**sink, "connector.class": f"{FILE}SinkConnector"})
                more = [f"line {len(written) + number}" for number in range(count)]
                written += more
                with lines.open("a") as out:
                    out.writelines(f"{line}\n" for line in more)
                await_lines(copied, written)
                for name in ("source", "sink"):
                    wait_for(f"state of {name}", partial(is_running, url, name))
                    wait_for(f"offsets of {name}", partial(has_offsets, url, name))
    for name in names.values():
        if setting(pipelines.address, name, "cleanup.policy") != "compact":
            raise PipelineFailed(f"{name} is not compacted")
    return f"{len(written)} lines copied, {MORE} of them after a restart, none twice"


def await_lines(path: Path, lines: Sequence[str]) -> None:
    """Wait until a file has these lines. Raises PipelineFailed."""

    def copied() -> list[str]:
        return path.read_text().splitlines() if path.exists() else []

    wait_for(f"{len(lines)} lines", lambda: len(copied()) >= len(lines))
    if copied() != lines:
        raise PipelineFailed("lines are lost, doubled or in another order")


def ask(url: str, body: object = None) -> Any:
    """Return the answer of a REST API; None if there is none yet."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError):
        return None


def create(url: str, name: str, settings: Mapping[str, str]) -> None:
    """Create a connector; the worker refuses that until it has joined its group."""
    body = {"name": name, "config": {**settings, "tasks.max": "1", "name": name}}
    wait_for(f"creation of {name}", lambda: ask(f"{url}/connectors", body) is not None)


def is_running(url: str, name: str) -> bool:
    status = ask(f"{url}/connectors/{name}/status") or {}
    states = [task["state"] for task in status.get("tasks", [])]
    return states == ["RUNNING"] and status["connector"]["state"] == "RUNNING"


def has_offsets(url: str, name: str) -> bool:
    return bool((ask(f"{url}/connectors/{name}/offsets") or {}).get("offsets"))


def setting(address: str, topic: str, name: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": address})  # Without a reference its calls end.
    (future,) = admin.describe_configs([resource]).values()
    return str(future.result()[name].value)


def check_streams(pipelines: Pipelines) -> str:
    """Count by key over a repartition topic and a changelog; at least once."""
    make_topics(pipelines.address, numbers=2, counts=1)
    arguments = pipelines.address, str(pipelines.folder / "state"), "numbers", "counts"
    sent: list[str] = []
    for count in (FIRST, MORE):
        more = [str(len(sent) + number) for number in range(count)]
        sent += more
        produce(pipelines.address, "numbers", more)
        with pipelines.running("Count", *arguments):
            await_counts(pipelines.address, len(sent))
    return f"the right counts of {len(sent)} records, {MORE} of them after a restart"


def await_counts(address: str, sent: int) -> None:
    """Wait until the counts are right. Raises PipelineFailed."""
    wait_for(f"the right counts of {sent}", lambda: is_counted(read(address, "counts"), sent))


def is_counted(records: Sequence[tuple[str, str]], sent: int) -> bool:
    """Return True if the newest counts are those of the numbers below `sent`."""
    newest = {key: int(value) for key, value in records}
    return newest == {f"k{rest}": len(range(rest, sent, 7)) for rest in range(7)}


def check_mirror(pipelines: Pipelines, other: str) -> str:
    """Mirror a topic in each direction, with the positions of a group."""
    mine, theirs = pipelines.address, other
    make_topics(mine, mine=1)
    make_topics(theirs, theirs=1)
    settings = pipelines.settings(
        "mirror.properties",
        {
            "clusters": "here, there",
            "here.bootstrap.servers": mine,
            "there.bootstrap.servers": theirs,
            "here->there.enabled": "true",
            "there->here.enabled": "true",
            "here->there.topics": "mine",
            "there->here.topics": "theirs",
            "here->there.groups": "g",
            "there->here.groups": "g",
            **ALONE,
            **QUICK,
        },
    )
    copies = ((mine, "mine", theirs, "here.mine"), (theirs, "theirs", mine, "there.theirs"))
    sent: list[str] = []
    for count in (FIRST, MORE):
        more = [str(len(sent) + number) for number in range(count)]
        sent += more
        for address, topic, _, _ in copies:
            produce(address, topic, more)
            commit(address, topic, len(sent) - POSITION)
        with pipelines.running(MIRROR, settings):
            for _, _, target, name in copies:
                await_copies(target, name, sent)
    places = [committed(target, name) for _, _, target, name in copies]
    if max(places) > len(sent) - POSITION:
        raise PipelineFailed(f"a group's position is {max(places)} at the target")
    return f"{len(sent)} records in each direction, positions {places} of {len(sent) - POSITION}"


def await_copies(address: str, topic: str, values: Sequence[str]) -> None:
    """Wait until a topic has these values, and the group a position there. Raises
    PipelineFailed.
    """
    wait_for(f"records of {topic}", lambda: len(read(address, topic)) >= len(values))
    if [value for _, value in read(address, topic)] != values:
        raise PipelineFailed(f"{topic}: records are lost, doubled or in another order")
    wait_for(f"a position in {topic}", lambda: committed(address, topic) > 0)


def commit(address: str, topic: str, offset: int) -> None:
    """Store a position of the group; Kafka first makes the topic of its positions."""
    consumer = ck.Consumer({"bootstrap.servers": address, "group.id": "g"})
    place = ck.TopicPartition(topic, 0, offset)

    def is_stored() -> bool:
        try:
            consumer.commit(offsets=[place], asynchronous=False)
        except ck.KafkaException:
            return False
        return True

    try:
        wait_for("a commit", is_stored)
    finally:
        consumer.close()


def committed(address: str, topic: str) -> int:
    consumer = ck.Consumer({"bootstrap.servers": address, "group.id": "g"})
    try:
        (place,) = consumer.committed([ck.TopicPartition(topic, 0)], timeout=ANSWER_S)
        return int(place.offset)
    finally:
        consumer.close()


def main() -> int:
    """Return 0 if every program did its work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", metavar="HOST:PORT", help="the other side of MirrorMaker")
    options = parser.parse_args()
    try:
        java = build(Program("streams", build, VERSION))
    except ProgramUnavailable as reason:
        print(f"skipped: {reason}")
        return 0
    failures = 0
    with ExitStack() as held:
        scratch = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="pipelines-")))
        broker = held.enter_context(RunningBroker())
        other = options.kafka or held.enter_context(RunningBroker()).addresses["kafka"]
        pipelines = Pipelines(java, broker.addresses["kafka"], scratch)
        checks: dict[str, Callable[[], str]] = {
            f"Kafka Connect {VERSION}, distributed": lambda: check_connect(pipelines),
            f"Kafka Streams {VERSION}, at least once": lambda: check_streams(pipelines),
            f"MirrorMaker 2 ({VERSION})": lambda: check_mirror(pipelines, other),
        }
        for name, check in checks.items():
            try:
                print(f"{name}: ok, {check()}", flush=True)
            except PipelineFailed as failure:
                print(f"{name}: FAILED: {failure}", flush=True)
                failures += 1
    return int(failures > 0)


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())

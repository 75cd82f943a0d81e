"""Monitors that follow `__consumer_offsets` over restarts and takeovers.

`python -m conformance.today.positions_topic`: a broker that is stopped, then killed; then two
brokers over PostgreSQL and SeaweedFS, each of which is killed. Groups commit all the while. A
consumer of confluent-kafka and a consumer of kafka-python read the topic from the beginning, decode
keys and values, and go on at their places. In the end each has the last commit of every group, and
no place of a partition came twice or went back.
"""

import argparse
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from conformance.cluster import servers
from conformance.cluster.brokers import command, settings_for
from conformance.server import RunningBroker

TOPIC: Final = "__consumer_offsets"
SETTING: Final = "listeners.kafka.offsets_topic=true"
TOPICS: Final = 6  # In a cluster these are in several shards.
GROUPS: Final = 5
WAIT_S: Final = 90.0
POLL_S: Final = 0.2

Position = tuple[str, str, int]  # Group, topic, partition.
Read = tuple[int, int, bytes, bytes | None]  # Partition, offset, key, value.


class Failed(AssertionError):
    """A monitor saw something else than the commits; the text says what."""


class OffsetsReader(Protocol):
    """A client that reads all partitions of the topic from the beginning."""

    name: str

    def read(self) -> Iterator[Read]:
        """Yield the records that have come."""

    def close(self) -> None:
        """End the client."""


class ConfluentReader:
    """confluent-kafka (librdkafka)."""

    name = "confluent-kafka"

    def __init__(self, addresses: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": addresses,
                "group.id": "monitor",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 2,  # Not a line for each broker that is gone.
            }
        )
        partitions = self._consumer.list_topics(TOPIC, 30).topics[TOPIC].partitions
        self._consumer.assign(
            [
                confluent_kafka.TopicPartition(TOPIC, index, confluent_kafka.OFFSET_BEGINNING)
                for index in partitions
            ]
        )

    def read(self) -> Iterator[Read]:
        for message in self._consumer.consume(500, POLL_S):
            error = message.error()
            if error is not None:
                if not error.retriable() and error.code() != confluent_kafka.KafkaError._TRANSPORT:
                    raise Failed(f"{self.name}: {error}")
                continue
            yield message.partition(), message.offset(), message.key(), message.value()

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonReader:
    """kafka-python."""

    name = "kafka-python"

    def __init__(self, addresses: str) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=addresses.split(","),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            metadata_max_age_ms=1000,
            exclude_internal_topics=False,
        )
        partitions = self._consumer.partitions_for_topic(TOPIC) or ()
        self._consumer.assign([TopicPartition(TOPIC, index) for index in sorted(partitions)])
        self._consumer.seek_to_beginning()

    def read(self) -> Iterator[Read]:
        for records in self._consumer.poll(int(POLL_S * 1000)).values():
            for record in records:
                yield record.partition, record.offset, record.key, record.value

    def close(self) -> None:
        self._consumer.close()


READERS: Final[Sequence[Callable[[str], OffsetsReader]]] = (ConfluentReader, KafkaPythonReader)


class Monitor:
    """The state that a client has read: the last commit of each group and partition."""

    def __init__(self, reader: OffsetsReader) -> None:
        self.reader = reader
        self.positions: dict[Position, int] = {}
        self.records = 0
        self._places: dict[int, int] = {}

    def follow(self, wanted: dict[Position, int]) -> None:
        """Read until the state is the wanted state. Raises Failed."""
        deadline = time.monotonic() + WAIT_S
        while self.positions != wanted:
            if time.monotonic() > deadline:
                missing = {
                    key: wanted[key] for key in wanted if self.positions.get(key) != wanted[key]
                }
                text = f"{self.reader.name} misses {missing}, has {len(self.positions)}"
                raise Failed(text)
            for partition, offset, key, value in self.reader.read():
                self._take(partition, offset, key, value)

    def _take(self, partition: int, offset: int, key: bytes, value: bytes | None) -> None:
        before = self._places.get(partition, -1)
        if offset <= before:
            raise Failed(f"{self.reader.name}: partition {partition} at {offset} after {before}")
        self._places[partition] = offset
        self.records += 1
        position = decoded_key(key)
        if position[0] == "monitor":
            return
        if value is None:
            self.positions.pop(position, None)
        else:
            self.positions[position] = decoded_offset(value)


def decoded_key(key: bytes) -> Position:
    """Decode an OffsetCommitKey of version 1."""
    version, size = struct.unpack_from(">hh", key)
    if version != 1:
        raise Failed(f"a key of version {version}")
    group, rest = key[4 : 4 + size], key[4 + size :]
    (size,) = struct.unpack_from(">h", rest)
    (index,) = struct.unpack_from(">i", rest, 2 + size)
    return group.decode(), rest[2 : 2 + size].decode(), index


def decoded_offset(value: bytes) -> int:
    """Decode the offset of an OffsetCommitValue of version 3."""
    version, offset = struct.unpack_from(">hq", value)
    if version != 3:
        raise Failed(f"a value of version {version}")
    return int(offset)


class CommittingGroups:
    """Groups that commit, and their last commits."""

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses
        self.committed: dict[Position, int] = {}
        self._number = 0

    def create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._addresses})
        topics = [NewTopic(f"orders-{number}", 2, 1) for number in range(TOPICS)]
        for future in admin.create_topics(topics).values():
            future.result(30)

    def commit(self) -> None:
        """Let each group commit on each topic. Raises Failed."""
        self._number += 1
        for number in range(GROUPS):
            name = f"group-{number}"
            consumer = KafkaConsumer(
                bootstrap_servers=self._addresses.split(","),
                group_id=name,
                enable_auto_commit=False,
            )
            offsets = {
                TopicPartition(f"orders-{topic}", index): OffsetAndMetadata(
                    100 * self._number + 10 * topic + index, f"commit {self._number}", -1
                )
                for topic in range(TOPICS)
                for index in range(2)
            }
            self._surely(consumer, offsets)
            consumer.close(autocommit=False)
            for place, commit in offsets.items():
                self.committed[name, place.topic, place.partition] = commit.offset

    @staticmethod
    def _surely(consumer: Any, offsets: dict[Any, Any]) -> None:
        """Commit, again after an error while owners change."""
        consumer.assign(list(offsets))
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                consumer.commit(offsets)
                return
            except Exception as error:  # kafka-python has many kinds of errors.
                if time.monotonic() > deadline:
                    raise Failed(f"no commit succeeds: {error!r}") from error
                time.sleep(POLL_S)


@contextmanager
def monitors(addresses: str) -> Iterator[list[Monitor]]:
    """Yield a monitor for each client library."""
    readers = [make(addresses) for make in READERS]
    try:
        yield [Monitor(reader) for reader in readers]
    finally:
        for reader in readers:
            reader.close()


def follow_all(every: Sequence[Monitor], groups: CommittingGroups, after: str) -> None:
    """Let each monitor read everything, and print the counts. Raises Failed."""
    for monitor in every:
        monitor.follow(dict(groups.committed))
    counts = ", ".join(f"{monitor.reader.name} {monitor.records} records" for monitor in every)
    print(f"{after}: {len(groups.committed)} positions; {counts}", flush=True)


def run_alone(folder: Path) -> None:
    """Follow a broker over a stop and a SIGKILL. Raises Failed."""
    broker = RunningBroker(
        folder / "alone", listen={"kafka": "127.0.0.1:0"}, others=False, settings=[SETTING]
    )
    with broker:
        address = broker.addresses["kafka"]
        groups = CommittingGroups(address)
        groups.create_topics()
        groups.commit()
        with monitors(address) as every:
            follow_all(every, groups, "a broker")
            before = [monitor.records for monitor in every]
            broker.stop()
            broker.start()
            groups.commit()
            follow_all(every, groups, "after a restart")
            commits = [
                monitor.records - count for monitor, count in zip(every, before, strict=True)
            ]
            if set(commits) != {len(groups.committed)}:
                raise Failed(f"records came again after a restart: {commits}")
            groups.commit()
            broker.signal(signal.SIGKILL)
            broker.wait()
            broker.start()
            groups.commit()
            follow_all(every, groups, "after a SIGKILL")


def run_cluster(folder: Path) -> None:
    """Follow two brokers while one of them is killed. Raises Failed."""
    with ExitStack() as held:
        postgres = held.enter_context(servers.Postgres(folder / "pg"))
        seaweed = held.enter_context(servers.Seaweed(folder / "s3"))
        settings = settings_for(postgres, seaweed, "positions")
        code, output = command(settings, "init")
        if code:
            raise Failed(output)
        settings += [SETTING, "shared.round_ms=20", "cluster.lease_ms=3000", "cluster.beat_ms=500"]
        brokers = [
            RunningBroker(
                folder / f"node{node}",
                listen={"kafka": "127.0.0.1:0"},
                others=False,
                settings=[*settings, f"cluster.node_id={node}"],
                environment=servers.KEYS,
            )
            for node in (1, 2)
        ]
        for broker in brokers:
            broker.start()
            held.callback(broker.kill)
        addresses = ",".join(broker.addresses["kafka"] for broker in brokers)
        await_leaders(addresses, {1, 2})
        groups = CommittingGroups(addresses)
        groups.create_topics()
        groups.commit()
        with monitors(addresses) as every:
            follow_all(every, groups, "two brokers")
            for victim in brokers:
                groups.commit()
                victim.signal(signal.SIGKILL)
                victim.wait()
                groups.commit()
                follow_all(every, groups, "after a takeover")
                victim.start()
                await_leaders(addresses, {1, 2})
                groups.commit()
                follow_all(every, groups, "after its return")


def await_leaders(addresses: str, wanted: set[int]) -> None:
    """Wait until these brokers lead the partitions of the topic. Raises Failed."""
    admin = AdminClient({"bootstrap.servers": addresses})
    deadline = time.monotonic() + WAIT_S
    leaders: set[int] = set()
    while leaders != wanted:
        if time.monotonic() > deadline:
            raise Failed(f"the leaders are {leaders}")
        described = admin.list_topics(TOPIC, 30).topics[TOPIC]
        leaders = {partition.leader for partition in described.partitions.values()}
        time.sleep(POLL_S)


def main() -> int:
    """Return 1 when a monitor saw something else than the commits."""
    parser = argparse.ArgumentParser(
        prog="python -m conformance.today.positions_topic", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--alone", action="store_true", help="only a single broker")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="braidlog-positions-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        try:
            run_alone(folder)
            if not options.alone:
                run_cluster(folder)
        except Failed as error:
            print(f"failed: {error}", file=sys.stderr)
            return 1
    print("every commit was seen, and no place came twice")
    return 0


if __name__ == "__main__":
    sys.exit(main())

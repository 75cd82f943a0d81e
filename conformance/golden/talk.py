"""Runs the cases against a broker, and reads a recorded run.

A table has a row for each answer, and two other kinds of rows: key -1 is the id of a topic by its
name, key -2 the oldest (last column) and newest served version of the key in the third column.
"""

import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.tables import APIS
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsRequest
from braidlog.protocols.kafka.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from braidlog.protocols.kafka.wire.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.protocols.kafka.wire.delete_groups import DeleteGroupsRequest
from braidlog.protocols.kafka.wire.find_coordinator import FindCoordinatorRequest
from braidlog.protocols.kafka.wire.init_producer_id import InitProducerIdRequest
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest
from braidlog.protocols.kafka.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from braidlog.protocols.kafka.wire.share_group_heartbeat import ShareGroupHeartbeatRequest
from conformance.golden.asking import CLOSED, WAIT_S, ask, ask_on, decoded
from conformance.golden.case import TOPIC, Case
from conformance.golden.cases import CASES
from conformance.golden.member_cases import LEAVES

Address = tuple[str, int]
Versions = Mapping[int, tuple[int, int]]  # oldest and newest, by key
TOPIC_ID, SERVED = -1, -2  # the other kinds of rows
CREATE_VERSION: Final = 7
TRIES: Final = 60
COMMIT: Final = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)


class GoldenRow(NamedTuple):
    """A row of a table."""

    key: int
    version: int
    note: str
    answer: str

    @property
    def line(self) -> str:
        """The row as text."""
        return "\t".join(map(str, self))


class GoldenTable(NamedTuple):
    """A recorded run."""

    ids: Mapping[bytes, bytes]
    versions: Versions
    rows: list[GoldenRow]


def read_table(path: Path) -> GoldenTable:
    """Read a recorded run."""
    ids: dict[bytes, bytes] = {}
    versions: dict[int, tuple[int, int]] = {}
    rows = []
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            continue
        key, version, note, answer = line.split("\t")
        row = GoldenRow(int(key), int(version), note, answer)
        if row.key == TOPIC_ID:
            ids[note.encode()] = bytes.fromhex(answer)
        elif row.key == SERVED:
            versions[int(note)] = int(answer), row.version
        else:
            rows.append(row)
    return GoldenTable(ids, versions, rows)


def prepared(address: Address) -> tuple[dict[bytes, bytes], Versions]:
    """Create the topic of the cases; return its id, and the versions that the broker serves."""
    topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    reply = decoded(CreateTopicsRequest.KEY, CREATE_VERSION, ask(address, CREATE_VERSION, request))
    assert not reply.topics[0].error_code, reply
    _warm_up(address)
    _warm_up_shares(address)
    served = decoded(ApiVersionsRequest.KEY, 0, ask(address, 0, ApiVersionsRequest()))
    versions = {key.api_key: (key.min_version, key.max_version) for key in served.api_keys}
    return {TOPIC: reply.topics[0].topic_id}, versions


def _warm_up(address: Address) -> None:
    """Wait until the broker coordinates groups and gives ids to producers. Raises RuntimeError."""
    commit = OffsetCommitRequest(group_id=b"warm", group_instance_id=None)
    commit.topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[COMMIT])]
    for _ in range(TRIES):
        coordinator = decoded(10, 2, ask(address, 2, FindCoordinatorRequest(key=b"warm")))
        committed = decoded(8, 2, ask(address, 2, commit))
        producer = decoded(22, 0, ask(address, 0, InitProducerIdRequest(transactional_id=None)))
        codes = {part.error_code for topic in committed.topics for part in topic.partitions}
        if not coordinator.error_code and codes == {0} and not producer.error_code:
            gone = DeleteGroupsRequest(groups_names=[b"warm"])
            ask(address, 0, gone)
            return
        time.sleep(1)  # Kafka creates the topics of its coordinators at the first request.
    raise RuntimeError("the broker does not coordinate groups")


def _warm_up_shares(address: Address) -> None:
    """Wait until the broker assigns partitions to share groups. Raises RuntimeError."""
    member = ShareGroupHeartbeatRequest(group_id=b"warm-share", member_id=b"EAAAAAAAAAAAAAAAAAAAAA")
    key, version = member.KEY, member.VERSIONS[1]
    member.subscribed_topic_names = [TOPIC]
    for _ in range(TRIES):
        beat = decoded(key, version, ask(address, version, member))
        if beat.assignment is not None and beat.assignment.topic_partitions:
            member.member_epoch = LEAVES
            ask(address, version, member)
            ask(address, 0, DeleteGroupsRequest(groups_names=[member.group_id]))
            return
        member.member_epoch = beat.member_epoch
        time.sleep(1)  # Members get their partitions after some heartbeats.
    raise RuntimeError("the broker does not serve share groups")


def requests(ids: dict[bytes, bytes], versions: Versions) -> Iterator[tuple[Case, int, Struct]]:
    """Yield (case, version, request) in order, for the versions that both brokers serve.

    A request is made when the answers before it are known: `note_member` adds to `ids`.
    """
    for case in CASES:
        key = case.build(0, ids).KEY
        oldest, newest = versions.get(key, (0, -1))
        first = max(case.since, oldest, APIS[key].request.VERSIONS[0])
        last = min(case.until, newest, APIS[key].version_max)
        for version in range(first, last + 1):
            yield case, version, case.build(version, ids)


def note_member(ids: dict[bytes, bytes], body: Struct, version: int, answer: str) -> None:
    """Add the id that the broker gave to a classic member, or the epoch of another member, to
    `ids`, by the name of the group.
    """
    if answer == CLOSED:
        return
    if isinstance(body, JoinGroupRequest):
        member_id = decoded(body.KEY, version, answer).member_id
        if member_id:
            ids[body.group_id or b""] = member_id
    elif isinstance(body, ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest):
        epoch = decoded(body.KEY, version, answer).member_epoch
        if epoch > 0:
            ids[body.group_id or b""] = b"%d" % epoch


def answers(
    address: Address, ids: Mapping[bytes, bytes], versions: Versions
) -> Iterator[GoldenRow]:
    """Yield each answer."""
    known = dict(ids)
    with socket.create_connection(address, WAIT_S) as lasting:
        for case, version, body in requests(known, versions):
            answer = ask_on(lasting, version, body) if case.stays else ask(address, version, body)
            note_member(known, body, version, answer)
            yield GoldenRow(body.KEY, version, case.note, answer)


__all__ = [
    "CLOSED",
    "GoldenRow",
    "GoldenTable",
    "answers",
    "note_member",
    "prepared",
    "read_table",
    "requests",
]

"""`python -m conformance.golden.migrating --kafka HOST:PORT --record FILE`: a group of the classic
protocol gets a member of the consumer protocol, and is a classic group again at the end (KIP-848).

The dialogue is the same with a real Kafka and in the tests: the next request needs the last answer.
"""

import argparse
import json
import socket
import struct
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from braidlog.protocols.kafka.consumer_protocol import assignment_of
from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire.consumer_group_describe import ConsumerGroupDescribeRequest
from braidlog.protocols.kafka.wire.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from braidlog.protocols.kafka.wire.heartbeat import HeartbeatRequest
from braidlog.protocols.kafka.wire.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from braidlog.protocols.kafka.wire.leave_group import LeaveGroupRequest, MemberIdentity
from braidlog.protocols.kafka.wire.list_groups import ListGroupsRequest
from braidlog.protocols.kafka.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from braidlog.protocols.kafka.wire.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from conformance.golden.asking import SIZE, WAIT_S, body_of, decoded, facts, frame_of
from conformance.golden.talk import prepared

GROUP: Final = b"migrating"
MODERN: Final = b"M" * 22
TOPIC: Final = b"golden"  # of two partitions


class MigrationStep(NamedTuple):
    """A request of the dialogue."""

    note: str
    version: int
    body: Struct


Dialogue = Generator[MigrationStep, Any, None]


def subscription(owned: Sequence[int], topic: bytes = TOPIC) -> bytes:
    """Return a subscription, version 1: with the partitions that the member has."""
    name = struct.pack(">h", len(topic)) + topic
    head = struct.pack(">hi", 1, 1) + name + struct.pack(">i", -1)
    if not owned:
        return head + struct.pack(">i", 0)
    return head + struct.pack(f">i{len(name)}si{len(owned)}i", 1, name, len(owned), *owned)


def join(member_id: bytes, owned: Sequence[int] = (), **fields: Any) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type=b"consumer",
        protocols=[JoinGroupRequestProtocol(name=b"range", metadata=subscription(owned))],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def sync(member_id: bytes, generation: int, **fields: Any) -> SyncGroupRequest:
    request = SyncGroupRequest(group_id=GROUP, generation_id=generation, member_id=member_id)
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def beat(member_id: bytes, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=GROUP, generation_id=generation, member_id=member_id)


def modern(epoch: int, topic_id: bytes, owned: Sequence[int]) -> ConsumerGroupHeartbeatRequest:
    places = [TopicPartitions(topic_id=topic_id, partitions=list(owned))] if owned else []
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=MODERN,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if epoch == 0 else -1,
        subscribed_topic_names=[TOPIC] if epoch == 0 else None,
        topic_partitions=places,
    )


def commit(member_id: bytes, epoch: int, offset: int, *indexes: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index in indexes or (0,)
    ]
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
    )


def leave(*member_ids: bytes) -> LeaveGroupRequest:
    members = [MemberIdentity(member_id=member_id) for member_id in member_ids]
    return LeaveGroupRequest(group_id=GROUP, members=members)


def describe() -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=[GROUP])


def listed() -> ListGroupsRequest:
    return ListGroupsRequest(states_filter=[], types_filter=[])


def dialogue(topic_id: bytes) -> Dialogue:
    """Yield the requests; each gets its answer back."""
    first = yield MigrationStep("a classic member joins", 3, join(b""))
    classic = first.member_id
    both = [
        SyncGroupRequestAssignment(
            member_id=classic, assignment=assignment_of({TOPIC: [0, 1]}, version=1)
        )
    ]
    yield MigrationStep("it leads and assigns", 3, sync(classic, 1, assignments=both))
    yield from _upgrade(classic, topic_id)
    yield from _refusals(classic)
    other = (yield MigrationStep("a second classic member joins", 3, join(b""))).member_id
    yield from _third(classic, other, topic_id)
    yield from _downgrade(classic, topic_id)


def _upgrade(classic: bytes, topic_id: bytes) -> Dialogue:
    yield MigrationStep("a member of the consumer protocol joins", 1, modern(0, topic_id, []))
    yield MigrationStep("the group is a consumer group", 5, listed())
    yield MigrationStep("the classic member has to rejoin", 3, beat(classic, 1))
    yield MigrationStep("its sync is refused", 3, sync(classic, 1))
    yield MigrationStep("its commit is taken", 8, commit(classic, 1, 1))
    yield MigrationStep("a description shows both kinds", 1, describe())
    yield MigrationStep("it rejoins with both partitions", 3, join(classic, [0, 1]))
    yield MigrationStep("it is told to give one up", 3, sync(classic, 1))
    yield MigrationStep("it has to rejoin again", 3, beat(classic, 1))
    yield MigrationStep("the other waits", 1, modern(2, topic_id, []))
    yield MigrationStep("it rejoins with one partition", 3, join(classic, [0]))
    yield MigrationStep("it is told what it has", 3, sync(classic, 2))
    yield MigrationStep("it is settled", 3, beat(classic, 2))
    yield MigrationStep("the other gets the free partition", 1, modern(2, topic_id, []))
    yield MigrationStep("the other has it", 1, modern(2, topic_id, [1]))
    yield MigrationStep("a description of a settled group", 1, describe())


def _refusals(classic: bytes) -> Dialogue:
    yield MigrationStep("a heartbeat of the former generation", 3, beat(classic, 1))
    yield MigrationStep("a heartbeat of an unknown member", 3, beat(b"nobody", 2))
    yield MigrationStep("a classic heartbeat of a modern member", 3, beat(MODERN, 2))
    yield MigrationStep("a sync of the former generation", 3, sync(classic, 1))
    wrong = {"protocol_type": b"consumer", "protocol_name": b"sticky"}
    yield MigrationStep("a sync with another protocol", 5, sync(classic, 2, **wrong))
    yield MigrationStep("a sync with another type", 5, sync(classic, 2, protocol_type=b"connect"))
    yield MigrationStep("a commit of the former generation", 8, commit(classic, 1, 2))
    yield MigrationStep("such a commit for a lost partition", 8, commit(classic, 1, 2, 1))
    yield MigrationStep("such a commit for both", 8, commit(classic, 1, 2, 0, 1))
    yield MigrationStep("a commit for the other's partition", 8, commit(classic, 2, 2, 1))
    yield MigrationStep("a commit of a later generation", 8, commit(classic, 3, 2))
    yield MigrationStep("a modern commit of a later epoch", 9, commit(MODERN, 3, 2, 1))
    yield MigrationStep("a modern commit of a former epoch", 9, commit(MODERN, 1, 2, 1))
    yield MigrationStep("a modern commit of no epoch", 9, commit(MODERN, -1, 2, 1))
    yield MigrationStep("a commit of the generation", 8, commit(classic, 2, 2))
    yield MigrationStep("an old commit of a modern member", 8, commit(MODERN, 2, 3))
    yield MigrationStep("a commit of a modern member", 9, commit(MODERN, 2, 3))
    protocols = [JoinGroupRequestProtocol(name=b"sticky", metadata=subscription(()))]
    yield MigrationStep("a join with another protocol", 3, join(b"", protocols=protocols))
    yield MigrationStep("a join with another type", 3, join(b"", protocol_type=b"connect"))
    yield MigrationStep("a join without a protocol", 3, join(b"", protocols=[]))
    yield MigrationStep("a join without an id", 5, join(b""))
    yield MigrationStep("a leave of an unknown member", 3, leave(b"nobody"))


def _third(classic: bytes, other: bytes, topic_id: bytes) -> Dialogue:
    yield MigrationStep("it gets no partition", 3, sync(other, 3))
    yield MigrationStep("the first has to rejoin", 3, beat(classic, 2))
    yield MigrationStep("the first keeps its partition", 3, join(classic, [0]))
    yield MigrationStep("the first is told so", 3, sync(classic, 3))
    yield MigrationStep("the modern one moves on", 1, modern(2, topic_id, [1]))
    yield MigrationStep("the second leaves", 3, leave(other))
    yield MigrationStep("the first has to rejoin for that", 3, beat(classic, 3))
    yield MigrationStep("the first rejoins", 3, join(classic, [0]))
    yield MigrationStep("the first syncs", 3, sync(classic, 4))
    yield MigrationStep("the modern one moves on again", 1, modern(3, topic_id, [1]))


def _downgrade(classic: bytes, topic_id: bytes) -> Dialogue:
    yield MigrationStep("a modern commit of a kept partition", 9, commit(MODERN, 2, 4, 1))
    yield MigrationStep("a modern commit of a former epoch for both", 9, commit(MODERN, 3, 4, 0, 1))
    yield MigrationStep("the modern member leaves", 1, modern(-1, topic_id, [1]))
    yield MigrationStep("the group is a classic group", 5, listed())
    yield MigrationStep("the modern member is unknown", 1, modern(4, topic_id, [1]))
    yield MigrationStep("the classic member has to rejoin at last", 3, beat(classic, 4))
    yield MigrationStep("its commit is still taken", 8, commit(classic, 4, 4))
    yield MigrationStep("it rejoins the classic group", 3, join(classic, [0]))
    both = [
        SyncGroupRequestAssignment(
            member_id=classic, assignment=assignment_of({TOPIC: [0, 1]}, version=1)
        )
    ]
    yield MigrationStep("it leads again", 3, sync(classic, 5, assignments=both))
    yield MigrationStep("it has all partitions", 3, beat(classic, 5))
    yield MigrationStep("the modern member comes again", 1, modern(0, topic_id, []))
    yield MigrationStep("a leave of the modern member", 3, leave(MODERN))
    yield MigrationStep("the classic member has to rejoin again", 3, beat(classic, 5))
    yield MigrationStep("it leaves", 3, leave(classic))


def shown(step: MigrationStep, answer: Struct, topic_id: bytes) -> str:
    """Return the facts of an answer on a line."""
    answer_facts = facts(answer, {topic_id: TOPIC.decode()})
    if "groups" in answer_facts:  # Others' groups may be there.
        answer_facts["groups"] = [
            group for group in answer_facts["groups"] if group["group_id"] == GROUP.decode()
        ]
    return json.dumps(answer_facts, sort_keys=True)


def talk(address: tuple[str, int], topic_id: bytes) -> Iterator[tuple[MigrationStep, str]]:
    """Hold the dialogue; yield each step with its answer."""
    with socket.create_connection(address, WAIT_S) as connection:
        steps = dialogue(topic_id)
        step = next(steps)
        while True:
            connection.sendall(frame_of(step.version, step.body))
            prefix = connection.recv(SIZE.size, socket.MSG_WAITALL)
            frame = connection.recv(*SIZE.unpack(prefix), socket.MSG_WAITALL)
            key = step.body.KEY
            answer = decoded(key, step.version, body_of(key, step.version, frame))
            yield step, shown(step, answer, topic_id)
            try:
                step = steps.send(answer)
            except StopIteration:
                return


def main() -> None:
    """Record the answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kafka", required=True, help="a fresh broker")
    parser.add_argument("--record", type=Path, required=True, help="the table to write")
    options = parser.parse_args()
    host, _, port = options.kafka.rpartition(":")
    address = host, int(port)
    ids, _ = prepared(address)
    lines = ["# case\tanswer"]
    lines += [f"{step.note}\t{answer}" for step, answer in talk(address, ids[TOPIC])]
    options.record.write_text("\n".join(lines) + "\n")
    print(f"{len(lines) - 1} answers of {options.kafka}")


if __name__ == "__main__":
    main()

"""OffsetCommit and OffsetFetch: a group's positions, in the store that all listeners share.

A Kafka group is the subscription of its name. Version 0 (ZooKeeper in 0.8.1 and 0.8.2) and version
1 (the offsets topic in 0.8.2) give different answers, but use the same store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import trio

from braidlog.broker.cluster.peers import Commit, Committed, Place
from braidlog.broker.errors import (
    BrokerError,
    NotOwner,
    PartitionNotFound,
    TopicNotFound,
)
from braidlog.broker.positions.commits import Commits
from braidlog.broker.positions.subscriptions import KafkaCommit
from braidlog.broker.runtime.steps import Steps
from braidlog.protocols.kafka.by_partition import by_partition
from braidlog.protocols.kafka.classic_groups import check_commit
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code, UnknownTopicId
from braidlog.protocols.kafka.group_places import group_places
from braidlog.protocols.kafka.topic_ids import NO_ID, id_of
from braidlog.protocols.kafka.wire.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from braidlog.protocols.kafka.wire.offset_fetch import OffsetFetchResponsePartition

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic

US_PER_MS = 1000
TIME_US_MAX = 2**63 - 1

# Commits written in a single turn, about two milliseconds. Then other connections get their turn.
PIECE_COMMITS = 256
MEMBERS_VERSION = 2  # from here on a member's generation is checked; 0.8 ignores it
TEXT_VERSION = 2  # From here on metadata is never null; 0.8 returns null as committed.
TOPIC_IDS_VERSION = 10  # From here on both requests name topics by their ids.
WHOLE_ERROR_VERSION = 2  # From here on an OffsetFetch can fail as a whole.

# How long an OffsetFetch waits for the owner of a topic that moves: a takeover takes a second or
# two, or a lease of 5 s. Heartbeats wait on the same connection; the shortest session is 6 s.
FIND_S = 5.0

NO_TIME = -1  # of a commit: the server's clock
NO_OFFSET = -1

# Topic name, partition number, commit.
Wanted = tuple[bytes | None, int, OffsetCommitRequestPartition]
# Topic name -> partition number -> position.
FetchedOffsets = dict[bytes | None, dict[int, OffsetFetchResponsePartition]]


@dataclass(slots=True, frozen=True)
class Elsewhere:
    """A commit to forward to the node that owns the topic."""

    node: int
    commit: Commit


def commit_offsets(context: KafkaContext, request: OffsetCommitRequest) -> Steps[KafkaAnswer]:
    """Store each position as given, even beyond the log end.

    Many are written at once; each partition gets its own code.
    """
    by_id = context.version >= TOPIC_IDS_VERSION
    topics = by_partition(
        (topic.topic_id if by_id else topic.name, partition.partition_index, partition)
        for topic in request.topics
        for partition in topic.partitions
    )
    wanted = (
        (name, index, target)
        for name, targets in topics.items()
        for index, target in targets.items()
    )
    answers: dict[bytes | None, list[OffsetCommitResponsePartition]] = {name: [] for name in topics}
    ticket = 0
    while piece := list(islice(wanted, PIECE_COMMITS)):
        codes, needed = _commit(context, request, piece)
        if any(isinstance(code, Elsewhere) for code in codes):
            yield _commit_elsewhere(context, request, codes)
        for (name, index, _), code in zip(piece, codes, strict=True):
            assert isinstance(code, int)
            result = OffsetCommitResponsePartition(partition_index=index, error_code=code)
            answers[name].append(result)
        ticket = max(ticket, needed)
        if len(piece) == PIECE_COMMITS:
            yield trio.lowlevel.checkpoint()
    done = [
        OffsetCommitResponseTopic(
            name=name, topic_id=name if by_id and name else NO_ID, partitions=results
        )
        for name, results in answers.items()
    ]
    return KafkaAnswer(OffsetCommitResponse(topics=done), ticket)


async def _commit_elsewhere(
    context: KafkaContext, request: OffsetCommitRequest, codes: list[int | Elsewhere]
) -> None:
    """Forward commits to the brokers that own the topics, and fill in the codes."""
    numbers = [number for number, code in enumerate(codes) if isinstance(code, Elsewhere)]
    theirs = [entry for entry in codes if isinstance(entry, Elsewhere)]
    wanted = [(other.node, other.commit) for other in theirs]
    errors = await context.broker.peers.commit(context.asker, request.group_id or b"", wanted)
    for number, error in zip(numbers, errors, strict=True):
        codes[number] = Code.NONE if error is None else _code(context, error)


def _commit(
    context: KafkaContext, request: OffsetCommitRequest, piece: list[Wanted]
) -> tuple[list[int | Elsewhere], int]:
    """Commit a piece. Return a code or the owning broker for each partition, and the ticket that
    the answer waits for.
    """
    if request.group_id is None:
        return [Code.UNKNOWN] * len(piece), 0
    if context.version >= MEMBERS_VERSION:
        generation = request.generation_id_or_member_epoch
        member = (request.member_id, request.group_instance_id)
        code = check_commit(
            context, request.group_id, generation, *member, _places(context, request)
        )
        if code != Code.NONE:
            return [code] * len(piece), 0
    commits = context.broker.subscriptions.commits(request.group_id)
    codes = [_add(context, commits, *commit) for commit in piece]
    try:
        ticket = commits.write()
    except BrokerError as error:
        return [context.refused(error) if code is None else code for code in codes], 0
    return [Code.NONE if code is None else code for code in codes], ticket


def _places(
    context: KafkaContext, request: OffsetCommitRequest
) -> Iterator[tuple[bytes | None, int]]:
    """Yield the partitions of a request: their topics by name, or by id where the request does."""
    by_id = context.version >= TOPIC_IDS_VERSION
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.name
        yield from ((key, partition.partition_index) for partition in topic.partitions)


def _add(
    context: KafkaContext,
    commits: Commits,
    name: bytes | None,
    index: int,
    target: OffsetCommitRequestPartition,
) -> Code | Elsewhere | None:
    """Add a commit to the others; return a code or another owner if the commit was not added."""
    if name is None:
        return Code.UNKNOWN
    length = _characters(target.committed_metadata)
    is_too_long = length > context.options.offset_metadata_chars_max
    if is_too_long and context.version < TEXT_VERSION:
        return Code.OFFSET_METADATA_TOO_LARGE  # 0.8 checks the text before the topic.
    try:
        topic = _topic(context, name)
        context.check_group(commits.name, topic.name)
        if is_too_long:
            return Code.OFFSET_METADATA_TOO_LARGE
        commit_given = _as_given(context, target)
        try:
            commits.add(topic, index, commit_given.offset, kafka=commit_given)
        except NotOwner as error:
            commit = (
                topic.name.full,
                index,
                commit_given.offset,
                commit_given.metadata,
                commit_given.time_us,
                commit_given.leader_epoch,
            )
            return Elsewhere(error.node_id, commit)
    except BrokerError as error:
        return _code(context, error)
    return None


def _code(context: KafkaContext, error: BrokerError) -> Code:
    """Return the code of a failed commit."""
    if isinstance(error, PartitionNotFound) and context.version < 2:
        return Code.NONE  # 0.8.2 accepts it unchecked, and version 1 never returns it.
    if isinstance(error, TopicNotFound) and context.version == 1:
        return Code.NONE
    return context.coordinator_refused(error)


def _as_given(context: KafkaContext, target: OffsetCommitRequestPartition) -> KafkaCommit:
    """Return the stored form of a commit. Any time is accepted; a time out of range is clamped."""
    if target.commit_timestamp == NO_TIME:
        time_us = context.broker.now_us()
    else:
        time_us = max(-TIME_US_MAX, min(target.commit_timestamp * US_PER_MS, TIME_US_MAX))
    return KafkaCommit(
        target.committed_offset, target.committed_metadata, time_us, target.committed_leader_epoch
    )


def _characters(text: bytes | None) -> int:
    """Return the length as Java counts, in UTF-16 units, after replacing invalid UTF-8."""
    if text is None or text.isascii():
        return len(text or b"")
    return len(text.decode("utf-8", "replace").encode("utf-16-le")) // 2


def group_positions(
    context: KafkaContext,
    group: bytes | None,
    partitions: Iterable[tuple[bytes | None, int]] | None,
) -> Steps[tuple[Code, FetchedOffsets]]:
    """Return a group's positions on partitions, or on all partitions that the client may see: each
    as committed until another protocol moves the cursor.

    A request for a topic without an owner waits for up to `FIND_S`. Then it fails as a whole from
    version 2 on: clients retry that, but take the error of a partition for final.
    """
    wanted: Mapping[bytes | None, Iterable[int]]
    if partitions is None:
        try:
            places = yield group_places(context, group or b"")
            wanted = {_key(context, topic): indexes for topic, indexes in places.items()}
        except NotOwner as error:
            return context.coordinator_refused(error), {}
    else:
        wanted = by_partition((name, index, None) for name, index in partitions)
    topics: FetchedOffsets = {name: {} for name in wanted}
    theirs: list[tuple[bytes | None, int]] = []
    for name, indexes in wanted.items():
        for number, index in enumerate(indexes, 1):
            try:
                topics[name][index] = _committed(context, group, name, index)
            except NotOwner:
                theirs.append((name, index))
            if number % PIECE_COMMITS == 0:
                yield trio.lowlevel.checkpoint()
    if theirs:
        failure = yield _fetch_elsewhere(context, group, theirs, topics)
        if failure is not None and context.version >= WHOLE_ERROR_VERSION:
            return context.coordinator_refused(failure), {}
    return Code.NONE, topics


def _topic(context: KafkaContext, name: bytes | None) -> Topic:
    """Return the topic that a request names by its name, or by its id. Raises BrokerError."""
    if context.version < TOPIC_IDS_VERSION:
        return context.topic(name)
    assert name is not None
    return context.topic_with_id(name)


async def _fetch_elsewhere(
    context: KafkaContext,
    group: bytes | None,
    theirs: list[tuple[bytes | None, int]],
    topics: FetchedOffsets,
) -> NotOwner | None:
    """Ask the topics' owners, and put their answers into `topics`. Return an error if no owner
    answered for a partition within `FIND_S`; the error then replaces the partition's position.
    """
    tries = context.broker.peers.tries(FIND_S)
    while True:
        theirs, error = await _ask_owners(context, group, theirs, topics, tries.deadline)
        if error is None or not await tries.again(error):
            break
    for name, index in theirs:
        assert error is not None
        topics[name][index] = _no_offset(index, context.coordinator_refused(error))
    return error


async def _ask_owners(
    context: KafkaContext,
    group: bytes | None,
    theirs: list[tuple[bytes | None, int]],
    topics: FetchedOffsets,
    deadline: float,
) -> tuple[list[tuple[bytes | None, int]], NotOwner | None]:
    """Ask once, until the deadline; return the partitions without an answer, and an error if any
    partition failed. A topic may have moved here meanwhile.
    """
    owners: list[tuple[int, Place]] = []
    names: dict[Place, bytes | None] = {}
    for name, index in theirs:
        try:
            topics[name][index] = _committed(context, group, name, index)
        except NotOwner as error:
            place = _topic(context, name).name.full, index
            owners.append((error.node_id, place))
            names[place] = name
    left: list[tuple[bytes | None, int]] = []
    failure: NotOwner | None = None
    ask = context.broker.peers.committed
    answers = await ask(context.asker, group or b"", owners, deadline)
    for place, name in names.items():
        answer, index = answers[place], place[1]
        if isinstance(answer, NotOwner):
            left.append((name, index))
            if failure is None or failure.is_unowned:  # Retry soon if any owner was asked.
                failure = answer
        elif isinstance(answer, BrokerError):
            topics[name][index] = _refused(context, index, answer)
        else:
            topics[name][index] = _answer_of(context, index, answer)
    return left, failure


def _key(context: KafkaContext, topic: Topic) -> bytes:
    return id_of(topic) if context.version >= TOPIC_IDS_VERSION else topic.name.topic.encode()


def _committed(
    context: KafkaContext, group: bytes | None, name: bytes | None, index: int
) -> OffsetFetchResponsePartition:
    if group is None:
        return _no_offset(index, Code.UNKNOWN)
    try:
        topic = _topic(context, name)
        context.check_group(group, topic.name)
        topic.partition(index)
        subscription = context.broker.subscriptions.find(topic, group)
        committed = None if subscription is None else subscription.committed(index)
    except NotOwner:
        raise  # The caller then asks the owner.
    except BrokerError as error:
        return _refused(context, index, error)
    if committed is None:
        return _answer_of(context, index, None)
    return _answer_of(
        context, index, (committed.offset, committed.metadata, committed.leader_epoch)
    )


def _refused(context: KafkaContext, index: int, error: BrokerError) -> OffsetFetchResponsePartition:
    is_unknown = isinstance(error, TopicNotFound | PartitionNotFound)
    is_unknown = is_unknown and not isinstance(error, UnknownTopicId)
    if is_unknown and context.version >= WHOLE_ERROR_VERSION:
        return _no_offset(index)
    return _no_offset(index, context.refused(error))


def _no_offset(index: int, code: Code = Code.NONE) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index, committed_offset=NO_OFFSET, error_code=code
    )


def _answer_of(
    context: KafkaContext, index: int, committed: Committed
) -> OffsetFetchResponsePartition:
    is_old = context.version == 0
    if committed is None:
        return _no_offset(index, Code.UNKNOWN_TOPIC_OR_PARTITION if is_old else Code.NONE)
    offset, metadata, leader_epoch = committed
    if is_old or (metadata is None and context.version >= TEXT_VERSION):
        metadata = b""  # ZooKeeper, of version 0, kept no metadata.
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=leader_epoch,
        metadata=metadata,
    )

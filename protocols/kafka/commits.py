"""OffsetCommit and OffsetFetch: a group's positions, in the one store that all listeners share.

A Kafka group is the subscription of its name. Version 0 (ZooKeeper in 0.8.1 and 0.8.2) and version
1 (the offsets topic in 0.8.2) differ in what they answer, not in where it is kept.
"""

from __future__ import annotations

from itertools import islice

import trio

from broker.errors import BrokerError, PartitionNotFound, TopicNotFound
from broker.steps import Steps
from broker.subscriptions.subscriptions import Commits, KafkaCommit
from protocols.kafka.context import Answer, Context
from protocols.kafka.errors import Code
from protocols.kafka.groups import check_commit
from protocols.kafka.messages import (
    CommitTarget,
    CommittedOffset,
    OffsetCommitReply,
    OffsetCommitRequest,
    OffsetFetchReply,
    OffsetFetchRequest,
)
from protocols.kafka.names import visible

US_PER_MS = 1000
TIME_US_MAX = 2**63 - 1

# Written at once: about two milliseconds. Then other connections have their turn.
PIECE_COMMITS = 256
MEMBERS_VERSION = 2  # from here on a generation is that of a member; 0.8 ignores it

Wanted = tuple[bytes | None, int, CommitTarget]  # topic name, partition number, what is committed


def commit_offsets(context: Context, request: OffsetCommitRequest) -> Steps[Answer]:
    """Keep each position as given, also beyond the log; the consumer's generation is ignored.

    Many are written at once, and each is answered for itself.
    """
    answers: dict[bytes | None, dict[int, int]] = {name: {} for name in request.topics}
    wanted = (
        (name, index, target)
        for name, targets in request.topics.items()
        for index, target in targets.items()
    )
    ticket = 0
    while piece := list(islice(wanted, PIECE_COMMITS)):
        codes, needed = _commit(context, request, piece)
        for (name, index, _), code in zip(piece, codes, strict=True):
            answers[name][index] = code
        ticket = max(ticket, needed)
        if len(piece) == PIECE_COMMITS:
            yield trio.lowlevel.checkpoint()
    return Answer(OffsetCommitReply(answers), ticket)


def _commit(
    context: Context, request: OffsetCommitRequest, piece: list[Wanted]
) -> tuple[list[int], int]:
    """The code for each partition, and the ticket that the answer waits for."""
    if request.group is None:
        return [Code.UNKNOWN] * len(piece), 0
    if context.version >= MEMBERS_VERSION:
        code = check_commit(context, request.group, request.generation, request.consumer_id)
        if code != Code.NONE:
            return [code] * len(piece), 0
    commits = context.broker.subscriptions.commits(request.group)
    codes = [_add(context, request.version, commits, *one) for one in piece]
    try:
        ticket = commits.write()
    except BrokerError as error:
        return [context.refused(error) if code is None else code for code in codes], 0
    return [Code.NONE if code is None else code for code in codes], ticket


def _add(
    context: Context,
    version: int,
    commits: Commits,
    name: bytes | None,
    index: int,
    target: CommitTarget,
) -> Code | None:
    """Have the commit made with the others; the code for one that is not made."""
    if name is None:
        return Code.UNKNOWN
    if _characters(target.metadata) > context.options.offset_metadata_chars_max:
        return Code.OFFSET_METADATA_TOO_LARGE
    try:
        topic = context.topic(name)
        context.check_group(commits.name, topic.name)
        commits.add(topic, index, target.offset, kafka=_as_given(context, target))
    except PartitionNotFound as error:
        # 0.8.2 takes it without a look, and version 1 never gives it back.
        return Code.NONE if version < 2 else context.refused(error)
    except TopicNotFound as error:
        return Code.NONE if version == 1 else context.refused(error)
    except BrokerError as error:
        return context.refused(error)
    return None


def _as_given(context: Context, target: CommitTarget) -> KafkaCommit:
    """What Kafka reads back. Times of any value are taken, those beyond our range as its end."""
    if target.time_ms is None:
        time_us = context.broker.now_us()
    else:
        time_us = max(-TIME_US_MAX, min(target.time_ms * US_PER_MS, TIME_US_MAX))
    return KafkaCommit(target.offset, target.metadata, time_us)


def _characters(text: bytes | None) -> int:
    """Length as Java counts it, in UTF-16 units; what is no UTF-8 counts as replaced."""
    if text is None or text.isascii():
        return len(text or b"")
    return len(text.decode("utf-8", "replace").encode("utf-16-le")) // 2


def fetch_offsets(context: Context, request: OffsetFetchRequest) -> Steps[Answer]:
    """Tell where the group stands: Kafka's own number until another protocol moved the cursor."""
    wanted = request.topics
    if wanted is None:
        wanted = yield _all_committed(context, request.group or b"")
    topics: dict[bytes | None, dict[int, CommittedOffset]] = {}
    for name, indexes in wanted.items():
        found = topics[name] = {}
        for number, index in enumerate(indexes, 1):
            found[index] = _committed(context, request, name, index)
            if number % PIECE_COMMITS == 0:
                yield trio.lowlevel.checkpoint()
    return Answer(OffsetFetchReply(topics))


async def _all_committed(context: Context, group: bytes) -> dict[bytes | None, list[int]]:
    """Every partition where the group has a position."""
    names, broker = context.names, context.broker
    found: dict[bytes | None, list[int]] = {}
    for number, topic in enumerate(broker.topics.list(names.tenant, names.namespace)):
        if number % PIECE_COMMITS == PIECE_COMMITS - 1:
            await trio.lowlevel.checkpoint()
        if not visible(topic.name) or not context.may_see(topic):
            continue
        subscription = broker.subscriptions.find(topic, group)
        if subscription is None:
            continue
        indexes = range(len(topic.partitions))
        if committed := [one for one in indexes if subscription.position(one) is not None]:
            found[topic.name.topic.encode()] = committed
    return found


def _committed(
    context: Context, request: OffsetFetchRequest, name: bytes | None, index: int
) -> CommittedOffset:
    if request.group is None:
        return CommittedOffset(-1, b"", Code.UNKNOWN)
    try:
        topic = context.topic(name)
        topic.partition(index)
        context.check_group(request.group, topic.name)
        subscription = context.broker.subscriptions.find(topic, request.group)
        given = None if subscription is None else subscription.committed(index)
    except (TopicNotFound, PartitionNotFound) as error:
        code = context.refused(error) if request.version < 2 else Code.NONE
        return CommittedOffset(-1, b"", code)
    except BrokerError as error:
        return CommittedOffset(-1, b"", context.refused(error))
    if given is None:
        never = Code.NONE if request.version else Code.UNKNOWN_TOPIC_OR_PARTITION
        return CommittedOffset(-1, b"", never)
    # ZooKeeper kept no metadata.
    return CommittedOffset(given.offset, given.metadata if request.version else b"", Code.NONE)

"""ShareFetch and ShareAcknowledge: a member of a share group takes records from the queue, and says
what happened to them (KIP-932).

A fetch first acknowledges the records that it names, then takes records of its session's
partitions. The fetch waits until a partition has records. Texts of refusals are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from braidlog.broker.commit.waiters import common_deadline
from braidlog.broker.errors import BrokerError
from braidlog.broker.runtime.output_budget import OutputReservation
from braidlog.broker.runtime.steps import run
from braidlog.protocols.kafka.classic_group import MemberRefused
from braidlog.protocols.kafka.classic_groups import checked_name
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.epochs import LED_ELSEWHERE, endpoints, leader_in
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_configs import settings_of
from braidlog.protocols.kafka.share_acks import AckBatch, InvalidAck, acknowledge_ranges, read_acks
from braidlog.protocols.kafka.share_reading import ShareRead, ShareRoom, attached, take_records
from braidlog.protocols.kafka.share_sessions import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    ShareConsumer,
    ShareRefused,
    ShareSession,
)
from braidlog.protocols.kafka.wire import share_acknowledge as acknowledge
from braidlog.protocols.kafka.wire.share_fetch import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)

if TYPE_CHECKING:
    from braidlog.protocols.kafka.assignors import Place
    from braidlog.protocols.kafka.messages import Leader

BYTES_MAX = 50 * 1024 * 1024  # Kafka's fetch.max.bytes
EXACT_MODE = 1  # `share_acquire_mode`: no more records than asked for
PARTITIONS_MAX = 10_000  # Of a session; a member of Kafka's reads some.


@dataclass(slots=True)
class AckResults:
    """Results of acknowledgements, by partition."""

    codes: dict[Place, tuple[Code, bytes | None]] = field(default_factory=dict)
    leaders: dict[Place, Leader] = field(default_factory=dict)  # named with errors
    ticket: int = 0


async def share_fetch(context: KafkaContext, request: ShareFetchRequest) -> KafkaAnswer:
    """Acknowledge records, then give the member others."""
    try:
        session = _session(context, request)
    except ShareRefused as error:
        context.count_error(error.code)
        reply = ShareFetchResponse(
            error_code=error.code,
            error_message=error.reason.encode() or None,
        )
        return KafkaAnswer(reply)
    ack_results = _acknowledge_all(context, session, request)
    reads: dict[Place, ShareRead] = {}
    if request.share_session_epoch == CLOSE_EPOCH:
        context.groups.share_sessions.end(session)
    elif not request.is_renew_ack:
        with OutputReservation(context.connection.outbox.budget, 0) as held:
            reads = await _take(context, session, request, held)
            return _fetched(context, request, ack_results, reads)
    return _fetched(context, request, ack_results, reads)


def _session(context: KafkaContext, request: ShareFetchRequest) -> ShareSession:
    """Return the session of a request, with its partitions changed. Raises ShareRefused."""
    key = _key(context, request.group_id, request.member_id)
    epoch, sessions = request.share_session_epoch, context.groups.share_sessions
    if request.is_renew_ack and any(
        (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    ):
        reason = "Renew acks must have max_bytes, min_bytes, max_records and max_wait_ms 0."
        raise ShareRefused(Code.INVALID_REQUEST, reason)
    if epoch == OPEN_EPOCH:
        if any(
            part.acknowledgement_batches for topic in request.topics for part in topic.partitions
        ):
            reason = "The initial share fetch request contains acknowledgement data."
            raise ShareRefused(Code.INVALID_REQUEST, reason)
        session = sessions.open(key, context, context.connection.peer)
    else:
        session = sessions.find(key, epoch)
    sessions.change(
        session,
        (
            (topic.topic_id, part.partition_index)
            for topic in request.topics
            for part in topic.partitions
        ),
        (
            (topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ),
    )
    if len(session.wanted) > PARTITIONS_MAX:
        sessions.end(session)
        raise ShareRefused(
            Code.INVALID_REQUEST, f"a session has more than {PARTITIONS_MAX} partitions"
        )
    return session


def _key(context: KafkaContext, group: bytes | None, member: bytes | None) -> tuple[bytes, bytes]:
    """Return the key of a session. Raises ShareRefused."""
    try:
        # The session is at the partitions' broker, whichever coordinates the group.
        name = checked_name(context, group, is_coordinator=False)
    except MemberRefused as error:
        raise ShareRefused(error.code) from None
    if not member:
        raise ShareRefused(Code.INVALID_REQUEST, "MemberId can't be empty.")
    return name, member


def _acknowledge_all(
    context: KafkaContext,
    session: ShareSession,
    request: ShareFetchRequest | acknowledge.ShareAcknowledgeRequest,
) -> AckResults:
    """Acknowledge the records that a request names."""
    ack_results = AckResults()
    is_renewing = request.is_renew_ack and settings_of(context, session.key[0]).renews
    for topic in request.topics:
        for part in topic.partitions:
            batches: Iterable[AckBatch] = part.acknowledgement_batches
            if not batches:
                continue
            place = topic.topic_id, part.partition_index
            try:
                acks = read_acks(part.acknowledgement_batches, is_renewing=is_renewing)
                ticket = acknowledge_ranges(context, session, place, acks)
                ack_results.ticket = max(ack_results.ticket, ticket)
                ack_results.codes[place] = Code.NONE, None
            except InvalidAck as error:
                ack_results.codes[place] = error.code, error.reason.encode() or None
            except BrokerError as error:
                ack_results.codes[place] = context.refused(error), None
                leader = _leader(context, error, place)
                if leader is not None:
                    ack_results.leaders[place] = leader
    return ack_results


def _leader(context: KafkaContext, error: BrokerError, place: Place) -> Leader | None:
    """Return the leader that a refusal names (KIP-951)."""
    if not isinstance(error, LED_ELSEWHERE):
        return None
    return leader_in(context, error, context.topic_with_id(place[0]).name)


def _refused(context: KafkaContext, error: BrokerError, place: Place) -> ShareRead:
    leader = _leader(context, error, place)
    code = context.refused(error)
    return ShareRead(code=code, message=str(error).encode(), leader=leader)


async def _take(
    context: KafkaContext,
    session: ShareSession,
    request: ShareFetchRequest,
    held: OutputReservation,
) -> dict[Place, ShareRead]:
    """Take records of the session's partitions; wait until there are any."""
    end_s = common_deadline(trio.current_time(), request.max_wait_ms / 1000)
    room = ShareRoom(
        records=max(request.max_records, 0),
        size=min(max(request.max_bytes, 0), BYTES_MAX, context.options.fetch_bytes_max),
        is_exact=request.share_acquire_mode == EXACT_MODE,
    )
    reads: dict[Place, ShareRead] = {}
    while True:
        consumers = await _attached(context, session, reads)
        try:
            for place in sorted(consumers, key=lambda place: not consumers[place].has_turn):
                if room.is_full or session.is_ended:
                    break
                await _take_of(context, session, place, consumers[place], room, held, reads)
        finally:
            for consumer in consumers.values():
                consumer.wait_no_more()
        left_s = end_s - trio.current_time()
        is_done = reads or left_s <= 0 or room.is_full
        if is_done or context.broker.stopping.is_set() or session.is_ended:
            return reads
        with context.connection.answer_half_closed():
            await session.wait(list(consumers.values()), left_s)


async def _attached(
    context: KafkaContext, session: ShareSession, reads: dict[Place, ShareRead]
) -> dict[Place, ShareConsumer]:
    """Attach the session to its partitions. A partition with an error is answered."""
    consumers: dict[Place, ShareConsumer] = {}
    for place in list(session.wanted):
        try:
            consumers[place] = await attached(context, session, place)
        except BrokerError as error:
            reads[place] = _refused(context, error, place)
    return consumers


async def _take_of(
    context: KafkaContext,
    session: ShareSession,
    place: Place,
    consumer: ShareConsumer,
    room: ShareRoom,
    held: OutputReservation,
    reads: dict[Place, ShareRead],
) -> None:
    """Take records of a partition."""
    try:
        read = await run(take_records(context, consumer, room, held))
    except BrokerError as error:
        reads[place] = _refused(context, error, place)
        return
    if read is not None:
        reads[place] = read
        session.had_records(place)


def _fetched(
    context: KafkaContext,
    request: ShareFetchRequest,
    ack_results: AckResults,
    reads: dict[Place, ShareRead],
) -> KafkaAnswer:
    """Return the answer: partitions with records, an error, or acknowledged records."""
    by_topic: dict[bytes, list[PartitionData]] = {}
    leaders: list[Leader] = []
    named = {
        (topic.topic_id, part.partition_index)
        for topic in request.topics
        for part in topic.partitions
        if request.share_session_epoch == OPEN_EPOCH
    }
    for place in sorted({*reads, *ack_results.codes, *named}):
        read = reads.get(place) or ShareRead()
        code, reason = ack_results.codes.get(place, (Code.NONE, None))
        leader = read.leader or ack_results.leaders.get(place)
        if leader is not None:
            leaders.append(leader)
        by_topic.setdefault(place[0], []).append(
            PartitionData(
                partition_index=place[1],
                error_code=read.code,
                error_message=read.message,
                acknowledge_error_code=code,
                acknowledge_error_message=reason,
                current_leader=LeaderIdAndEpoch()
                if leader is None
                else LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.epoch),
                records=read.parts,
                acquired_records=read.acquired,
            )
        )
    reply = ShareFetchResponse(
        acquisition_lock_timeout_ms=_lock_ms(context, request.group_id),
        responses=[
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic.items()
        ],
        node_endpoints=endpoints(leaders, NodeEndpoint),
    )
    return KafkaAnswer(reply, ack_results.ticket)


def _lock_ms(context: KafkaContext, group: bytes | None) -> int:
    return int(settings_of(context, group or b"").value("share.record.lock.duration.ms"))


def share_acknowledge(
    context: KafkaContext, request: acknowledge.ShareAcknowledgeRequest
) -> KafkaAnswer:
    """Acknowledge records of a member."""
    sessions = context.groups.share_sessions
    try:
        key = _key(context, request.group_id, request.member_id)
        if request.share_session_epoch == OPEN_EPOCH:
            raise ShareRefused(Code.INVALID_SHARE_SESSION_EPOCH)
        session = sessions.find(key, request.share_session_epoch)
    except ShareRefused as error:
        context.count_error(error.code)
        refusal = acknowledge.ShareAcknowledgeResponse(
            error_code=error.code, error_message=error.reason.encode() or None
        )
        return KafkaAnswer(refusal)
    ack_results = _acknowledge_all(context, session, request)
    if request.share_session_epoch == CLOSE_EPOCH:
        sessions.end(session)
    by_topic: dict[bytes, list[acknowledge.PartitionData]] = {}
    for (topic_id, index), (code, reason) in ack_results.codes.items():
        data = acknowledge.PartitionData(
            partition_index=index, error_code=code, error_message=reason
        )
        leader = ack_results.leaders.get((topic_id, index))
        if leader is not None:
            data.current_leader = acknowledge.LeaderIdAndEpoch(
                leader_id=leader.node_id, leader_epoch=leader.epoch
            )
        by_topic.setdefault(topic_id, []).append(data)
    reply = acknowledge.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=_lock_ms(context, request.group_id),
        responses=[
            acknowledge.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in by_topic.items()
        ],
        node_endpoints=endpoints(ack_results.leaders.values(), acknowledge.NodeEndpoint),
    )
    return KafkaAnswer(reply, ack_results.ticket)

"""Produce: appends message sets to the log. Knows no bytes (`storage/formats/kafka/prepare.py`)."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, cast

import trio

from braidlog.broker.commit.storage_errors import to_broker_error
from braidlog.broker.errors import BrokerError, RecordTooLarge
from braidlog.broker.reading.unpacking import run_unpacking
from braidlog.broker.runtime.endings import EndConnection
from braidlog.broker.runtime.steps import Steps
from braidlog.broker.topics.producer_memory import StoredBatch
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.epochs import endpoints, leader_in
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.keys import refuse_keyless
from braidlog.protocols.kafka.messages import (
    BY_ID_VERSION,
    Leader,
    ProduceRequest,
    StoredSet,
    StoredSets,
)
from braidlog.protocols.kafka.names import PROTOCOL
from braidlog.protocols.kafka.produced import Produced, Results, produced_of, reply_of, sets_of
from braidlog.protocols.kafka.record_times import US_PER_MS, refuse_times, time_of_batch
from braidlog.protocols.kafka.sequences import judge
from braidlog.protocols.kafka.wire.produce import LeaderIdAndEpoch, NodeEndpoint
from braidlog.storage.errors import BodyError, TimeOutOfRange
from braidlog.storage.formats.api import (
    NO_PRODUCER,
    BodyInfo,
    Prepared,
    ProducerNext,
)
from braidlog.storage.formats.kafka.prepare import (
    APPEND_BYTES_MAX,
    BYTES_PER_TURN,
    LargeSet,
    OpenedSet,
    PackedSet,
    SetLimits,
    cut,
    has_producer,
    magic_of,
    prepare,
    prepare_at_once,
    producer_of,
)
from braidlog.storage.formats.kafka.record_batches import NO_PRODUCER as NO_PRODUCER_ID
from braidlog.storage.formats.kafka.record_batches import PRODUCER_BIT, PRODUCER_POS
from braidlog.storage.formats.kafka.rewriting import keeps_batches, recompressed, stamp_times
from braidlog.storage.formats.quick import CRC32C_BYTES_MAX

if TYPE_CHECKING:
    from braidlog.broker.topics.partition import Partition
    from braidlog.broker.topics.producer_memory import SequenceTable
    from braidlog.broker.topics.topic import Topic

ACKS = (-1, 0, 1)  # What a client of today may ask for.
ACKS_VERSION = 3
LEADER_VERSION = 10  # From here on a refusal names the present leader.
SET_COST_BYTES = 2048  # The fixed cost of a set, as bytes that take the same time.
# A set is packed for the next offset, and again if another protocol's producer appended meanwhile.
# After this many tries it is stored unpacked.
PACK_TRIES_MAX = 4
RECORDS_VERSION = 3  # From here on a set has a record; in earlier versions it may be empty.
NO_RECORD = b"the set has no whole record batch, expected at least one record"


# A set that may have to wait: the place of its result, and the steps that produce the result; None
# if other tasks get a turn before the set.
Pending = tuple[Results, int, Steps[Produced] | None]


def produce(
    context: KafkaContext, request: ProduceRequest
) -> KafkaAnswer | Steps[KafkaAnswer | None] | None:  # hot: see make bench
    """Append every set. With acks 0 there is no answer. In requests of 0.8 acks above 1 count as 1,
    below -1 as -1.

    So no client waits for replicas, which do not exist. All acks but 0 wait for the topic's
    durability: "on disk", unless that is `written`.
    """
    code = Code.NONE
    if request.transactional_id is not None:
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif request.acks not in ACKS and context.version >= ACKS_VERSION:
        code = Code.INVALID_REQUIRED_ACKS
    if code:
        context.count_error(code)
        topics = {
            name: [Produced(index=index, error_code=code, base_offset=-1) for index in sets]
            for name, sets in request.topics.items()
        }
        return KafkaAnswer(reply_of(topics))
    producing = _Producing(context, request)
    pending = producing.append_sets()
    return producing.answer() if pending is None else producing.finish(pending)


class _Producing:
    """A request in progress."""

    __slots__ = (
        "_acks",
        "_context",
        "_done_bytes",
        "_is_ordinary",
        "_is_rated",
        "_is_resolved",
        "_leaders",
        "_name",
        "_now_us",
        "_once",
        "_set_limits",
        "_sets",
        "_target",
        "_ticket",
        "_topics",
    )

    def __init__(self, context: KafkaContext, request: ProduceRequest) -> None:
        self._context = context
        self._once = context.once
        self._acks = request.acks
        self._sets = sets_of(request)
        self._topics: dict[bytes | None, Results] = {}
        self._leaders: list[Leader] = []  # named by refusals
        self._is_ordinary = True  # all sets so far were stored at once
        self._ticket = 0  # the answer waits for this
        self._done_bytes = 0  # since the last turn of other tasks
        self._now_us = 0  # 0: to be read; until other tasks have a turn
        self._target: Topic | None = None  # the topic of the current set
        self._name: bytes | None = None  # of the target
        self._is_resolved = False  # the target was looked up since other tasks had a turn
        self._is_rated = False  # the target has a publish rate
        self._set_limits: SetLimits | None = None

    @property
    def _limits(self) -> SetLimits:
        """The limits of the request's sets."""
        if self._set_limits is None:
            self._set_limits = self._context.set_limits()
        return self._set_limits

    def append_sets(self) -> Pending | None:
        """Append the remaining sets, up to a set that may have to wait; return None when all are
        done.
        """
        topics = self._topics  # hot: see make bench
        for name, index, message_set in self._sets:
            results = topics.get(name)
            if results is None:
                results = topics[name] = []
            if self._done_bytes >= BYTES_PER_TURN:
                self._sets = chain([(name, index, message_set)], self._sets)
                return results, index, None
            self._done_bytes += len(message_set) + SET_COST_BYTES
            try:
                if not self._is_resolved or name != self._name:
                    self._resolve(name)
                topic = self._target
                assert topic is not None
                partition = topic.partition(index)
                if partition.checks_produced:
                    return results, index, self._append_checked(partition, message_set)
                base_offset = self._append_at_once(partition, message_set)
                if base_offset >= 0:
                    results.append((index, base_offset, partition.log_start_offset))
                    continue
                produced = self._append_prepared(partition, message_set)
            except (BodyError, BrokerError) as error:
                produced = self._refused(error)
            if not isinstance(produced, Produced):
                return results, index, produced
            self._add(results, index, produced)
        return None

    def _add(self, results: Results, index: int, produced: Produced) -> None:
        """Add the result of a set that was not stored at once."""
        produced.index = index
        results.append(produced)
        self._is_ordinary = False

    def finish(self, pending: Pending | None) -> Steps[KafkaAnswer | None]:
        """Append the rest of the request, and answer."""
        while pending is not None:
            results, index, steps = pending
            if steps is None:
                self._done_bytes = 0
                yield trio.lowlevel.checkpoint()
            else:
                try:
                    produced = yield from steps
                except (BodyError, BrokerError) as error:
                    produced = self._refused(error)
                self._add(results, index, produced)
            self._others_had_turns()
            pending = self.append_sets()
        return self.answer()

    def answer(self) -> KafkaAnswer | None:
        """Return the answer, once all sets are appended."""
        context = self._context
        if self._ticket > context.written_ticket:
            context.written_ticket = self._ticket
        if self._acks != 0:
            if self._is_ordinary and self._topics:
                topics = cast("dict[bytes | None, list[StoredSet]]", self._topics)
                return KafkaAnswer(StoredSets(topics), self._ticket)
            reply = reply_of(self._topics)
            if self._leaders:
                reply.node_endpoints = endpoints(self._leaders, NodeEndpoint)
            return KafkaAnswer(reply, self._ticket)
        every = [result for results in self._topics.values() for result in results]
        failed = sum(
            isinstance(result, Produced) and result.error_code != Code.NONE for result in every
        )
        if failed:
            # Such a client notices only the end of the connection, and then asks for metadata
            # again. The connection ends when the other sets can be read: an empty answer waits for
            # that.
            context.connection.outbox.answer((), self._ticket)
            raise EndConnection(f"produce with acks 0 failed for {failed} partitions")
        return None

    def _others_had_turns(self) -> None:
        """Forget all that holds only until other tasks have a turn: topic, right, time."""
        self._is_resolved, self._now_us = False, 0

    def _resolve(self, name: bytes | None) -> None:
        """Look up the topic of the next sets, and check the client's right to it."""
        context = self._context
        self._target, self._is_resolved = None, False
        if context.version < BY_ID_VERSION:
            topic = context.topic(name)
        else:
            assert name is not None
            topic = context.topic_with_id(name)
        context.connection.written_topics.note(topic.resource)
        self._target, self._name, self._is_resolved = topic, name, True
        self._is_rated = topic.client_limits.publish is not None

    def _refused(self, error: BodyError | BrokerError) -> Produced:
        if isinstance(error, TimeOutOfRange):
            self._context.count_error(Code.INVALID_TIMESTAMP)
            text = str(error).encode()
            return Produced(error_code=Code.INVALID_TIMESTAMP, base_offset=-1, error_message=text)
        if isinstance(error, BodyError):
            error = to_broker_error(error)
        context = self._context
        refused = Produced(error_code=context.refused(error), base_offset=-1)
        if self._target is not None and context.version >= LEADER_VERSION:
            leader = leader_in(context, error, self._target.name)
            if leader is not None:
                self._leaders.append(leader)
                refused.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.node_id, leader_epoch=leader.epoch
                )
        return refused

    def _append_checked(self, partition: Partition, message_set: memoryview) -> Steps[Produced]:
        """Store a set that the topic's settings allow."""
        limit, magic = partition.batch_bytes_max, magic_of(message_set)
        if limit is not None and len(message_set) > limit:
            text = f"a batch of {len(message_set)} bytes exceeds the topic's limit of {limit}"
            raise RecordTooLarge(text)
        refused: Produced | None = None
        if partition.wants_keys:
            place = f"{partition.topic.name.topic}-{partition.index}"
            version = self._context.version
            refused = yield from refuse_keyless(message_set, magic, version, place)
        limits_ms = partition.time_limits
        if refused is None and limits_ms != (None, None) and not partition.uses_append_time:
            now_us = self._context.broker.now_us()
            refused = yield from refuse_times(message_set, magic, limits_ms, now_us)
        if refused is not None:
            return refused
        if partition.rewrites_produced:
            return (yield from self._append_rewritten(partition, message_set))
        self._others_had_turns()
        produced = self._append_to(partition, message_set)
        return produced if isinstance(produced, Produced) else (yield from produced)

    def _append_rewritten(self, partition: Partition, message_set: memoryview) -> Steps[Produced]:
        """Store a set with the compression and the times that the topic's settings ask for."""
        uses_append_time = partition.uses_append_time
        compression, limits = partition.compression_type, self._limits
        rewrite = partial(
            recompressed, message_set, limits, compression, append_times=uses_append_time
        )
        batches: bytearray
        if keeps_batches(message_set, compression) and len(message_set) <= BYTES_PER_TURN:
            batches = rewrite()
        else:
            batches = yield run_unpacking(rewrite)
        self._others_had_turns()
        append_ms, following = -1, partition.next_offset
        if uses_append_time:
            append_ms = self._context.broker.now_us() // US_PER_MS
            stamp_times(batches, append_ms)
        produced = self._append_to(partition, memoryview(batches))
        if not isinstance(produced, Produced):
            produced = yield from produced
        if uses_append_time and produced.base_offset >= 0:
            is_repeated = produced.base_offset < following
            if is_repeated:
                append_ms = yield time_of_batch(partition, produced.base_offset)
            produced.log_append_time_ms = append_ms
        return produced

    def _append_to(
        self, partition: Partition, message_set: memoryview
    ) -> Produced | Steps[Produced]:
        base_offset = self._append_at_once(partition, message_set)
        if base_offset >= 0:
            return produced_of((0, base_offset, partition.log_start_offset))
        return self._append_prepared(partition, message_set)

    def _append_prepared(
        self, partition: Partition, message_set: memoryview
    ) -> Produced | Steps[Produced]:
        """Append a set that needs a closer look."""
        known: SequenceTable | None = None
        at_once = prepare_at_once(message_set, partition.next_offset, self._limits)
        if at_once is not None:
            if at_once.info.producer_id:
                known = partition.known_sequences
                if known is None:
                    return self._append_after_look(partition, message_set)
            return self._store(partition, at_once, known)
        if has_producer(message_set):
            known = partition.known_sequences
            if known is None:
                return self._append_after_look(partition, message_set)
        prepared = prepare(message_set, partition.next_offset, self._limits)
        if isinstance(prepared, Prepared):
            return self._store(partition, prepared, known)
        return self._append_slowly(partition, prepared)

    def _append_at_once(self, partition: Partition, message_set: memoryview) -> int:
        """Append an ordinary set, and return its base offset; -1 for a set that needs a closer
        look.  # hot: see make bench
        """
        once, size = self._once, len(message_set)
        if once is None or size > CRC32C_BYTES_MAX or message_set.readonly:
            return -1
        once.producer = NO_PRODUCER
        # The first byte of no producer, and of nothing else that a batch may have here, is 0xFF.
        if size > PRODUCER_POS and message_set[PRODUCER_POS] < 0x80:
            producer = self._next_of_producer(partition, message_set)
            if producer is None:
                return -1
            once.producer = producer
        if not self._now_us:
            self._now_us = self._context.broker.now_us()
        once.append_us = self._now_us
        appended = partition.append_at_once(message_set, once)
        if appended is None:
            return -1
        base_offset, count, ticket = appended
        if ticket > self._ticket:
            self._ticket = ticket
        self._count(partition, count, size)
        return base_offset

    def _count(self, partition: Partition, records: int, size: int) -> None:
        """Count a stored set, for metrics and for the publish rate of its topic."""
        context = self._context
        context.broker.metrics.records_in(
            PROTOCOL, partition.metrics_name, records, size, partition.traffic
        )
        if self._is_rated and self._target is not None:
            context.count_published(self._target, partition, records, size)

    def _next_of_producer(
        self, partition: Partition, message_set: memoryview
    ) -> ProducerNext | None:
        """Return the next batch that is expected of the set's producer; None if that is unknown."""
        producer_id = producer_of(message_set)
        if producer_id == NO_PRODUCER_ID:
            return NO_PRODUCER
        known = partition.known_sequences
        state = None if known is None else known.find(producer_id | PRODUCER_BIT)
        return None if state is None else (producer_id, state.epoch, state.next_sequence)

    def _append_after_look(self, partition: Partition, message_set: memoryview) -> Steps[Produced]:
        known: SequenceTable = yield partition.sequences()
        prepared = prepare(message_set, partition.next_offset, self._limits)
        assert isinstance(prepared, Prepared)  # A record batch, which is stored as it is.
        return self._store(partition, prepared, known)

    def _append_slowly(self, partition: Partition, work: LargeSet | PackedSet) -> Steps[Produced]:
        """Store a set that takes long to prepare. Other tasks get turns meanwhile."""
        prepared: Prepared | PackedSet
        if isinstance(work, LargeSet):
            for _ in work.check():
                yield trio.lowlevel.checkpoint()
            prepared = work.finish(partition.next_offset)
        else:
            prepared = work
        if isinstance(prepared, Prepared):
            return self._store(partition, prepared)
        if prepared.is_timed:
            opened: OpenedSet = yield run_unpacking(prepared.open)
            return self._store(partition, opened.at(partition.next_offset))
        produced: Produced = yield self._append_in_thread(partition, prepared)
        return produced

    async def _append_in_thread(self, partition: Partition, packed: PackedSet) -> Produced:
        async with partition.lane:  # Another producer's append would invalidate the packed set.
            opened = await run_unpacking(packed.open)
            for _ in range(PACK_TRIES_MAX):
                base_offset = partition.next_offset
                prepared = await run_unpacking(partial(opened.at, base_offset))
                if base_offset == partition.next_offset:
                    return self._store(partition, prepared)
            # Producers that need no packing keep appending first: without packing this is as quick.
            return self._store(partition, opened.unpacked_at(partition.next_offset))

    def _repeated(
        self, partition: Partition, known: SequenceTable, info: BodyInfo
    ) -> Produced | None:
        """Return the answer to a batch that is a repeat from its producer, or out of order."""
        state = known.find(info.producer_id)
        is_new_owner = state is None and partition.is_new_here
        verdict = judge(state, info, is_new_owner=is_new_owner)
        if verdict is Code.DUPLICATE_SEQUENCE or isinstance(verdict, StoredBatch):
            # A repeat counts as a success, too.
            self._ticket = max(self._ticket, partition.appended_ticket)
        if isinstance(verdict, Code):
            self._context.count_error(verdict)
            return Produced(error_code=verdict, base_offset=-1)
        if verdict is not None:
            start = partition.log_start_offset
            return Produced(base_offset=verdict.base_offset, log_start_offset=start)
        return None

    def _store(
        self, partition: Partition, prepared: Prepared, known: SequenceTable | None = None
    ) -> Produced:
        # Atomic: no await between reading the base offset and the append, which also notes the
        # batch in the producer's sequences.
        context, info, body = self._context, prepared.info, prepared.body
        if known is not None:
            repeated = self._repeated(partition, known, info)
            if repeated is not None:
                return repeated
        base_offset = partition.next_offset
        if not info.record_count:
            if context.version >= RECORDS_VERSION:
                context.count_error(Code.INVALID_RECORD)
                return Produced(
                    error_code=Code.INVALID_RECORD, base_offset=-1, error_message=NO_RECORD
                )
            return Produced(base_offset=base_offset if prepared.empty_compressed else -1)
        append_us, body_format = context.broker.now_us(), prepared.body_format
        parts = cut(prepared, base_offset) if len(body) > APPEND_BYTES_MAX else ()
        if len(parts) < 2:
            appended = partition.append([body], info, body_format=body_format, append_us=append_us)
        else:  # All or nothing: the whole set has a single answer.
            appended = partition.append_all(parts, body_format=body_format, append_us=append_us)
        if appended.ticket > self._ticket:
            self._ticket = appended.ticket
        self._count(partition, info.record_count, len(body))
        return Produced(base_offset=base_offset, log_start_offset=partition.log_start_offset)

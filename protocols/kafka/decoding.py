"""Decodes Produce and Fetch by hand, for speed, and Metadata of version 0. The generated structures
decode all other requests.

Layouts: Kafka 0.8.2 protocol guide, checked against a running 0.8.2.2 broker; later versions as in
`wire/`. Knows no connection and no broker. Everything that cannot be parsed raises ProtocolError,
which ends the connection as 0.8 does; bytes left over after a body are ignored (librdkafka 0.11
sends some).
"""

import struct
from collections.abc import Callable, Mapping

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.kafka.fields import INT32, FieldReader
from braidlog.protocols.kafka.messages import (
    BY_ID_VERSION,
    FetchRequest,
    FetchTarget,
    ProduceRequest,
    Request,
    RequestBody,
)
from braidlog.protocols.kafka.wire.metadata import MetadataRequest, MetadataRequestTopic
from braidlog.storage.formats.quick import SPEEDUPS

PRODUCE_KEY = 0
KEY_POS = 4  # of the api key in a frame
PRODUCE_KEY_BYTES = bytes(2)
PRODUCE_HEAD = struct.Struct(">hi")  # required acks, timeout in ms
FLEXIBLE_HEAD = struct.Struct(">hiB")  # The same head, number of topics plus 1.
FLEXIBLE_TARGET = struct.Struct(">Bi")  # Number of partitions plus 1, the first one.
ONE = 2  # The count of a list with one entry, in a flexible version.
TOPIC_ID_BYTES = 16
LONG_NAME_BYTES = 127  # The size of such a name takes two bytes.
SET_SIZE_BITS = 28  # A size of more bits than these is left to the careful reader.
NO_TAGS = bytes(3)  # Of a partition, a topic and the request.
PRODUCE_TARGET = struct.Struct(">ii")  # partition, bytes of the message set
ONE_TOPIC = struct.Struct(">hiih")  # The same head, number of topics, size of the first one's name.
ONE_SET = struct.Struct(">iii")  # Number of partitions, the first one, bytes of its message set.
# ZooKeeper's ConnectRequest: version, last transaction, timeout, session, size of the password.
ZOOKEEPER_SESSION = struct.Struct(">iqiqi")
ZOOKEEPER_PASSWORD_BYTES = 16
SIZE_BYTES = 4
NULL_SIZE = -1
REPLICA_STATE_VERSION = 15  # From this version of Fetch on
ZOOKEEPER_SIZES = (
    SIZE_BYTES + ZOOKEEPER_SESSION.size + ZOOKEEPER_PASSWORD_BYTES,
    SIZE_BYTES + ZOOKEEPER_SESSION.size + ZOOKEEPER_PASSWORD_BYTES + 1,
)
ZOOKEEPER_HINT = (
    "the client speaks ZooKeeper (zookeeper.connect): connect to the listener zookeeper"
)


class RequestReader(FieldReader):
    """The reader of all requests, with the quick ways of Produce."""

    __slots__ = ()

    def is_zookeeper_session(self) -> bool:
        """Return True if the frame asks ZooKeeper for a new session: protocol version, last
        transaction and session are 0, the password has 16 bytes. A flag may follow.
        """
        if len(self._view) not in ZOOKEEPER_SIZES:
            return False
        *zeros, _, session, password_size = ZOOKEEPER_SESSION.unpack_from(self._view, SIZE_BYTES)
        return not any(zeros) and session == 0 and password_size == ZOOKEEPER_PASSWORD_BYTES

    def one_set(self) -> tuple[int, int, bytes, int, memoryview] | None:  # hot: see make bench
        """Read a Produce with one set from `PRODUCE_HEAD` on: required acks, timeout, topic,
        partition, the set. Reads nothing and returns None for any other, and for a truncated one.
        """
        view, pos, end = self._view, self._pos, self._end
        if end - pos < ONE_TOPIC.size + ONE_SET.size:
            return None
        acks, timeout_ms, topics, name_size = ONE_TOPIC.unpack_from(view, pos)
        name_pos = pos + ONE_TOPIC.size
        target_pos = name_pos + name_size
        set_pos = target_pos + ONE_SET.size
        if topics != 1 or name_size < 0 or set_pos > end:
            return None
        partitions, partition, set_size = ONE_SET.unpack_from(view, target_pos)
        set_end = set_pos + set_size
        if partitions != 1 or set_size < 0 or set_end > end:
            return None
        self.add_entries(2)
        self._pos = set_end
        name = bytes(view[name_pos:target_pos])
        return acks, timeout_ms, name, partition, view[set_pos:set_end]

    def sets_into(
        self, sets: dict[int, memoryview], count: int, *, is_null_taken: bool
    ) -> None:  # hot: see make bench
        """Read the sets of a topic into `sets`, by their partitions. Raises ProtocolError."""
        view, pos, end, unpack = self._view, self._pos, self._end, PRODUCE_TARGET.unpack_from
        for _ in range(count):
            start = pos + PRODUCE_TARGET.size
            if start > end:
                break
            partition, size = unpack(view, pos)
            if size < 0:
                if size != NULL_SIZE or not is_null_taken:
                    break
                size = 0
            if start + size > end:
                break
            pos = start + size
            sets[partition] = view[start:pos]
        else:
            self._pos = pos
            return
        self._pos = pos  # Of what cannot be read: these raise.
        self.take(self.unpack(PRODUCE_TARGET)[1])

    def one_compact_set(
        self, *, by_id: bool
    ) -> tuple[int, int, bytes, int, memoryview] | None:  # hot: see make bench
        """As `one_set`, in a flexible version without tagged fields."""
        view, pos, end = self._view, self._pos, self._end
        name_pos = pos + FLEXIBLE_HEAD.size
        if end - pos < FLEXIBLE_HEAD.size + TOPIC_ID_BYTES:
            return None
        acks, timeout_ms, topics = FLEXIBLE_HEAD.unpack_from(view, pos)
        if by_id:
            name_end = name_pos + TOPIC_ID_BYTES
        else:
            name_end = name_pos + view[name_pos]
            name_pos += 1
            if name_end - name_pos >= LONG_NAME_BYTES:
                return None
        set_pos = name_end + FLEXIBLE_TARGET.size
        if topics != ONE or name_end < name_pos or set_pos >= end:
            return None
        partitions, partition = FLEXIBLE_TARGET.unpack_from(view, name_end)
        size = shift = 0
        while True:
            byte = view[set_pos]
            set_pos += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if set_pos == end or shift > SET_SIZE_BITS:
                return None
        set_end = set_pos + size - 1
        if partitions != ONE or size <= 0 or view[set_end : set_end + 3] != NO_TAGS:
            return None
        self.add_entries(2)
        self._pos = set_end + len(NO_TAGS)
        name = bytes(view[name_pos:name_end])
        return acks, timeout_ms, name, partition, view[set_pos:set_end]


def produce_at_once(frame: memoryview, entries_max: int) -> tuple[Request, int] | None:
    """Read an ordinary Produce from the start of its frame, in the extension; return the request
    and the number of topics and partitions. None for all other requests.
    """
    if SPEEDUPS is None or frame[KEY_POS : KEY_POS + 2] != PRODUCE_KEY_BYTES:
        return None
    fields = SPEEDUPS.kafka_produce(frame, entries_max)
    if fields is None:
        return None
    version, correlation_id, client_id, acks, timeout_ms, topics, entries = fields
    body = ProduceRequest(acks, timeout_ms, topics, None)
    return Request(correlation_id, client_id, body, version), entries


def decode_produce(reader: RequestReader) -> ProduceRequest:
    """Produce v0. Raises ProtocolError for a ZooKeeper client's first frame, which reads so."""
    request = _produce(reader, None, is_null_taken=False)
    if not request.topics and reader.is_zookeeper_session():
        raise ProtocolError("a ZooKeeper session", hint=ZOOKEEPER_HINT)
    return request


def decode_produce_v1(reader: RequestReader) -> ProduceRequest:
    """Produce v1 and v2: a message set may be null."""
    return _produce(reader, None, is_null_taken=True)


def decode_produce_v3(reader: RequestReader) -> ProduceRequest:
    return _produce(reader, reader.string(), is_null_taken=True)


def flexible_produce_decoder(version: int) -> Callable[[RequestReader], ProduceRequest]:
    by_id = version >= BY_ID_VERSION

    def decode(reader: RequestReader) -> ProduceRequest:  # hot: see make bench
        transactional_id = reader.compact_string()
        result = reader.one_compact_set(by_id=by_id)
        if result is not None:
            acks, timeout_ms, name, partition, message_set = result
            sets: dict[bytes | None, dict[int, memoryview]] = {name: {partition: message_set}}
            return ProduceRequest(acks, timeout_ms, sets, transactional_id)
        acks, timeout_ms = reader.unpack(PRODUCE_HEAD)
        topics: dict[bytes | None, dict[int, memoryview]] = {}
        for _ in range(_listed(reader)):
            topic = _topic_key(reader, by_id=by_id)
            for _ in range(_listed(reader)):
                index = reader.i32()
                data = reader.take(max(reader.uvarint() - 1, 0))
                topics.setdefault(topic, {})[index] = data
                reader.skip_tags()
            reader.skip_tags()
        reader.skip_tags()
        return ProduceRequest(acks, timeout_ms, topics, transactional_id)

    return decode


def flexible_fetch_decoder(version: int) -> Callable[[RequestReader], FetchRequest]:
    """Return the decoder of a flexible version of Fetch. The replica's own state, a tagged field
    from version 15 on, is skipped: there are no followers.
    """
    has_replica = version < REPLICA_STATE_VERSION
    # As in `fetch_decoder`; a target has the epoch of the record before its offset, too.
    head = struct.Struct(">" + "i" * has_replica + "iiibii")
    target = struct.Struct(">iiqiqi")
    by_id = version >= BY_ID_VERSION

    def decode(reader: RequestReader) -> FetchRequest:  # hot: see make bench
        *replica, wait_ms_max, bytes_min, bytes_max, _, _, _ = reader.unpack(head)
        topics: dict[bytes | None, dict[int, FetchTarget]] = {}
        for _ in range(_listed(reader)):
            name = _topic_key(reader, by_id=by_id)
            for _ in range(_listed(reader)):
                index, epoch, offset, _, _, limit = reader.unpack(target)
                topics.setdefault(name, {})[index] = FetchTarget(offset, limit, epoch)
                reader.skip_tags()
            reader.skip_tags()
        for _ in range(_listed(reader)):  # Partitions that the session forgets.
            _topic_key(reader, by_id=by_id)
            reader.take(_listed(reader) * INT32.size)
            reader.skip_tags()
        if reader.compact_string() is None:
            raise ProtocolError("the client's rack is null")
        reader.skip_tags()
        replica_id = replica[0] if replica else -1
        return FetchRequest(replica_id, wait_ms_max, bytes_min, topics, bytes_max)

    return decode


def _listed(reader: RequestReader) -> int:
    """Return the count of a list that cannot be null. Raises ProtocolError, ManyEntries."""
    count = reader.compact_count()
    if count < 0:
        raise ProtocolError("null in a field that cannot be null")
    return count


def _topic_key(reader: RequestReader, *, by_id: bool) -> bytes:
    """Return the name or the id of a topic. Raises ProtocolError."""
    if by_id:
        return bytes(reader.take(TOPIC_ID_BYTES))
    name = reader.compact_string()
    if name is None:
        raise ProtocolError("null in a field that cannot be null")
    return name


def fetch_decoder(version: int) -> Callable[[RequestReader], FetchRequest]:
    """Return the decoder of a version of Fetch, up to the last that is not flexible."""
    # Replica id, longest wait in ms, bytes wanted at least; then bytes at most, isolation level,
    # session and its epoch: there are no transactions, and sessions are declined.
    head = struct.Struct(
        ">iii" + "i" * (version >= 3) + "b" * (version >= 4) + "ii" * (version >= 7)
    )
    # Partition, epoch, offset, log start of a follower, bytes at most.
    target = struct.Struct(">i" + "i" * (version >= 9) + "q" + "q" * (version >= 5) + "i")
    has_epoch = version >= 9
    offset_at = 2 if has_epoch else 1

    def decode(reader: RequestReader) -> FetchRequest:  # hot: see make bench
        fields = reader.unpack(head)
        topics: dict[bytes | None, dict[int, FetchTarget]] = {}
        for _ in reader.entries():
            name = reader.string()
            for _ in reader.entries():
                target_fields = reader.unpack(target)
                topics.setdefault(name, {})[target_fields[0]] = FetchTarget(
                    target_fields[offset_at],
                    target_fields[-1],
                    target_fields[1] if has_epoch else -1,
                )
        if version >= 7:
            for _ in reader.entries():  # Partitions that the session forgets.
                reader.string()
                reader.take(max(reader.count(), 0) * INT32.size)
        if version >= 11:
            reader.string()  # The client's rack.
        request = FetchRequest(fields[0], fields[1], fields[2], topics)
        if version >= 3:
            request.bytes_max = fields[3]
        return request

    return decode


def decode_metadata(reader: RequestReader) -> MetadataRequest:
    """Metadata v0. Only here must an array's count not be negative."""
    count = reader.i32()
    if count < 0:
        raise ProtocolError(f"metadata of {count} topics")
    reader.add_entries(count)
    topics = [MetadataRequestTopic(name=reader.string()) for _ in range(count)]
    return MetadataRequest(topics=topics)


# By api key and version.
DECODERS: Mapping[tuple[int, int], Callable[[RequestReader], RequestBody]] = {
    (0, 0): decode_produce,
    **{(0, version): decode_produce_v1 for version in (1, 2)},
    **{(0, version): decode_produce_v3 for version in range(3, 9)},
    **{(0, version): flexible_produce_decoder(version) for version in range(9, 14)},
    **{(1, version): fetch_decoder(version) for version in range(12)},
    **{(1, version): flexible_fetch_decoder(version) for version in range(12, 19)},
    (3, 0): decode_metadata,
}


def _produce(
    reader: RequestReader, transactional_id: bytes | None, *, is_null_taken: bool
) -> ProduceRequest:  # hot: see make bench
    result = reader.one_set()
    if result is not None:
        acks, timeout_ms, name, partition, message_set = result
        return ProduceRequest(acks, timeout_ms, {name: {partition: message_set}}, transactional_id)
    acks, timeout_ms = reader.unpack(PRODUCE_HEAD)
    topics: dict[bytes | None, dict[int, memoryview]] = {}
    for _ in range(reader.count()):
        topic = reader.string()
        count = reader.count()
        if count > 0:
            reader.sets_into(topics.setdefault(topic, {}), count, is_null_taken=is_null_taken)
    return ProduceRequest(acks, timeout_ms, topics, transactional_id)

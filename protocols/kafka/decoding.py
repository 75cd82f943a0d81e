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
    FetchRequest,
    FetchTarget,
    ProduceRequest,
    RequestBody,
)
from braidlog.protocols.kafka.wire.metadata import MetadataRequest, MetadataRequestTopic

PRODUCE_HEAD = struct.Struct(">hi")  # required acks, timeout in ms
PRODUCE_TARGET = struct.Struct(">ii")  # partition, bytes of the message set
ONE_TOPIC = struct.Struct(">hiih")  # The same head, number of topics, size of the first one's name.
ONE_SET = struct.Struct(">iii")  # Number of partitions, the first one, bytes of its message set.
# ZooKeeper's ConnectRequest: version, last transaction, timeout, session, size of the password.
ZOOKEEPER_SESSION = struct.Struct(">iqiqi")
ZOOKEEPER_PASSWORD_BYTES = 16
SIZE_BYTES = 4
ZOOKEEPER_SIZES = (
    SIZE_BYTES + ZOOKEEPER_SESSION.size + ZOOKEEPER_PASSWORD_BYTES,
    SIZE_BYTES + ZOOKEEPER_SESSION.size + ZOOKEEPER_PASSWORD_BYTES + 1,
)
ZOOKEEPER_HINT = "the client speaks ZooKeeper (zookeeper.connect): Braidlog does not serve that"


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
    """Produce v3 to v8."""
    return _produce(reader, reader.string(), is_null_taken=True)


def fetch_decoder(version: int) -> Callable[[RequestReader], FetchRequest]:
    """Return the decoder of a version of Fetch, up to the last that is not flexible."""
    # Replica id, longest wait in ms, bytes wanted at least; then bytes at most, isolation level,
    # session and its epoch: there are no transactions, and sessions are declined.
    head = struct.Struct(
        ">iii" + "i" * (version >= 3) + "b" * (version >= 4) + "ii" * (version >= 7)
    )
    # Partition, epoch, offset, log start of a follower, bytes at most.
    target = struct.Struct(">i" + "i" * (version >= 9) + "q" + "q" * (version >= 5) + "i")
    offset_at = 2 if version >= 9 else 1

    def decode(reader: RequestReader) -> FetchRequest:  # hot: see make bench
        fields = reader.unpack(head)
        topics: dict[bytes | None, dict[int, FetchTarget]] = {}
        for _ in reader.entries():
            name = reader.string()
            for _ in reader.entries():
                target_fields = reader.unpack(target)
                topics.setdefault(name, {})[target_fields[0]] = FetchTarget(
                    target_fields[offset_at], target_fields[-1]
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
    **{(1, version): fetch_decoder(version) for version in range(12)},
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
        for _ in range(reader.count()):
            partition, size = reader.unpack(PRODUCE_TARGET)
            if size == -1 and is_null_taken:
                size = 0
            topics.setdefault(topic, {})[partition] = reader.take(size)
    return ProduceRequest(acks, timeout_ms, topics, transactional_id)

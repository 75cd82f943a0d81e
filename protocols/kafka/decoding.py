"""Decodes Produce into a form that is quick to handle, and refuses what only old versions refuse.
The generated structures decode all other requests.

Layouts: Kafka 0.8.2 protocol guide, checked against a running 0.8.2.2 broker; later versions as in
`wire/`. Knows no connection and no broker. Everything that cannot be parsed raises ProtocolError,
which ends the connection as 0.8 does; bytes left over after a body are ignored (librdkafka 0.11
sends some).
"""

import struct
from collections.abc import Callable, Mapping

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.kafka.codec import read
from braidlog.protocols.kafka.fields import FieldReader
from braidlog.protocols.kafka.messages import (
    BY_ID_VERSION,
    ProduceRequest,
    Request,
    RequestBody,
)
from braidlog.protocols.kafka.wire import metadata, produce
from braidlog.storage.formats.quick import SPEEDUPS

PRODUCE_KEY, METADATA_KEY = 0, 3
KEY_POS = 4  # of the api key in a frame
PRODUCE_KEY_BYTES = bytes(2)
# ZooKeeper's ConnectRequest: version, last transaction, timeout, session, size of the password.
ZOOKEEPER_SESSION = struct.Struct(">iqiqi")
ZOOKEEPER_PASSWORD_BYTES = 16
SIZE_BYTES = 4
ZOOKEEPER_SIZES = (
    SIZE_BYTES + ZOOKEEPER_SESSION.size + ZOOKEEPER_PASSWORD_BYTES,
    SIZE_BYTES + ZOOKEEPER_SESSION.size + ZOOKEEPER_PASSWORD_BYTES + 1,
)
ZOOKEEPER_HINT = (
    "the client speaks ZooKeeper (zookeeper.connect): connect to the listener zookeeper"
)


class RequestReader(FieldReader):
    """The reader of all requests."""

    __slots__ = ()

    def next_i32(self) -> int:
        """Return the integer at the reader's position, and stay there. Raises ProtocolError."""
        pos = self._pos
        number = self.i32()
        self._pos = pos
        return number

    def is_zookeeper_session(self) -> bool:
        """Return True if the frame asks ZooKeeper for a new session: protocol version, last
        transaction and session are 0, the password has 16 bytes. A flag may follow.
        """
        if len(self._view) not in ZOOKEEPER_SIZES:
            return False
        *zeros, _, session, password_size = ZOOKEEPER_SESSION.unpack_from(self._view, SIZE_BYTES)
        return not any(zeros) and session == 0 and password_size == ZOOKEEPER_PASSWORD_BYTES


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


def decode_produce(reader: RequestReader, version: int) -> ProduceRequest:
    """Read a Produce request. Raises ProtocolError, also for a ZooKeeper client's first frame,
    which reads as version 0.
    """
    request = read(produce.ProduceRequest, reader, version)
    topics: dict[bytes | None, dict[int, memoryview]] = {}
    for topic in request.topic_data:
        key = topic.topic_id if version >= BY_ID_VERSION else topic.name
        for partition in topic.partition_data:
            message_set = partition.records
            if message_set is None:
                if version == 0:
                    raise ProtocolError("null in place of a message set")
                message_set = memoryview(b"")
            assert isinstance(message_set, memoryview)
            topics.setdefault(key, {})[partition.index] = message_set
    if version == 0 and not topics and reader.is_zookeeper_session():
        raise ProtocolError("a ZooKeeper session", hint=ZOOKEEPER_HINT)
    return ProduceRequest(request.acks, request.timeout_ms, topics, request.transactional_id)


def decode_metadata(reader: RequestReader, version: int) -> metadata.MetadataRequest:
    """Read a Metadata request. Only in version 0 must the count of topics not be negative."""
    if version == 0 and (count := reader.next_i32()) < 0:
        raise ProtocolError(f"metadata of {count} topics")
    return read(metadata.MetadataRequest, reader, version)


# By api key.
DECODERS: Mapping[int, Callable[[RequestReader, int], RequestBody]] = {
    PRODUCE_KEY: decode_produce,
    METADATA_KEY: decode_metadata,
}

"""Kafka 0.8 wire rules: bytes to requests, replies to bytes. No I/O, no clock, no broker.

Every api key and version that `decoding.DECODERS` lacks is refused from its first eight bytes,
before the rest of its frame is waited for: version probes of newer clients depend on "an unknown
key closes the connection, quickly".
"""

import struct

from broker.server.endings import ProtocolError
from protocols.framing import LengthPrefix
from protocols.kafka.decoding import DECODERS, ENTRIES_MAX, RequestReader
from protocols.kafka.encoding import encode
from protocols.kafka.messages import Reply, Request
from storage.codecs.api import Buffer

SIZE = struct.Struct(">i")  # bytes that follow
KIND = struct.Struct(">hh")  # api key, api version: the first fields behind the size
HEADER = struct.Struct(">hhi")  # api key, api version, correlation id; then the client id, a string
REQUEST_BYTES_MIN = HEADER.size + 2  # With the shortest client id; less cannot be parsed.
LAST_SERVED_KEY = max(key for key, _ in DECODERS)
NEWER_CLIENT_HINT = (
    "a client of a later Kafka, which asks for more than 0.8: set it to 0.8 (librdkafka:"
    " api.version.request=false and broker.version.fallback=0.8.2.1; kafka-python:"
    " api_version=(0, 8, 2))"
)


class KafkaMachine:
    """Bytes of one connection; holds nothing between two frames."""

    def __init__(self, frame_bytes_max: int) -> None:
        """`frame_bytes_max`: what may follow the size (Kafka's socket.request.max.bytes)."""
        self._prefix = LengthPrefix(SIZE, REQUEST_BYTES_MIN, frame_bytes_max)

    def frame_size(self, view: memoryview) -> int | None:
        """Whole size of the next request, None until it is known. Raises ProtocolError."""
        size = self._prefix.frame_size(view)
        if size is not None and len(view) >= SIZE.size + KIND.size:
            _check_kind(KIND.unpack_from(view, SIZE.size))
        return size

    def decode(self, frame: memoryview, *, inline_max: int = ENTRIES_MAX) -> Request:
        """A whole request; its message sets are views of the frame.

        Raises ProtocolError, and ManyEntries where it names more than `inline_max` topics and
        partitions.
        """
        reader = RequestReader(frame, SIZE.size, inline_max=inline_max)
        api_key, version, correlation_id = reader.unpack(HEADER)
        _check_kind((api_key, version))
        client_id = reader.string()
        return Request(correlation_id, client_id, DECODERS[api_key, version](reader))

    def encode(self, correlation_id: int, reply: Reply) -> list[Buffer]:
        """The answer to a request, as parts of one frame; message sets are not copied."""
        return encode(correlation_id, reply)


def _check_kind(kind: tuple[int, ...]) -> None:
    if kind not in DECODERS:
        api_key, version = kind
        hint = NEWER_CLIENT_HINT if api_key > LAST_SERVED_KEY or version > 1 else ""
        raise ProtocolError(f"api key {api_key} version {version} is not served", hint=hint)

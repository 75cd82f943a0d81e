"""Kafka's wire rules: bytes to requests, replies to bytes. No I/O, no clock, no broker.

Every api key and version that `tables.APIS` lacks is refused from its first eight bytes, before the
rest of its frame is waited for: version probes depend on "an unknown key closes the connection,
quickly". ApiVersions alone is answered in any version, as its clients begin with their newest.
"""

import struct

from broker.server.endings import ProtocolError
from protocols.framing import LengthPrefix
from protocols.kafka.decoding import DECODERS, RequestReader
from protocols.kafka.encoding import encode, encode_with
from protocols.kafka.fields import ENTRIES_MAX
from protocols.kafka.messages import ApiVersionsRequest, Reply, Request, RequestBody
from protocols.kafka.tables import API_VERSIONS_KEY, APIS, is_served
from storage.codecs.api import Buffer

SIZE = struct.Struct(">i")  # bytes that follow
KIND = struct.Struct(">hh")  # api key, api version: the first fields behind the size
HEADER = struct.Struct(">hhi")  # api key, api version, correlation id; then the client id, a string
REQUEST_BYTES_MIN = HEADER.size + 2  # With the shortest client id; less cannot be parsed.


class KafkaMachine:
    """Bytes of one connection. Requests are answered one after another."""

    def __init__(self, frame_bytes_max: int) -> None:
        """`frame_bytes_max`: what may follow the size (Kafka's socket.request.max.bytes)."""
        self._prefix = LengthPrefix(SIZE, REQUEST_BYTES_MIN, frame_bytes_max)
        self._kind = (0, 0)  # of the request that is being served

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
        self._kind = (api_key, version)
        return Request(correlation_id, client_id, _body(reader, api_key, version), version)

    def encode(self, correlation_id: int, reply: Reply) -> list[Buffer]:
        """The answer to the last request, as parts of one frame; message sets are not copied."""
        if self._kind in DECODERS:
            return encode(correlation_id, reply)
        api_key, version = self._kind
        version = version if is_served(api_key, version) else 0
        return encode_with(APIS[api_key].reply, correlation_id, reply, version)


def _body(reader: RequestReader, api_key: int, version: int) -> RequestBody:
    by_hand = DECODERS.get((api_key, version))
    if by_hand is not None:
        return by_hand(reader)
    if api_key == API_VERSIONS_KEY:  # What is in it depends on its version, and is not needed.
        return ApiVersionsRequest(version)
    body: RequestBody = APIS[api_key].request.read(reader, version)
    return body


def _check_kind(kind: tuple[int, ...]) -> None:
    api_key, version = kind
    if not is_served(api_key, version) and api_key != API_VERSIONS_KEY:
        raise ProtocolError(f"api key {api_key} version {version} is not served")

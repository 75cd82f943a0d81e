"""Kafka's wire rules: bytes to requests, replies to bytes. No I/O, no clock, no broker.

An api key or version that `tables.APIS` lacks is refused after its first eight bytes, without
waiting for the rest of its frame: version probes depend on "an unknown key closes the connection,
quickly". Only ApiVersions is answered in any version, as its clients begin with their newest.
"""

import struct

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.framing import LengthPrefix
from braidlog.protocols.kafka.codec import read
from braidlog.protocols.kafka.decoding import DECODERS, PRODUCE_KEY, RequestReader, produce_at_once
from braidlog.protocols.kafka.encoding import encode
from braidlog.protocols.kafka.fields import ENTRIES_MAX
from braidlog.protocols.kafka.messages import Reply, Request, RequestBody
from braidlog.protocols.kafka.tables import APIS, FLEXIBLE, SERVED
from braidlog.protocols.kafka.wire.api_versions import ApiVersionsRequest
from braidlog.protocols.kafka.wire.sasl_authenticate import SaslAuthenticateRequest
from braidlog.protocols.kafka.wire.sasl_handshake import SaslHandshakeRequest
from braidlog.storage.formats.api import Buffer, Part

SIZE = struct.Struct(">i")  # bytes that follow
KIND = struct.Struct(">hh")  # api key, api version: the first fields behind the size
HEADER = struct.Struct(">hhi")  # api key, api version, correlation id; then the client id, a string
REQUEST_BYTES_MIN = HEADER.size + 2  # With the shortest client id; less cannot be parsed.
# Limit before the login: a client sends a name, a password, or a signed token of 8 KiB.
LOGIN_FRAME_BYTES_MAX = 64 * 1024
API_VERSIONS_KEY = ApiVersionsRequest.KEY
LOGIN_KEYS = frozenset((API_VERSIONS_KEY, SaslHandshakeRequest.KEY, SaslAuthenticateRequest.KEY))
LOGIN_HINT = "clients log in by SASL (security.protocol SASL_SSL or SASL_PLAINTEXT)"
LOGIN = LengthPrefix(SIZE, REQUEST_BYTES_MIN, LOGIN_FRAME_BYTES_MAX)
RAW = LengthPrefix(SIZE, 0, LOGIN_FRAME_BYTES_MAX)


class KafkaMachine:
    """Bytes of a connection. Requests are answered one after another."""

    def __init__(self, frame_bytes_max: int, *, needs_login: bool = False) -> None:
        """`frame_bytes_max`: what may follow the size (Kafka's socket.request.max.bytes)."""
        self.needs_login = needs_login  # Only a login is accepted.
        self.is_raw = False  # Frames hold messages of a SASL mechanism, and no request.
        self._prefix = LengthPrefix(SIZE, REQUEST_BYTES_MIN, frame_bytes_max)
        self.entries = 0  # that the last request names
        self._kind = (0, 0)  # of the request that is being served

    def expect_login(self, *, needed: bool, raw: bool) -> None:
        """Accept only a login while `needed`, and bare messages of a SASL mechanism while `raw`."""
        self.needs_login, self.is_raw = needed, raw

    def frame_size(self, view: memoryview) -> int | None:
        """Whole size of the next request, None until it is known. Raises ProtocolError."""
        if self.is_raw:
            return RAW.frame_size(view)
        prefix = LOGIN if self.needs_login else self._prefix
        size = prefix.frame_size(view)
        if size is not None and len(view) >= SIZE.size + KIND.size:
            kind = KIND.unpack_from(view, SIZE.size)
            if kind not in SERVED:
                _check_kind(kind)
            if self.needs_login and kind[0] not in LOGIN_KEYS:
                raise ProtocolError(f"api key {kind[0]} before the login", hint=LOGIN_HINT)
        return size

    def encode_raw(self, data: bytes) -> list[Buffer]:
        """Frame an answer of a SASL mechanism (see `is_raw`)."""
        return [SIZE.pack(len(data)) + data]

    def decode(self, frame: memoryview, *, inline_max: int = ENTRIES_MAX) -> Request:
        """A whole request; its message sets are views of the frame.

        Raises ProtocolError, and ManyEntries where it names more than `inline_max` topics and
        partitions.
        """
        at_once = produce_at_once(frame, inline_max)
        if at_once is not None:
            request, self.entries = at_once
            self._kind = (PRODUCE_KEY, request.version)
            return request
        reader = RequestReader(frame, SIZE.size, inline_max=inline_max)
        api_key, version, correlation_id = reader.unpack(HEADER)
        kind = (api_key, version)
        _check_kind(kind)
        client_id = reader.string()
        if kind in FLEXIBLE:
            reader.skip_tags()
        self._kind = kind
        decoder = DECODERS.get(api_key)
        body = decoder(reader, version) if decoder else _by_table(reader, api_key, version)
        self.entries = reader.named
        return Request(correlation_id, client_id, body, version)

    def encode(self, correlation_id: int, reply: Reply) -> list[Part]:
        """The answer to the last request, as parts of a frame; message sets are not copied."""
        return encode(correlation_id, reply, self._kind[1] if self._kind in SERVED else 0)


def _by_table(reader: RequestReader, api_key: int, version: int) -> RequestBody:
    if (api_key, version) not in SERVED:  # ApiVersions, in a layout of later releases.
        return ApiVersionsRequest()
    body: RequestBody = read(APIS[api_key].request, reader, version)
    return body


def _check_kind(kind: tuple[int, ...]) -> None:
    """Raises ProtocolError if the kind is not served; ApiVersions is served in any version."""
    if kind not in SERVED and kind[0] != API_VERSIONS_KEY:
        api_key, version = kind
        raise ProtocolError(f"api key {api_key} version {version} is not served")

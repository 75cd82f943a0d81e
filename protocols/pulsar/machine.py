"""Pulsar's wire rules for a connection: bytes to commands, and the order of commands.

No I/O, no clock, no broker. Commands are the generated message classes, which hold copies; only a
SEND's payload is a view of the frame.
"""

import enum
import struct
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError

from braidlog.broker.runtime.endings import ProtocolError
from braidlog.protocols.framing import LengthPrefix
from braidlog.protocols.pulsar.text import TextField, not_text, text_fields
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import BaseCommand, CommandSend

MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024  # max_message_size, Apache's default.
# Apache's decoder allows 10 KiB more for command and metadata, its size field included.
FRAME_BYTES_MAX: Final = MESSAGE_BYTES_MAX + 10 * 1024
# The first frame holds no more than a CONNECT: 128 KiB have room for the largest token or ticket.
FIRST_FRAME_BYTES_MAX: Final = 128 * 1024

_SIZE: Final = struct.Struct(">I")
_SIZES: Final = struct.Struct(">II")
_COMMAND_BYTES_MIN: Final = 2  # A type is required.
_TYPE_TAG: Final = 0x08  # Every command begins with its type: field 1, a varint.
_SMALLEST: Final = _SIZE.size + _COMMAND_BYTES_MIN
# How a SEND begins if its fields come in the usual order and its command holds nothing else: sizes
# of frame and command, the type, then tag and size (below 128) of the type's own message.
_SEND_HEAD: Final = struct.Struct(">II3sB")
_SEND_TAGS_BYTES: Final = 4
_TOTAL_MAX: Final = FRAME_BYTES_MAX - _SIZE.size
SEND_TAGS: Final = b"\x08\x06\x32"

Type = BaseCommand.Type
# Reading a protobuf enum costs as much as a whole SEND: the hot ones are read once.
_SEND: Final = Type.SEND
_CONNECT: Final = Type.CONNECT


class ConnectionState(enum.Enum):
    """The state of a connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    CLOSED = "closed"


# The field of BaseCommand for each type that clients send and that is served, or answered with an
# error.
FIELDS: Final[dict[int, str]] = {
    Type.CONNECT: "connect",
    Type.SUBSCRIBE: "subscribe",
    Type.PRODUCER: "producer",
    Type.SEND: "send",
    Type.ACK: "ack",
    Type.FLOW: "flow",
    Type.UNSUBSCRIBE: "unsubscribe",
    Type.CLOSE_PRODUCER: "close_producer",
    Type.CLOSE_CONSUMER: "close_consumer",
    Type.PING: "ping",
    Type.PONG: "pong",
    Type.REDELIVER_UNACKNOWLEDGED_MESSAGES: "redeliverUnacknowledgedMessages",
    Type.PARTITIONED_METADATA: "partitionMetadata",
    Type.LOOKUP: "lookupTopic",
    Type.CONSUMER_STATS: "consumerStats",
    Type.SEEK: "seek",
    Type.GET_LAST_MESSAGE_ID: "getLastMessageId",
    Type.GET_TOPICS_OF_NAMESPACE: "getTopicsOfNamespace",
    Type.GET_SCHEMA: "getSchema",
    Type.AUTH_RESPONSE: "authResponse",
    Type.GET_OR_CREATE_SCHEMA: "getOrCreateSchema",
    Type.NEW_TXN: "newTxn",
    Type.ADD_PARTITION_TO_TXN: "addPartitionToTxn",
    Type.ADD_SUBSCRIPTION_TO_TXN: "addSubscriptionToTxn",
    Type.END_TXN: "endTxn",
    Type.END_TXN_ON_PARTITION: "endTxnOnPartition",
    Type.END_TXN_ON_SUBSCRIPTION: "endTxnOnSubscription",
    Type.TC_CLIENT_CONNECT_REQUEST: "tcClientConnectRequest",
    Type.WATCH_TOPIC_LIST: "watchTopicList",
    Type.WATCH_TOPIC_LIST_CLOSE: "watchTopicListClose",
}

# As in Apache: PING is answered at any time, a second CONNECT closes the connection.
ALLOWED: Final[dict[ConnectionState, frozenset[int]]] = {
    ConnectionState.CONNECTING: frozenset({Type.CONNECT, Type.PING}),
    ConnectionState.CONNECTED: frozenset(FIELDS) - {Type.CONNECT},
    ConnectionState.CLOSED: frozenset(),
}
_CONNECTED: Final = ALLOWED[ConnectionState.CONNECTED]


# Types with text that is never read; they come by the thousand.
_UNREAD: Final = frozenset({Type.SEND, Type.ACK, Type.FLOW, Type.PING, Type.PONG})
_TEXT: Final[dict[int, tuple[TextField, ...]]] = {
    kind: text_fields(BaseCommand.DESCRIPTOR.fields_by_name[field].message_type)
    for kind, field in FIELDS.items()
    if kind not in _UNREAD
}


@dataclass(slots=True)
class CommandFrame:
    """A frame taken apart."""

    type: int
    fields: Any  # The message of that type, such as CommandSend.
    payload: memoryview | None  # The bytes after the command; only a SEND has a payload.
    not_text: str = ""  # Name of a field that is not UTF-8: the command is refused.


class PulsarMachine:
    """Turns the bytes of a connection into commands."""

    def __init__(self) -> None:
        self.state = ConnectionState.CONNECTING
        self._first = LengthPrefix(_SIZE, _SMALLEST, FIRST_FRAME_BYTES_MAX - _SIZE.size)
        self._prefix = LengthPrefix(_SIZE, _SMALLEST, _TOTAL_MAX)

    def frame_size(self, view: memoryview) -> int | None:
        """Whole size of the next frame, its size field included; None while that is missing.

        Raises ProtocolError as soon as the bytes cannot begin a frame.
        """
        prefix = self._first if self.state is ConnectionState.CONNECTING else self._prefix
        size = prefix.frame_size(view)
        if size is not None and len(view) > _SIZES.size:
            total, command_bytes = _SIZES.unpack_from(view)
            if not _COMMAND_BYTES_MIN <= command_bytes <= total - _SIZE.size:
                raise self._broken(f"command of {command_bytes} bytes in a frame of {total}")
            if view[_SIZES.size] != _TYPE_TAG:
                raise self._broken("a command does not begin with its type")
        return size

    def decode(self, frame: memoryview) -> CommandFrame:  # hot: see make bench
        """Take a whole frame apart. Raises ProtocolError for anything that may not come now."""
        total, command_bytes = _SIZES.unpack_from(frame)
        end = _SIZES.size + command_bytes
        if end > len(frame) or total + _SIZE.size != len(frame):
            raise self._broken("sizes of command and frame do not fit")
        try:
            # Any buffer works, whatever the library's types say.
            command = BaseCommand.FromString(frame[_SIZES.size : end])  # type: ignore[arg-type]
        except DecodeError as error:
            raise self._broken(f"a command cannot be parsed: {error}") from None
        kind = command.type
        if kind == _CONNECT and not command.HasField("type"):  # An unknown type reads as CONNECT.
            raise self._broken("a command without a known type")
        allowed = _CONNECTED if self.state is ConnectionState.CONNECTED else ALLOWED[self.state]
        if kind not in allowed:
            raise self._broken(f"{Type.Name(kind)} may not come while {self.state.value}")
        field = FIELDS[kind]
        if not command.HasField(field):
            raise self._broken(f"{Type.Name(kind)} without its fields")
        payload = None
        if kind == _SEND:
            payload = frame[end:]
            if not payload:
                raise self._broken("SEND without payload")
        fields = getattr(command, field)
        text = _TEXT.get(kind)
        return CommandFrame(kind, fields, payload, not_text(fields, text) if text else "")

    def next_send(
        self, view: memoryview, pos: int
    ) -> tuple[CommandSend, int, int] | None:  # hot: see make bench
        """The SEND that begins at `pos`: its fields, where its payload begins, where it ends.

        None for anything else and for a faulty frame: `frame_size` and `decode` find the error.
        """
        if len(view) - pos < _SEND_HEAD.size or self.state is not ConnectionState.CONNECTED:
            return None
        total, command_bytes, tags, send_bytes = _SEND_HEAD.unpack_from(view, pos)
        if tags != SEND_TAGS or not command_bytes - _SEND_TAGS_BYTES == send_bytes < 0x80:
            return None
        start = pos + _SEND_HEAD.size
        payload_pos = start + send_bytes
        end = pos + _SIZE.size + total
        if not payload_pos < end <= len(view) or total > _TOTAL_MAX:
            return None
        try:
            # As in `decode`: any buffer works.
            command = CommandSend.FromString(view[start:payload_pos])  # type: ignore[arg-type]
        except DecodeError:
            return None
        return command, payload_pos, end

    @property
    def is_connected(self) -> bool:
        """True if the handshake is done, and nothing has ended the connection."""
        return self.state is ConnectionState.CONNECTED

    def connected(self) -> None:
        """Note that the handshake is done."""
        assert self.state is ConnectionState.CONNECTING
        self.state = ConnectionState.CONNECTED

    def close(self) -> None:
        """Accept no more commands."""
        self.state = ConnectionState.CLOSED

    def _broken(self, reason: str) -> ProtocolError:
        self.state = ConnectionState.CLOSED
        return ProtocolError(reason)

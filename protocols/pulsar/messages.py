"""Pulsar's frames from the broker's side: a function for each answer. No I/O, no broker.

Frames of clients are read as the generated message classes themselves (`machine.py`). Frames are
bytes, whole and final. Section numbers are those of the binary protocol document.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from braidlog.storage.formats.api import Buffer
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    BaseCommand,
    BrokerEntryMetadata,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    MessageIdData,
    Schema,
    ServerError,
)
from braidlog.storage.formats.pulsar.varints import LOW_BITS, LOW_MASK, around, highs, lows

SIZES: Final = struct.Struct(">II")  # Bytes after the first field; bytes of the command.
SIZE: Final = struct.Struct(">I")
NO_REQUEST: Final = 2**64 - 1  # request_id of a command that answers no request.
NO_SEQUENCE: Final = 2**64 - 1  # highest_sequence_id of a receipt for a SEND without this field.
CLOSING_VERSION: Final = 5  # Clients below this version know no CLOSE_* commands from the broker.
NO_ENTRY: Final = -1
_MASK: Final = 2**64 - 1
_SIGN: Final = 2**63

ENTRY_METADATA_MAGIC: Final = b"\x0e\x02"
CHECKSUM_BYTES: Final = 6  # Magic 0x0e01 and a CRC-32C before the metadata.
# The type of a command by its field in BaseCommand: both have the same number.
TYPES: Final = {field.name: field.number for field in BaseCommand.DESCRIPTOR.fields}


def signed(number: int) -> int:
    """Return a uint64 field as the signed number that clients mean."""
    return number - 2**64 if number & _SIGN else number


def unsigned(number: int) -> int:
    """Return a signed number as the value of a uint64 field."""
    return number & _MASK


def frame(command: BaseCommand) -> bytes:
    """Return a frame without payload."""
    body = command.SerializeToString()
    return SIZES.pack(len(body) + SIZE.size, len(body)) + body


def command(field: str, **values: object) -> bytes:
    """Return the frame of a command, by the name of its field in BaseCommand, with the values of
    the field's message.
    """
    # The keyword is a field's name: the library's types need the name in the source.
    return frame(BaseCommand(type=TYPES[field], **{field: values}))  # type: ignore[arg-type]


PING: Final = command("ping")
PONG: Final = command("pong")


# Connecting.


def connected(
    server_version: str, protocol_version: int, max_message_size: int, **flags: bool
) -> bytes:
    """Return CONNECTED, which ends the handshake; `flags` are the feature flags to set."""
    return command(
        "connected",
        server_version=server_version,
        protocol_version=protocol_version,
        max_message_size=max_message_size,
        feature_flags=flags,
    )


def auth_challenge(server_version: str, protocol_version: int, data: bytes) -> bytes:
    """Return a request for fresh credentials; `data` gives the reason."""
    return command(
        "authChallenge",
        server_version=server_version,
        protocol_version=protocol_version,
        challenge={"auth_method_name": "token", "auth_data": data},
    )


def success(request_id: int) -> bytes:
    """Return SUCCESS: the request is done."""
    return command("success", request_id=request_id)


def error(request_id: int, code: ServerError, text: str) -> bytes:
    """Return ERROR: the request is refused."""
    return command("error", request_id=request_id, error=code, message=text)


# Discovery.


def partitions(request_id: int, count: int) -> bytes:
    """Return the topic's number of partitions; 0 for an unpartitioned or missing topic."""
    success = CommandPartitionedTopicMetadataResponse.Success
    return command(
        "partitionMetadataResponse", request_id=request_id, response=success, partitions=count
    )


def partitions_failed(request_id: int, code: ServerError, text: str) -> bytes:
    """Refuse a request for the number of partitions."""
    return command(
        "partitionMetadataResponse",
        request_id=request_id,
        response=CommandPartitionedTopicMetadataResponse.Failed,
        error=code,
        message=text,
    )


def lookup(request_id: int, url: str, url_tls: str = "") -> bytes:
    """Return the topic's addresses, for clients without TLS and with TLS; empty if there is no such
    listener.
    """
    return command(
        "lookupTopicResponse",
        response=CommandLookupTopicResponse.Connect,
        request_id=request_id,
        authoritative=True,
        proxy_through_service_url=False,
        brokerServiceUrl=url or None,
        brokerServiceUrlTls=url_tls or None,
    )


def lookup_failed(request_id: int, code: ServerError, text: str) -> bytes:
    """Refuse a lookup."""
    failed = CommandLookupTopicResponse.Failed
    return command(
        "lookupTopicResponse", request_id=request_id, response=failed, error=code, message=text
    )


def topics_of_namespace(
    request_id: int, topics: Iterable[str], topics_hash: str, *, filtered: bool, changed: bool
) -> bytes:
    """Return the namespace's topics; each partition is listed by name."""
    return command(
        "getTopicsOfNamespaceResponse",
        request_id=request_id,
        topics=list(topics),
        filtered=filtered,
        topics_hash=topics_hash,
        changed=changed,
    )


def watch_topic_list_success(
    request_id: int, watcher_id: int, topics: Iterable[str], topics_hash: str
) -> bytes:
    """Return the matching names; none if the client's hash shows that the client knows them."""
    return command(
        "watchTopicListSuccess",
        request_id=request_id,
        watcher_id=watcher_id,
        topic=list(topics),
        topics_hash=topics_hash,
    )


def watch_topic_update(
    watcher_id: int, come: Iterable[str], gone: Iterable[str], topics_hash: str
) -> bytes:
    """Return the matching names that appeared or disappeared; the hash covers all current
    matches.
    """
    return command(
        "watchTopicUpdate",
        watcher_id=watcher_id,
        new_topics=list(come),
        deleted_topics=list(gone),
        topics_hash=topics_hash,
    )


# Producers.


def producer_success(
    request_id: int,
    name: str,
    *,
    schema_version: bytes = b"",
    last_sequence_id: int = NO_ENTRY,
    topic_epoch: int | None = None,
    ready: bool = True,
) -> bytes:
    """Return PRODUCER_SUCCESS: open under that name, or queued for exclusive access if not `ready`.

    `last_sequence_id` is the last stored sequence id, -1 if unknown.
    """
    return command(
        "producer_success",
        request_id=request_id,
        producer_name=name,
        last_sequence_id=last_sequence_id,
        schema_version=schema_version,
        producer_ready=ready,
        topic_epoch=topic_epoch,
    )


def close_producer(producer_id: int) -> bytes:
    """Close a producer from the broker's side: the client looks up the topic and reopens the
    producer.
    """
    return command("close_producer", producer_id=producer_id, request_id=NO_REQUEST)


def send_error(producer_id: int, sequence_id: int, code: ServerError, text: str) -> bytes:
    """Return SEND_ERROR: the message was not stored."""
    return command(
        "send_error", producer_id=producer_id, sequence_id=sequence_id, error=code, message=text
    )


def repeat_receipt(producer_id: int, sequence_id: int, highest_sequence_id: int) -> bytes:
    """Return SEND_RECEIPT of a message stored earlier: Apache names no entry."""
    receipt = BaseCommand(type=BaseCommand.SEND_RECEIPT)
    fields = receipt.send_receipt
    fields.producer_id, fields.sequence_id = producer_id, sequence_id
    fields.highest_sequence_id = highest_sequence_id
    fields.message_id.ledgerId = fields.message_id.entryId = unsigned(NO_ENTRY)
    return frame(receipt)


class ReceiptWriter:
    """Writes a connection's SEND_RECEIPT frames; consecutive numbers take a fast path."""

    def __init__(self) -> None:
        self._command = BaseCommand(type=BaseCommand.SEND_RECEIPT)
        self._receipt = self._command.send_receipt
        self._id = self._receipt.message_id
        self._highest = -1  # Current value in the command object.
        self._blocks = (-1, -1)  # Upper bits of the last receipt's sequence id and entry.
        self._entry = -1  # Entry of the last receipt, if protobuf serialized that receipt.
        self._pieces: tuple[bytes, ...] | None = None  # Bytes around both numbers, if known.
        self._sequence_lows: Sequence[bytes] = ()
        self._entry_lows: Sequence[bytes] = ()

    def begin(self, producer_id: int, ledger: int) -> None:
        """Begin receipts of this producer and partition."""
        self._receipt.producer_id = producer_id
        self._id.ledgerId = ledger & _MASK
        self._blocks = (-1, -1)

    def write(
        self, sequence_id: int, entry: int, highest_sequence_id: int
    ) -> bytes:  # hot: see make bench
        """Return the receipt of a message stored as entry `entry`, a signed id."""
        blocks = (sequence_id >> LOW_BITS, entry >> LOW_BITS)
        if blocks != self._blocks or highest_sequence_id != self._highest:
            self._blocks, self._pieces, self._entry = blocks, None, entry
            if highest_sequence_id != self._highest:
                self._highest = self._receipt.highest_sequence_id = highest_sequence_id
            return self._serialize(sequence_id, entry)
        if self._pieces is None:
            if entry != self._entry + 1:  # With batches, few receipts share their upper bits.
                self._entry = entry
                return self._serialize(sequence_id, entry)
            self._pieces = self._split(sequence_id, entry)
        before, between, after = self._pieces
        sequence_low = self._sequence_lows[sequence_id & LOW_MASK]
        return before + sequence_low + between + self._entry_lows[entry & LOW_MASK] + after

    def _serialize(self, sequence_id: int, entry: int) -> bytes:
        self._receipt.sequence_id = sequence_id
        self._id.entryId = entry & _MASK
        body = self._command.SerializeToString()
        size = len(body)
        return SIZES.pack(size + 4, size) + body

    def _split(self, sequence_id: int, entry: int) -> tuple[bytes, bytes, bytes]:
        """Return the bytes before, between and after the first bytes of the two numbers."""
        self._sequence_lows, self._entry_lows = lows(sequence_id), lows(entry & _MASK)
        before, rest = around(lambda number: self._serialize(number, entry), sequence_id)
        _, after = around(lambda number: self._serialize(sequence_id, number), entry)
        return before, rest[: -len(after) - 1], after


# Consumers.


def close_consumer(consumer_id: int) -> bytes:
    """Close a consumer from the broker's side: the client looks up the topic and subscribes
    again.
    """
    return command("close_consumer", consumer_id=consumer_id, request_id=NO_REQUEST)


def reached_end(consumer_id: int) -> bytes:
    """Return REACHED_END_OF_TOPIC: all messages of a terminated topic are acknowledged."""
    return command("reachedEndOfTopic", consumer_id=consumer_id)


def active_consumer_change(consumer_id: int, *, is_active: bool) -> bytes:
    """Return the change of a Failover consumer to active or standby."""
    return command("active_consumer_change", consumer_id=consumer_id, is_active=is_active)


def ack_response(
    consumer_id: int, request_id: int, refused: tuple[ServerError, str] | None = None
) -> bytes:
    """Return ACK_RESPONSE: the acknowledgements are stored, or refused."""
    code, text = refused or (None, None)
    return command(
        "ackResponse", consumer_id=consumer_id, request_id=request_id, error=code, message=text
    )


def message_id(
    ledger: int, entry: int, partition: int | None = None, batch_index: int | None = None
) -> MessageIdData:
    """Return an id from signed numbers; None values are omitted."""
    data = MessageIdData(ledgerId=unsigned(ledger), entryId=unsigned(entry))
    if partition is not None:
        data.partition = partition
    if batch_index is not None:
        data.batch_index = batch_index
    return data


def last_message_id(
    request_id: int, last: MessageIdData, mark_delete: MessageIdData | None
) -> bytes:
    """Return the partition's last message and the subscription's mark-delete position."""
    return command(
        "getLastMessageIdResponse",
        last_message_id=last,
        request_id=request_id,
        consumer_mark_delete_position=mark_delete,
    )


def consumer_stats(request_id: int, stats: dict[str, float | int | str | bool]) -> bytes:
    """Return a consumer's counters, by the names of CommandConsumerStatsResponse."""
    return command("consumerStatsResponse", request_id=request_id, **stats)


def entry_metadata(append_us: int, index: int) -> bytes:
    """Return the bytes before an entry ("Broker entry metadata"): the entry's append time
    (`append_us`, in microseconds) and the offset of the entry's last message.
    """
    entry_meta = BrokerEntryMetadata(
        broker_timestamp=append_us // 1000, index=index
    ).SerializeToString()
    return ENTRY_METADATA_MAGIC + SIZE.pack(len(entry_meta)) + entry_meta


class MessageWriter:
    """Writes the heads of a consumer's MESSAGE frames, from a single command object."""

    def __init__(self, consumer_id: int, ledger: int, partition: int) -> None:
        self._command = BaseCommand(type=BaseCommand.MESSAGE)
        self._message = self._command.message
        self._message.consumer_id = consumer_id
        self._id = self._message.message_id
        self._id.ledgerId = ledger
        self._id.partition = partition
        # Upper bits of an entry's number, then the parts shared by all entries with these bits:
        # size of the command, bytes before the number's first byte, that byte by the number's lower
        # bits, bytes after that byte.
        self.block: tuple[int, int, bytes, Sequence[bytes], bytes] = (-1, 0, b"", (), b"")
        # Number of bytes that the upper bits take, and the bytes around the number.
        self._frame: tuple[int, bytes, bytes] = (-1, b"", b"")

    def set_epoch(self, consumer_epoch: int) -> None:
        """Set the epoch of the following messages."""
        self._message.consumer_epoch = consumer_epoch
        self.block, self._frame = (-1, 0, b"", (), b""), (-1, b"", b"")

    def head(
        self, entry: int, redelivery_count: int, ack_set: Sequence[int], body_bytes: int
    ) -> bytes:
        """Return the bytes before an entry's `body_bytes` stored bytes."""
        if redelivery_count or ack_set:
            return self._rare_head(entry, redelivery_count, ack_set, body_bytes)
        if entry >> LOW_BITS != self.block[0]:
            self._begin_block(entry)
        _, size, before, low, after = self.block
        return SIZES.pack(size + 4 + body_bytes, size) + before + low[entry & LOW_MASK] + after

    def _begin_block(self, entry: int) -> None:
        upper = entry >> LOW_BITS
        high = highs(upper)
        high_bytes, before, after = self._frame
        if len(high) != high_bytes:  # Sizes in the command depend on the number's size.
            before, rest = around(self._serialize, entry)
            after = rest[len(high) :]
            self._frame = (len(high), before, after)
        size = len(before) + 1 + len(high) + len(after)
        self.block = (upper, size, before, lows(entry), high + after)

    def _serialize(self, entry: int) -> bytes:
        self._id.entryId = entry
        return self._command.SerializeToString()

    def _rare_head(
        self, entry: int, redelivery_count: int, ack_set: Sequence[int], body_bytes: int
    ) -> bytes:
        message = self._message
        if redelivery_count:
            message.redelivery_count = redelivery_count
        if ack_set:
            message.ack_set.extend(ack_set)
        command = self._serialize(entry)
        message.ClearField("redelivery_count")
        message.ClearField("ack_set")
        size = len(command)
        return SIZES.pack(size + 4 + body_bytes, size) + command


def without_checksum(body: Buffer) -> Buffer:
    """Strip the checksum from an entry, for clients below protocol version 11."""
    return body[CHECKSUM_BYTES:] if bytes(body[:2]) == b"\x0e\x01" else body


# Schemas.


def schema(request_id: int, schema_found: Schema, version: bytes) -> bytes:
    """Return a schema of a topic."""
    return command(
        "getSchemaResponse", request_id=request_id, schema=schema_found, schema_version=version
    )


def schema_failed(request_id: int, code: ServerError, text: str) -> bytes:
    """Refuse a request for a schema."""
    return command("getSchemaResponse", request_id=request_id, error_code=code, error_message=text)


def schema_version(request_id: int, version: bytes) -> bytes:
    """Return the version of a schema that a client sent."""
    return command("getOrCreateSchemaResponse", request_id=request_id, schema_version=version)


def schema_version_failed(request_id: int, code: ServerError, text: str) -> bytes:
    """Refuse a schema that a client sent."""
    return command(
        "getOrCreateSchemaResponse", request_id=request_id, error_code=code, error_message=text
    )

"""Typed bodies of PIP-64's endpoints. Knows no broker and no HTTP.

Requests accept both spellings of a field (`eventTime`, `event_time`) and ignore unknown fields.
Answers have only the spelling of `docs/api.md`. Times are milliseconds since 1970.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

Number = int | str  # Decimal text is accepted too: JavaScript loses digits of large numbers.
T = TypeVar("T")
BEFORE_NULL = b"n \t\r\n"  # First bytes of `null`, with blanks before it or without.


RawJson = msgspec.Raw | msgspec.UnsetType
# Kept as raw JSON: a small body may hold more members than allowed, each an object in memory.
Properties = Annotated[
    RawJson,
    msgspec.Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": "string"}}),
]
Ignored = Annotated[
    RawJson, msgspec.Meta(extra_json_schema={"type": "array", "items": {"type": "string"}})
]


class ProducedMessage(msgspec.Struct, omit_defaults=True):
    """A message to store."""

    value: RawJson = msgspec.UNSET
    payload: str | None = None  # In Pulsar's own dialect, instead of `value`.
    key: RawJson = msgspec.UNSET
    encoding: str | None = None
    key_encoding: str | None = None
    partition: int | None = None
    properties: Properties = msgspec.UNSET
    eventTime: Number | None = None
    event_time: Number | None = None
    sequenceId: Number | None = None
    sequence_id: Number | None = None
    replicationClusters: Ignored = msgspec.UNSET
    replication_clusters: Ignored = msgspec.UNSET
    disableReplication: bool | None = None
    disable_replication: bool | None = None
    deliverAt: Number | None = None
    deliver_at: Number | None = None
    deliverAfterMs: Number | None = None
    deliver_after_ms: Number | None = None


class SchemaSettings(msgspec.Struct, omit_defaults=True):
    """The schemas of keys and values that a request names."""

    schema_type: str | None = None
    schemaType: str | None = None
    schema_version: int | None = None
    schemaVersion: int | None = None
    key_schema: RawJson = msgspec.UNSET
    keySchema: RawJson = msgspec.UNSET
    value_schema: RawJson = msgspec.UNSET
    valueSchema: RawJson = msgspec.UNSET


class ProduceSettings(SchemaSettings):
    """The fields of a produce request that apply to all its messages."""

    producer_name: str | None = None
    producerName: str | None = None


class ProduceRequest(ProduceSettings):
    """Body of a produce request."""

    messages: list[ProducedMessage] | None = None


class ProduceEnvelope(ProduceSettings):
    """A produce request with its messages still as text: a large body may hold millions of
    messages.
    """

    messages: RawJson = msgspec.UNSET


class ProducedId(msgspec.Struct):
    """The result for a message; `error_code` 1: do not retry, 2: retry."""

    partition: int | None
    messageId: str | None
    error_code: int | None = None
    error: str | None = None


class ProduceAnswer(msgspec.Struct):
    """Answer to a produce request, in the order of its messages."""

    schema_version: int | None
    messageIds: list[ProducedId]


class ShippedResult(msgspec.Struct, omit_defaults=True):
    """The result for a message in Apache Pulsar's form."""

    messageId: str | None = None
    errorMsg: str | None = None
    errorCode: int = msgspec.field(default=-1)  # Never -1, so it is never omitted.
    schemaVersion: int = msgspec.field(default=-(2**31))


class ShippedAnswer(msgspec.Struct):
    """Apache Pulsar's answer to a produce request."""

    messagePublishResults: list[ShippedResult]
    schemaVersion: int


class ShownHeader(msgspec.Struct, omit_defaults=True):
    """A header, for headers that a map of properties cannot hold: repeated names, bytes, kinds."""

    name: str
    value: str
    encoding: str | None = None  # Of the value, if base64; `name_encoding` is for the name.
    name_encoding: str | None = None


class ShownMessage(msgspec.Struct, omit_defaults=True):
    """A message in an answer. Fields that a record does not have are left out."""

    messageId: str
    partition: int
    value: Any = msgspec.UNSET
    offset: int | msgspec.UnsetType = msgspec.UNSET
    key: Any = msgspec.UNSET
    properties: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    publishTime: int | msgspec.UnsetType = msgspec.UNSET
    eventTime: int | None = None
    deliverAt: int | None = None
    sequenceId: int | None = None
    producerName: str | None = None
    orderingKey: str | None = None
    schema_version: int | None = None
    encoding: str | None = None
    key_encoding: str | None = None
    decode_error: str | None = None
    headers: list[ShownHeader] | None = None
    redeliveryCount: int | msgspec.UnsetType = msgspec.UNSET
    format: str | None = None  # The stored format, as `braidlog dump` names formats.


class ExactHeader(ShownHeader, omit_defaults=True):
    """A header with the bytes and the kind that are stored."""

    kind: str | int = "string"  # A name as in `HeaderKind`; a number for an unknown kind.


class ExactMessage(ShownMessage, omit_defaults=True):
    """A message that an import stores again without a loss. Times are microseconds."""

    append_us: int = 0
    publish_us: int | None = None
    event_us: int | None = None
    deliver_at_us: int | None = None
    ordering_key: str | None = None
    ordering_key_encoding: str | None = None
    producer_name: str | None = None
    producer_name_encoding: str | None = None
    sequence_id: int | None = None
    message_number: str | None = None  # Iggy's message id, 128 bits, as decimal text.


class ShownSchema(msgspec.Struct):
    """A schema that returned messages use; `data` is base64."""

    type: str
    version: int
    data: str
    properties: dict[str, str]


class ReadAnswer(msgspec.Struct):
    """Answer to a read of a partition; the next read begins at `next_offset`."""

    messages: list[ShownMessage]
    next_offset: int
    next_message_id: str | None
    log_start_offset: int
    high_watermark: int
    schemas: list[ShownSchema] | msgspec.UnsetType = msgspec.UNSET


class CreateConsumer(SchemaSettings):
    """Body of a request for a consumer."""

    name: str | None = None
    id: str | None = None
    subscription_type: str | None = None
    subscriptionType: str | None = None
    initial_position: str | None = None
    initialPosition: str | None = None
    ack_timeout_ms: int | None = None
    ackTimeoutMs: int | None = None


class ConsumerAnswer(msgspec.Struct):
    """A consumer that was created, or existed already."""

    id: str
    name: str
    base_uri: str
    subscription_type: str
    schema_version: int | None


class FetchAnswer(msgspec.Struct):
    """Messages of a consumer."""

    messages: list[ShownMessage]
    schemas: list[ShownSchema] | msgspec.UnsetType = msgspec.UNSET


class UpdateCursor(msgspec.Struct):
    """Body of an acknowledgement or a seek."""

    type: str | None = None
    messageIds: list[str | None] | None = None
    message_ids: list[str | None] | None = None
    position: str | None = None
    timestamp: Number | None = None


class CursorConsumer(msgspec.Struct):
    """A consumer of a subscription, of any protocol."""

    id: str | None
    name: str
    protocol: str
    unacked: int


class CursorPartition(msgspec.Struct):
    """A subscription's position in a partition; ranges are closed."""

    partition: int
    mark_delete: str | None
    read_position: str
    individually_acked: list[tuple[int, int]]
    backlog: int
    log_end_offset: int


class Cursor(msgspec.Struct):
    """A subscription's positions."""

    subscription: str
    type: str | None
    durable: bool
    consumers: list[CursorConsumer]
    unacked: int
    backlog: int
    partitions: list[CursorPartition]


class CursorAnswer(msgspec.Struct):
    """Answer to a read or a change of a cursor."""

    cursor: Cursor


def either(first: T | None, second: T | None) -> T | None:
    """Return the value of a field that has two spellings."""
    return second if first is None else first


def raw_or_none(first: RawJson, second: RawJson = msgspec.UNSET) -> bytes | None:
    """Return the JSON of a field that has two spellings; None for an absent or null field."""
    if first is not msgspec.UNSET:
        text = bytes(first)
        if text[0] not in BEFORE_NULL or text.strip() != b"null":
            return text
    return None if second is msgspec.UNSET else raw_or_none(second)

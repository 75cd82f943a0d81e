"""`POST /api/v1/topics/{topic}/messages`: stores messages with the times of their first storage.

The messages are those of a read with `?exact=true`. Knows bodies and the broker, no route.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.config.wording import explain, fault_of
from braidlog.broker.errors import BrokerError
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.protocols.http.bodies import BODY
from braidlog.protocols.http.errors import BAD_BODY, BAD_MESSAGES, RECORD_TOO_LARGE, RequestRefused
from braidlog.protocols.http.limits import (
    INLINE_BODY_BYTES,
    MESSAGES_MAX,
    PROPERTIES_MAX,
    RECORD_BYTES_MAX,
)
from braidlog.protocols.http.path_names import Encoding, topic_name
from braidlog.protocols.http.pip64.produce import Producing
from braidlog.protocols.http.pip64.writing import INT64_MAX, UINT64_MAX
from braidlog.protocols.http.requests import json_response
from braidlog.protocols.http.values.jsontext import (
    EVERYWHERE,
    OBJECT,
    RepeatedName,
    TooMany,
    check_names,
    elements,
)
from braidlog.storage.formats.record import Header, HeaderKind, Record

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.values.resolving import SchemaRegistry

KINDS = {kind.name.lower(): int(kind) for kind in HeaderKind}
UINT128 = 2**128

Time = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
Kind = Annotated[int, msgspec.Meta(ge=0, le=255)]


class ImportedHeader(msgspec.Struct, forbid_unknown_fields=True):
    """A header to store; a value or name is base64 if its encoding says so."""

    name: str
    value: str
    encoding: Encoding = "utf8"
    name_encoding: Encoding = "utf8"
    kind: str | Kind = "string"


class ImportedMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message to store. Places of the first storage are accepted, without effect."""

    value: str | None = None
    encoding: Encoding = "utf8"
    key: str | None = None
    key_encoding: Encoding = "utf8"
    partition: int | None = None
    headers: list[ImportedHeader] = []
    publish_us: Time | None = None
    event_us: Time | None = None
    deliver_at_us: Time | None = None
    ordering_key: str | None = None
    ordering_key_encoding: Encoding = "utf8"
    producer_name: str | None = None
    producer_name_encoding: Encoding = "utf8"
    sequence_id: Annotated[int, msgspec.Meta(ge=0)] | None = None
    message_number: str | None = None
    # Without effect: each belongs to the topic of the first storage.
    topic: str | None = None
    messageId: str | None = None
    offset: int | None = None
    append_us: int | None = None
    schema_version: int | None = None
    redeliveryCount: int | None = None
    format: str | None = None


class ImportRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Messages to store, as a read with `exact=true` returns them."""

    messages: list[ImportedMessage]


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    """The request with messages still as text: a large body may hold millions of them."""

    messages: msgspec.Raw


class ImportAnswer(msgspec.Struct):
    """The number of stored messages. The first messages up to the error may be stored."""

    stored: int


class ImportApi:
    """The handler of imports of a broker."""

    def __init__(self, broker: Broker, bodies: BodyReader, registry: SchemaRegistry) -> None:
        self._broker = broker
        self._bodies = bodies
        self._producing = Producing(broker, registry)

    async def store(self, request: Request) -> Response:
        """Store messages with their own publish times; answered once all are on disk.

        After an error of an append, some partitions may have their messages.
        """
        body = await self._bodies.read_json(request)
        if len(body) <= INLINE_BODY_BYTES:
            records, named = read_records(body)
        else:
            records, named = await run_in_thread(read_records, body)
        topic = self._broker.topics.get(topic_name(request))
        count = len(topic.partitions)
        for number, index in enumerate(named):
            if index is not None and not 0 <= index < count:
                text = f"messages[{number}]: {topic.name} has no partition {index}"
                raise RequestRefused(BAD_MESSAGES, text)
        placed = await self._producing.store(topic, records, named, own_times=True)
        failed: BrokerError | None = next(
            (message.error for message in placed if message.error), None
        )
        if failed is not None:
            raise failed
        return json_response(ImportAnswer(len(records)))


def read_records(body: bytes) -> tuple[list[Record], list[int | None]]:
    """Return the records of a request and their partitions. Raises RequestRefused."""
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
        check_names(body, OBJECT)
    except (msgspec.DecodeError, RecursionError, RepeatedName) as error:
        raise RequestRefused(BAD_BODY, explain(error, _Envelope, BODY)) from None
    text = bytes(envelope.messages).strip()
    if not text.startswith(b"["):
        raise RequestRefused(BAD_MESSAGES, "messages: expected a list")
    records: list[Record] = []
    named: list[int | None] = []
    try:
        for element in elements(text, MESSAGES_MAX):
            message = msgspec.json.decode(element, type=ImportedMessage)
            check_names(element, EVERYWHERE)
            records.append(_record(len(records), message))
            named.append(message.partition)
    except TooMany:
        raise RequestRefused(BAD_MESSAGES, f"at most {MESSAGES_MAX} messages a request") from None
    except (msgspec.DecodeError, RecursionError, RepeatedName) as error:
        fault = fault_of(error, ImportedMessage)
        field = f".{fault.place}" if fault.place else ""
        reason = f"unknown field {fault.unknown!r}" if fault.unknown else fault.reason
        raise RequestRefused(BAD_MESSAGES, f"messages[{len(records)}]{field}: {reason}") from None
    except ValueError as error:
        raise RequestRefused(BAD_MESSAGES, f"messages[{len(records)}]: {error}") from None
    if not records:
        raise RequestRefused(BAD_MESSAGES, "messages: expected at least one")
    return records, named


def _record(number: int, message: ImportedMessage) -> Record:
    """Return the record of a message. Raises ValueError, RequestRefused."""
    if len(message.headers) > PROPERTIES_MAX:
        raise ValueError(f"at most {PROPERTIES_MAX} headers")
    headers = [
        Header(
            _bytes("header name", header.name, header.name_encoding) or b"",
            _bytes("header value", header.value, header.encoding) or b"",
            _kind(header.kind),
        )
        for header in message.headers
    ]
    key = _bytes("key", message.key, message.key_encoding)
    value = _bytes("value", message.value, message.encoding)
    size = len(key or b"") + len(value or b"")
    size += sum(len(header.name) + len(header.value) for header in headers)
    if size > RECORD_BYTES_MAX:
        text = f"messages[{number}]: {size} bytes, at most {RECORD_BYTES_MAX} are taken"
        raise RequestRefused(RECORD_TOO_LARGE, text)
    if message.sequence_id is not None and message.sequence_id > UINT64_MAX:
        raise ValueError("sequence_id is a number of 64 bits")
    return Record(
        number,
        0,
        message.publish_us,
        message.event_us,
        key,
        value,
        headers,
        ordering_key=_bytes("ordering_key", message.ordering_key, message.ordering_key_encoding),
        producer_name=_bytes(
            "producer_name", message.producer_name, message.producer_name_encoding
        ),
        sequence_id=message.sequence_id,
        message_id=_number(message.message_number),
        deliver_at_us=message.deliver_at_us,
    )


def _bytes(name: str, text: str | None, encoding: Encoding) -> bytes | None:
    """Return the bytes of a text. Raises ValueError."""
    if text is None:
        return None
    if encoding == "utf8":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"the {name} is not base64") from None


def _kind(kind: str | int) -> int:
    """Return the number of a header's kind. Raises ValueError."""
    if isinstance(kind, int):
        return kind
    if kind not in KINDS:
        raise ValueError(f"the kind of a header is one of {', '.join(KINDS)}, not {kind[:40]!r}")
    return KINDS[kind]


def _number(text: str | None) -> int:
    """Return a message id of 128 bits. Raises ValueError."""
    if text is None:
        return 0
    is_number = text.isascii() and text.isdecimal() and len(text) <= len(str(UINT128))
    if not is_number or int(text) >= UINT128:
        raise ValueError("message_number is a number of 128 bits")
    return int(text)

"""The routes of PIP-64 that need no consumer: produce and read. `docs/api.md` describes each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.config.wording import explain, fault_of
from braidlog.broker.errors import TopicNotFound
from braidlog.broker.runtime.threads import run_in_thread
from braidlog.broker.topics.schema_rules import load_parser
from braidlog.protocols.http.bodies import BODY
from braidlog.protocols.http.errors import (
    BAD_ACK_TYPE,
    BAD_BODY,
    BAD_KEY_SCHEMA,
    BAD_MESSAGES,
    BAD_VALUE_SCHEMA,
    TOPIC_NOT_FOUND,
    RequestRefused,
    WireCode,
)
from braidlog.protocols.http.ids import NONE, EntryIds
from braidlog.protocols.http.limits import INLINE_BODY_BYTES, MESSAGES_MAX, PIECE_MESSAGES
from braidlog.protocols.http.path_names import topic_name
from braidlog.protocols.http.pip64 import reading, shipped, streams
from braidlog.protocols.http.pip64.messages import (
    ProduceAnswer,
    ProducedId,
    ProducedMessage,
    ProduceEnvelope,
    ProduceRequest,
    raw_or_none,
)
from braidlog.protocols.http.pip64.names import partition_of, topic_of
from braidlog.protocols.http.pip64.produce import Placed, Producing, StoredMessages
from braidlog.protocols.http.pip64.showing import Shower
from braidlog.protocols.http.requests import json_response
from braidlog.protocols.http.routes import made_by_itself
from braidlog.protocols.http.turns import between_messages
from braidlog.protocols.http.values.jsontext import (
    EVERYWHERE,
    OBJECT,
    OBJECTS,
    RepeatedName,
    TooMany,
    check_names,
    elements,
    has_every_member,
)
from braidlog.protocols.http.waiting import Waiting

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.values.resolving import SchemaRegistry

BodyT = TypeVar("BodyT")

# The code for a field of the wrong type, by the field's place.
FIELD_CODES: dict[str, WireCode] = {
    "messages": BAD_MESSAGES,
    "messageIds": BAD_MESSAGES,
    "message_ids": BAD_MESSAGES,
    "key_schema": BAD_KEY_SCHEMA,
    "keySchema": BAD_KEY_SCHEMA,
    "value_schema": BAD_VALUE_SCHEMA,
    "valueSchema": BAD_VALUE_SCHEMA,
    "schema_type": BAD_VALUE_SCHEMA,
    "schemaType": BAD_VALUE_SCHEMA,
    "schema_version": BAD_VALUE_SCHEMA,
    "schemaVersion": BAD_VALUE_SCHEMA,
    "type": BAD_ACK_TYPE,
}


class MessagesApi:
    """Produce and read handlers of a broker."""

    def __init__(
        self,
        broker: Broker,
        bodies: BodyReader,
        registry: SchemaRegistry,
        waiting: Waiting,
        *,
        auto_create: bool,
    ) -> None:
        self._broker = broker
        self._bodies = bodies
        self._registry = registry
        self._producing = Producing(broker, registry)
        self._waiting = waiting
        self._auto_create = auto_create

    async def produce(self, request: Request) -> Response:
        """Store messages in a topic."""
        return await self._produce(request, shipped_dialect=False)

    async def produce_shipped(self, request: Request) -> Response:
        """Store messages in a topic, in the dialect that Apache Pulsar shipped."""
        return await self._produce(request, shipped_dialect=True)

    async def _produce(self, request: Request, *, shipped_dialect: bool) -> Response:
        body = await self._bodies.read_json(request)
        if len(body) <= INLINE_BODY_BYTES:
            wanted = read_small(body)
        else:
            wanted = await run_in_thread(read_large, body)
        topic = await self._topic(request)
        only = None
        if "partition" in request.path_params:
            only = partition_of(topic, request).index
        if not wanted.messages:
            if shipped_dialect and wanted.messages is not None:
                return json_response(shipped.answer(topic, 0, []))
            raise RequestRefused(BAD_MESSAGES, "messages: expected at least one")
        produced = await self._producing.produce(
            topic, wanted, only_partition=only, body_bytes=len(body)
        )
        del wanted, body  # Objects of many times the body's size.
        answer = await self._answer(topic, produced, shipped_dialect=shipped_dialect)
        pause_s = produced.paused_until - trio.current_time()
        del produced
        self._bodies.budget.end_turn(request)  # The client may take the answer arbitrarily late.
        if pause_s > 0:
            await self._waiting.pause(request, pause_s)
        return answer

    async def _answer(
        self, topic: Topic, produced: StoredMessages, *, shipped_dialect: bool
    ) -> Response:
        version, placed = produced.schema_version, produced.placed
        if shipped_dialect:
            return json_response(shipped.answer(topic, version, placed))
        ids: list[ProducedId] = []
        writers: dict[int, EntryIds] = {}
        for start in range(0, len(placed), PIECE_MESSAGES):
            ids += _produced(topic, placed[start : start + PIECE_MESSAGES], writers)
            await between_messages(len(ids), self._broker.poller)
        return json_response(ProduceAnswer(version, ids))

    async def read(self, request: Request) -> Response:
        """Read messages of a partition."""
        kind = streams.accepted(request)
        topic = topic_of(self._broker, request)
        if topic.meta.schemas:
            await load_parser()
        partition = partition_of(topic, request)
        wanted = reading.read_limits(request)
        options = reading.show_options(request, self._registry, topic)
        offset = await reading.start_offset(request, partition)
        shower = Shower(self._registry, topic, options)
        output = self._broker.output
        reader = reading.PartitionReader(request, partition, offset, self._waiting, shower, output)
        if kind == streams.EVENTS:
            return streams.EventStream(request, self._waiting, reader.next_messages)
        answer, schemas = await reader.answer(wanted)
        if kind == streams.LINES:
            headers = {"X-Next-Offset": str(answer.next_offset)}
            shown, answer.messages = streams.Shown(answer.messages, shower.take_largest()), []
            return await streams.lines(shown, headers)
        if wanted.include_schema:
            answer.schemas = list(schemas)
        return await streams.whole(answer, shower.take_largest())

    async def other_domain(self, request: Request) -> Response:
        """Refuse topics of a domain that the broker does not serve."""
        raise RequestRefused(TOPIC_NOT_FOUND, "non-persistent topics are not served")

    async def _topic(self, request: Request) -> Topic:
        try:
            return topic_of(self._broker, request)
        except TopicNotFound:
            if not self._auto_create:
                raise
        return await made_by_itself(self._broker, request, topic_name(request))


def read_body(body: bytes, into: type[BodyT]) -> BodyT:
    """Return a typed body. Raises RequestRefused, with the code of the wrong field."""
    value = _decode(body, into)
    _check_names(body, EVERYWHERE)
    return value


def read_small(body: bytes) -> ProduceRequest:
    """Parse a request with messages in a single step. Raises RequestRefused."""
    wanted = _decode(body, ProduceRequest)
    if not has_every_member(body, wanted):
        _check_names(body, OBJECT)
        if wanted.messages:
            messages = bytes(_decode(body, _PublishedMessages).messages)
            _check_names(messages, OBJECTS, "messages", BAD_MESSAGES)
    return wanted


class _PublishedMessages(msgspec.Struct):
    """The messages of a request, as text."""

    messages: msgspec.Raw


def _check_names(
    text: bytes, within: msgspec.json.Decoder[Any], place: str = BODY, wire: WireCode = BAD_BODY
) -> None:
    """Check that no object names a field twice. Raises RequestRefused."""
    try:
        check_names(text, within)
    except (msgspec.DecodeError, RecursionError, RepeatedName) as error:
        raise RequestRefused(wire, explain(error, whole=place)) from None


def _decode(body: bytes, into: type[BodyT]) -> BodyT:
    """Return a typed body, whose objects may name a field twice. Raises RequestRefused."""
    try:
        return msgspec.json.decode(body, type=into)
    except msgspec.ValidationError as error:
        field = fault_of(error).place.partition(".")[0].partition("[")[0]
        wire = FIELD_CODES.get(field, BAD_BODY)
        raise RequestRefused(wire, explain(error, into, BODY)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        wire = BAD_MESSAGES if isinstance(error, RecursionError) else BAD_BODY
        raise RequestRefused(wire, explain(error, into, BODY)) from None


def read_large(body: bytes) -> ProduceRequest:
    """Parse a request of any size up to the limit, one message at a time; to run in a thread.

    Raises RequestRefused.
    """
    envelope = _decode(body, ProduceEnvelope)
    _check_names(body, OBJECT)
    text = (raw_or_none(envelope.messages) or b"null").strip()
    wanted = ProduceRequest(
        **{
            name: getattr(envelope, name)
            for name in envelope.__struct_fields__
            if name != "messages"
        }
    )
    if text == b"null":
        return wanted
    if not text.startswith(b"["):
        raise RequestRefused(BAD_MESSAGES, "messages: expected a list")
    wanted.messages = []
    try:
        for element in elements(text, MESSAGES_MAX):
            message = msgspec.json.decode(element, type=ProducedMessage)
            if not has_every_member(element, message):
                check_names(element, OBJECT)
            wanted.messages.append(message)
    except TooMany:
        raise RequestRefused(BAD_MESSAGES, f"at most {MESSAGES_MAX} messages a request") from None
    except (msgspec.DecodeError, RepeatedName) as error:
        place = f"messages[{len(wanted.messages)}]"
        fault = fault_of(error, ProducedMessage)
        field = f".{fault.place}" if fault.place else ""
        raise RequestRefused(BAD_MESSAGES, f"{place}{field}: {fault.reason}") from None
    return wanted


def _produced(
    topic: Topic, placed: Sequence[Placed], writers: dict[int, EntryIds]
) -> list[ProducedId]:
    """Return the results of messages; `writers` holds those of the ledgers so far."""
    ids: list[ProducedId] = []
    for message in placed:
        if message.error is not None:
            ids.append(ProducedId(None, None, message.error_code, str(message.error)))
            continue
        writer = writers.get(message.ledger)
        if writer is None:
            index = message.partition if topic.partitioned else NONE
            writer = writers[message.ledger] = EntryIds(message.ledger, index)
        ids.append(ProducedId(message.partition, writer.write(message.offset)))
    return ids

"""Calls of each protocol's clients on a position, over sockets, and their answers."""

import base64
import http.client
import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.iggy_w import IggyWWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.pulsar import (
    ACK,
    ACK_RESPONSE,
    ACTIVE,
    CLOSE_CONSUMER,
    FLOW,
    MESSAGE,
    SEEK,
    SUBSCRIBE,
    SUCCESS,
    UNSUBSCRIBE,
    Fields,
    PulsarWire,
    Value,
    encode,
    field_of,
    parse,
)
from conformance.position.model import CursorViews, ModelEntry

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
EARLIEST = 1
INDIVIDUAL, CUMULATIVE = 0, 1
PERMITS = 1000
HTTP_S = 60.0


class Addressed(Protocol):
    """A broker whose listeners have addresses, for example `conformance.server.RunningBroker`."""

    def address(self, listener: str) -> tuple[str, int]:
        """Return host and port."""


class PulsarPlace(PulsarWire):
    """A consumer of a subscription, from the earliest message for a new subscription.

    The subscription is Exclusive unless `kind` says otherwise.
    """

    def __init__(
        self, address: tuple[str, int], topic: str, subscription: str, *, kind: int = EXCLUSIVE
    ) -> None:
        super().__init__(address)
        self._requests = 1
        name = f"persistent://public/default/{topic}".encode()
        fields: Fields = [(1, name), (2, subscription.encode()), (3, kind), (4, 0), (5, 1)]
        self.command(SUBSCRIBE, [*fields, (13, EARLIEST)])
        self._succeeds(SUCCESS)

    def ack(self, kind: int, ids: Iterable[bytes], *, answered: bool) -> None:
        """Acknowledge; an answered acknowledgement is on disk when this returns."""
        fields: Fields = [(1, 0), (2, kind), *((3, message_id) for message_id in ids)]
        if not answered:
            self.command(ACK, fields)
            return
        self._requests += 1
        self.command(ACK, [*fields, (8, self._requests)])
        error = field_of(self._succeeds(ACK_RESPONSE), 4)
        assert error is None, f"ACK: error {error!r}"

    def seek(self, message_id: bytes) -> None:
        """Continue at the first entry at or behind the id; the broker closes this consumer."""
        self._request(SEEK, [(3, message_id)])

    def unsubscribe(self) -> None:
        """Delete the subscription's cursor."""
        self._request(UNSUBSCRIBE, [])

    def leave(self) -> None:
        """Close the consumer, and wait for the answer: earlier acks are handled first."""
        self._request(CLOSE_CONSUMER, [])
        self.close()

    def deliveries(self, count: int) -> list[tuple[int, tuple[int, ...]]]:
        """Return (entry id, ack set) of the next messages."""
        self.command(FLOW, [(1, 0), (2, PERMITS)])
        deliveries = []
        for _ in range(count):
            fields = self._succeeds(MESSAGE)
            message_id = field_of(fields, 2)
            assert isinstance(message_id, bytes)
            entry = field_of(parse(message_id), 2)
            words = [value for number, value in fields if number == 4]
            assert isinstance(entry, int)
            deliveries.append((entry, tuple(words)))
        return deliveries  # type: ignore[return-value]

    def _request(self, kind: int, fields: Fields) -> None:
        self._requests += 1
        self.command(kind, [(1, 0), (2, self._requests), *fields])
        self._succeeds(SUCCESS)

    def _succeeds(self, kind: int) -> Fields:
        while True:
            received, fields, _ = self.take_command()
            if received == kind:
                return fields
            passed = {ACTIVE, CLOSE_CONSUMER, *([] if kind == MESSAGE else [MESSAGE])}
            assert received in passed, f"command {received} {fields}, expected {kind}"


def pulsar_id(ledger: int, entry: ModelEntry, acked: Sequence[int] | None = None) -> bytes:
    """Return the id of an entry; with `acked`, only of those records."""
    fields: list[tuple[int, Value]] = [(1, ledger), (2, entry.offset)]
    if acked is not None:
        fields += [(5, word) for word in ack_set(entry, acked)]
    return encode(fields)


def ack_set(entry: ModelEntry, acked: Iterable[int]) -> tuple[int, ...]:
    """Return words of 64 bits: a bit for each unacknowledged record."""
    wanted = (1 << entry.count) - 1
    for offset in acked:
        wanted &= ~(1 << (offset - entry.offset))
    return tuple(wanted >> (64 * word) & ((1 << 64) - 1) for word in range(-(-entry.count // 64)))


class HttpPlace:
    """The cursor of a subscription over HTTP."""

    def __init__(self, address: tuple[str, int], topic: str, subscription: str) -> None:
        self._address = address
        self._path = f"/topics/public/default/{topic}/subscription/{subscription}/cursor"

    def change(self, kind: str, **fields: Any) -> int:
        """Return the status of a POST."""
        return self._ask("POST", {"type": kind, **fields})[0]

    def read_positions(self) -> list[dict[str, Any]] | None:
        """Return the cursors of all partitions; None if the subscription does not exist."""
        status, answer = self._ask("GET", None)
        if status == 404:
            return None
        assert status == 200, answer
        cursors: list[dict[str, Any]] = answer["cursor"]["partitions"]
        return cursors

    def whole(self) -> dict[str, Any]:
        """Return the whole cursor of an existing subscription."""
        status, answer = self._ask("GET", None)
        assert status == 200, answer
        cursor: dict[str, Any] = answer["cursor"]
        return cursor

    def _ask(self, method: str, body: object) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(*self._address, timeout=HTTP_S)
        try:
            packed = None if body is None else json.dumps(body)
            connection.request(method, self._path, packed, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}")
        finally:
            connection.close()


def http_id(ledger: int, entry: int, index: int = -1, *, partition: int = 0) -> str:
    """Return a message id as text."""
    fields: Fields = [(1, ledger), (2, entry), (3, partition)]
    if index >= 0:
        fields.append((4, index))
    return base64.b64encode(encode(fields)).decode()


def read_positions(
    broker: Addressed, topic: str, group: str, partitions: int = 1
) -> list[CursorViews]:
    """Return every protocol's view of the position in each partition."""
    indexes = range(partitions)
    with KafkaWire(broker.address("kafka")) as kafka:
        committed = [kafka.committed(group, topic, partition=at) for at in indexes]
    with IggyWire(broker.address("iggy")) as iggy:
        stored = [iggy.stored_offset(topic, group, partition=at + 1) for at in indexes]
    with IggyWWire(broker.address("iggy")) as newest:
        in_w = [newest.stored_offset(topic, group, partition=at + 1) for at in indexes]
    assert in_w == stored, f"dialect W has {in_w}, D2 {stored}"
    cursors = HttpPlace(broker.address("http"), topic, group).read_positions()
    if cursors is None:
        return [CursorViews(committed[at], stored[at], None, None, None) for at in indexes]
    assert [cursor["partition"] for cursor in cursors] == list(indexes)
    return [_cursor_views(*views) for views in zip(committed, stored, cursors, strict=True)]


def _cursor_views(committed: int, stored: int | None, cursor: dict[str, Any]) -> CursorViews:
    acked = tuple((first, last) for first, last in cursor["individually_acked"])
    mark = None if cursor["mark_delete"] is None else _place_of(cursor["mark_delete"])
    return CursorViews(committed, stored, acked, cursor["backlog"], mark)


def _place_of(text: str) -> tuple[int, int]:
    fields = dict(parse(base64.b64decode(text)))
    entry, index = fields[2], fields.get(4, -1)
    assert isinstance(entry, int) and isinstance(index, int)
    return entry, index

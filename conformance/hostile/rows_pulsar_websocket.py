"""Rows of Pulsar's WebSocket API: frames of producers, consumers and readers, and requests that
open them. Mutations hit the frame around a JSON text, or the text in a correct frame.
"""

import json

from conformance.hostile.mutation import HTTP
from conformance.hostile.rows import TOPIC, CommandRow, ConnectionKind, Protocol
from conformance.hostile.rows_iggy_websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    masked,
)

PLACE = f"persistent/public/default/{TOPIC}"
HEAD = (
    " HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
)
DEFLATED = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
ID = "CAEQADAA"  # Ledger 1, entry 0, as Java clients write it.
LONG_CHARACTERS = 90_000
# The queries of each kind of connection; the first opens the mutated frames' connections.
QUERIES = {
    "producer": (
        "?messageRoutingMode=RoundRobinPartition&hashingScheme=Murmur3_32Hash",
        "?producerName=hostile-ws&initialSequenceId=5&maxPendingMessages=2",
        "?sendTimeoutMillis=5000&batchingEnabled=true&batchingMaxMessages=10"
        "&batchingMaxPublishDelay=1&compressionType=LZ4",
        "?token=hostile&encryptionKeys=a",
    ),
    "consumer": (
        "/hostile-ws?subscriptionType=Shared&subscriptionInitialPosition=Earliest",
        "/hostile-ws?subscriptionType=Shared&pullMode=true&receiverQueueSize=1000",
        "/hostile-keys?subscriptionType=Key_Shared&consumerName=c&priorityLevel=3&subscriptionMode=Durable",
        "/hostile-dead?subscriptionType=Shared&maxRedeliverCount=1&deadLetterTopic=hostile-dlq"
        "&ackTimeoutMillis=1000&negativeAckRedeliveryDelay=10",
    ),
    "reader": (
        "?messageId=earliest&receiverQueueSize=3",
        f"?messageId={ID}&readerName=hostile-ws",
        "?messageId=latest",
    ),
}
MESSAGES = {
    "producer": {
        "message": {"payload": "aGVsbG8=", "context": "1"},
        "message with all fields": {
            "payload": "aGVsbG8=",
            "properties": {"a": "b", "n": 1},
            "key": "k",
            "context": "c",
            "eventTime": "2020-01-02T03:04:05.678Z",
            "deliverAfterMs": 5,
            "replicationClusters": ["standalone"],
        },
        "delayed message": {"payload": "YQ==", "deliverAt": 4_000_000_000_000},
        "long message": {"payload": "YWJj" * (LONG_CHARACTERS // 4)},
        "deep message": {"payload": "YQ==", "properties": {"a": [[[[[[{}]]]]]]}},
    },
    "consumer": {
        "acknowledgement": {"messageId": ID},
        "negative acknowledgement": {"messageId": ID, "type": "negativeAcknowledge"},
        "permit": {"type": "permit", "permitMessages": 10},
        "end of topic": {"type": "isEndOfTopic"},
        "unsubscribe": {"type": "unsubscribe"},
    },
    "reader": {
        "acknowledgement": {"messageId": ID},
        "permit": {"type": "permit", "permitMessages": 10},
        "end of topic": {"type": "isEndOfTopic"},
    },
}


def opening(kind: str, query: str, more: str = "") -> bytes:
    """Return a request for a connection."""
    return f"GET /ws/v2/{kind}/{PLACE}{query}{HEAD}{more}\r\n".encode()


def text(payload: bytes) -> bytes:
    """Return a text message of a single frame."""
    return masked(TEXT, payload)


def in_pieces(payload: bytes) -> bytes:
    """Return a text message in three frames, with a ping between."""
    size = max(len(payload) // 3, 1)
    pieces = payload[:size], payload[size : 2 * size], payload[2 * size :]
    return b"".join(
        (
            masked(TEXT, pieces[0], final=False),
            masked(PING, b"between"),
            masked(CONTINUATION, pieces[1], final=False),
            masked(CONTINUATION, pieces[2]),
        )
    )


def protocol() -> Protocol:
    """Return the attack on the WebSocket API of the HTTP listener."""
    talks = [
        ConnectionKind(
            HTTP,
            [opening(kind, query)],
            [],
            [*_messages(kind), *_frames()],
            dialect=f"{kind} {number}",
        )
        for kind, queries in QUERIES.items()
        for number, query in enumerate(queries[:2])
    ]
    requests = [
        CommandRow(f"{kind} request", opening(kind, query, more))
        for kind, queries in QUERIES.items()
        for query in queries
        for more in ("", DEFLATED)
    ]
    talks.append(ConnectionKind(HTTP, [], [], requests, dialect="opening"))
    return Protocol("pulsar-websocket", talks, counted_as="http", listener="http")


def _messages(kind: str) -> list[CommandRow]:
    rows = []
    for name, fields in MESSAGES[kind].items():
        payload = json.dumps(fields).encode()
        for wrap, way in ((text, ""), (in_pieces, " in pieces")):
            rows.append(CommandRow(f"{kind}: {name}{way}", wrap(payload), payload, wrap))
    return rows


def _frames() -> list[CommandRow]:
    """Return frames of every other kind, and orders of frames that no client sends."""
    valid = b'{"payload":"YQ=="}'
    return [
        CommandRow("ping frame", masked(PING, b"hello") + text(valid)),
        CommandRow("long ping frame", masked(PING, b"x" * 126) + text(valid)),
        CommandRow("ping in pieces", masked(PING, b"x", final=False) + text(valid)),
        CommandRow("pong frame", masked(PONG, b"") + text(valid)),
        CommandRow("close frame", masked(CLOSE, b"\x03\xe8bye") + text(valid)),
        CommandRow("close frame of one byte", masked(CLOSE, b"\x03") + text(valid)),
        CommandRow("close frame without a code", masked(CLOSE, b"") + text(valid)),
        CommandRow("binary message", masked(BINARY, valid)),
        CommandRow("continuation without a beginning", masked(CONTINUATION, valid)),
        CommandRow("two beginnings", masked(TEXT, valid, final=False) + text(valid)),
        CommandRow("empty pieces", masked(TEXT, b"", final=False) + masked(CONTINUATION, valid)),
        CommandRow("broken text", text(b"\xff\xfe") + text(valid)),
        CommandRow("unmasked frame", bytes([0x81, len(valid)]) + valid),
        CommandRow("reserved opcode", masked(3, valid)),
        CommandRow("reserved bit", bytes([0xC1]) + text(valid)[1:]),
        CommandRow("longest frame", b"\x81\xff" + b"\xff" * 8 + b"mask" + valid),
        CommandRow("frame cut in half", text(valid)[: len(valid) // 2]),
    ]

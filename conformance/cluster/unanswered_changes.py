"""Changes for `unanswered`: requests by hand, and the meaning of each answer.

A change goes over the link to the catalogue's owner or to the topic's owner: clients of the other
protocols' listeners are redirected to the owner and use no link.
"""

import struct
from collections.abc import Mapping
from functools import partial
from typing import Final

from conformance.clients.raw import iggy, kafka, pulsar
from conformance.clients.raw.iggy import IggyWire
from conformance.clients.raw.kafka import KafkaWire
from conformance.clients.raw.pulsar import PulsarWire
from conformance.cluster.unanswered_http import (
    GRANTED,
    HTTP_CHANGES,
    IN_SPACE,
    MAKE_SPACE,
    MAKE_USER,
    PARTITIONS,
    SPACE,
    USER,
)
from conformance.cluster.unanswered_kinds import ANSWER_S, Change, ChangeOutcome, Near

GROUP, OTHER_GROUP, NEW_GROUP = "group", "other", "new"
PURGE_TOPIC, DELETE_TOPIC = 305, 303
DELETE_STREAM, PURGE_STREAM = 203, 205
CREATE_USER, DELETE_USER, UPDATE_USER, UPDATE_PERMISSIONS = 33, 34, 35, 36
CREATE_TOKEN, DELETE_TOKEN = 42, 43
METADATA, DELETE_TOPICS, CREATE_PARTITIONS = 3, 20, 37  # Kafka's.
ALTER_CONFIGS, DELETE_GROUPS, INCREMENTAL_ALTER_CONFIGS, OFFSET_DELETE = 33, 42, 44, 47
TIMEOUT_MS: Final = 30_000

# Iggy. A connection that ends without an answer, and error 206, leave the outcome unknown.


def by_iggy(code: int, tail: bytes, near: Near, topic: str) -> ChangeOutcome:
    """A command that names a topic first."""
    return _by_iggy(near, code, iggy.identifier("default") + iggy.identifier(topic) + tail)


def _by_iggy(near: Near, code: int, body: bytes) -> ChangeOutcome:
    with IggyWire(near["iggy"], timeout_s=ANSWER_S) as wire:
        try:
            status, _ = wire.ask(code, body)
        except ConnectionError:
            return ChangeOutcome.UNKNOWN
    return {0: ChangeOutcome.DONE, 206: ChangeOutcome.UNKNOWN}.get(status, ChangeOutcome.NOT_DONE)


def iggy_creates(near: Near, topic: str) -> ChangeOutcome:
    """CREATE_TOPIC."""
    settings = struct.pack("<IIBQQB", 0, PARTITIONS, 1, iggy.NEVER, 0, 0)
    body = iggy.identifier("default") + settings + iggy.text8(topic)
    return _by_iggy(near, iggy.CREATE_TOPIC, body)


def iggy_updates(near: Near, topic: str) -> ChangeOutcome:
    """UPDATE_TOPIC: another expiry, the same name."""
    tail = struct.pack("<BQQB", 1, 3_600_000_000, 0, 0) + iggy.text8(topic)
    return by_iggy(iggy.UPDATE_TOPIC, tail, near, topic)


def iggy_sends(near: Near, topic: str) -> ChangeOutcome:
    """SEND of a message."""
    sent = bytes(16) + iggy.headers_block([]) + struct.pack("<I", 1) + b"x"
    return _by_iggy(near, iggy.SEND, iggy.send_body(topic, sent))


def iggy_polls(near: Near, topic: str) -> ChangeOutcome:
    """POLL with auto commit: stores the returned messages as consumed."""
    body = iggy.poll_body(topic, 1, iggy.NEXT, 0, GROUP, commits=True)
    return _by_iggy(near, iggy.POLL, body)


def iggy_stores(near: Near, topic: str) -> ChangeOutcome:
    """STORE_OFFSET."""
    body = iggy.CONSUMER + iggy.identifier(GROUP)
    body += iggy.identifier("default") + iggy.identifier(topic) + struct.pack("<IQ", 1, 1)
    return _by_iggy(near, iggy.STORE_OFFSET, body)


def iggy_forgets(near: Near, topic: str) -> ChangeOutcome:
    """DELETE_OFFSET."""
    body = iggy.CONSUMER + iggy.identifier(GROUP)
    body += iggy.identifier("default") + iggy.identifier(topic) + struct.pack("<I", 1)
    return _by_iggy(near, iggy.DELETE_OFFSET, body)


def iggy_names(code: int, head: bytes, tail: bytes, near: Near, topic: str) -> ChangeOutcome:
    """A command with a text of eight bits' length: the topic's name, for another object."""
    return _by_iggy(near, code, head + iggy.text8(topic) + tail)


def iggy_identifies(code: int, tail: bytes, near: Near, topic: str) -> ChangeOutcome:
    """A command that names an object called as the topic first."""
    return _by_iggy(near, code, iggy.identifier(topic) + tail)


# Kafka. Errors 7 and 14 leave the outcome unknown; clients repeat after 14.


def _of_kafka(code: int) -> ChangeOutcome:
    return {0: ChangeOutcome.DONE, 7: ChangeOutcome.UNKNOWN, 14: ChangeOutcome.UNKNOWN}.get(
        code, ChangeOutcome.NOT_DONE
    )


def _by_kafka(near: Near, key: int, version: int, body: bytes, topic: str) -> ChangeOutcome:
    """Send a request of the admin API; the answer has the error behind the topic's name."""
    with KafkaWire(near["kafka"], timeout_s=ANSWER_S) as wire:
        answer = wire.ask(key, version, body)
    (code,) = struct.unpack_from(">h", answer, 8 + len(kafka.string(topic.encode())))
    return _of_kafka(code)


def kafka_creates(near: Near, topic: str) -> ChangeOutcome:
    """CreateTopics."""
    named = kafka.string(topic.encode()) + struct.pack(">ihii", PARTITIONS, 1, 0, 0)
    body = struct.pack(">i", 1) + named + struct.pack(">ib", TIMEOUT_MS, 0)
    return _by_kafka(near, kafka.CREATE_TOPICS, 2, body, topic)


def kafka_deletes(near: Near, topic: str) -> ChangeOutcome:
    """DeleteTopics."""
    body = struct.pack(">i", 1) + kafka.string(topic.encode()) + struct.pack(">i", TIMEOUT_MS)
    return _by_kafka(near, DELETE_TOPICS, 1, body, topic)


def kafka_grows(near: Near, topic: str) -> ChangeOutcome:
    """CreatePartitions."""
    named = kafka.string(topic.encode()) + struct.pack(">ii", PARTITIONS + 1, -1)
    body = struct.pack(">i", 1) + named + struct.pack(">ib", TIMEOUT_MS, 0)
    return _by_kafka(near, CREATE_PARTITIONS, 0, body, topic)


def kafka_commits(near: Near, topic: str) -> ChangeOutcome:
    """OffsetCommit outside of a group of members."""
    with KafkaWire(near["kafka"], timeout_s=ANSWER_S) as wire:
        return _of_kafka(wire.commit(GROUP, topic, 2))


def kafka_asks_metadata(near: Near, topic: str) -> ChangeOutcome:
    """Metadata: creates a missing topic. Clients repeat after error 5."""
    body = struct.pack(">i", 1) + kafka.string(topic.encode())
    with KafkaWire(near["kafka"], timeout_s=ANSWER_S) as wire:
        answer = wire.ask(METADATA, 0, body)
    (brokers,) = struct.unpack_from(">i", answer)
    pos = 4
    for _ in range(brokers):
        (size,) = struct.unpack_from(">h", answer, pos + 4)
        pos += 4 + 2 + size + 4
    (code,) = struct.unpack_from(">h", answer, pos + 4)
    return ChangeOutcome.UNKNOWN if code == 5 else _of_kafka(code)


def kafka_alters(key: int, operation: bytes, near: Near, topic: str) -> ChangeOutcome:
    """AlterConfigs and IncrementalAlterConfigs, which has an operation."""
    config = kafka.string(b"retention.ms") + operation + kafka.string(b"60000")
    resource = b"\x02" + kafka.string(topic.encode()) + struct.pack(">i", 1) + config
    body = struct.pack(">i", 1) + resource + b"\x00"
    with KafkaWire(near["kafka"], timeout_s=ANSWER_S) as wire:
        (code,) = struct.unpack_from(">h", wire.ask(key, 0, body), 8)
    return _of_kafka(code)


def kafka_deletes_group(near: Near, topic: str) -> ChangeOutcome:
    """DeleteGroups, of a group called as the topic."""
    body = struct.pack(">i", 1) + kafka.string(topic.encode())
    return _by_kafka(near, DELETE_GROUPS, 0, body, topic)


def kafka_deletes_offset(near: Near, topic: str) -> ChangeOutcome:
    """OffsetDelete of a partition, of a group called as the topic. A repeat finds no group."""
    name = kafka.string(topic.encode())
    body = name + struct.pack(">i", 1) + name + struct.pack(">ii", 1, 0)
    with KafkaWire(near["kafka"], timeout_s=ANSWER_S) as wire:
        answer = wire.ask(OFFSET_DELETE, 0, body)
    (code,) = struct.unpack_from(">h", answer)
    if not code:
        (code,) = struct.unpack_from(">h", answer, 2 + 4 + 4 + len(name) + 4 + 4)
    return _of_kafka(code)


# Pulsar. Most of its changes are made at the owner; a producer creates a missing topic.


def pulsar_creates(kind: int, fields: pulsar.Fields, near: Near, topic: str) -> ChangeOutcome:
    """PRODUCER or SUBSCRIBE. After any error clients look the topic up and try again."""
    with PulsarWire(near["pulsar"]) as wire:
        wire.look_up(topic)
        name = f"persistent://public/default/{topic}".encode()
        wire.command(kind, [(1, name), *fields])
        kind, _, _ = wire.take_command()
    return ChangeOutcome.UNKNOWN if kind == pulsar.ERROR else ChangeOutcome.DONE


# Present; the flags of all streams, of which the first is to manage servers; no single streams.
_PERMISSIONS = b"\x01" + struct.pack("<I", 11) + b"\x01" + bytes(10)
_ROOT = "/api/v1/users/iggy"
_ONE = struct.pack("<I", 1)
_NEW_GROUP = struct.pack("<I", 0) + iggy.text8(NEW_GROUP)

CHANGES: Final[Mapping[str, Change]] = {
    "Iggy CREATE_TOPIC": Change(iggy_creates, creates=True),
    "Iggy UPDATE_TOPIC": Change(iggy_updates),
    "Iggy DELETE_TOPIC": Change(partial(by_iggy, DELETE_TOPIC, b"")),
    "Iggy CREATE_PARTITIONS": Change(partial(by_iggy, iggy.CREATE_PARTITIONS, _ONE), is_step=True),
    "Iggy DELETE_PARTITIONS": Change(partial(by_iggy, iggy.DELETE_PARTITIONS, _ONE), is_step=True),
    "Iggy PURGE_TOPIC": Change(partial(by_iggy, PURGE_TOPIC, b""), over_topic=True),
    "Iggy SEND_MESSAGES": Change(iggy_sends, over_topic=True, appends=True),
    "Iggy POLL_MESSAGES": Change(iggy_polls, over_topic=True, is_step=True),
    "Iggy STORE_CONSUMER_OFFSET": Change(iggy_stores, over_topic=True),
    "Iggy DELETE_CONSUMER_OFFSET": Change(iggy_forgets, over_topic=True),
    "Iggy CREATE_GROUP": Change(partial(by_iggy, iggy.CREATE_GROUP, _NEW_GROUP), over_topic=True),
    "Iggy DELETE_GROUP": Change(
        partial(by_iggy, iggy.DELETE_GROUP, iggy.identifier(OTHER_GROUP)), over_topic=True
    ),
    "Iggy CREATE_STREAM": Change(
        partial(iggy_names, iggy.CREATE_STREAM, bytes(4), b""), looks=[SPACE]
    ),
    "Iggy DELETE_STREAM": Change(
        partial(iggy_identifies, DELETE_STREAM, b""), prepares=[MAKE_SPACE], looks=[SPACE]
    ),
    "Iggy PURGE_STREAM": Change(
        partial(iggy_identifies, PURGE_STREAM, b""),
        over_topic=True,
        prepares=[
            MAKE_SPACE,
            ("PUT", IN_SPACE, {"partitions": 1}),
            ("POST", "/topics/public/NAME/NAME", {"messages": [{"value": "x"}]}),
        ],
        looks=[IN_SPACE],
    ),
    "Iggy CREATE_USER": Change(
        partial(iggy_names, CREATE_USER, b"", iggy.text8("secret123") + b"\x01\x00"), looks=[USER]
    ),
    "Iggy DELETE_USER": Change(
        partial(iggy_identifies, DELETE_USER, b""), prepares=[MAKE_USER], looks=[USER]
    ),
    "Iggy UPDATE_USER": Change(
        partial(iggy_identifies, UPDATE_USER, b"\x00\x01\x02"), prepares=[MAKE_USER], looks=[USER]
    ),
    "Iggy UPDATE_PERMISSIONS": Change(
        partial(iggy_identifies, UPDATE_PERMISSIONS, _PERMISSIONS),
        prepares=[MAKE_USER],
        looks=[GRANTED],
    ),
    "Iggy CREATE_TOKEN": Change(
        partial(iggy_names, CREATE_TOKEN, b"", struct.pack("<Q", iggy.NEVER)),
        looks=[_ROOT],
    ),
    "Iggy DELETE_TOKEN": Change(
        partial(iggy_names, DELETE_TOKEN, b"", b""),
        prepares=[("PUT", f"{_ROOT}/tokens/NAME", {})],
        looks=[_ROOT],
    ),
    "Kafka CreateTopics": Change(kafka_creates, creates=True),
    "Kafka DeleteTopics": Change(kafka_deletes),
    "Kafka CreatePartitions": Change(kafka_grows),
    "Kafka OffsetCommit": Change(kafka_commits, over_topic=True),
    "Kafka DeleteGroups": Change(
        kafka_deletes_group,
        over_topic=True,
        coordinates=True,
        prepares=[("PUT", "/api/v1/groups/TOPIC/NAME/positions", {"positions": {"0": 1}})],
    ),
    "Kafka OffsetDelete": Change(
        kafka_deletes_offset,
        over_topic=True,
        coordinates=True,
        prepares=[("PUT", "/api/v1/groups/TOPIC/NAME/positions", {"positions": {"0": 1}})],
    ),
    "Kafka Metadata": Change(kafka_asks_metadata, creates=True),
    "Kafka AlterConfigs": Change(partial(kafka_alters, ALTER_CONFIGS, b"")),
    "Kafka IncrementalAlterConfigs": Change(
        partial(kafka_alters, INCREMENTAL_ALTER_CONFIGS, b"\x00")
    ),
    "Pulsar PRODUCER": Change(
        partial(pulsar_creates, pulsar.PRODUCER, [(2, 0), (3, 1)]), creates=True, at_near=True
    ),
    "Pulsar SUBSCRIBE": Change(
        partial(pulsar_creates, pulsar.SUBSCRIBE, [(2, b"new"), (3, 0), (4, 0), (5, 1)]),
        creates=True,
        at_near=True,
    ),
    **HTTP_CHANGES,
}

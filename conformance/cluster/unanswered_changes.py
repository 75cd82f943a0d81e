"""Changes for `unanswered`: requests by hand, and the meaning of each answer.

A change goes over the link to the catalogue's owner or to the topic's owner: clients of the other
protocols' listeners are redirected to the owner and use no link.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

import httpx

from conformance.raw import iggy, kafka, pulsar
from conformance.raw.iggy import IggyWire
from conformance.raw.kafka import KafkaWire
from conformance.raw.pulsar import PulsarWire

GROUP, OTHER_GROUP, NEW_GROUP = "group", "other", "new"
PARTITIONS: Final = 2  # Of each topic before its change.
PURGE_TOPIC, DELETE_TOPIC = 305, 303
DELETE_TOPICS, CREATE_PARTITIONS = 20, 37  # Kafka's.
TIMEOUT_MS: Final = 30_000
ANSWER_S: Final = 60.0

Near = Mapping[str, tuple[str, int]]  # Address of each listener of the broker that is asked.


class Told(Enum):
    """The meaning of an answer to a change."""

    DONE = "done"
    NOT_DONE = "not done"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Change:
    """A request. `over_topic`: the request goes over the link to the topic's owner, else to the
    catalogue's owner. `creates`: the topic must not exist before. `is_step`: a repeat is another
    change. `appends`: a repeat may store twice. `at_near`: the broker that is asked owns the topic.
    """

    make: Callable[[Near, str], Told]
    over_topic: bool = False
    creates: bool = False
    is_step: bool = False
    appends: bool = False
    at_near: bool = False


# Iggy. A connection that ends without an answer, and error 206, leave the outcome unknown.


def by_iggy(code: int, tail: bytes, near: Near, topic: str) -> Told:
    """A command that names a topic first."""
    return _by_iggy(near, code, iggy.identifier("default") + iggy.identifier(topic) + tail)


def _by_iggy(near: Near, code: int, body: bytes) -> Told:
    with IggyWire(near["iggy"], timeout_s=ANSWER_S) as wire:
        try:
            status, _ = wire.ask(code, body)
        except ConnectionError:
            return Told.UNKNOWN
    return {0: Told.DONE, 206: Told.UNKNOWN}.get(status, Told.NOT_DONE)


def iggy_creates(near: Near, topic: str) -> Told:
    """CREATE_TOPIC."""
    settings = struct.pack("<IIBQQB", 0, PARTITIONS, 1, iggy.NEVER, 0, 0)
    body = iggy.identifier("default") + settings + iggy.text8(topic)
    return _by_iggy(near, iggy.CREATE_TOPIC, body)


def iggy_updates(near: Near, topic: str) -> Told:
    """UPDATE_TOPIC: another expiry, the same name."""
    tail = struct.pack("<BQQB", 1, 3_600_000_000, 0, 0) + iggy.text8(topic)
    return by_iggy(iggy.UPDATE_TOPIC, tail, near, topic)


def iggy_sends(near: Near, topic: str) -> Told:
    """SEND of a message."""
    sent = bytes(16) + iggy.headers_block([]) + struct.pack("<I", 1) + b"x"
    return _by_iggy(near, iggy.SEND, iggy.send_body(topic, sent))


def iggy_polls(near: Near, topic: str) -> Told:
    """POLL with auto commit: stores the returned messages as consumed."""
    body = iggy.poll_body(topic, 1, iggy.NEXT, 0, GROUP, commits=True)
    return _by_iggy(near, iggy.POLL, body)


def iggy_stores(near: Near, topic: str) -> Told:
    """STORE_OFFSET."""
    body = iggy.CONSUMER + iggy.identifier(GROUP)
    body += iggy.identifier("default") + iggy.identifier(topic) + struct.pack("<IQ", 1, 1)
    return _by_iggy(near, iggy.STORE_OFFSET, body)


def iggy_forgets(near: Near, topic: str) -> Told:
    """DELETE_OFFSET."""
    body = iggy.CONSUMER + iggy.identifier(GROUP)
    body += iggy.identifier("default") + iggy.identifier(topic) + struct.pack("<I", 1)
    return _by_iggy(near, iggy.DELETE_OFFSET, body)


# Kafka. Errors 7 and 14 leave the outcome unknown; clients repeat after 14.


def _of_kafka(code: int) -> Told:
    return {0: Told.DONE, 7: Told.UNKNOWN, 14: Told.UNKNOWN}.get(code, Told.NOT_DONE)


def _by_kafka(near: Near, key: int, version: int, body: bytes, topic: str) -> Told:
    """Send a request of the admin API; the answer has the error behind the topic's name."""
    with KafkaWire(near["kafka"], timeout_s=ANSWER_S) as wire:
        answer = wire.ask(key, version, body)
    (code,) = struct.unpack_from(">h", answer, 8 + len(kafka.string(topic.encode())))
    return _of_kafka(code)


def kafka_creates(near: Near, topic: str) -> Told:
    """CreateTopics."""
    named = kafka.string(topic.encode()) + struct.pack(">ihii", PARTITIONS, 1, 0, 0)
    body = struct.pack(">i", 1) + named + struct.pack(">ib", TIMEOUT_MS, 0)
    return _by_kafka(near, kafka.CREATE_TOPICS, 2, body, topic)


def kafka_deletes(near: Near, topic: str) -> Told:
    """DeleteTopics."""
    body = struct.pack(">i", 1) + kafka.string(topic.encode()) + struct.pack(">i", TIMEOUT_MS)
    return _by_kafka(near, DELETE_TOPICS, 1, body, topic)


def kafka_grows(near: Near, topic: str) -> Told:
    """CreatePartitions."""
    named = kafka.string(topic.encode()) + struct.pack(">ii", PARTITIONS + 1, -1)
    body = struct.pack(">i", 1) + named + struct.pack(">ib", TIMEOUT_MS, 0)
    return _by_kafka(near, CREATE_PARTITIONS, 0, body, topic)


def kafka_commits(near: Near, topic: str) -> Told:
    """OffsetCommit outside of a group of members."""
    with KafkaWire(near["kafka"], timeout_s=ANSWER_S) as wire:
        return _of_kafka(wire.commit(GROUP, topic, 2))


# Pulsar. Most of its changes are made at the owner; a producer creates a missing topic.


def pulsar_creates(near: Near, topic: str) -> Told:
    """PRODUCER. After any error clients look the topic up and try again."""
    with PulsarWire(near["pulsar"]) as wire:
        wire.look_up(topic)
        name = f"persistent://public/default/{topic}".encode()
        wire.command(pulsar.PRODUCER, [(1, name), (2, 0), (3, 1)])
        kind, _, _ = wire.take_command()
    return Told.UNKNOWN if kind == pulsar.ERROR else Told.DONE


# HTTP. 502 leaves the outcome unknown.


def by_http(method: str, path: str, body: Any, near: Near, topic: str) -> Told:
    """Send a request with the topic in its path."""
    host, port = near["http"]
    url = f"http://{host}:{port}{path.replace('TOPIC', f'public/default/{topic}')}"
    answer = httpx.request(method, url, json=body, timeout=ANSWER_S, trust_env=False)
    if answer.is_success:
        return Told.DONE
    return Told.UNKNOWN if answer.status_code == 502 else Told.NOT_DONE


_API = "/api/v1/topics/TOPIC"
_ONE = struct.pack("<I", 1)
_NEW_GROUP = struct.pack("<I", 0) + iggy.text8(NEW_GROUP)
_APPENDED = {"messages": [{"value": "x", "partition": 0}]}
_POSITIONS = {"positions": {"0": 2}}

CHANGES: Final[Mapping[str, Change]] = {
    "Iggy CREATE_TOPIC": Change(iggy_creates, creates=True),
    "Iggy UPDATE_TOPIC": Change(iggy_updates),
    "Iggy DELETE_TOPIC": Change(partial(by_iggy, DELETE_TOPIC, b"")),
    "Iggy CREATE_PARTITIONS": Change(partial(by_iggy, iggy.CREATE_PARTITIONS, _ONE), is_step=True),
    "Iggy DELETE_PARTITIONS": Change(partial(by_iggy, iggy.DELETE_PARTITIONS, _ONE), is_step=True),
    "Iggy PURGE_TOPIC": Change(partial(by_iggy, PURGE_TOPIC, b""), over_topic=True),
    "Iggy SEND": Change(iggy_sends, over_topic=True, appends=True),
    "Iggy POLL": Change(iggy_polls, over_topic=True, is_step=True),
    "Iggy STORE_OFFSET": Change(iggy_stores, over_topic=True),
    "Iggy DELETE_OFFSET": Change(iggy_forgets, over_topic=True),
    "Iggy CREATE_GROUP": Change(partial(by_iggy, iggy.CREATE_GROUP, _NEW_GROUP), over_topic=True),
    "Iggy DELETE_GROUP": Change(
        partial(by_iggy, iggy.DELETE_GROUP, iggy.identifier(OTHER_GROUP)), over_topic=True
    ),
    "Kafka CreateTopics": Change(kafka_creates, creates=True),
    "Kafka DeleteTopics": Change(kafka_deletes),
    "Kafka CreatePartitions": Change(kafka_grows),
    "Kafka OffsetCommit": Change(kafka_commits, over_topic=True),
    "Pulsar PRODUCER": Change(pulsar_creates, creates=True, at_near=True),
    "HTTP PUT topic": Change(
        partial(by_http, "PUT", _API, {"partitions": PARTITIONS}), creates=True
    ),
    "HTTP PATCH topic": Change(partial(by_http, "PATCH", _API, {"partitions": PARTITIONS + 1})),
    "HTTP DELETE topic": Change(partial(by_http, "DELETE", _API, None)),
    "HTTP append": Change(
        partial(by_http, "POST", "/topics/TOPIC", _APPENDED), over_topic=True, appends=True
    ),
    "HTTP set positions": Change(
        partial(by_http, "PUT", f"/api/v1/groups/TOPIC/{GROUP}/positions", _POSITIONS),
        over_topic=True,
    ),
}

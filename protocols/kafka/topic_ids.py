"""Topic ids, as Kafka's clients know them: a topic that is deleted and made again has another id,
so that clients forget the old topic's partitions (KIP-516). Knows no request.

An id is made from the catalogue's record of the topic, the same at each broker of a cluster: its
last 8 bytes are the catalogue's number of the topic, the others a checksum of the name and the time
of creation. A data directory that is made anew has other ids.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.broker.topics.registry import TopicRegistry
    from braidlog.broker.topics.topic import Topic

NO_ID: Final = bytes(16)
LAYOUT: Final = struct.Struct(">QQ")  # checksum, number
CHECKSUM_BYTES: Final = 8
# Shown in base64, an id must not begin with "-": tools would take it for an option.
POSITIVE: Final = (1 << 63) - 1


def id_of(topic: Topic) -> bytes:
    meta = topic.meta
    identity = f"{meta.topic_id} {meta.created_us} {meta.name.full}".encode()
    checksum = hashlib.blake2b(identity, digest_size=CHECKSUM_BYTES).digest()
    return LAYOUT.pack(int.from_bytes(checksum, "big") & POSITIVE, meta.topic_id)


def find_topic(topics: TopicRegistry, topic_id: bytes) -> Topic | None:
    """Return the topic with that id, if the topic still exists."""
    _, number = LAYOUT.unpack(topic_id)
    topic = topics.find_by_id(number)
    return topic if topic is not None and id_of(topic) == topic_id else None

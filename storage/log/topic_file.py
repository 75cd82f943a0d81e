"""The `topic` file of a partition's folder: the topic and partition that own the folder (FORMAT.md
section 5).
"""

from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

TOPIC_NAME = "topic"
MAGIC = b"BRAIDTOP"
VERSION = 1

# magic, version, reserved, name_bytes, partition_id, partition_index, reserved
HEADER = Struct("<8sHHIQII")
CRC = Struct("<I")

# Three parts of 255 bytes at most, and the fields around them.
TOPIC_BYTES_MAX = 4096


class BadTopicFile(ValueError):
    """The file is not a good topic file; the text says why."""


@dataclass(slots=True, frozen=True)
class TopicFile:
    """Partition `partition_index` of the topic with that full name has that partition id."""

    partition_id: int
    topic: str
    partition_index: int


def pack_topic_file(content: TopicFile) -> bytes:
    """The file's bytes."""
    name = content.topic.encode()
    fields = (len(name), content.partition_id, content.partition_index, 0)
    rest = HEADER.pack(MAGIC, VERSION, 0, *fields) + name
    return rest + CRC.pack(crc32c(rest))


def unpack_topic_file(data: bytes) -> TopicFile:
    """Parse a topic file. Raises BadTopicFile."""
    if len(data) < HEADER.size + CRC.size:
        raise BadTopicFile(f"only {len(data)} bytes")
    if CRC.unpack_from(data, len(data) - CRC.size)[0] != crc32c(data[: -CRC.size]):
        raise BadTopicFile("checksum is wrong")
    magic, version, reserved, name_bytes, partition_id, index, rest = HEADER.unpack_from(data)
    if (magic, version, reserved, rest) != (MAGIC, VERSION, 0, 0):
        raise BadTopicFile(f"not a topic file of version {VERSION}")
    if len(data) != HEADER.size + name_bytes + CRC.size:
        raise BadTopicFile("length is wrong")
    try:
        name = data[HEADER.size : -CRC.size].decode()
    except UnicodeDecodeError as error:
        raise BadTopicFile("name is not UTF-8") from error
    return TopicFile(partition_id, name, index)

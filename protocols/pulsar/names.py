"""Topic names as Pulsar writes them. Knows no client and no right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.errors import BrokerError
from protocols.pulsar.errors import Refused
from storage.codecs.pb.PulsarApi_pb2 import ServerError
from storage.metadata.names import TopicName

if TYPE_CHECKING:
    from broker.topics.partition import Partition
    from broker.topics.topics import Topics

UNPARTITIONED = -1  # Partition number in message ids of a topic that has no partitions.
# Where clients look for the transaction coordinator. They are told that it is here, so that their
# next command ends with "Transactions are not enabled" instead of a missing namespace.
COORDINATOR = "persistent://pulsar/system/transaction_coordinator_assign"


def is_coordinator(text: str) -> bool:
    """Whether the name is that of the transaction coordinator, or of a partition of it."""
    return text == COORDINATOR or text.startswith(COORDINATOR + "-partition-")


def parse(topics: Topics, text: str) -> tuple[TopicName, int | None]:
    """The topic that a name means, and the partition's number if the name has one.

    Raises InvalidName; Refused for non-persistent topics, which are not served.
    """
    if text.startswith("non-persistent://"):
        raise Refused(ServerError.NotAllowedError, "non-persistent topics are not served")
    return topics.resolve_pulsar(text)


def is_missing(topics: Topics, text: str) -> bool:
    """Whether the name is that of a topic that is not there."""
    try:
        return topics.find(parse(topics, text)[0]) is None
    except (BrokerError, Refused):
        return False


def partition_number(partition: Partition) -> int:
    """The partition's number in message ids."""
    return partition.index if partition.topic.partitioned else UNPARTITIONED


def full_names(partition_count: int, name: TopicName, *, partitioned: bool) -> list[str]:
    """What clients call the topic: its partitions one by one, if it has any."""
    full = f"persistent://{name.full}"
    if not partitioned:
        return [full]
    return [f"{full}-partition-{index}" for index in range(partition_count)]

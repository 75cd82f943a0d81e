"""Descriptions of partitions that Metadata answers share."""

import pytest

from braidlog.protocols.kafka.encoding import encode
from braidlog.protocols.kafka.kept_partitions import KeptPartitions, describe
from braidlog.protocols.kafka.wire.metadata import MetadataResponse, MetadataResponseTopic


@pytest.mark.parametrize("version", [0, 1, 5, 7, 8, 9])
def test_a_kept_list_has_the_bytes_of_a_plain_list(version: int) -> None:
    plain = [describe(index, 0, 1, 0) for index in range(100)]
    prepared = KeptPartitions().keep((100, 0, 1, 0), plain)

    def answer(partitions: list) -> bytes:
        topic = MetadataResponseTopic(name=b"t", partitions=partitions)
        reply = MetadataResponse(brokers=[], cluster_id=b"c", topics=[topic])
        return b"".join(map(bytes, encode(7, reply, version)))

    assert not prepared.is_ready(version)
    assert answer(prepared) == answer(prepared) == answer(plain)
    assert prepared.is_ready(version)


def test_a_partition_without_a_leader_has_no_replicas() -> None:
    assert describe(0, 5, -1, 0).replica_nodes == []
    assert describe(0, 0, 1, 0).isr_nodes == [1]


def test_the_lists_not_asked_for_are_dropped() -> None:
    lists = KeptPartitions(10)
    for count in (4, 5):
        lists.keep((count, 0, 1, 0), [describe(index, 0, 1, 0) for index in range(count)])
    assert lists.get((4, 0, 1, 0)) is not None
    lists.keep((3, 0, 1, 0), [describe(index, 0, 1, 0) for index in range(3)])
    assert lists.get((5, 0, 1, 0)) is None
    assert lists.get((4, 0, 1, 0)) is not None
    assert len(lists.keep((11, 0, 1, 0), [describe(index, 0, 1, 0) for index in range(11)])) == 11
    assert lists.get((11, 0, 1, 0)) is None

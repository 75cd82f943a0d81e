"""Kafka topic names: which can be said, and what they mean to the broker."""

import pytest

from protocols.kafka.names import IllegalName, NameSpace, visible
from storage.metadata.names import TopicName

NAMES = NameSpace("acme/sales")


@pytest.mark.parametrize("name", [b"orders", b"a.b_c-D9", b"...", b"x" * 249, b"x-partition-"])
def test_legal_name_is_a_topic_of_the_listeners_namespace(name: bytes) -> None:
    assert NAMES.topic_name(name) == TopicName("acme", "sales", name.decode())
    assert visible(TopicName("acme", "sales", name.decode()))


@pytest.mark.parametrize(
    "name",
    [None, b"", b".", b"..", b"bad!", b"a/b", b"a b", b"x" * 250, "ü".encode(), b"\xff", b"a\n"],
)
def test_name_that_is_illegal_in_kafka_is_refused(name: bytes | None) -> None:
    with pytest.raises(IllegalName):
        NAMES.topic_name(name)


def test_name_of_a_pulsar_partition_is_refused_and_hidden() -> None:
    with pytest.raises(IllegalName):
        NAMES.topic_name(b"orders-partition-0")
    assert not visible(TopicName("acme", "sales", "orders-partition-0"))


@pytest.mark.parametrize("topic", ["bestellungen/neu", "ü", "a b", "x" * 250])
def test_topic_that_kafka_cannot_name_is_hidden(topic: str) -> None:
    assert not visible(TopicName("acme", "sales", topic))


@pytest.mark.parametrize("path", ["", "default", "a/b/c", "/b", "a/", "persistent://a/b"])
def test_listener_serves_one_tenant_and_namespace(path: str) -> None:
    with pytest.raises(ValueError, match="tenant/namespace"):
        NameSpace(path)

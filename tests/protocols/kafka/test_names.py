"""Kafka topic names: legal names, and their meaning for the broker."""

import pytest

from braidlog.broker.errors import InvalidName
from braidlog.protocols.kafka.names import NameSpace, name_space, visible
from braidlog.storage.metadata.names import TopicName

NAMES = NameSpace("acme/sales")


@pytest.mark.parametrize("name", [b"orders", b"a.b_c-D9", b"...", b"x" * 249, b"x-partition-"])
def test_legal_name_is_a_topic_of_the_listeners_namespace(name: bytes) -> None:
    assert NAMES.topic_name(name) == TopicName("acme", "sales", name.decode())
    assert visible(TopicName("acme", "sales", name.decode()))


@pytest.mark.parametrize(
    "name",
    [None, b"", b".", b"..", b"bad!", b"a/b", b"a b", b"x" * 250, "ü".encode(), b"\xff", b"a\n"],
)
def test_an_illegal_name_is_refused(name: bytes | None) -> None:
    with pytest.raises(InvalidName):
        NAMES.topic_name(name)


def test_name_of_a_pulsar_partition_is_refused_and_hidden() -> None:
    with pytest.raises(InvalidName):
        NAMES.topic_name(b"orders-partition-0")
    assert not visible(TopicName("acme", "sales", "orders-partition-0"))


@pytest.mark.parametrize("topic", ["bestellungen/neu", "ü", "a b", "x" * 250])
def test_topic_that_kafka_cannot_name_is_hidden(topic: str) -> None:
    assert not visible(TopicName("acme", "sales", topic))


@pytest.mark.parametrize("path", ["", "default", "a/b/c", "/b", "a/", "persistent://a/b"])
def test_listener_serves_one_tenant_and_namespace(path: str) -> None:
    with pytest.raises(ValueError, match="tenant/namespace"):
        NameSpace(path)


def test_all_connections_share_known_names() -> None:
    """Formerly each of 500 connections kept a thousand names: 113 MB."""
    assert name_space("acme/sales") is name_space("acme/sales")
    known = name_space("acme/sales").topic_name(b"orders")
    assert name_space("acme/sales").topic_name(bytes(bytearray(b"orders"))) is known
    assert name_space("acme/other").topic_name(b"orders") != known


def test_cached_names_have_a_limit() -> None:
    space = NameSpace("acme/sales", names_max=3)
    first = space.topic_name(b"t0")
    for number in range(1, 4):
        assert space.topic_name(b"t0") is first
        space.topic_name(b"t%d" % number)
    assert space.topic_name(b"t0") is not first
    assert space.topic_name(b"t0") == first

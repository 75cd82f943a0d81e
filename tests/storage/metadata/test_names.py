import pytest

from braidlog.storage.metadata.names import (
    InvalidTopicName,
    TopicName,
    check_topic_name,
    kafka_legal,
    parse_topic,
    split_partition,
    valid_namespace,
)

LONG = "n" * 256


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("orders", TopicName("public", "default", "orders")),
        ("acme/sales/orders", TopicName("acme", "sales", "orders")),
        ("persistent://acme/sales/orders", TopicName("acme", "sales", "orders")),
        ("public/My Orders/späte: ones", TopicName("public", "My Orders", "späte: ones")),
        ("n" * 255, TopicName("public", "default", "n" * 255)),
    ],
)
def test_valid_names_are_accepted(text, name):
    assert parse_topic(text) == name
    assert parse_topic("persistent://" + name.full) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \t",
        "a/b",
        "persistent://orders",
        "persistent://acme/cluster/sales/orders",
        "acme/cluster/sales/orders",
        "non-persistent://acme/sales/orders",
        "topic://acme/sales/orders",
        "segment://acme/sales/orders",
        "a cme/sales/orders",
        "/sales/orders",
        "acme//orders",
        "acme/sales/",
        "line\nbreak",
        "nul\x00",
        "half \ud800",
        LONG,
        "ä" * 128,
        f"{LONG}/sales/orders",
        f"acme/{LONG}/orders",
    ],
)
def test_invalid_names_are_refused(text):
    with pytest.raises(InvalidTopicName):
        parse_topic(text)


def test_a_name_from_parts_is_checked_like_a_parsed_name():
    check_topic_name(TopicName("public", "default", "orders"))
    with pytest.raises(InvalidTopicName):
        check_topic_name(TopicName("public", "default", "a/b"))
    assert valid_namespace("public", "two words")
    assert not valid_namespace("two words", "default")


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("x-partition-3", ("x", 3)),
        ("x-partition-0", ("x", 0)),
        ("x-partition-1-partition-2", ("x-partition-1", 2)),
        ("x-partition-03", None),
        ("x-partition--1", None),
        ("x-partition-", None),
        ("x-partition-3a", None),
        ("-partition-3", None),
        ("x-partition-٣", None),
        ("x-partition-3\n", None),
        ("x", None),
    ],
)
def test_only_a_plain_number_after_partition_names_a_partition(text, split):
    assert split_partition(text) == split


@pytest.mark.parametrize("text", ["a", "A-z_0.9", "...", "n" * 249])
def test_names_that_are_legal_in_kafka(text):
    assert kafka_legal(text)


@pytest.mark.parametrize("text", ["", ".", "..", "a b", "ä", "a/b", "a:b", "n" * 250, "a\n"])
def test_names_that_are_illegal_in_kafka(text):
    assert not kafka_legal(text)


def test_names_sort_and_hash_by_their_parts():
    names = [TopicName("b", "a", "a"), TopicName("a", "b", "a"), TopicName("a", "a", "b")]
    assert [name.full for name in sorted(names)] == ["a/a/b", "a/b/a", "b/a/a"]
    assert TopicName("a", "a", "b") in set(names)
    assert str(names[0]) == "b/a/a"

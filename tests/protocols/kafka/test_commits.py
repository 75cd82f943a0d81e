"""Group positions through the wire: kept as given, shared by both versions and all doors."""

import pytest

from broker.broker import Broker
from protocols.kafka import messages as m
from tests.protocols.kafka.frames import Client, message_set
from tests.protocols.kafka.talk import (
    FOO,
    FOO_NAME,
    produce_one,
)


async def commit(
    client: Client, version: int, offset: int, metadata: bytes | None, group: bytes | None = b"g"
) -> int:
    target = m.CommitTarget(offset, metadata, None)
    request = m.OffsetCommitRequest(version, group, -1, b"", {FOO: {0: target}})
    reply = await client.call(request)
    assert isinstance(reply, m.OffsetCommitReply)
    return reply.topics[FOO][0]


async def committed(client: Client, version: int, group: bytes | None = b"g") -> m.CommittedOffset:
    reply = await client.call(m.OffsetFetchRequest(version, group, {FOO: [0]}))
    assert isinstance(reply, m.OffsetFetchReply)
    return reply.topics[FOO][0]


async def test_never_committed_is_error_3_in_version_0_and_none_in_version_1(
    client: Client,
) -> None:
    assert await committed(client, 0) == m.CommittedOffset(-1, b"", 3)
    assert await committed(client, 1) == m.CommittedOffset(-1, b"", 0)


@pytest.mark.parametrize("metadata", [b"", b"note", None, "ü".encode(), b"\xff\x00"])
@pytest.mark.parametrize("written", [0, 1])
async def test_both_versions_share_one_position_and_version_1_gives_metadata_as_it_was(
    client: Client, metadata: bytes | None, written: int
) -> None:
    assert await commit(client, written, 7, metadata) == 0
    assert await committed(client, 1) == m.CommittedOffset(7, metadata, 0)
    assert await committed(client, 0) == m.CommittedOffset(7, b"", 0)


@pytest.mark.parametrize("offset", [-5, 0, 1 << 50, -(2**63), 2**63 - 1])
async def test_any_number_is_given_back_as_committed(client: Client, offset: int) -> None:
    assert await commit(client, 1, offset, b"") == 0
    assert await committed(client, 1) == m.CommittedOffset(offset, b"", 0)


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        (b"m" * 4096, 0),
        (b"m" * 4097, 12),
        ("ü" * 4096, 0),
        ("ü" * 4097, 12),
        ("\U0001f9f6" * 2049, 12),
    ],
    ids=["4096", "4097", "4096 of two bytes", "4097 of two bytes", "pairs count twice"],
)
async def test_metadata_is_limited_in_characters(
    client: Client, metadata: bytes | str, code: int
) -> None:
    text = metadata.encode() if isinstance(metadata, str) else metadata
    assert await commit(client, 1, 3, text) == code
    expected = m.CommittedOffset(-1, b"", 0) if code else m.CommittedOffset(3, text, 0)
    assert await committed(client, 1) == expected


@pytest.mark.parametrize("time_ms", [0, -2, 2**63 - 1, -(2**63)])
async def test_commit_times_of_any_value_are_taken(client: Client, time_ms: int) -> None:
    target = m.CommitTarget(4, b"", time_ms)
    request = m.OffsetCommitRequest(1, b"g", -1, b"", {FOO: {0: target}})
    assert await client.call(request) == m.OffsetCommitReply({FOO: {0: 0}})
    assert (await committed(client, 1)).offset == 4


@pytest.mark.parametrize(("version", "code"), [(0, 3), (1, 0)])
async def test_commit_to_an_unknown_topic_is_looked_at_by_version_0_only(
    client: Client, version: int, code: int
) -> None:
    targets = {b"nowhere": {0: m.CommitTarget(1, b"", None)}}
    request = m.OffsetCommitRequest(version, b"g", -1, b"", targets)
    assert await client.call(request) == m.OffsetCommitReply({b"nowhere": {0: code}})
    reply = await client.call(m.OffsetFetchRequest(version, b"g", {b"nowhere": [0]}))
    assert reply == m.OffsetFetchReply({b"nowhere": {0: m.CommittedOffset(-1, b"", 3)}})


async def test_null_group_is_an_error(client: Client) -> None:
    assert await commit(client, 1, 1, b"", group=None) == -1
    assert (await committed(client, 1, group=None)).error == -1


async def test_position_that_another_door_moved_is_what_kafka_reads(
    broker: Broker, client: Client
) -> None:
    await produce_one(client, message_set(b"a", b"b", b"c"))
    await commit(client, 1, 1, b"note")
    topic = broker.topics.get(FOO_NAME)
    subscription = broker.subscriptions.find(topic, b"g")
    assert subscription is not None
    subscription.ack(0, [(1, 2)], lazy=False)
    assert (await committed(client, 1)).offset == 2


async def test_an_answered_commit_is_on_disk(broker: Broker, client: Client) -> None:
    before = broker.durability.durable_ticket
    await commit(client, 1, 5, b"")
    assert broker.durability.durable_ticket > before

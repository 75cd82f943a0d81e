"""Limits of users in the form of Kafka's quotas."""

import pytest

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.wire import alter_client_quotas as altering
from braidlog.protocols.kafka.wire.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tests.protocols.kafka.frames import RawKafka

LIMITS = {"access.limits.bytes_per_s": "5000", "access.user_limits.anna.bytes_per_s": "70"}
ANNA, OTHERS = (b"anna", 70.0), (None, 5000.0)


def part(kind: bytes, match: int, name: bytes | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match, match=name)


@pytest.mark.parametrize("broker", [LIMITS], indirect=True)
@pytest.mark.parametrize(
    ("components", "strict", "shown"),
    [
        ([], False, [OTHERS, ANNA]),
        ([], True, []),
        ([part(b"user", 0, b"anna")], False, [ANNA]),
        ([part(b"user", 0, b"bert")], False, []),
        ([part(b"user", 1)], True, [OTHERS]),
        ([part(b"user", 2)], True, [OTHERS, ANNA]),
        ([part(b"user", 2), part(b"client-id", 2)], False, []),
        ([part(b"ip", 2)], False, []),
    ],
)
async def test_limits_are_shown_by_user(
    broker: Broker,
    client: RawKafka,
    components: list[ComponentData],
    strict: bool,
    shown: list[tuple[bytes | None, float]],
) -> None:
    request = DescribeClientQuotasRequest(components=components, strict=strict)
    reply = await client.call_whole(request, 1)
    assert reply.error_code == 0
    assert [
        (entry.entity[0].entity_name, entry.values[0].value) for entry in reply.entries
    ] == shown
    assert all(
        [value.key for value in entry.values] == [b"producer_byte_rate", b"consumer_byte_rate"]
        for entry in reply.entries
    )


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([part(b"user", 2), part(b"user", 1)], 42),
        ([part(b"", 2)], 42),
        ([part(b"user", 5)], 42),
        ([part(b"user", 0)], 42),
        ([part(b"user", 1, b"x")], 42),
        ([part(b"ip", 2), part(b"user", 2)], 42),
        ([part(b"group", 2)], 35),
    ],
)
async def test_invalid_filters_are_refused(
    client: RawKafka, components: list[ComponentData], code: int
) -> None:
    reply = await client.call_whole(DescribeClientQuotasRequest(components=components), 0)
    assert (reply.error_code, reply.entries) == (code, None)


async def test_limits_cannot_be_changed(client: RawKafka) -> None:
    entity = [altering.EntityData(entity_type=b"user", entity_name=b"anna")]
    change = altering.OpData(key=b"producer_byte_rate", value=5.0)
    entry = altering.AlterClientQuotasRequestEntryData(entity=entity, ops=[change])
    reply = await client.call_whole(altering.AlterClientQuotasRequest(entries=[entry]), 1)
    assert [(entry.error_code, entry.entity[0].entity_name) for entry in reply.entries] == [
        (42, b"anna")
    ]
    assert b"configuration" in reply.entries[0].error_message

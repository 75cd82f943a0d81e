"""Settings of groups. The codes and texts are those of a Kafka 4.3.1 for the same frames."""

from pathlib import Path
from typing import Any

import pytest
import trio

from braidlog.broker.access.access import Access
from braidlog.broker.access.rights import Action
from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.consumer_group import SESSION_S
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_configs import GROUP_SETTINGS
from braidlog.protocols.kafka.topic_ids import id_of
from braidlog.protocols.kafka.wire import alter_configs, incremental_alter_configs
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from braidlog.protocols.kafka.wire.list_config_resources import ListConfigResourcesRequest
from braidlog.storage.formats.api import BodyFormat
from braidlog.storage.formats.record import Record
from braidlog.storage.formats.registry import codec_for
from tests.broker.access.rules import AllBut
from tests.listeners import open_listeners
from tests.opened import opened_broker
from tests.protocols.kafka import forms
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO, second_client
from tests.protocols.kafka.test_classic_groups import GROUP
from tests.protocols.kafka.test_consumer_groups import A, B, beat, first, partitions_of
from tests.protocols.kafka.test_share_fetch import acquired, fetch

SESSION, HEARTBEAT = b"consumer.session.timeout.ms", b"consumer.heartbeat.interval.ms"
ASSIGNMENT, START = b"consumer.assignment.interval.ms", b"share.auto.offset.reset"
GROUP_KIND, BROKER_KIND, TOPIC_KIND = 32, 4, 2
SET, DELETE, APPEND, SUBTRACT = range(4)
US_PER_HOUR = 3_600_000_000
Answer = tuple[int, str | None]


async def change(
    client: RawKafka, name: bytes, value: bytes | None, operation: int = SET, **fields: Any
) -> Answer:
    setting = incremental_alter_configs.AlterableConfig(
        name=name, value=value, config_operation=operation
    )
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=GROUP_KIND, resource_name=fields.pop("group", GROUP), configs=[setting]
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], **fields
    )
    (done,) = (await client.call_whole(request, 1)).responses
    return done.error_code, done.error_message and done.error_message.decode()


async def described(client: RawKafka, kind: int = GROUP_KIND, name: bytes = GROUP) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=True
    )
    (result,) = (await client.call_whole(request, 4)).results
    return result


# With the name and the value of the setting.
INVALID = "Invalid value {1} for configuration {0}: "
NO_NUMBER = INVALID + "Not a number of type INT"
LEAST = INVALID + "Value must be at least "
BELOW = "{0} must be greater than or equal to group."
ABOVE = "{0} must be less than or equal to group."
NO_START = INVALID + (
    "Invalid value `{1}` for configuration {0}. The value must be either 'earliest', 'latest' or "
    "of the format 'by_duration:<PnDTnHnMn.nS>'."
)
NO_LEVEL = INVALID + "String must be one of: read_committed, read_uncommitted"
NO_SWITCH = INVALID + "Expected value to be either true or false"
UNKNOWN = "Unknown group config name: {0}"
SWITCH, LEVEL = b"share.renew.acknowledge.enable", b"share.isolation.level"
LOCK, COUNT = b"share.record.lock.duration.ms", b"share.delivery.count.limit"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (SESSION, b"44999", BELOW + "consumer.min.session.timeout.ms"),
        (SESSION, b"60001", ABOVE + "consumer.max.session.timeout.ms"),
        (SESSION, b"60000", ""),
        (SESSION, b" +50000 ", ""),
        (SESSION, b"0", LEAST + "1"),
        (SESSION, b"2147483648", NO_NUMBER),
        (SESSION, b"5_0000", NO_NUMBER),
        (SESSION, b"1e3", NO_NUMBER),
        (SESSION, b"", NO_NUMBER),
        (HEARTBEAT, b"15001", ABOVE + "consumer.max.heartbeat.interval.ms"),
        (ASSIGNMENT, b"0", ""),
        (ASSIGNMENT, b"-1", LEAST + "0"),
        (LOCK, b"999", LEAST + "1000"),
        (LOCK, b"14999", BELOW + "share.min.record.lock.duration.ms"),
        (COUNT, b"1", LEAST + "2"),
        (COUNT, b"11", ABOVE + "share.max.delivery.count.limit"),
        (b"streams.num.standby.replicas", b"3", ABOVE + "streams.max.standby.replicas"),
        (b"streams.initial.rebalance.delay.ms", b"2147483647", ""),
        (START, b"LATEST", NO_START),
        (START, b"by_duration:PT1H", ""),
        (START, b"by_duration:-PT1H", NO_START),
        (START, b"by_duration:1h", NO_START),
        (LEVEL, b"READ_COMMITTED", NO_LEVEL),
        (SWITCH, b" FALSE ", ""),
        (SWITCH, b"x", NO_SWITCH),
        (b"nope", b"1", UNKNOWN),
        (b"group.consumer.session.timeout.ms", b"50000", UNKNOWN),
    ],
)
async def test_values_are_checked(
    client: RawKafka, name: bytes, value: bytes, expected: str
) -> None:
    code = Code.INVALID_CONFIG if expected else Code.NONE
    text = expected.format(name.decode(), value.decode()) or None
    assert await change(client, name, value, validate_only=True) == (code, text)
    assert await change(client, name, value) == (code, text)


async def test_operations_are_checked(client: RawKafka) -> None:
    null = Code.INVALID_REQUEST, f"Null value not supported for : {SESSION.decode()}"
    assert await change(client, SESSION, None) == null
    for operation, word in ((APPEND, "APPEND"), (SUBTRACT, "SUBTRACT")):
        text = f"Can't {word} to key {SESSION.decode()} because its type is not LIST."
        assert await change(client, SESSION, b"1", operation) == (Code.INVALID_CONFIG, text)
    assert (await change(client, SESSION, b"50000", 9))[0] == Code.INVALID_CONFIG
    assert await change(client, b"nope", None, DELETE) == (Code.NONE, None)
    unnamed = Code.INVALID_REQUEST, "Default group resources are not allowed."
    assert await change(client, SESSION, b"50000", group=b"") == unnamed
    assert (await described(client, name=b"")).error_message == b"Group name must not be empty"


async def test_a_whole_change_takes_other_settings_back(client: RawKafka) -> None:
    assert await change(client, SESSION, b"50000") == (Code.NONE, None)
    setting = alter_configs.AlterableConfig(name=HEARTBEAT, value=b"7000")
    resource = alter_configs.AlterConfigsResource(
        resource_type=GROUP_KIND, resource_name=GROUP, configs=[setting]
    )
    request = alter_configs.AlterConfigsRequest(resources=[resource])
    assert (await client.call_whole(request, 2)).responses[0].error_code == Code.NONE
    own = {entry.name for entry in (await described(client)).configs if entry.config_source == 8}
    assert own == {HEARTBEAT}
    setting.value = None
    assert (await client.call_whole(request, 2)).responses[0].error_code == Code.INVALID_REQUEST


async def test_settings_are_described(client: RawKafka) -> None:
    assert await change(client, SESSION, b"050000") == (Code.NONE, None)
    shown = {entry.name: entry for entry in (await described(client)).configs}
    assert len(shown) == 17  # As many as of Kafka 4.3.1.
    assert all(entry.documentation for entry in shown.values())
    session, heartbeat, switch = (shown[name] for name in (SESSION, HEARTBEAT, SWITCH))
    assert [(place.name, place.value, place.source) for place in session.synonyms] == [
        (SESSION, b"50000", 8),
        (b"group.consumer.session.timeout.ms", b"45000", 5),
    ]
    assert (session.value, session.config_type, session.config_source) == (b"50000", 3, 8)
    assert (heartbeat.value, heartbeat.config_source) == (b"5000", 5)
    assert (switch.value, switch.config_type, shown[START].config_type) == (b"true", 1, 2)
    assert await change(client, SESSION, None, DELETE) == (Code.NONE, None)
    shown = {entry.name: entry for entry in (await described(client)).configs}
    assert (shown[SESSION].value, len(shown[SESSION].synonyms)) == (b"45000", 1)


async def test_defaults_and_bounds_are_settings_of_the_broker(client: RawKafka) -> None:
    result = await described(client, BROKER_KIND, b"1")
    shown = {entry.name: (entry.value, entry.config_type) for entry in result.configs}
    for name, value in (
        (b"group.consumer.min.session.timeout.ms", b"45000"),
        (b"group.consumer.max.heartbeat.interval.ms", b"15000"),
        (b"group.consumer.min.assignment.interval.ms", b"0"),
        (b"group.share.record.lock.duration.ms", b"30000"),
        (b"group.share.max.partition.max.record.locks", b"4000"),
        (b"group.streams.max.standby.replicas", b"2"),
    ):
        assert shown[name] == (value, 3)
    assert shown[b"group.consumer.assignors"] == (b"uniform,range", 7)
    assert b"group.streams.min.standby.replicas" not in shown
    assert b"group.streams.max.initial.rebalance.delay.ms" not in shown
    names = {row.broker_name.encode() for row in GROUP_SETTINGS.values() if row.broker_name}
    assert names <= shown.keys()


async def test_members_hear_of_the_heartbeat_interval(client: RawKafka) -> None:
    assert (await client.call_with_table(first(), 1)).heartbeat_interval_ms <= 5000
    await change(client, HEARTBEAT, b"9000")
    assert (await beat(client, A, 1)).heartbeat_interval_ms == 9000
    await change(client, HEARTBEAT, None, DELETE)
    assert (await beat(client, A, 1)).heartbeat_interval_ms == 5000


async def test_a_silent_member_stays_for_the_session_of_the_group(
    broker: Broker, client: RawKafka, mock_clock: trio.testing.MockClock
) -> None:
    await change(client, SESSION, b"60000")
    assert (await client.call_with_table(first(), 1)).error_code == Code.NONE
    mock_clock.jump(SESSION_S + 1)
    assert (await beat(client, A, 1)).error_code == Code.NONE
    await change(client, SESSION, None, DELETE)
    assert (await beat(client, A, 1)).error_code == Code.NONE
    mock_clock.jump(SESSION_S + 1)
    assert (await beat(client, A, 1)).error_code == Code.UNKNOWN_MEMBER_ID


async def test_a_group_may_wait_between_assignments(
    client: RawKafka, mock_clock: trio.testing.MockClock
) -> None:
    await change(client, ASSIGNMENT, b"15000")
    assert partitions_of(await client.call_with_table(first(), 1)) == [0]
    await beat(client, A, -1)
    joined = await client.call_with_table(first(B), 1)
    assert partitions_of(joined) == []
    mock_clock.jump(15)
    assert partitions_of(await beat(client, B, joined.member_epoch)) == [0]


async def test_a_share_group_can_begin_with_records_of_an_age(
    broker: Broker, client: RawKafka
) -> None:
    (topic,) = broker.topics.all()
    partition, codec = topic.partitions[0], codec_for(BodyFormat.PLAIN)
    for hours in (3, 3, 1, 1):
        base, now = partition.next_offset, broker.now_us()
        record = Record(base, now, publish_us=now - hours * US_PER_HOUR, value=b"v")
        body = codec.encode([record], base)
        partition.append([body], codec.inspect(body), body_format=codec.format, append_us=now)
    await broker.durability.all_durable()
    await change(client, START, b"by_duration:PT2H")
    assert acquired(await client.call_whole(fetch(id_of(topic), 0), 2)) == [(2, 3, 1)]
    await change(client, START, b"by_duration:PT0S", group=b"late")
    late = fetch(id_of(topic), 0, group_id=b"late")
    assert acquired(await client.call_whole(late, 2)) == []
    assert broker.subscriptions.get(topic, b"late").position(0) == 4


async def listed(client: RawKafka, *kinds: int, version: int = 1) -> tuple[int, set[Any]]:
    request = ListConfigResourcesRequest(resource_types=list(kinds) if version else ())
    reply = await client.call_whole(request, version)
    resources = {(entry.resource_type, entry.resource_name) for entry in reply.config_resources}
    return reply.error_code, resources


async def test_resources_with_settings_are_listed(broker: Broker, client: RawKafka) -> None:
    group, own, topic = (GROUP_KIND, GROUP), (BROKER_KIND, b"1"), (TOPIC_KIND, FOO)
    assert await listed(client) == (Code.NONE, {own, topic})
    await change(client, SESSION, b"50000")
    assert await listed(client) == (Code.NONE, {group, own, topic})
    assert await listed(client, GROUP_KIND, GROUP_KIND) == (Code.NONE, {group})
    assert await listed(client, 16, 8) == (Code.NONE, set())
    assert await listed(client, TOPIC_KIND, 99) == (Code.UNSUPPORTED_VERSION, set())
    assert await listed(client, version=0) == (Code.NONE, set())
    broker.access = Access(AllBut(Action.DESCRIBE))
    assert await listed(client) == (Code.CLUSTER_AUTHORIZATION_FAILED, set())


async def test_settings_survive_a_restart(tmp_path: Path) -> None:
    for value in (b"45000", b"50000"):
        async with opened_broker(tmp_path, {}) as broker, open_listeners(broker) as connect:
            client = await second_client(connect)
            await client.call(forms.MetadataRequest([FOO]))
            entries = {entry.name: entry for entry in (await described(client)).configs}
            assert entries[SESSION].value == value
            await change(client, SESSION, b"50000")

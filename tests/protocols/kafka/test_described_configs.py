"""DescribeConfigs of many resources."""

import trio

from braidlog.broker.broker import Broker
from braidlog.protocols.kafka.configs import REPEATED_MAX, RESOURCES_PER_TURN
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from braidlog.storage.metadata.names import TopicName
from tests.protocols.kafka.frames import RawKafka
from tests.protocols.kafka.talk import FOO

TURNS = 10
TOPIC, GROUP = 2, 32


def resource(kind: int, name: bytes) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)


class ConnectionTurns(trio.abc.Instrument):
    """Counts the turns of the tasks of connections."""

    def __init__(self) -> None:
        self.count = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task.name.endswith("serve_connection")


async def test_many_topics_are_described_in_turns(broker: Broker, client: RawKafka) -> None:
    names = [f"many-{number}" for number in range(TURNS * RESOURCES_PER_TURN)]
    for name in names:
        await broker.topics.create(TopicName("public", "default", name), 1)
    own = TopicName("public", "default", names[-1])
    await broker.topics.alter_settings(own, {"retention_ms": 60_000})
    request = DescribeConfigsRequest(resources=[resource(TOPIC, name.encode()) for name in names])
    turns = ConnectionTurns()
    trio.lowlevel.add_instrument(turns)
    try:
        results = (await client.call_with_table(request, 4)).results
    finally:
        trio.lowlevel.remove_instrument(turns)
    assert [result.resource_name.decode() for result in results] == names
    times = [
        {config.name: config.value for config in result.configs}[b"retention.ms"]
        for result in results
    ]
    assert set(times[:-1]) != {b"60000"}
    assert len(set(times[:-1])) == 1
    assert times[-1] == b"60000"
    assert turns.count >= TURNS


async def test_groups_with_equal_settings_differ_by_name(client: RawKafka) -> None:
    names = [b"a", b"b"]
    request = DescribeConfigsRequest(resources=[resource(GROUP, name) for name in names])
    first, second = (await client.call_with_table(request, 4)).results
    assert [first.resource_name, second.resource_name] == names
    assert first.configs == second.configs != []


async def test_a_resource_that_is_named_too_often_is_refused(client: RawKafka) -> None:
    resources = [resource(TOPIC, FOO)] * REPEATED_MAX
    request = DescribeConfigsRequest(resources=[*resources, resource(TOPIC, b"other")])
    *described, other = (await client.call_with_table(request, 4)).results
    assert other.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert all(result.configs == described[0].configs != [] for result in described)
    request = DescribeConfigsRequest(resources=[*resources, resource(TOPIC, FOO)])
    results = (await client.call_with_table(request, 4)).results
    assert {(result.error_code, len(result.configs)) for result in results} == {
        (Code.INVALID_REQUEST, 0)
    }

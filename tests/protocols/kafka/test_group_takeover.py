"""Settings of groups in a cluster: every broker knows them, also after a takeover and a restart."""

from pathlib import Path
from typing import Any

import trio

from braidlog.protocols.kafka.group_configs import DEAD_LETTERS, GROUP_SETTINGS
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from braidlog.protocols.kafka.wire.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from braidlog.protocols.kafka.wire.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.cluster.nodes import LEASE_MS, SteppedBroker, balanced, settle, stepping, topic_of
from tests.listeners import open_listeners
from tests.protocols.kafka.frames import RawKafka
from tests.storage.shared.shared_dirs import SHARDS, SharedStore

GROUP = b"g"
GROUP_KIND, FROM_GROUP = 32, 8
# A value within Kafka's bounds for each setting, and none is the default.
VALUES = {
    "consumer.heartbeat.interval.ms": "7000",
    "consumer.session.timeout.ms": "50000",
    "consumer.assignment.interval.ms": "2000",
    "share.heartbeat.interval.ms": "8000",
    "share.session.timeout.ms": "51000",
    "share.record.lock.duration.ms": "20000",
    "share.delivery.count.limit": "3",
    "share.partition.max.record.locks": "500",
    "share.assignment.interval.ms": "3000",
    "streams.heartbeat.interval.ms": "6000",
    "streams.session.timeout.ms": "52000",
    "streams.num.standby.replicas": "1",
    "streams.assignment.interval.ms": "4000",
    "streams.initial.rebalance.delay.ms": "100",
    "share.auto.offset.reset": "earliest",
    "share.isolation.level": "read_committed",
    "share.renew.acknowledge.enable": "false",
}


async def set_values(client: RawKafka, values: dict[str, str]) -> None:
    configs = [
        AlterableConfig(name=name.encode(), value=value.encode()) for name, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_KIND, resource_name=GROUP, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = (await client.call_whole(request, 1)).responses
    assert answer.error_code == 0, answer


async def own_values(client: RawKafka) -> dict[str, str]:
    """Return the group's own settings, as admin tools see them."""
    resource = DescribeConfigsResource(
        resource_type=GROUP_KIND, resource_name=GROUP, configuration_keys=None
    )
    (answer,) = (await client.call_whole(DescribeConfigsRequest(resources=[resource]), 4)).results
    assert answer.error_code == 0, answer
    return {
        config.name.decode(): config.value.decode()
        for config in answer.configs
        if config.config_source == FROM_GROUP
    }


async def heartbeat(client: RawKafka, epoch: int, topics: list[bytes] | None = None) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=b"m", member_epoch=epoch, subscribed_topic_names=topics
    )
    return await client.call_whole(request, 1)


def test_a_value_stands_here_for_each_setting_of_kafka() -> None:
    assert set(VALUES) == set(GROUP_SETTINGS) - {DEAD_LETTERS}
    assert not [name for name, value in VALUES.items() if GROUP_SETTINGS[name].default == value]


async def test_settings_of_a_group_stay_after_a_takeover_and_a_restart(tmp_path: Path) -> None:
    store = SharedStore(tmp_path)
    second = SteppedBroker(store, 3)
    async with second.running(), open_listeners(second.broker) as connect_second:
        async with (
            SteppedBroker(store, 1).running() as first,
            open_listeners(first.broker) as connect_first,
        ):
            await balanced(store, first, second)
            name = topic_of(first.held)
            clients = [
                RawKafka(await connect("kafka")) for connect in (connect_first, connect_second)
            ]
            names = list(VALUES)
            async with trio.open_nursery() as going_on:
                going_on.start_soon(stepping, first, second)
                await first.broker.topics.create(name, 1)
                for client, part in zip(clients, (names[::2], names[1::2]), strict=True):
                    await set_values(client, {key: VALUES[key] for key in part})
                for client in clients:
                    assert await own_values(client) == VALUES
                going_on.cancel_scope.cancel()
        # The first broker was killed.
        store.now_ms += 2 * LEASE_MS
        second.shared.session._answered_since_s = -1e9
        second.shared.session._beat()
        second.membership._free_since = dict.fromkeys(range(SHARDS + 1), -1e9)
        await settle(second)
        assert second.broker.placement.is_here(name)
        client = RawKafka(await connect_second("kafka"))
        assert await own_values(client) == VALUES
        async with trio.open_nursery() as going_on:
            going_on.start_soon(stepping, second)
            await set_values(client, {"share.heartbeat.interval.ms": "9000"})
            joined = await heartbeat(client, 0, [name.topic.encode()])
            again = await heartbeat(client, joined.member_epoch)
            assert again.heartbeat_interval_ms == 9000
            going_on.cancel_scope.cancel()
        async with (
            SteppedBroker(store, 1).running() as restarted,
            open_listeners(restarted.broker) as connect,
        ):
            await balanced(store, restarted, second)
            changed = {**VALUES, "share.heartbeat.interval.ms": "9000"}
            assert await own_values(RawKafka(await connect("kafka"))) == changed

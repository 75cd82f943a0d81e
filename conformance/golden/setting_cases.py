"""Requests about settings of topics and brokers: good and bad."""

from collections.abc import Iterator
from typing import Any, Final

from braidlog.protocols.kafka.schema import Struct
from braidlog.protocols.kafka.wire import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
)
from conformance.golden.case import MISSING, TOPIC, Build, Case, same

TOPIC_KIND: Final = 2


def _configs(kind: int, name: bytes, *keys: bytes) -> Build:
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return lambda version, ids: describe_configs.DescribeConfigsRequest(resources=[resource])


def _alter(module: Any, kind: int, name: bytes, key: bytes, value: bytes | None) -> Build:
    setting = module.AlterableConfig(name=key, value=value)
    resource = module.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[setting]
    )
    request = getattr(module, "AlterConfigsRequest", None) or module.IncrementalAlterConfigsRequest
    return lambda version, ids: request(resources=[resource])


def _settings() -> Iterator[Case]:
    yield Case("settings", _configs(2, TOPIC, b"retention.bytes", b"cleanup.policy"), since=1)
    yield Case("settings of times", _configs(2, TOPIC, b"message.timestamp.type"), since=1)
    yield Case("settings of a missing topic", _configs(2, MISSING))
    yield Case("settings of the broker", _configs(4, b"1", b"delete.topic.enable"), since=1)
    yield Case("settings of another broker", _configs(4, b"7"))
    yield Case("settings of an unknown kind", _configs(99, b"x"))
    for module, word in ((alter_configs, "alter"), (incremental_alter_configs, "change")):
        key = b"retention.ms"
        yield Case(f"{word} a setting", _alter(module, 2, TOPIC, key, b"600000000"))
        yield Case(f"{word} with nonsense", _alter(module, 2, TOPIC, key, b"soon"))
        yield Case(f"{word} with null", _alter(module, 2, TOPIC, key, None))
        yield Case(f"{word} an unknown setting", _alter(module, 2, TOPIC, b"no.such", b"1"))
        yield Case(f"{word} a missing topic", _alter(module, 2, MISSING, key, b"1"))
        yield Case(f"{word} an unknown kind", _alter(module, 99, TOPIC, key, b"1"))


def _refused_settings() -> Iterator[Case]:
    def changed(*changes: tuple[bytes, int, bytes | None], kind: int = TOPIC_KIND) -> Struct:
        configs = [
            incremental_alter_configs.AlterableConfig(name=name, config_operation=kind, value=value)
            for name, kind, value in changes
        ]
        return incremental_alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=TOPIC, configs=configs
        )

    retention = (b"retention.ms", 0, b"700000000")
    for note, resources in (
        ("twice", [changed(retention, retention)]),
        ("of a resource twice", [changed(retention), changed(retention)]),
        ("by appending to a number", [changed((b"retention.ms", 2, b"1"))]),
        ("by an unknown operation", [changed((b"retention.ms", 9, b"1"))]),
        ("to null", [changed((b"retention.ms", 0, None))]),
        ("by removing an absent value", [changed((b"cleanup.policy", 3, b"compact"))]),
        ("without a name", [changed((b"", 0, b"1"))]),
        ("of no resource", []),
    ):
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=resources, validate_only=True
        )
        yield Case(f"check a change {note}", same(request))
    wanted = describe_configs.DescribeConfigsResource(
        resource_type=TOPIC_KIND, resource_name=TOPIC, configuration_keys=[b"retention.bytes"]
    )
    twice = describe_configs.DescribeConfigsRequest(resources=[wanted, wanted])
    yield Case("settings of a topic twice", same(twice), since=1)
    illegal = describe_configs.DescribeConfigsResource(
        resource_type=TOPIC_KIND, resource_name=b"a b", configuration_keys=[]
    )
    request = describe_configs.DescribeConfigsRequest(resources=[illegal])
    yield Case("settings of an illegal name", same(request))
    broker = describe_configs.DescribeConfigsResource(
        resource_type=4, resource_name=b"one", configuration_keys=[]
    )
    request = describe_configs.DescribeConfigsRequest(resources=[broker])
    yield Case("settings of a broker without a number", same(request))


SETTING_CASES: Final = tuple(_settings())
REFUSED_SETTING_CASES: Final = tuple(_refused_settings())

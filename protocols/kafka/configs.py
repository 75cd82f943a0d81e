"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: settings of topics, by Kafka's names. A
broker's own are in its configuration file, and can only be described.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from braidlog.broker.errors import InvalidRequest
from braidlog.broker.runtime.turns import in_turns
from braidlog.broker.topics.dead_letter_topics import check_dead_letters
from braidlog.broker.topics.settings import in_force
from braidlog.protocols.kafka.admin import check_cluster, origins_of, refusals_in
from braidlog.protocols.kafka.broker_configs import broker_entries
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code, CodeRefused
from braidlog.protocols.kafka.fields import ENTRIES_INLINE_MAX
from braidlog.protocols.kafka.group_config_admin import alter_group, described_group, group_entries
from braidlog.protocols.kafka.topic_configs import config_entries, read_config
from braidlog.protocols.kafka.wire import alter_configs as whole
from braidlog.protocols.kafka.wire import incremental_alter_configs as incremental
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from braidlog.protocols.kafka_settings import SETTINGS, Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC, BROKER, GROUP = 2, 4, 32  # kinds of resources with settings
SET, DELETE, APPEND, SUBTRACT = range(4)  # operations; the last two are for lists
RESOURCES_PER_TURN: Final = 20  # A topic with settings of its own takes some 200 us.
# A request of 600 KB that names a topic 49,000 times would get an answer of 200 MB.
REPEATED_MAX: Final = 10
Changes = dict[str, Setting | None]  # None takes a setting back
InForce = Mapping[str, Setting | None]
AlteredResource = whole.AlterConfigsResource | incremental.AlterConfigsResource
ConfigResource = DescribeConfigsResource | AlteredResource
ReadChanges = Callable[[Any, InForce], Changes]  # Changes of a request, and the settings in force.
AlteredT = TypeVar(
    "AlteredT", whole.AlterConfigsResourceResponse, incremental.AlterConfigsResourceResponse
)


async def describe_configs(context: KafkaContext, request: DescribeConfigsRequest) -> KafkaAnswer:
    """Describe settings of topics, groups and of this broker."""
    results, count = [], 0
    described = _ResourceSettings(context, request)
    named = _times_named(request.resources)
    async for resource in in_turns(request.resources, RESOURCES_PER_TURN):
        result = DescribeConfigsResult(
            error_message=b"",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        with refusals_in(context, result):
            _refuse_repeated(resource, named, REPEATED_MAX)
            keys = resource.configuration_keys
            result.configs = [e for e in described.of(resource) if not keys or e.name in keys]
            count += len(result.configs)
        results.append(result)
    is_large = count > ENTRIES_INLINE_MAX
    return KafkaAnswer(DescribeConfigsResponse(results=results), is_large=is_large)


class _ResourceSettings:
    """The settings of resources in a request. Resources with equal settings share the objects:
    thousands of topics have nothing but defaults.
    """

    def __init__(self, context: KafkaContext, request: DescribeConfigsRequest) -> None:
        self._context = context
        self._request = request
        self._shared: dict[Hashable, Sequence[DescribeConfigsResourceResult]] = {}

    def of(self, resource: DescribeConfigsResource) -> Sequence[DescribeConfigsResourceResult]:
        """Return the settings of a resource. Raises BrokerError, CodeRefused."""
        context, name = self._context, resource.resource_name
        if resource.resource_type == BROKER:
            _check_broker(context, name)
            if not name:
                return ()  # Defaults of all brokers that can be changed: there are none.
            return self._cut(broker_entries(context))
        if resource.resource_type == GROUP:
            settings = described_group(context, name)
            return self._once((GROUP, _content(settings.own)), lambda: group_entries(settings))
        if resource.resource_type != TOPIC:
            raise CodeRefused(Code.INVALID_REQUEST, _other_kind(resource.resource_type))
        topic = context.broker.topics.get(context.topic_name(name))
        own, inherited = topic.meta.settings, topic.inherited
        return self._once(
            (TOPIC, _content(own), _content(inherited)),
            lambda: config_entries(origins_of(context, own, inherited)),
        )

    def _once(
        self, key: Hashable, describe: Callable[[], Sequence[DescribeConfigsResourceResult]]
    ) -> Sequence[DescribeConfigsResourceResult]:
        entries = self._shared.get(key)
        if entries is None:
            entries = self._shared[key] = self._cut(describe())
        return entries

    def _cut(
        self, entries: Sequence[DescribeConfigsResourceResult]
    ) -> Sequence[DescribeConfigsResourceResult]:
        """Remove what the client has not asked for."""
        for entry in entries:
            if not self._request.include_synonyms:
                entry.synonyms = ()
            if not self._request.include_documentation:
                entry.documentation = None
        return entries


def _content(settings: Mapping[str, Any]) -> Hashable:
    return frozenset(settings.items())


def _times_named(resources: Sequence[ConfigResource]) -> Counter[tuple[int, bytes | None]]:
    """Count how often a request names each resource."""
    return Counter((resource.resource_type, resource.resource_name) for resource in resources)


def _refuse_repeated(
    resource: ConfigResource, named: Mapping[tuple[int, bytes | None], int], count_max: int
) -> None:
    """Refuse a resource that the request names more than `count_max` times. Raises CodeRefused."""
    if named[resource.resource_type, resource.resource_name] > count_max:
        times = "once" if count_max == 1 else f"{count_max} times"
        raise CodeRefused(Code.INVALID_REQUEST, f"Each resource must appear at most {times}.")


def _other_kind(kind: int) -> str:
    return f"resource type {kind} has no settings, expected topic (2), broker (4) or group (32)"


def _check_broker(context: KafkaContext, name: bytes | None) -> None:
    """Check that the client may see the settings of a broker, which is this broker. Raises
    CodeRefused.
    """
    check_cluster(context)
    number = str(context.broker.placement.node_id).encode()
    if name and name != number:
        text = f"expected broker {number.decode()}, not {name.decode(errors='replace')}"
        raise CodeRefused(Code.INVALID_REQUEST, text)


async def alter_configs(context: KafkaContext, request: whole.AlterConfigsRequest) -> KafkaAnswer:
    """Give topics these settings; those that are not named go back to the default."""
    kind = whole.AlterConfigsResourceResponse
    done, ticket = await _alter_all(
        context, request.resources, _replaced, kind, validate_only=request.validate_only
    )
    return KafkaAnswer(whole.AlterConfigsResponse(responses=done), ticket)


async def incremental_alter_configs(
    context: KafkaContext, request: incremental.IncrementalAlterConfigsRequest
) -> KafkaAnswer:
    """Change only the settings that are named."""
    kind = incremental.AlterConfigsResourceResponse
    done, ticket = await _alter_all(
        context, request.resources, _changed, kind, validate_only=request.validate_only
    )
    return KafkaAnswer(incremental.IncrementalAlterConfigsResponse(responses=done), ticket)


async def _alter_all(
    context: KafkaContext,
    resources: Sequence[AlteredResource],
    read: ReadChanges,
    kind: type[AlteredT],
    *,
    validate_only: bool,
) -> tuple[list[AlteredT], int]:
    """Alter each resource; return the results and the ticket that the answer waits for."""
    done, ticket = [], 0
    named = _times_named(resources)
    async for resource in in_turns(resources, RESOURCES_PER_TURN):
        altered = kind(
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        with refusals_in(context, altered):
            _refuse_repeated(resource, named, 1)
            if len({config.name for config in resource.configs}) < len(resource.configs):
                raise CodeRefused(Code.INVALID_REQUEST, "Error due to duplicate config keys")
            ticket = max(ticket, await _alter(context, resource, validate_only, read))
        done.append(altered)
    return done, ticket


async def _alter(
    context: KafkaContext,
    resource: AlteredResource,
    validate_only: bool,
    read: ReadChanges,
) -> int:
    if resource.resource_type == GROUP:
        return await alter_group(context, resource, is_check=validate_only)
    if resource.resource_type == BROKER and _only_unsets(resource):
        _check_broker(context, resource.resource_name)
        return 0  # No broker has such settings: kafka-reassign-partitions unsets throttles.
    if resource.resource_type != TOPIC:
        text = "the settings of a broker are in its configuration file"
        if resource.resource_type != BROKER:
            text = _other_kind(resource.resource_type)
        raise CodeRefused(Code.INVALID_REQUEST, text)
    name = context.topic_name(resource.resource_name)
    topics = context.broker.topics
    settings = in_force(context.broker.config.log, topics.get(name).settings)
    changes = read(resource.configs, settings)
    try:
        check_dead_letters(topics, name, changes, context.connection.check)
        if not validate_only:
            return await topics.alter_settings(name, changes)
        in_force(context.broker.config.log, {**topics.get(name).settings, **changes})
    except InvalidRequest as error:
        raise CodeRefused(Code.INVALID_CONFIG, str(error)) from error
    return 0


def _only_unsets(resource: AlteredResource) -> bool:
    return isinstance(resource, incremental.AlterConfigsResource) and all(
        config.config_operation == DELETE for config in resource.configs
    )


def _replaced(changes: Sequence[whole.AlterableConfig], _: InForce) -> Changes:
    """Raises CodeRefused."""
    replaced: Changes = dict.fromkeys(row.name for row in SETTINGS.values())
    for change in changes:
        _check_value(change)
        replaced.update(read_config(change.name, change.value))
    return replaced


def _check_value(change: whole.AlterableConfig | incremental.AlterableConfig) -> None:
    """Check that a change has a value. Raises CodeRefused."""
    if change.value is None:
        name = (change.name or b"").decode(errors="replace")
        raise CodeRefused(Code.INVALID_REQUEST, f"Null value not supported for : {name}")


def _changed(changes: Sequence[incremental.AlterableConfig], settings: InForce) -> Changes:
    """Return the named changes; words are added to a list's value in force. Raises CodeRefused."""
    changed: Changes = {}
    for change in changes:
        row = SETTINGS.get((change.name or b"").decode(errors="replace"))
        if change.config_operation == SET:
            _check_value(change)
            changed.update(read_config(change.name, change.value))
        elif change.config_operation == DELETE:
            if row is not None:
                changed[row.name] = None
        elif change.config_operation in (APPEND, SUBTRACT) and row is not None and row.is_list:
            parts = set((change.value or b"").decode(errors="replace").split(","))
            left = set(str(settings[row.name]).split(","))
            left = left | parts if change.config_operation == APPEND else left - parts
            changed.update(read_config(change.name, ",".join(left).encode()))
        else:
            lists = ", ".join(key for key, row in SETTINGS.items() if row.is_list)
            raise CodeRefused(Code.INVALID_CONFIG, f"only {lists} is a list")
    return changed

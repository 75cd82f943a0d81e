"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: settings of topics, by Kafka's names. A
broker's own are in its configuration file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from braidlog.broker.errors import BrokerError, InvalidRequest
from braidlog.broker.topics.settings import in_force
from braidlog.protocols.kafka.admin import SUCCESS, refusal, topic_named
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.topic_configs import AdminRefused, config_entries, read_config
from braidlog.protocols.kafka.wire import alter_configs as whole
from braidlog.protocols.kafka.wire import incremental_alter_configs as incremental
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from braidlog.protocols.kafka_settings import SETTINGS, Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC, BROKER = 2, 4  # kinds of resources with settings
SET, DELETE, APPEND, SUBTRACT = range(4)  # operations; the last two are for lists
Changes = dict[str, Setting | None]  # None takes a setting back
InForce = Mapping[str, Setting | None]
ReadChanges = Callable[[Any, InForce], Changes]  # Changes of a request, and the settings in force.
AlteredT = TypeVar(
    "AlteredT", whole.AlterConfigsResourceResponse, incremental.AlterConfigsResourceResponse
)


def describe_configs(context: KafkaContext, request: DescribeConfigsRequest) -> KafkaAnswer:
    """Settings of topics; a broker has none that clients can see."""
    return KafkaAnswer(
        DescribeConfigsResponse(
            results=[_configs(context, resource) for resource in request.resources]
        )
    )


def _configs(context: KafkaContext, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    described = DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    if resource.resource_type == BROKER:
        return described
    if resource.resource_type != TOPIC:
        described.error_code = Code.INVALID_REQUEST
        described.error_message = b"topics and brokers have settings"
        return described
    try:
        topic = context.broker.topics.get(topic_named(context, resource.resource_name))
    except BrokerError as error:
        described.error_code = context.refused(error)
        described.error_message = str(error).encode()
        return described
    own = topic.meta.settings
    entries = config_entries(in_force(context.broker.config.log, own), own)
    keys = resource.configuration_keys
    described.configs = [entry for entry in entries if keys is None or entry.name in keys]
    return described


async def alter_configs(context: KafkaContext, request: whole.AlterConfigsRequest) -> KafkaAnswer:
    """Give topics these settings; those that are not named go back to the default."""
    kind = whole.AlterConfigsResourceResponse
    done, ticket = await _alter_all(context, request, _replaced, kind)
    return KafkaAnswer(whole.AlterConfigsResponse(responses=done), ticket)


async def incremental_alter_configs(
    context: KafkaContext, request: incremental.IncrementalAlterConfigsRequest
) -> KafkaAnswer:
    """Change only the settings that are named."""
    kind = incremental.AlterConfigsResourceResponse
    done, ticket = await _alter_all(context, request, _changed, kind)
    return KafkaAnswer(incremental.IncrementalAlterConfigsResponse(responses=done), ticket)


async def _alter_all(
    context: KafkaContext,
    request: whole.AlterConfigsRequest | incremental.IncrementalAlterConfigsRequest,
    read: ReadChanges,
    kind: type[AlteredT],
) -> tuple[list[AlteredT], int]:
    """Alter each resource; return the results and the ticket that the answer waits for."""
    done, ticket = [], 0
    counts = Counter(
        (resource.resource_type, resource.resource_name) for resource in request.resources
    )
    for resource in request.resources:
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise AdminRefused(Code.INVALID_REQUEST, "the request names the resource twice")
            if len({config.name for config in resource.configs}) < len(resource.configs):
                raise AdminRefused(Code.INVALID_REQUEST, "the request names a setting twice")
            ticket = max(ticket, await _alter(context, resource, request.validate_only, read))
            code, text = SUCCESS
        except (BrokerError, AdminRefused) as error:
            code, text = refusal(context, error)
        done.append(
            kind(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return done, ticket


async def _alter(
    context: KafkaContext,
    resource: whole.AlterConfigsResource | incremental.AlterConfigsResource,
    validate_only: bool,
    read: ReadChanges,
) -> int:
    if resource.resource_type != TOPIC:
        text = "the settings of a broker are in its configuration file"
        raise AdminRefused(Code.INVALID_REQUEST, text)
    name = topic_named(context, resource.resource_name)
    topics = context.broker.topics
    settings = in_force(context.broker.config.log, topics.get(name).meta.settings)
    changes = read(resource.configs, settings)
    try:
        if not validate_only:
            return await topics.alter_settings(name, changes)
        in_force(context.broker.config.log, {**topics.get(name).meta.settings, **changes})
    except InvalidRequest as error:
        raise AdminRefused(Code.INVALID_CONFIG, str(error)) from error
    return 0


def _replaced(changes: Sequence[whole.AlterableConfig], _: InForce) -> Changes:
    """Raises AdminRefused."""
    replaced: Changes = dict.fromkeys(row.name for row in SETTINGS.values())
    for change in changes:
        replaced.update(read_config(change.name, change.value))
    return replaced


def _changed(changes: Sequence[incremental.AlterableConfig], settings: InForce) -> Changes:
    """Return the named changes; words are added to a list's value in force. Raises AdminRefused."""
    changed: Changes = {}
    for change in changes:
        row = SETTINGS.get((change.name or b"").decode(errors="replace"))
        if change.config_operation == SET:
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
            raise AdminRefused(Code.INVALID_CONFIG, f"only {lists} is a list")
    return changed

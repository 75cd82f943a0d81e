"""DescribeConfigs and IncrementalAlterConfigs for groups (`group_configs.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.errors import InvalidName, InvalidRequest
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.group_configs import (
    DEAD_LETTERS,
    GROUP_SETTINGS,
    change_settings,
    settings_of,
)
from braidlog.protocols.kafka.topic_configs import INT, STRING, AdminRefused
from braidlog.protocols.kafka.wire import alter_configs as whole
from braidlog.protocols.kafka.wire import incremental_alter_configs as incremental
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from braidlog.protocols.kafka.context import KafkaContext

FROM_GROUP, FROM_DEFAULT = 8, 5  # where a setting comes from
SET, DELETE = 0, 1  # operations


def group_entries(
    context: KafkaContext, resource: DescribeConfigsResource, *, with_synonyms: bool
) -> list[DescribeConfigsResourceResult]:
    """Return the settings of a group. Raises GroupNotAuthorized."""
    name = resource.resource_name or b""
    context.check_group(name)
    settings = settings_of(context, name)
    return [
        DescribeConfigsResourceResult(
            name=key.encode(),
            value=settings.value(key).encode(),
            config_type=INT if row.is_number else STRING,
            is_default=key not in settings.own,
            config_source=FROM_GROUP if key in settings.own else FROM_DEFAULT,
            synonyms=_synonyms(key, settings.own.get(key)) if with_synonyms else (),
            documentation=None,
        )
        for key, row in GROUP_SETTINGS.items()
        if not row.is_topic or key in settings.own
    ]


def _synonyms(key: str, own: str | None) -> list[DescribeConfigsSynonym]:
    row = GROUP_SETTINGS[key]
    synonyms = [
        DescribeConfigsSynonym(
            name=(row.broker_name or key).encode(), value=row.default.encode(), source=FROM_DEFAULT
        )
    ]
    if own is not None:
        synonyms.insert(
            0, DescribeConfigsSynonym(name=key.encode(), value=own.encode(), source=FROM_GROUP)
        )
    return synonyms


async def alter_group(
    context: KafkaContext,
    resource: whole.AlterConfigsResource | incremental.AlterConfigsResource,
    *,
    is_check: bool,
) -> int:
    """Change a group's settings; return the ticket. Raises AdminRefused, BrokerError."""
    name = resource.resource_name or b""
    if not name:
        raise AdminRefused(Code.INVALID_REQUEST, "Default group resources are not allowed.")
    context.check_group(name)
    changes: dict[str, str | None] = {}
    if isinstance(resource, whole.AlterConfigsResource):
        changes = dict.fromkeys(settings_of(context, name).own)
    for config in resource.configs:
        key = (config.name or b"").decode(errors="replace")
        changes[key] = (config.value or b"").decode(errors="replace")
        if isinstance(config, incremental.AlterableConfig) and config.config_operation != SET:
            if config.config_operation != DELETE:
                raise AdminRefused(
                    Code.INVALID_CONFIG, f"Config value append is not allowed: {key}"
                )
            changes[key] = None
    if topic := changes.get(DEAD_LETTERS):
        _check_dead_letters(context, topic)
    try:
        return await change_settings(context, name, changes, is_check=is_check)
    except InvalidRequest as error:
        raise AdminRefused(Code.INVALID_CONFIG, str(error)) from error


def _check_dead_letters(context: KafkaContext, topic: str) -> None:
    """Check that a topic can take the group's dead letters: it exists, and the client may produce
    there. Raises AdminRefused, NotAuthorized.
    """
    try:
        name = context.names.topic_name(topic.encode())
    except InvalidName:
        raise AdminRefused(Code.INVALID_CONFIG, f"{topic} is no name of a topic") from None
    context.connection.check(Action.PRODUCE, Resource.of_topic(name))
    if context.broker.topics.find(name) is None:
        raise AdminRefused(Code.INVALID_CONFIG, f"The dead letter topic {topic} does not exist")

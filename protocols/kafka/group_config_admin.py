"""DescribeConfigs and IncrementalAlterConfigs for groups (`group_configs.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.errors import InvalidName, InvalidRequest
from braidlog.protocols.kafka.errors import Code, CodeRefused
from braidlog.protocols.kafka.group_configs import (
    DEAD_LETTERS,
    GROUP_SETTINGS,
    GroupSetting,
    GroupSettings,
    change_settings,
    settings_of,
)
from braidlog.protocols.kafka.topic_configs import BOOLEAN, INT, STRING
from braidlog.protocols.kafka.wire import alter_configs as whole
from braidlog.protocols.kafka.wire import incremental_alter_configs as incremental
from braidlog.protocols.kafka.wire.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from braidlog.protocols.kafka.context import KafkaContext

FROM_GROUP, FROM_DEFAULT = 8, 5  # where a setting comes from
SET, DELETE, APPEND, SUBTRACT = range(4)  # operations
FOR_LISTS: Final = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}


def described_group(context: KafkaContext, name: bytes | None) -> GroupSettings:
    """Return the settings of a group that the client may see. Raises CodeRefused,
    GroupNotAuthorized.
    """
    if not name:
        raise CodeRefused(Code.INVALID_REQUEST, "Group name must not be empty")
    context.check_group(name)
    return settings_of(context, name)


def group_entries(settings: GroupSettings) -> list[DescribeConfigsResourceResult]:
    """Describe the settings of a group."""
    return [
        DescribeConfigsResourceResult(
            name=key.encode(),
            value=settings.value(key).encode(),
            config_type=_type(row),
            is_default=key not in settings.own,
            config_source=FROM_GROUP if key in settings.own else FROM_DEFAULT,
            synonyms=_synonyms(key, settings.own.get(key)),
            documentation=row.effect.encode(),
        )
        for key, row in GROUP_SETTINGS.items()
        if not row.is_topic or key in settings.own
    ]


def _type(row: GroupSetting) -> int:
    if row.is_number:
        return INT
    return BOOLEAN if row.is_switch else STRING


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
    """Change a group's settings; return the ticket. Raises CodeRefused, BrokerError."""
    name = resource.resource_name or b""
    if not name:
        raise CodeRefused(Code.INVALID_REQUEST, "Default group resources are not allowed.")
    context.check_group(name)
    changes: dict[str, str | None] = {}
    if isinstance(resource, whole.AlterConfigsResource):
        changes = dict.fromkeys(settings_of(context, name).own)
    for config in resource.configs:
        key = (config.name or b"").decode(errors="replace")
        operation = SET
        if isinstance(config, incremental.AlterableConfig):
            operation = config.config_operation
        changes[key] = None if operation == DELETE else _value_to_set(key, config.value, operation)
    if topic := changes.get(DEAD_LETTERS):
        _check_dead_letters(context, topic)
    try:
        return await change_settings(context, name, changes, is_check=is_check)
    except InvalidRequest as error:
        raise CodeRefused(Code.INVALID_CONFIG, str(error)) from error


def _value_to_set(key: str, value: bytes | None, operation: int) -> str:
    """Return the value of a change that sets a setting. Raises CodeRefused."""
    if operation in FOR_LISTS:
        reason = f"Can't {FOR_LISTS[operation]} to key {key} because its type is not LIST."
        raise CodeRefused(Code.INVALID_CONFIG, reason)
    if operation != SET:
        reason = f"{operation} is no operation on a setting, expected 0 to 3"
        raise CodeRefused(Code.INVALID_CONFIG, reason)
    if value is None:
        raise CodeRefused(Code.INVALID_REQUEST, f"Null value not supported for : {key}")
    return value.decode(errors="replace")


def _check_dead_letters(context: KafkaContext, topic: str) -> None:
    """Check that a topic can take the group's dead letters: it exists, and the client may produce
    there. Raises CodeRefused, NotAuthorized.
    """
    try:
        name = context.names.topic_name(topic.encode())
    except InvalidName:
        raise CodeRefused(Code.INVALID_CONFIG, f"{topic} is no name of a topic") from None
    context.connection.check(Action.PRODUCE, Resource.of_topic(name))
    if context.broker.topics.find(name) is None:
        raise CodeRefused(Code.INVALID_CONFIG, f"The dead letter topic {topic} does not exist")

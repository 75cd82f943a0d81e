"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: settings of topics, by Kafka's names. A
broker's own are in its configuration file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.errors import BrokerError, InvalidRequest
from braidlog.broker.topics.settings import in_force
from braidlog.protocols.kafka.admin import refusal, topic_named
from braidlog.protocols.kafka.admin_messages import (
    AlterConfigsReply,
    AlterConfigsRequest,
    AlteredResource,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    DescribeConfigsReply,
    DescribeConfigsRequest,
    DescribedConfigs,
    IncrementalAlterConfigsReply,
    IncrementalAlterConfigsRequest,
    ResourceDone,
)
from braidlog.protocols.kafka.context import Answer, Context
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.topic_configs import (
    CLEANUP,
    SETTINGS,
    AdminRefused,
    Setting,
    read_config,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from braidlog.broker.topics.topic import Topic

TOPIC, BROKER = 2, 4  # kinds of resources with settings
FROM_TOPIC, FROM_DEFAULT = 1, 5  # where a setting comes from
SET, DELETE, APPEND, SUBTRACT = range(4)  # operations; the last two are for lists
Changes = dict[str, Setting | None]  # None takes a setting back


def describe_configs(context: Context, request: DescribeConfigsRequest) -> Answer:
    """Settings of topics; a broker has none that clients can see."""
    return Answer(DescribeConfigsReply([_configs(context, one) for one in request.resources]))


def _configs(context: Context, resource: ConfigResource) -> DescribedConfigs:
    if resource.kind == BROKER:
        return DescribedConfigs(Code.NONE, None, resource.kind, resource.name)
    if resource.kind != TOPIC:
        text = b"topics and brokers have settings"
        return DescribedConfigs(Code.INVALID_REQUEST, text, resource.kind, resource.name)
    try:
        topic = context.broker.topics.get(topic_named(context, resource.name))
    except BrokerError as error:
        text = str(error).encode()
        return DescribedConfigs(context.refused(error), text, resource.kind, resource.name)
    entries = _entries(in_force(context.broker.config.log, topic.meta.settings), topic)
    if resource.keys is not None:
        entries = [one for one in entries if one.name in resource.keys]
    return DescribedConfigs(Code.NONE, None, resource.kind, resource.name, entries)


def _entries(found: Mapping[str, Setting | None], topic: Topic) -> list[ConfigEntry]:
    entries = []
    for name, ours in SETTINGS.items():
        own = ours in topic.meta.settings
        text = shown(name, found[ours])
        source = FROM_TOPIC if own else FROM_DEFAULT
        entries.append(ConfigEntry(name.encode(), text, not own, source))
    return entries


async def alter_configs(context: Context, request: AlterConfigsRequest) -> Answer:
    """Give topics these settings; those that are not named go back to the default."""
    done, ticket = await _alter_all(context, request.resources, request.validate_only, _replaced)
    return Answer(AlterConfigsReply(done), ticket)


async def incremental_alter_configs(
    context: Context, request: IncrementalAlterConfigsRequest
) -> Answer:
    """Change only the settings that are named."""
    done, ticket = await _alter_all(context, request.resources, request.validate_only, _changed)
    return Answer(IncrementalAlterConfigsReply(done), ticket)


async def _alter_all(
    context: Context,
    resources: Sequence[AlteredResource],
    validate_only: bool,
    read: Callable[[Sequence[ConfigChange], str], Changes],
) -> tuple[list[ResourceDone], int]:
    """Alter each resource; returns the results and the ticket that the answer waits for."""
    done, ticket = [], 0
    for one in resources:
        try:
            ticket = max(ticket, await _alter(context, one, validate_only, read))
        except (BrokerError, AdminRefused) as error:
            code, message = refusal(context, error)
            done.append(ResourceDone(code, message, one.kind, one.name))
        else:
            done.append(ResourceDone(Code.NONE, None, one.kind, one.name))
    return done, ticket


async def _alter(
    context: Context,
    resource: AlteredResource,
    validate_only: bool,
    read: Callable[[Sequence[ConfigChange], str], Changes],
) -> int:
    if resource.kind != TOPIC:
        text = "the settings of a broker are in its configuration file"
        raise AdminRefused(Code.INVALID_REQUEST, text)
    name = topic_named(context, resource.name)
    topics = context.broker.topics
    found = in_force(context.broker.config.log, topics.get(name).meta.settings)
    changes = read(resource.changes, str(found[SETTINGS[CLEANUP]]))
    try:
        if not validate_only:
            return await topics.alter_settings(name, changes)
        in_force(context.broker.config.log, {**topics.get(name).meta.settings, **changes})
    except InvalidRequest as error:
        raise AdminRefused(Code.INVALID_CONFIG, str(error)) from error
    return 0


def _replaced(changes: Sequence[ConfigChange], _: str) -> Changes:
    """Raises AdminRefused."""
    replaced: Changes = dict.fromkeys(SETTINGS.values())
    for one in changes:
        replaced.update(read_config(one.name, one.value))
    return replaced


def _changed(changes: Sequence[ConfigChange], policy: str) -> Changes:
    """`policy` is the current cleanup policy, the only list setting. Raises AdminRefused."""
    changed: Changes = {}
    for one in changes:
        if one.operation == SET:
            changed.update(read_config(one.name, one.value))
        elif one.operation == DELETE:
            ours = SETTINGS.get((one.name or b"").decode(errors="replace"))
            if ours is not None:
                changed[ours] = None
        elif one.operation in (APPEND, SUBTRACT) and one.name == CLEANUP.encode():
            parts = set((one.value or b"").decode(errors="replace").split(","))
            left = set(policy.split(","))
            left = left | parts if one.operation == APPEND else left - parts
            changed.update(read_config(one.name, ",".join(left).encode()))
        else:
            raise AdminRefused(Code.INVALID_CONFIG, "only cleanup.policy is a list")
    return changed

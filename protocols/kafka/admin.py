"""CreateTopics, DeleteTopics, CreatePartitions, DescribeConfigs: what admin tools ask of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.access.rights import Resource
from broker.errors import BrokerError, InvalidName, InvalidRequest
from broker.topics.settings import in_force
from protocols.kafka.admin_messages import (
    ConfigEntry,
    ConfigResource,
    CreatePartitionsReply,
    CreatePartitionsRequest,
    CreateTopicsReply,
    CreateTopicsRequest,
    DeleteTopicsReply,
    DeleteTopicsRequest,
    DescribeConfigsReply,
    DescribeConfigsRequest,
    DescribedConfigs,
    GrowingTopic,
    NewTopic,
    TopicConfig,
    TopicDone,
)
from protocols.kafka.context import Answer, Context
from protocols.kafka.errors import Code, wire_code
from protocols.kafka.metadata import TOPICS_MADE_MAX
from protocols.kafka.names import IllegalName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.topics.topic import Topic
    from storage.metadata.names import TopicName

BROKER_DEFAULT = -1  # for a number of partitions, or of replicas
TOPIC, BROKER = 2, 4  # kinds of resources with settings
FROM_TOPIC, FROM_DEFAULT = 1, 5  # where a setting comes from
# Kafka's names of what a topic can set here.
SETTINGS = {
    "retention.ms": "retention_ms",
    "retention.bytes": "retention_bytes",
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
}
# What tools set by habit and one broker has anyway: taken, and without effect.
WITHOUT_EFFECT = frozenset(
    (
        "compression.type",
        "message.timestamp.type",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "flush.ms",
        "flush.messages",
    )
)


class _Refused(Exception):
    """A topic's request is answered with this."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


async def create_topics(context: Context, request: CreateTopicsRequest) -> Answer:
    """Make topics; each is answered for itself, once it is on disk."""
    done, ticket = [], 0
    for number, wanted in enumerate(request.topics):
        try:
            if number >= TOPICS_MADE_MAX:
                raise _Refused(Code.POLICY_VIOLATION, f"more than {TOPICS_MADE_MAX} topics at once")
            ticket = max(ticket, await _create(context, wanted, request.validate_only))
        except (BrokerError, _Refused) as error:
            done.append(_failed(context, wanted.name, error))
        else:
            done.append(TopicDone(wanted.name, Code.NONE))
    return Answer(CreateTopicsReply(done), ticket)


async def _create(context: Context, wanted: NewTopic, validate_only: bool) -> int:
    name = _named(context, wanted.name)
    topics = context.broker.topics
    count = len(wanted.assignments) if wanted.assignments else wanted.partitions
    if count == BROKER_DEFAULT:
        count = topics.defaults.num_partitions
    if count < 1:
        raise _Refused(Code.INVALID_PARTITIONS, "a topic has one partition or more")
    if wanted.replication not in (BROKER_DEFAULT, 1):
        raise _Refused(Code.INVALID_REPLICATION_FACTOR, "there is one broker")
    settings = _settings(wanted.configs)
    if validate_only:
        if topics.find(name) is not None:
            raise _Refused(Code.TOPIC_ALREADY_EXISTS, f"{name.topic} is there")
        return 0
    return (await topics.create(name, count, settings=settings)).ticket


def _settings(configs: Sequence[TopicConfig]) -> dict[str, str | int]:
    """Kafka's settings as ours. Raises _Refused."""
    found: dict[str, str | int] = {}
    for config in configs:
        key = (config.name or b"").decode(errors="replace")
        value = (config.value or b"").decode(errors="replace")
        if key == "cleanup.policy":
            if value != "delete":
                raise _Refused(Code.INVALID_CONFIG, f"cleanup.policy={value} is not served")
        elif key in SETTINGS:
            try:
                found[SETTINGS[key]] = int(value)
            except ValueError:
                raise _Refused(Code.INVALID_CONFIG, f"{key}={value} is no number") from None
        elif key not in WITHOUT_EFFECT:
            raise _Refused(Code.INVALID_CONFIG, f"no topic has a setting {key}")
    return found


async def delete_topics(context: Context, request: DeleteTopicsRequest) -> Answer:
    """Delete topics with all that belongs to them."""
    done, ticket = [], 0
    for name in dict.fromkeys(request.topics):
        try:
            ticket = max(ticket, await context.broker.topics.delete(_named(context, name)))
        except BrokerError as error:
            done.append(_failed(context, name, error))
        else:
            done.append(TopicDone(name, Code.NONE))
    return Answer(DeleteTopicsReply(done), ticket)


async def create_partitions(context: Context, request: CreatePartitionsRequest) -> Answer:
    """Let topics grow."""
    done, ticket = [], 0
    for wanted in request.topics:
        try:
            ticket = max(ticket, await _grow(context, wanted, request.validate_only))
        except (BrokerError, _Refused) as error:
            done.append(_failed(context, wanted.name, error))
        else:
            done.append(TopicDone(wanted.name, Code.NONE))
    return Answer(CreatePartitionsReply(done), ticket)


async def _grow(context: Context, wanted: GrowingTopic, validate_only: bool) -> int:
    name = _named(context, wanted.name)
    count = len(context.broker.topics.get(name).partitions)
    if wanted.count <= count:
        raise _Refused(Code.INVALID_PARTITIONS, f"{name.topic} has {count} partitions already")
    if validate_only:
        return 0
    return await context.broker.topics.add_partitions(name, wanted.count)


async def describe_configs(context: Context, request: DescribeConfigsRequest) -> Answer:
    """Settings of topics; a broker has none that clients can see."""
    return Answer(DescribeConfigsReply([_configs(context, one) for one in request.resources]))


def _configs(context: Context, resource: ConfigResource) -> DescribedConfigs:
    if resource.kind == BROKER:
        return DescribedConfigs(Code.NONE, None, resource.kind, resource.name)
    if resource.kind != TOPIC:
        text = b"topics and brokers have settings"
        return DescribedConfigs(Code.INVALID_REQUEST, text, resource.kind, resource.name)
    try:
        topic = context.broker.topics.get(_named(context, resource.name))
    except BrokerError as error:
        text = str(error).encode()
        return DescribedConfigs(context.refused(error), text, resource.kind, resource.name)
    entries = _entries(in_force(context.broker.config.log, topic.meta.settings), topic)
    if resource.keys is not None:
        entries = [one for one in entries if one.name in resource.keys]
    return DescribedConfigs(Code.NONE, None, resource.kind, resource.name, entries)


def _entries(found: Mapping[str, str | int | None], topic: Topic) -> list[ConfigEntry]:
    entries = [ConfigEntry(b"cleanup.policy", b"delete", True, FROM_DEFAULT)]
    for name, ours in SETTINGS.items():
        value = found[ours]
        own = ours in topic.meta.settings
        text = b"-1" if value is None else str(value).encode()
        source = FROM_TOPIC if own else FROM_DEFAULT
        entries.append(ConfigEntry(name.encode(), text, not own, source))
    return entries


def _failed(context: Context, name: bytes | None, error: BrokerError | _Refused) -> TopicDone:
    if isinstance(error, _Refused):
        return TopicDone(name, error.code, str(error).encode())
    code = Code.INVALID_REQUEST if isinstance(error, InvalidRequest) else wire_code(error)
    context.refused(error)
    return TopicDone(name, code, str(error).encode())


def _named(context: Context, name: bytes | None) -> TopicName:
    """The topic of that name, whose action is checked. Raises InvalidName, NotAuthorized."""
    try:
        topic_name = context.names.topic_name(name)
    except IllegalName as error:
        raise InvalidName(str(error)) from None
    context.connection.check(context.action, Resource.of_topic(topic_name))
    return topic_name

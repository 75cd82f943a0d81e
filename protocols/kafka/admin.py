"""CreateTopics, DeleteTopics and CreatePartitions, for admin tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.broker.access.rights import Resource
from braidlog.broker.errors import BrokerError, InvalidName, InvalidRequest
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code
from braidlog.protocols.kafka.metadata import TOPICS_MADE_MAX
from braidlog.protocols.kafka.names import IllegalName
from braidlog.protocols.kafka.topic_configs import AdminRefused, read_config
from braidlog.protocols.kafka.wire.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from braidlog.protocols.kafka.wire.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from braidlog.protocols.kafka.wire.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from braidlog.protocols.kafka_settings import Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from braidlog.storage.metadata.names import TopicName

BROKER_DEFAULT = -1  # for a number of partitions, or of replicas
Result = tuple[Code, bytes | None]  # of a topic or resource: error code and message
SUCCESS: Result = Code.NONE, None


async def create_topics(context: KafkaContext, request: CreateTopicsRequest) -> KafkaAnswer:
    """Create topics, each with its own result; answered once they are on disk."""
    done, ticket = [], 0
    for number, wanted in enumerate(request.topics):
        try:
            if number >= TOPICS_MADE_MAX:
                raise AdminRefused(
                    Code.POLICY_VIOLATION, f"more than {TOPICS_MADE_MAX} topics at once"
                )
            ticket = max(ticket, await _create(context, wanted, request.validate_only))
            code, text = SUCCESS
        except (BrokerError, AdminRefused) as error:
            code, text = refusal(context, error)
        done.append(CreatableTopicResult(name=wanted.name, error_code=code, error_message=text))
    return KafkaAnswer(CreateTopicsResponse(topics=done), ticket)


async def _create(context: KafkaContext, wanted: CreatableTopic, validate_only: bool) -> int:
    name = topic_named(context, wanted.name)
    topics = context.broker.topics
    count = len(wanted.assignments) if wanted.assignments else wanted.num_partitions
    if count == BROKER_DEFAULT:
        count = topics.defaults.num_partitions
    if count < 1:
        raise AdminRefused(Code.INVALID_PARTITIONS, "a topic has one partition or more")
    if wanted.replication_factor not in (BROKER_DEFAULT, 1):
        raise AdminRefused(Code.INVALID_REPLICATION_FACTOR, "there is one broker")
    settings = _settings(wanted.configs)
    if validate_only:
        if topics.find(name) is not None:
            raise AdminRefused(Code.TOPIC_ALREADY_EXISTS, f"{name.topic} is there")
        return 0
    return (await topics.create(name, count, settings=settings)).ticket


def _settings(configs: Sequence[CreatableTopicConfig]) -> dict[str, Setting]:
    """Translate Kafka's settings to the broker's. Raises AdminRefused."""
    settings: dict[str, Setting] = {}
    for config in configs:
        settings.update(read_config(config.name, config.value))
    return settings


async def delete_topics(context: KafkaContext, request: DeleteTopicsRequest) -> KafkaAnswer:
    """Delete topics and everything that belongs to them."""
    done, ticket = [], 0
    for name in dict.fromkeys(request.topic_names):
        try:
            ticket = max(ticket, await context.broker.topics.delete(topic_named(context, name)))
            code, text = SUCCESS
        except BrokerError as error:
            code, text = refusal(context, error)
        done.append(DeletableTopicResult(name=name, error_code=code, error_message=text))
    return KafkaAnswer(DeleteTopicsResponse(responses=done), ticket)


async def create_partitions(context: KafkaContext, request: CreatePartitionsRequest) -> KafkaAnswer:
    """Add partitions to topics."""
    done, ticket = [], 0
    for wanted in request.topics:
        try:
            ticket = max(ticket, await _grow(context, wanted, request.validate_only))
            code, text = SUCCESS
        except (BrokerError, AdminRefused) as error:
            code, text = refusal(context, error)
        done.append(
            CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=text)
        )
    return KafkaAnswer(CreatePartitionsResponse(results=done), ticket)


async def _grow(context: KafkaContext, wanted: CreatePartitionsTopic, validate_only: bool) -> int:
    name = topic_named(context, wanted.name)
    count = len(context.broker.topics.get(name).partitions)
    if wanted.count <= count:
        raise AdminRefused(Code.INVALID_PARTITIONS, f"{name.topic} has {count} partitions already")
    if validate_only:
        return 0
    return await context.broker.topics.add_partitions(name, wanted.count)


def refusal(context: KafkaContext, error: BrokerError | AdminRefused) -> Result:
    """Count an error; return the code and text that answer a topic or resource."""
    text = str(error).encode()
    if isinstance(error, AdminRefused):
        context.count_error(error.code)
        return error.code, text
    code = context.refused(error)
    return (Code.INVALID_REQUEST if isinstance(error, InvalidRequest) else code), text


def topic_named(context: KafkaContext, name: bytes | None) -> TopicName:
    """A topic's name, after an access check. Raises InvalidName, NotAuthorized."""
    try:
        topic_name = context.names.topic_name(name)
    except IllegalName as error:
        raise InvalidName(str(error)) from None
    context.connection.check(context.action, Resource.of_topic(topic_name))
    return topic_name

"""CreateTopics, DeleteTopics and CreatePartitions, for admin tools."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from braidlog.broker.access.rights import CLUSTER
from braidlog.broker.errors import BrokerError, InvalidRequest, NotAuthorized, NotOwner
from braidlog.broker.limits import TOPIC_PARTITIONS_MAX
from braidlog.broker.topics.dead_letter_topics import check_dead_letters
from braidlog.broker.topics.settings import in_force
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code, CodeRefused
from braidlog.protocols.kafka.metadata import TOPICS_MADE_MAX
from braidlog.protocols.kafka.topic_configs import Origins, config_entries, read_config
from braidlog.protocols.kafka.topic_ids import NO_ID, id_of
from braidlog.protocols.kafka.wire.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from braidlog.protocols.kafka.wire.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
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
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from braidlog.broker.topics.topic import Topic

BROKER_DEFAULT = -1  # for a number of partitions, or of replicas
Result = tuple[Code, bytes | None]  # of a topic or resource: error code and message
SUCCESS: Result = Code.NONE, None
DUPLICATE_TOPIC = "the request names the topic twice"
BY_ID_VERSION = 6  # From this version of DeleteTopics on a request can name topics by their ids.


async def create_topics(context: KafkaContext, request: CreateTopicsRequest) -> KafkaAnswer:
    """Create topics, each with its own result; answered once they are on disk."""
    ticket, makeable = 0, 0
    counts = Counter(wanted.name for wanted in request.topics)
    twice = {name: CreatableTopicResult(name=name) for name, count in counts.items() if count > 1}
    for result in twice.values():
        with refusals_in(context, result):
            raise CodeRefused(Code.INVALID_REQUEST, DUPLICATE_TOPIC)
    done = list(twice.values())
    for wanted in request.topics:
        if wanted.name in twice:
            continue
        makeable += 1
        result = CreatableTopicResult(name=wanted.name, error_message=None)
        with refusals_in(context, result):
            if makeable > TOPICS_MADE_MAX:
                raise CodeRefused(
                    Code.POLICY_VIOLATION, f"more than {TOPICS_MADE_MAX} topics at once"
                )
            ticket = max(ticket, await _create(context, wanted, request.validate_only, result))
        done.append(result)
    return KafkaAnswer(CreateTopicsResponse(topics=done), ticket)


async def _create(
    context: KafkaContext, wanted: CreatableTopic, validate_only: bool, result: CreatableTopicResult
) -> int:
    """Create a topic, or only check the request. Fill the result, and return the ticket that the
    answer waits for. Raises BrokerError, CodeRefused.
    """
    name = context.topic_name(wanted.name)
    topics = context.broker.topics
    if wanted.assignments:
        _check_assignments(context, wanted)
    elif wanted.replication_factor not in (BROKER_DEFAULT, 1):
        raise CodeRefused(Code.INVALID_REPLICATION_FACTOR, "a partition has one replica")
    count = len(wanted.assignments) if wanted.assignments else wanted.num_partitions
    if count == BROKER_DEFAULT:
        count = topics.defaults.num_partitions
    if count < 1:
        raise CodeRefused(Code.INVALID_PARTITIONS, "a topic has one partition or more")
    _check_total(count)
    settings = _settings(wanted.configs)
    try:
        check_dead_letters(topics, name, settings, context.connection.check)
        origins = origins_of(context, settings, topics.inherited(name.tenant, name.namespace))
    except InvalidRequest as error:
        raise CodeRefused(Code.INVALID_CONFIG, str(error)) from error
    ticket = 0
    if validate_only:
        topics.check_new(name, count)
    else:
        topic = await topics.create(name, count, settings=settings)
        result.topic_id, ticket = id_of(topic), topic.ticket
    result.num_partitions, result.replication_factor = count, 1
    result.configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.config_source,
        )
        for entry in config_entries(origins)
    ]
    return ticket


def origins_of(
    context: KafkaContext, own: Mapping[str, Setting], inherited: Mapping[str, Setting]
) -> Origins:
    """Return the settings of a topic by their origin. Raises InvalidRequest."""
    log = context.broker.config.log
    return Origins(
        in_force=in_force(log, {**inherited, **own}),
        own=own,
        inherited=inherited,
        broker=msgspec.structs.asdict(log),
        listener={"batch_bytes_max": context.options.batch_bytes_max},
    )


def _check_assignments(context: KafkaContext, wanted: CreatableTopic) -> None:
    """Check the replicas that a request chooses. Raises CodeRefused."""
    if wanted.num_partitions != BROKER_DEFAULT:
        raise CodeRefused(Code.INVALID_REQUEST, "a number of partitions beside an assignment")
    if wanted.replication_factor != BROKER_DEFAULT:
        raise CodeRefused(Code.INVALID_REQUEST, "a number of replicas beside an assignment")
    indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
    if indexes != list(range(len(indexes))):
        text = "the partitions of an assignment are not numbered from 0 without gaps"
        raise CodeRefused(Code.INVALID_REPLICA_ASSIGNMENT, text)
    for assignment in wanted.assignments:
        check_replicas(context, assignment.broker_ids)


def check_replicas(context: KafkaContext, brokers: Sequence[int]) -> None:
    """Check the replicas of a partition that a request chooses. Raises CodeRefused."""
    placement = context.broker.placement
    known = {placement.node_id, *(other.node_id for other in placement.others())}
    if unknown := [number for number in brokers if number not in known]:
        text = f"the assignment names broker {unknown[0]}, which is not there"
        raise CodeRefused(Code.INVALID_REPLICA_ASSIGNMENT, text)
    if len(brokers) != 1:
        text = f"the assignment names {len(brokers)} replicas, and a partition has one"
        raise CodeRefused(Code.INVALID_REPLICA_ASSIGNMENT, text)


def _settings(configs: Sequence[CreatableTopicConfig]) -> dict[str, Setting]:
    """Translate Kafka's settings to the broker's. Raises CodeRefused."""
    settings: dict[str, Setting] = {}
    for config in configs:
        settings.update(read_config(config.name, config.value))
    return settings


async def delete_topics(context: KafkaContext, request: DeleteTopicsRequest) -> KafkaAnswer:
    """Delete topics and everything that belongs to them."""
    named = (
        [(topic.name, topic.topic_id) for topic in request.topics]
        if context.version >= BY_ID_VERSION
        else [(name, NO_ID) for name in request.topic_names]
    )
    done, ticket = [], 0
    for (name, topic_id), count in Counter(named).items():
        result = DeletableTopicResult(name=name, topic_id=topic_id, error_message=None)
        with refusals_in(context, result):
            if count > 1:
                raise CodeRefused(Code.INVALID_REQUEST, DUPLICATE_TOPIC)
            topic = _topic_to_delete(context, name, topic_id)
            result.name, result.topic_id = topic.name.topic.encode(), id_of(topic)
            ticket = max(ticket, await context.broker.topics.delete(topic.name))
        done.append(result)
    return KafkaAnswer(DeleteTopicsResponse(responses=done), ticket)


def _topic_to_delete(context: KafkaContext, name: bytes | None, topic_id: bytes) -> Topic:
    """Return the topic of that name, or with that id. Raises BrokerError, CodeRefused."""
    if context.version < BY_ID_VERSION or topic_id == NO_ID:
        if name is None and context.version >= BY_ID_VERSION:
            raise CodeRefused(Code.INVALID_REQUEST, "neither a name nor an id")
        return context.broker.topics.get(context.topic_name(name))
    if name is not None:
        raise CodeRefused(Code.INVALID_REQUEST, "both a name and an id")
    return context.topic_with_id(topic_id)


async def create_partitions(context: KafkaContext, request: CreatePartitionsRequest) -> KafkaAnswer:
    """Add partitions to topics."""
    done, ticket = [], 0
    counts = Counter(wanted.name for wanted in request.topics)
    for wanted in {topic.name: topic for topic in request.topics}.values():
        result = CreatePartitionsTopicResult(name=wanted.name, error_message=None)
        with refusals_in(context, result):
            if counts[wanted.name] > 1:
                raise CodeRefused(Code.INVALID_REQUEST, DUPLICATE_TOPIC)
            ticket = max(ticket, await _grow(context, wanted, request.validate_only))
        done.append(result)
    return KafkaAnswer(CreatePartitionsResponse(results=done), ticket)


async def _grow(context: KafkaContext, wanted: CreatePartitionsTopic, validate_only: bool) -> int:
    name = context.topic_name(wanted.name)
    count = len(context.broker.topics.get(name).partitions)
    if wanted.count <= count:
        reason = f"The topic {name.topic} currently has {count} partition(s); "
        reason += f"{wanted.count} would not be an increase."
        raise CodeRefused(Code.INVALID_PARTITIONS, reason)
    _check_total(wanted.count)
    if wanted.assignments is not None:
        if len(wanted.assignments) != wanted.count - count:
            text = (
                f"an assignment for {len(wanted.assignments)} of {wanted.count - count} partitions"
            )
            raise CodeRefused(Code.INVALID_REPLICA_ASSIGNMENT, text)
        for assignment in wanted.assignments:
            check_replicas(context, assignment.broker_ids)
    if validate_only:
        context.broker.topics.check_growth(name, wanted.count)
        return 0
    return await context.broker.topics.add_partitions(name, wanted.count)


def _check_total(partitions: int) -> None:
    """Check that a topic can have so many partitions. Raises CodeRefused."""
    if partitions > TOPIC_PARTITIONS_MAX:
        text = f"{partitions} partitions exceed the limit of {TOPIC_PARTITIONS_MAX} of a topic"
        raise CodeRefused(Code.POLICY_VIOLATION, text)


def check_cluster(context: KafkaContext) -> None:
    """Check the request's action on the cluster. Raises CodeRefused."""
    try:
        context.connection.check(context.action, CLUSTER)
    except NotAuthorized as error:
        raise CodeRefused(Code.CLUSTER_AUTHORIZATION_FAILED, str(error)) from error


def refusal(context: KafkaContext, error: BrokerError | CodeRefused) -> Result:
    """Count an error; return the code and text that answer a topic or resource."""
    if isinstance(error, CodeRefused):
        context.count_error(error.code)
        return error.code, error.reason.encode()
    code = context.refused(error)
    code = Code.INVALID_REQUEST if isinstance(error, InvalidRequest) else code
    return code, str(error).encode()


def user_refusal(context: KafkaContext, error: BrokerError | CodeRefused) -> Result:
    """As `refusal`, for changes of users and permissions: the owner of the catalogue makes them,
    which Metadata shows as the controller.
    """
    if isinstance(error, NotOwner):
        context.count_error(Code.NOT_CONTROLLER)
        return Code.NOT_CONTROLLER, str(error).encode()
    return refusal(context, error)


class Refusable(Protocol):
    """A reply, or the result of a part of a request."""

    error_code: int
    error_message: bytes | None


@contextmanager
def refusals_in(
    context: KafkaContext,
    answer: Refusable,
    refuse: Callable[[KafkaContext, BrokerError | CodeRefused], Result] = refusal,
) -> Iterator[None]:
    """Give a refusal in the body to an answer, which has no error otherwise."""
    try:
        yield
    except (BrokerError, CodeRefused) as error:
        answer.error_code, answer.error_message = refuse(context, error)

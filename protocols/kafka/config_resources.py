"""ListConfigResources: the resources that have settings."""

from __future__ import annotations

from typing import Final

from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.admin import check_cluster
from braidlog.protocols.kafka.context import KafkaAnswer, KafkaContext
from braidlog.protocols.kafka.errors import Code, CodeRefused, GroupNotAuthorized
from braidlog.protocols.kafka.group_configs import groups_with_settings
from braidlog.protocols.kafka.names import visible
from braidlog.protocols.kafka.wire.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
# In the order of the answer. Loggers and subscriptions to metrics of clients are not there.
KINDS: Final = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)
KINDS_SINCE: Final = 1  # Version 0 lists subscriptions to metrics alone.
TOPICS_PER_TURN: Final = 1000


async def list_config_resources(
    context: KafkaContext, request: ListConfigResourcesRequest
) -> KafkaAnswer:
    """List the resources of the wanted kinds, of all kinds if none is named."""
    wanted = set(request.resource_types) or set(KINDS)
    if context.version < KINDS_SINCE:
        wanted = {CLIENT_METRICS}
    try:
        check_cluster(context)
    except CodeRefused:
        return _failed(context, Code.CLUSTER_AUTHORIZATION_FAILED)
    if not wanted <= set(KINDS):
        return _failed(context, Code.UNSUPPORTED_VERSION)
    resources = []
    if GROUP in wanted:
        names = sorted(groups_with_settings(context))
        resources += [_resource(GROUP, name) for name in names if _may_see_group(context, name)]
    if BROKER in wanted:
        placement = context.broker.placement
        nodes = [placement.node_id, *(owner.node_id for owner in placement.others())]
        resources += [_resource(BROKER, b"%d" % node) for node in sorted(nodes)]
    if TOPIC in wanted:
        topics = list(context.broker.topics.list(*context.namespace))
        async for topic in in_turns(topics, TOPICS_PER_TURN):
            if visible(topic.name) and context.may_see(topic):
                resources.append(_resource(TOPIC, topic.name.topic.encode()))
    return KafkaAnswer(ListConfigResourcesResponse(config_resources=resources))


def _may_see_group(context: KafkaContext, name: bytes) -> bool:
    try:
        context.check_group(name)
    except GroupNotAuthorized:
        return False
    return True


def _resource(kind: int, name: bytes) -> ConfigResource:
    return ConfigResource(resource_name=name, resource_type=kind)


def _failed(context: KafkaContext, code: Code) -> KafkaAnswer:
    context.count_error(code)
    return KafkaAnswer(ListConfigResourcesResponse(error_code=code))

"""Calls of Pulsar's admin API that are about a whole topic or about a single partition, and the
refusals of other names.

The partitions of a topic share policies, properties, permissions and their end. A call with the
name of a partition would change the other partitions too, so that such a call is refused: in
Apache's words where Apache refuses the call, else with 501. Knows no handler.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.errors import TopicNotFound
from braidlog.protocols.http.errors import (
    NOT_OF_A_PARTITION,
    NOT_SUPPORTED,
    ONE_PARTITION_WANTED,
    RequestRefused,
    WireCode,
)
from braidlog.protocols.http.path_names import name_of
from braidlog.protocols.http.pulsar_admin.absent import OF_TOPICS, REMOVED_FROM_TOPICS
from braidlog.protocols.http.pulsar_admin.names import topic_of
from braidlog.protocols.http.pulsar_admin.paths import NON_PERSISTENT, RATE_OF_SUBSCRIPTION, TOPIC
from braidlog.protocols.http.pulsar_admin.policy_table import POLICIES

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.requests import Handler

Refusal = tuple[WireCode, str]
NO_POLICIES: Final = (NOT_OF_A_PARTITION, "Not allowed to set/get topic policy for a partition")
NO_PARTITIONS: Final = (
    NOT_OF_A_PARTITION,
    "Partitioned Topic Name should not contain '-partition-'",
)
NO_END: Final = (
    ONE_PARTITION_WANTED,
    "Termination of a non-partitioned topic is not allowed using partitioned-terminate, please use"
    " terminate commands",
)
STATUS_OF_OFFLOAD: Final = "offload"  # No policy, so Apache shows the status of a partition.
# Ends of paths of policies. Each call refuses the name of a partition.
POLICY_ENDS: Final = frozenset(
    (
        *(
            end
            for policy in POLICIES
            if "topic" in policy.levels
            for end, _ in policy.calls(is_topic=True)
        ),
        *(end for end in (*OF_TOPICS, *REMOVED_FROM_TOPICS) if end != STATUS_OF_OFFLOAD),
        RATE_OF_SUBSCRIPTION.removeprefix(f"{TOPIC}/"),
        "policies",
        "replication",
    )
)
# Method and end of the path of other calls that refuse the name of a partition.
OF_WHOLE_TOPICS: Final[Mapping[tuple[str, str], Refusal]] = {
    ("GET", "partitioned-stats"): NO_PARTITIONS,
    ("PUT", "partitions"): NO_PARTITIONS,
    ("POST", "partitions"): NO_PARTITIONS,
    ("DELETE", "partitions"): NO_PARTITIONS,
    ("POST", "createMissedPartitions"): NO_PARTITIONS,
    ("POST", "terminate/partitions"): NO_END,
}
# Calls that Apache serves for a single partition.
NOT_BY_PARTITION: Final[Mapping[tuple[str, str], str]] = {
    ("DELETE", ""): "a single partition is not deleted here",
    ("POST", "terminate"): "a single partition is not terminated here",
    ("PUT", "properties"): "a partition has no properties of its own here",
    ("DELETE", "properties"): "a partition has no properties of its own here",
    ("POST", "permissions/{role}"): "a partition has no permissions of its own here",
    ("DELETE", "permissions/{role}"): "a partition has no permissions of its own here",
}
# Calls about a single partition: they refuse the name of a partitioned topic. None: such a topic
# counts as missing.
OF_PARTITIONS: Final[Mapping[tuple[str, str], str | None]] = {
    ("GET", "stats"): None,
    ("GET", "internalStats"): None,
    ("GET", "lastMessageId"): None,
    ("GET", "compaction"): None,
    ("GET", "messageid/{time}"): "Get message ID by timestamp on a partitioned topic is not"
    " allowed, please try do it on specific topic partition",
    ("GET", "ledger/{ledger}/entry/{entry}"): "GetMessageById is not allowed on partitioned-topic",
    ("GET", "examinemessage"): "Examine messages on a partitioned topic is not allowed, please try"
    " examine message on specific topic partition",
    ("GET", "subscription/{subscription}/position/{number}"): "Peek messages on a partitioned topic"
    " is not allowed",
    ("POST", "subscription/{subscription}/skip/{number}"): "Skip messages on a partitioned topic is"
    " not allowed",
    ("POST", "subscription/{subscription}/resetcursor"): "Reset-cursor at position is not allowed"
    " for partitioned-topic",
    ("POST", "subscription/{subscription}/expireMessages"): "Expire message at position is not"
    " supported for partitioned-topic",
    ("POST", "subscription/{subscription}/analyzeBacklog"): "Analyze backlog on a partitioned topic"
    " is not allowed, please try do it on specific topic partition",
    ("PUT", "backlogSize"): "calculate backlog size is not allowed for partitioned-topic",
    ("POST", "terminate"): "Termination of a partitioned topic is not allowed",
}


def refuse_other_names(broker: Broker, method: str, path: str, handler: Handler) -> Handler:
    """Return the handler of a call for the names of topics that the call is about."""
    for place in (TOPIC, NON_PERSISTENT):
        if path == place or path.startswith(f"{place}/"):
            end = path.removeprefix(place).removeprefix("/")
            break
    else:
        return handler
    call = (method, end)
    of_partition = NO_POLICIES if end in POLICY_ENDS else OF_WHOLE_TOPICS.get(call)
    not_served = NOT_BY_PARTITION.get(call)
    is_of_partitions = place == TOPIC and call in OF_PARTITIONS
    if not (of_partition or not_served or is_of_partitions):
        return handler

    @wraps(handler)
    async def serve(request: Request) -> Response:
        name, index = name_of(request)
        if index is None:
            topic = broker.topics.find(name) if is_of_partitions else None
            if topic is not None and topic.partitioned:
                _refuse_partitioned(OF_PARTITIONS[call])
        elif of_partition is not None:
            raise RequestRefused(*of_partition)
        elif not_served is not None:
            if place == TOPIC:
                topic_of(broker, request)
            elif not broker.non_persistent.partitions(name):
                raise TopicNotFound(f"non-persistent topic {name} has no partitions")
            raise RequestRefused(NOT_SUPPORTED, f"{not_served}, expected the topic's name")
        return await handler(request)

    return serve


def _refuse_partitioned(text: str | None) -> None:
    if text is None:
        raise TopicNotFound("the topic is partitioned, expected the name of a partition")
    raise RequestRefused(ONE_PARTITION_WANTED, text)

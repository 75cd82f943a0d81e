"""Which members of a group a client may see: a group's name says nothing of its topics, and members
name their topics to each other only. Knows no request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.broker.access.listing import sees_all
from braidlog.broker.access.rights import Resource
from braidlog.broker.errors import InvalidName
from braidlog.broker.runtime.endings import ProtocolError
from braidlog.broker.runtime.turns import in_turns
from braidlog.protocols.kafka.consumer_protocol import PROTOCOL_TYPE, topics_of

if TYPE_CHECKING:
    from braidlog.protocols.kafka.classic_group import KafkaGroup
    from braidlog.protocols.kafka.context import KafkaContext
    from braidlog.protocols.kafka.roster import KafkaMember

TOPICS_PER_TURN: Final = 500  # Some 5 us each where the rules are asked.


async def seen_members(context: KafkaContext, group: KafkaGroup) -> list[KafkaMember]:
    """The members for all of whose topics the client is allowed the request's action in the group.
    Who may see the whole namespace sees all, also those whose topics cannot be known.
    """
    members = list(group.members.values())
    names, broker = context.names, context.broker
    place = (names.tenant, names.namespace)
    if sees_all(broker.access, context.connection.principal, place):
        return members
    if group.protocol_type != PROTOCOL_TYPE:
        return []
    return [member for member in members if await _is_seen(context, group.name, member)]


async def _is_seen(context: KafkaContext, group: bytes, member: KafkaMember) -> bool:
    access, principal = context.broker.access, context.connection.principal
    has_topics = False
    try:
        for metadata in member.protocols.values():
            async for topic in in_turns(topics_of(metadata), TOPICS_PER_TURN):
                resource = Resource.of_group(group, context.names.topic_name(topic))
                if not access.allows(principal, context.action, resource):
                    return False
                has_topics = True
    except (ProtocolError, InvalidName):
        return False
    return has_topics

"""The operations that a client may do to a resource, as a number for tools: bit N stands for
operation N of Kafka's `AclOperation`. Knows no request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.broker.access.rights import Action, Resource, ResourceKind

if TYPE_CHECKING:
    from braidlog.protocols.kafka.context import KafkaContext

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(3, 9)
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12
# The operations that an action stands for, of those that Kafka knows for a kind of resource.
OF_TOPIC: Final = (
    (Action.CONSUME, (READ,)),
    (Action.PRODUCE, (WRITE,)),
    (Action.CREATE, (CREATE,)),
    (Action.DELETE, (DELETE,)),
    (Action.ALTER, (ALTER, ALTER_CONFIGS)),
    (Action.DESCRIBE, (DESCRIBE, DESCRIBE_CONFIGS)),
)
OF_GROUP: Final = (
    (Action.CONSUME, (READ,)),
    (Action.DELETE, (DELETE,)),
    (Action.DESCRIBE, (DESCRIBE,)),
)
OF_CLUSTER: Final = (
    (Action.CREATE, (CREATE,)),
    (Action.ALTER, (ALTER, ALTER_CONFIGS)),
    (Action.DESCRIBE, (DESCRIBE, DESCRIBE_CONFIGS)),
    (Action.PRODUCE, (IDEMPOTENT_WRITE,)),
)
BY_KIND: Final = {
    ResourceKind.TOPIC: OF_TOPIC,
    ResourceKind.GROUP: OF_GROUP,
    ResourceKind.CLUSTER: OF_CLUSTER,
}


def operations(context: KafkaContext, resource: Resource) -> int:
    """Return the operations that the access rules allow the client."""
    access, principal = context.broker.access, context.connection.principal
    allowed = 0
    for action, numbers in BY_KIND[resource.kind]:
        if access.allows(principal, action, resource):
            for number in numbers:
                allowed |= 1 << number
    return allowed

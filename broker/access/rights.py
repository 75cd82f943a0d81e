"""The words of access control: who asks (principal), to do what (action), to what (resource).

Knows no protocol, no rule and no topic.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.storage.metadata.names import TopicName


# What begins the name of a role as the subject of a permission; the name of no user does.
ROLE_PREFIX: Final = "role:"


# Characters of all names of a resource: what exists has fewer, of groups all that people name.
REMEMBERED_NAMES_MAX: Final = 1024


class Action(enum.Enum):
    """What a command does. Each command of each protocol names one, or none, in its table."""

    PRODUCE = "produce"  # Append records, and register the schema that they are written with.
    CONSUME = "consume"  # Read records, and make and move the position of a group.
    DESCRIBE = "describe"  # See names, settings, offsets, figures. Every other action implies it.
    CREATE = "create"  # Topics and namespaces.
    ALTER = "alter"  # Settings, number of partitions, schemas.
    DELETE = "delete"  # Topics, namespaces, groups, and records before their time.
    ADMINISTER = "administer"  # Users, tokens and rules.


class ResourceKind(enum.Enum):
    """What a resource is."""

    CLUSTER = "cluster"
    USERS = "users"  # All of them, with their tokens and permissions; part of the cluster.
    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"
    GROUP = "group"  # A subscription: Kafka's group, Iggy's consumer or consumer group.


@dataclass(frozen=True, slots=True)
class Resource:
    """What an action is about. Parts that a kind does not have are empty."""

    kind: ResourceKind
    tenant: str = ""
    namespace: str = ""
    topic: str = ""  # Without a partition's number.
    group: bytes = b""

    @classmethod
    def of_tenant(cls, tenant: str) -> Resource:
        """A tenant."""
        return cls(ResourceKind.TENANT, tenant)

    @classmethod
    def of_namespace(cls, tenant: str, namespace: str) -> Resource:
        """A namespace (Iggy: a stream)."""
        return cls(ResourceKind.NAMESPACE, tenant, namespace)

    @classmethod
    def of_topic(cls, name: TopicName) -> Resource:
        """A topic, whether or not it exists."""
        return cls(ResourceKind.TOPIC, name.tenant, name.namespace, name.topic)

    @classmethod
    def of_group_within(cls, group: bytes, tenant: str, namespace: str) -> Resource:
        """A group of that name on any topic of a namespace."""
        return cls(ResourceKind.GROUP, tenant, namespace, group=group)

    @classmethod
    def of_group(cls, group: bytes, topic: TopicName) -> Resource:
        """A group of a topic."""
        return cls(ResourceKind.GROUP, topic.tenant, topic.namespace, topic.topic, group)

    @property
    def is_long(self) -> bool:
        """Whether its names are longer than is worth remembering. Clients may ask for any text."""
        texts = len(self.tenant) + len(self.namespace) + len(self.topic) + len(self.group)
        return texts > REMEMBERED_NAMES_MAX

    def shortened(self) -> Resource:
        """The same, with as much of each name as is worth remembering."""
        each = REMEMBERED_NAMES_MAX // 4
        names = self.tenant[:each], self.namespace[:each], self.topic[:each]
        return Resource(self.kind, *names, self.group[:each])

    def __str__(self) -> str:
        path = "/".join(part for part in (self.tenant, self.namespace, self.topic) if part)
        group = f" {self.group.decode(errors='backslashreplace')!r}" if self.group else ""
        return f"{self.kind.value}{group}{f' {path}' if path else ''}"


CLUSTER: Final = Resource(ResourceKind.CLUSTER)
USERS: Final = Resource(ResourceKind.USERS)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a connection acts for. Two with equal fields are the same."""

    name: str
    roles: frozenset[str] = frozenset()  # Names of rule sets that it has besides its own.
    is_anonymous: bool = False  # It has not said who it is, or could not prove it.


ANONYMOUS: Final = Principal("anonymous", is_anonymous=True)

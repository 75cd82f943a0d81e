"""The terms of access control: principal (the client), action, resource (the object).

The module knows no protocol, no rule and no topic.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.storage.metadata.names import TopicName


# Prefix of a role as the subject of a permission; the prefix is not allowed in user names.
ROLE_PREFIX: Final = "role:"


# Characters of all names of a resource. Existing resources have fewer; so have groups that people
# name.
REMEMBERED_NAMES_MAX: Final = 1024


class Action(enum.Enum):
    """The kind of access. Each command of each protocol has an action, or none, in its table."""

    PRODUCE = "produce"  # Append records, and register the records' schema.
    CONSUME = "consume"  # Read records; create and move a group's position.
    DESCRIBE = "describe"  # See names, settings, offsets, figures. Every other action implies it.
    CREATE = "create"  # Topics and namespaces.
    ALTER = "alter"  # Settings, number of partitions, schemas.
    DELETE = "delete"  # Topics, namespaces, groups, and records before they expire.
    ADMINISTER = "administer"  # Users, tokens and rules.


class ResourceKind(enum.Enum):
    """The kind of a resource."""

    CLUSTER = "cluster"
    USERS = "users"  # All users, with their tokens and permissions; part of the cluster.
    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"
    GROUP = "group"  # A subscription: Kafka's group, Iggy's consumer or consumer group.


@dataclass(frozen=True, slots=True)
class Resource:
    """The object of an action. Parts that the kind does not have are empty."""

    kind: ResourceKind
    tenant: str = ""
    namespace: str = ""
    topic: str = ""  # Without a partition's number.
    group: bytes = b""

    @classmethod
    def of_tenant(cls, tenant: str) -> Resource:
        return cls(ResourceKind.TENANT, tenant)

    @classmethod
    def of_namespace(cls, tenant: str, namespace: str) -> Resource:
        """Return a namespace (Iggy: a stream)."""
        return cls(ResourceKind.NAMESPACE, tenant, namespace)

    @classmethod
    def of_topic(cls, name: TopicName) -> Resource:
        """Return a topic, existing or not."""
        return cls(ResourceKind.TOPIC, name.tenant, name.namespace, name.topic)

    @classmethod
    def of_group_within(cls, group: bytes, tenant: str, namespace: str) -> Resource:
        """Return the group of that name on any topic of a namespace."""
        return cls(ResourceKind.GROUP, tenant, namespace, group=group)

    @classmethod
    def of_group(cls, group: bytes, topic: TopicName) -> Resource:
        return cls(ResourceKind.GROUP, topic.tenant, topic.namespace, topic.topic, group)

    @property
    def is_long(self) -> bool:
        """True if the names are too long to remember. Clients may send any text."""
        texts = len(self.tenant) + len(self.namespace) + len(self.topic) + len(self.group)
        return texts > REMEMBERED_NAMES_MAX

    def shortened(self) -> Resource:
        """Return the same resource with shortened names."""
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
    """The client's identity for access control. Principals with equal fields are the same."""

    name: str
    roles: frozenset[str] = frozenset()  # Rule sets that apply besides its own.
    is_anonymous: bool = False  # The client has not logged in, or the login failed.


ANONYMOUS: Final = Principal("anonymous", is_anonymous=True)

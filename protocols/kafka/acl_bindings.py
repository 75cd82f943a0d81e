"""Translates Kafka's ACLs to permissions and back. Knows no request and no broker.

An ACL of a topic is a permission for the topic without its groups (`public/default/orders@`), an
ACL of a group a permission for the group without its topics (`public/default/@billing`): a read in
a group needs both, as in Kafka. Permissions that were granted by other means are shown as the ACLs
that they include, as far as Kafka's clients can name the resource.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from braidlog.broker.access.patterns import ANY as STAR
from braidlog.broker.access.patterns import Pattern, parse_pattern
from braidlog.broker.access.rights import ROLE_PREFIX, ResourceKind
from braidlog.broker.access.rules import ADMIN, Grant

ANY = 1  # In filters: of each kind of value.
TOPIC, GROUP, CLUSTER = 2, 3, 4  # `ResourceType` of apache/kafka
MATCH, LITERAL, PREFIXED = 2, 3, 4  # `PatternType`
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(2, 9)  # `AclOperation`
DESCRIBE_CONFIGS, ALTER_CONFIGS = 10, 11
ALLOW = 3  # `AclPermissionType`
ANYWHERE: Final = "*"  # The only host: a permission holds wherever the client is.
CLUSTER_NAME: Final = "kafka-cluster"
USER, ROLE = "User:", "Role:"
# The word of a permission, by resource and operation.
WORDS: Final[Mapping[int, Mapping[int, str]]] = {
    TOPIC: {
        ALL: ADMIN,
        READ: "consume",
        WRITE: "produce",
        CREATE: "create",
        DELETE: "delete",
        ALTER: "alter",
        DESCRIBE: "describe",
        DESCRIBE_CONFIGS: "describe",
        ALTER_CONFIGS: "alter",
    },
    GROUP: {ALL: ADMIN, READ: "consume", DELETE: "delete", DESCRIBE: "describe"},
    CLUSTER: {
        ALL: ADMIN,
        CREATE: "create",
        ALTER: "administer",
        DESCRIBE: "describe",
        DESCRIBE_CONFIGS: "describe",
    },
}
OPERATIONS: Final = {
    kind: {
        word: [operation for operation, other in words.items() if other == word]
        for word in words.values()
    }
    for kind, words in WORDS.items()
}


@dataclass(frozen=True, slots=True)
class Binding:
    """An ACL, or a filter of ACLs: there None stands for any text."""

    resource: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, other: Binding) -> bool:
        """Return True if an ACL fits this filter."""
        return (
            self.resource in (ANY, other.resource)
            and self.principal in (None, other.principal)
            and self.host in (None, other.host)
            and self.operation in (ANY, other.operation)
            and self.permission in (ANY, other.permission)
            and self._matches_name(other)
        )

    def _matches_name(self, other: Binding) -> bool:
        if self.pattern not in (ANY, MATCH, other.pattern):
            return False
        if self.name is None or self.name == other.name:
            return True
        if self.pattern != MATCH:
            return False
        if other.pattern == PREFIXED:
            return self.name.startswith(other.name or "")
        return other.name == STAR


def grant_of(binding: Binding, namespace: str) -> Grant:
    """Return the permission for an ACL; `namespace` is that of the listener. Raises ValueError for
    an ACL without such a permission.
    """
    words = WORDS.get(binding.resource)
    if words is None:
        raise ValueError("permissions are for topics, groups and the cluster")
    if binding.operation not in words:
        raise ValueError("no permission stands for this operation on this resource")
    if binding.permission != ALLOW:
        raise ValueError("permissions only allow: an action without a permission is refused")
    if binding.host != ANYWHERE:
        raise ValueError("a permission holds on every host: the host must be *")
    word = words[binding.operation]
    return Grant(_subject(binding.principal or ""), word, _resource(binding, word, namespace))


def _subject(principal: str) -> str:
    kind, colon, name = principal.partition(":")
    if f"{kind}{colon}" not in (USER, ROLE) or not name or name == STAR:
        raise ValueError("the principal must be User:NAME or Role:NAME")
    if kind + colon == USER and name.startswith(ROLE_PREFIX):
        raise ValueError("the principal of a role is Role:NAME")
    return name if kind + colon == USER else ROLE_PREFIX + name


def _resource(binding: Binding, word: str, namespace: str) -> str:
    name = binding.name or ""
    if binding.resource == CLUSTER:
        if name != CLUSTER_NAME or binding.pattern != LITERAL:
            raise ValueError(f"the name of the cluster is {CLUSTER_NAME}")
        return {"create": namespace, "describe": "cluster/server"}.get(word, "cluster")
    if binding.pattern not in (LITERAL, PREFIXED):
        raise ValueError("a pattern is literal or prefixed")
    if not name or (STAR in name and (name != STAR or binding.pattern == PREFIXED)):
        raise ValueError("a name must not be empty, and must not have a star but *")
    part = name + STAR if binding.pattern == PREFIXED else name
    resource = f"{namespace}/{part}@" if binding.resource == TOPIC else f"{namespace}/@{part}"
    pattern = parse_pattern(resource)
    expected = part if binding.resource == GROUP else ""
    if pattern.group != expected or pattern.only_groups != (binding.resource == GROUP):
        raise ValueError(f"no permission can name {name!r}")
    return resource


def bindings_of(grant: Grant, namespace: str) -> Iterator[Binding]:
    """Yield the ACLs that a permission includes."""
    if grant.subject.startswith(ROLE_PREFIX):
        principal = ROLE + grant.subject.removeprefix(ROLE_PREFIX)
    else:
        principal = USER + grant.subject
    pattern = parse_pattern(grant.resource)
    for kind, name, form in _places(pattern, grant.action, namespace):
        for operation in OPERATIONS[kind].get(grant.action, ()):
            yield Binding(kind, name, form, principal, ANYWHERE, operation, ALLOW)


def _places(pattern: Pattern, word: str, namespace: str) -> Iterator[tuple[int, str, int]]:
    """Yield (kind, name, form of the name) of each of Kafka's resources that a pattern covers."""
    tenant, _, inner = namespace.partition("/")
    if pattern.placeless:
        of_word = ResourceKind.USERS if word == "administer" else ResourceKind.CLUSTER
        if of_word in pattern.placeless:
            yield CLUSTER, CLUSTER_NAME, LITERAL
        return
    if not pattern.reaches(tenant, inner):
        return
    is_whole = len(pattern.parts) < 3 and not pattern.only_groups and not pattern.names_group
    if is_whole and (word == "create" or pattern.parts == (STAR,)):
        yield CLUSTER, CLUSTER_NAME, LITERAL
        if word == "create":
            return
    if not pattern.only_groups:
        yield TOPIC, *_named(pattern.parts[2] if len(pattern.parts) > 2 else STAR)
    if pattern.group and (pattern.only_groups or pattern.names_group or is_whole):
        yield GROUP, *_named(pattern.group)


def _named(part: str) -> tuple[str, int]:
    if part != STAR and part.endswith(STAR):
        return part[:-1], PREFIXED
    return part, LITERAL

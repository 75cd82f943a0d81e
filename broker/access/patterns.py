"""Patterns of resources, as users write them in permissions.

    *                             everything
    cluster                       everything outside tenants: figures, users, permissions
    cluster/users                 only users, their tokens and permissions
    cluster/server                all of `cluster` but users, tokens and permissions
    public                        a tenant, and everything in it
    public/default                a namespace, and its topics
    public/default/orders         a topic
    public/default/orders-*       topics with that prefix; a star may end any part
    public/default/orders@billing the topic, read in group `billing` only; or `billing-*`
    public/default/orders@        the topic without its groups, as in an ACL of Kafka
    public/default/@billing       the group `billing` of any topic there, without the topics

Knows no user and no action.
"""

from __future__ import annotations

from dataclasses import dataclass

from braidlog.broker.access.rights import CLUSTER, USERS, Resource, ResourceKind

ANY = "*"
# Patterns outside tenants, and the kinds of resources that each pattern covers.
PLACELESS = {
    "cluster": (ResourceKind.CLUSTER, ResourceKind.USERS),
    "cluster/users": (ResourceKind.USERS,),
    "cluster/server": (ResourceKind.CLUSTER,),
}
PLACELESS_KINDS = frozenset(PLACELESS["cluster"])
KINDS = (ResourceKind.TENANT, ResourceKind.NAMESPACE, ResourceKind.TOPIC)
PATTERN_BYTES_MAX = 1024
TOPIC_PARTS = 3  # tenant, namespace, topic


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern. `parts` are tenant, namespace and topic, as far as given.

    A pattern outside tenants has no parts; `placeless` has the covered kinds of resources.
    """

    parts: tuple[str, ...]
    group: str  # Empty: the topic without its groups.
    placeless: tuple[ResourceKind, ...] = ()
    only_groups: bool = False  # True: the groups without their topics.

    @property
    def names_group(self) -> bool:
        """True if the pattern covers only groups with certain names."""
        return self.group not in (ANY, "")

    def covers(self, resource: Resource) -> bool:
        """Return True if a permission for this pattern holds for that resource."""
        if self.parts == (ANY,) and self.group == ANY:
            return True
        if self.placeless or resource.kind in PLACELESS_KINDS:
            return resource.kind in self.placeless
        if resource.kind is ResourceKind.GROUP:
            name = resource.group.decode(errors="surrogateescape")
            if not self.group or not _fits(self.group, name):
                return False
            if not resource.topic:  # The group on any topic there: the topics are checked later.
                return self.reaches(resource.tenant, resource.namespace)
        elif self.only_groups:
            return False
        named = (resource.tenant, resource.namespace, resource.topic)
        depth = sum(1 for part in named if part)
        if len(self.parts) > depth:
            return False
        return all(_fits(wanted, part) for wanted, part in zip(self.parts, named, strict=False))

    def reaches(self, tenant: str, namespace: str = "") -> bool:
        """Return True if the pattern may cover something in that tenant or namespace."""
        if self.placeless:
            return False
        named = (tenant, namespace) if namespace else (tenant,)
        return all(_fits(wanted, part) for wanted, part in zip(self.parts, named, strict=False))

    def resource(self) -> Resource:
        """Return the resource that a pattern without a star names. Raises ValueError."""
        if self.placeless:
            return CLUSTER if ResourceKind.CLUSTER in self.placeless else USERS
        if any(part.endswith(ANY) for part in self.parts) or (
            self.only_groups and self.group == ANY
        ):
            raise ValueError("expected a resource without a star")
        tenant, namespace, topic = (*self.parts, "", "")[:3]
        if self.names_group or self.only_groups:
            kind, group = ResourceKind.GROUP, self.group.encode()
        else:
            kind, group = KINDS[len(self.parts) - 1], b""
        return Resource(kind, tenant, namespace, topic, group)


def parse_pattern(text: str) -> Pattern:
    """Read a pattern. Raises ValueError, with a line for people."""
    if not 0 < len(text.encode()) <= PATTERN_BYTES_MAX or not text.isprintable():
        raise ValueError(f"a resource has 1 to {PATTERN_BYTES_MAX} bytes of printable text")
    if text in PLACELESS:
        return Pattern((), ANY, PLACELESS[text])
    path, at, group = text.partition("@")
    parts = tuple(path.split("/"))
    has_topic = len(parts) == TOPIC_PARTS
    only_groups = bool(has_topic and not parts[-1] and group)
    if only_groups:
        parts = parts[:-1]
    if len(parts) > TOPIC_PARTS or not all(parts) or (at and not group and not has_topic):
        raise ValueError(
            f"{text!r} is not a resource: tenant, tenant/namespace or tenant/namespace/topic, with"
            " @group for a topic's group, `cluster`, or * for everything"
        )
    if any(ANY in part[:-1] for part in (*parts, group)):
        raise ValueError(f"{text!r}: a star stands at the end of a part only")
    return Pattern(parts, group if at else ANY, only_groups=only_groups)


def _fits(wanted: str, name: str) -> bool:
    if wanted.endswith(ANY):
        return name.startswith(wanted[:-1])
    return name == wanted

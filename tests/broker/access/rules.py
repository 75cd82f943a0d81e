"""Rules for tests of access control, here and in the protocols' tests."""

from braidlog.broker.access.rights import Action, Principal, Resource, ResourceKind
from braidlog.storage.metadata.names import TopicName


class Nothing:
    """Allows nothing, or only some actions, and records the requests."""

    def __init__(self, *allowed: Action) -> None:
        self.allowed = allowed
        self.asked: list[tuple[Principal, Action, Resource]] = []

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        self.asked.append((principal, action, resource))
        return action in self.allowed

    def reaches(self, principal: Principal, tenant: str, namespace: str = "") -> bool:
        return Action.DESCRIBE in self.allowed

    @property
    def actions(self) -> set[Action]:
        """Return the requested actions."""
        return {action for _, action, _ in self.asked}


class Hiding:
    """Allows all but seeing topics, or groups of a topic."""

    def __init__(self, kind: ResourceKind | None) -> None:
        self.kind = kind

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        is_hidden = resource.kind is self.kind and bool(resource.topic)
        return action is not Action.DESCRIBE or not is_hidden


class OnlyTopic:
    """Rules that allow everything on a topic and in the topic's groups, and nothing else."""

    def __init__(self, name: TopicName) -> None:
        self._place = (name.tenant, name.namespace, name.topic)

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        in_any_topic = resource.kind is ResourceKind.GROUP and not resource.topic
        return in_any_topic or self._place == (
            *(resource.tenant, resource.namespace),
            resource.topic,
        )

    def reaches(self, principal: Principal, tenant: str, namespace: str = "") -> bool:
        return (tenant, namespace or self._place[1]) == self._place[:2]


class AllBut:
    """Allows all actions but one."""

    def __init__(self, refused: Action) -> None:
        self.refused = refused

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        return action is not self.refused

    def reaches(self, principal: Principal, tenant: str, namespace: str = "") -> bool:
        return True

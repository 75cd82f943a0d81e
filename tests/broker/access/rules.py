"""Rules for tests of access control, here and in the protocols' tests."""

from braidlog.broker.access.rights import Action, Principal, Resource


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

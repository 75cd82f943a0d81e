"""Permission grants of users and roles; every other action is refused.

The rules answer from memory. The module knows no protocol and no password.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from braidlog.broker import errors
from braidlog.broker.access.patterns import Pattern, parse_pattern
from braidlog.broker.access.rights import ROLE_PREFIX, Action, Principal, Resource, ResourceKind
from braidlog.broker.access.users import UserCatalogue
from braidlog.broker.limits import STATE_LIMITS, StateLimits
from braidlog.storage.metadata.user_records import Grant, Granted, Revoked

# Protocols import the records of permissions from here.
__all__ = [
    "ACTION_WORDS",
    "ADMIN",
    "ROLE_PREFIX",
    "WITHOUT_EFFECT",
    "Grant",
    "GrantChange",
    "Granted",
    "GrantedRules",
    "Revoked",
]

GrantChange = Granted | Revoked

ADMIN: Final = "admin"  # Every action on the resource of the grant.
ACTION_WORDS: Final = (ADMIN, *(action.value for action in Action))
# Pulsar's actions about features that do not exist here: stored and shown, they permit nothing.
WITHOUT_EFFECT: Final = ("functions", "packages", "sinks", "sources")
# Actions on the group's topic that a permission for a group includes.
OF_A_GROUPS_TOPIC: Final = frozenset({Action.CONSUME, Action.DESCRIBE})


@dataclass(frozen=True, slots=True)
class _Rule:
    word: str
    pattern: Pattern

    def allows(self, action: Action, resource: Resource) -> bool:
        # Every other permission includes DESCRIBE.
        if self.word not in (ADMIN, action.value) and action is not Action.DESCRIBE:
            return False
        # Reading in a group needs the same right on the topic; other actions concern the group
        # alone.
        if self.pattern.names_group and resource.kind is not ResourceKind.GROUP:
            return action in OF_A_GROUPS_TOPIC and self.pattern.covers(resource)
        return self.pattern.covers(resource)


class GrantedRules:
    """The rules of a broker with logins; see `access.Rules`. Implements `AccessRules`."""

    def __init__(
        self,
        catalogue: UserCatalogue,
        superusers: Iterable[str],
        limits: StateLimits = STATE_LIMITS,
    ) -> None:
        """`superusers` are names of users who may do everything."""
        self._limits = limits
        self._catalogue = catalogue
        self._book = catalogue.users
        self._superusers = frozenset(superusers)
        self._rules: dict[str, list[_Rule]] = {}  # By subject, filled at the first check.
        self._answers: dict[tuple[Principal, Action, Resource], bool] = {}
        self._version = self._book.grants_version  # Of the permissions in both.

    def allows(self, principal: Principal, action: Action, resource: Resource) -> bool:
        if principal.name in self._superusers and not principal.is_anonymous:
            return True
        self._follow()
        key = (principal, action, resource)
        answer = self._answers.get(key)
        if answer is None:
            answer = any(rule.allows(action, resource) for rule in self._rules_of(principal))
            if resource.is_long:
                return answer
            if len(self._answers) >= self._limits.grant_answers:
                self._answers.clear()
            self._answers[key] = answer
        return answer

    def reaches(self, principal: Principal, tenant: str, namespace: str = "") -> bool:
        if principal.name in self._superusers and not principal.is_anonymous:
            return True
        self._follow()
        return any(rule.pattern.reaches(tenant, namespace) for rule in self._rules_of(principal))

    def list(self, subject: str | None = None) -> Sequence[Grant]:
        """Return the permissions of a subject, or of all subjects."""
        return list(self._book.grants) if subject is None else self._book.grants_of(subject)

    async def grant(self, grant: Grant) -> int:
        """Grant a permission, and return the ticket; an existing permission stays as it is.

        Raises InvalidRequest, LimitExceeded, Conflict, StorageFull, StorageFailed.
        """
        _check(grant)
        if grant in self._book.grants:
            return self._catalogue.ticket
        if len(self._book.grants) >= self._limits.grants:
            raise errors.LimitExceeded(f"limit of {self._limits.grants} permissions reached")
        return self._catalogue.change_users(Granted(grant))

    async def revoke(self, grant: Grant) -> int:
        """Revoke a permission, and return the ticket.

        Raises UserNotFound if the permission does not exist, StorageFull, StorageFailed.
        """
        if grant not in self._book.grants:
            raise errors.UserNotFound(
                f"{grant.subject} was not granted {grant.action} on {grant.resource}"
            )
        return self._catalogue.change_users(Revoked(grant))

    def replacement(
        self, wanted: Iterable[Grant], present: Iterable[Grant]
    ) -> Sequence[GrantChange]:
        """Return the changes that grant all `wanted` permissions and revoke the rest of `present`.

        The changes are valid until the next change of a permission: write the changes without an
        await in between. Raises InvalidRequest, LimitExceeded.
        """
        wanted_grants, grants = dict.fromkeys(wanted), self._book.grants
        gone = [grant for grant in present if grant not in wanted_grants and grant in grants]
        new = [grant for grant in wanted_grants if grant not in grants]
        _check(*new)
        if new and len(grants) - len(gone) + len(new) > self._limits.grants:
            raise errors.LimitExceeded(f"limit of {self._limits.grants} permissions reached")
        return [*map(Revoked, gone), *map(Granted, new)]

    def replace(
        self, wanted: Iterable[Grant], present: Iterable[Grant]
    ) -> tuple[Sequence[GrantChange], int]:
        """Make the changes of `replacement`, all or none; return the changes and the ticket.

        Raises InvalidRequest, LimitExceeded, StorageFull, StorageFailed.
        """
        changes = self.replacement(wanted, present)
        if not changes:
            return changes, self._catalogue.ticket
        return changes, self._catalogue.change_users(*changes)

    def _follow(self) -> None:
        """Forget rules and answers if permissions have changed."""
        if self._version != self._book.grants_version:
            self._rules.clear()
            self._answers.clear()
            self._version = self._book.grants_version

    def _rules_of(self, principal: Principal) -> Iterable[_Rule]:
        if principal.is_anonymous:
            return
        if not principal.name.startswith(ROLE_PREFIX):  # A token may carry any name.
            yield from self._rules_for(principal.name)
        for role in principal.roles:
            yield from self._rules_for(ROLE_PREFIX + role)

    def _rules_for(self, subject: str) -> Sequence[_Rule]:
        rules = self._rules.get(subject)
        if rules is None:
            # Signed tokens may name any number of subjects.
            if len(self._rules) >= self._limits.grant_answers:
                self._rules.clear()
            grants = self._book.grants_of(subject)
            effective = (grant for grant in grants if grant.action not in WITHOUT_EFFECT)
            rules = self._rules[subject] = [_rule(grant) for grant in effective]
        return rules


def _rule(grant: Grant) -> _Rule:
    return _Rule(grant.action, parse_pattern(grant.resource))


def _check(*grants: Grant) -> None:
    """Check grants, each action, subject and resource once. Raises InvalidRequest."""
    for action in dict.fromkeys(grant.action for grant in grants):
        if action not in (*ACTION_WORDS, *WITHOUT_EFFECT):
            raise errors.InvalidRequest(f"no action {action!r}: {', '.join(ACTION_WORDS)}")
    for subject in dict.fromkeys(grant.subject for grant in grants):
        # A lone surrogate is not printable, and cannot be encoded.
        if not subject.isprintable() or not 0 < len(subject.encode()) <= 255:
            raise errors.InvalidRequest("a user or role has 1 to 255 bytes of printable text")
    for resource in dict.fromkeys(grant.resource for grant in grants):
        try:
            parse_pattern(resource)
        except ValueError as error:
            raise errors.InvalidRequest(str(error)) from error

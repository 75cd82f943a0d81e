"""Permissions in Pulsar's admin API: a role's actions in a namespace or on a topic.

A role of Pulsar is a user here. The role's permissions are rows of the table that every protocol
checks and `braidlog permissions` shows; the roles of a subscription are a setting of the namespace.
Without `access.required` they are stored, as in Apache, and have an effect once that is on. Produce
is `produce` (and in a namespace also `create`, as a Pulsar producer creates its topic), consume is
`consume`. Functions, sources, sinks and packages are stored and shown, and permit nothing: tools
grant them together with the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import trio
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.patterns import parse_pattern
from braidlog.broker.access.rules import WITHOUT_EFFECT, Grant, Granted
from braidlog.broker.access.subscription_rules import (
    ROLES_OF,
    roles_by_subscription,
    roles_setting,
)
from braidlog.protocols.http.errors import (
    BAD_BODY,
    BAD_LIMIT,
    INVALID_NAME,
    PERMISSIONS_NOT_SET,
    RequestRefused,
)
from braidlog.protocols.http.login import origin
from braidlog.protocols.http.path_names import name_of, namespace_of, text_of
from braidlog.protocols.http.pulsar_admin.answers import done, json_answer
from braidlog.protocols.http.pulsar_admin.handlers import AdminHandlers

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker
    from braidlog.protocols.http.bodies import BodyReader
    from braidlog.protocols.http.pulsar_admin.policies import Setting

# Pulsar's actions (AuthAction), and our actions in a namespace and on a topic.
EFFECTIVE_ACTIONS: Final = ("produce", "consume")
TOPIC_ACTIONS: Final = {word: (word,) for word in (*EFFECTIVE_ACTIONS, *WITHOUT_EFFECT)}
NAMESPACE_ACTIONS: Final = {**TOPIC_ACTIONS, "produce": ("produce", "create")}


# A change of any setting of a namespace writes all settings.
LISTS_CHARACTERS_MAX: Final = 16_384


class AdminPermissions(AdminHandlers):
    """Handlers of a broker's permissions."""

    def __init__(self, broker: Broker, bodies: BodyReader) -> None:
        super().__init__(broker, bodies)
        self._lists = trio.Lock()  # Held while a list is read and replaced.

    async def of_namespace(self, request: Request) -> Response:
        """The actions that each role may do in a namespace."""
        return json_answer(self._actions(self._namespace(request)))

    async def grant_in_namespace(self, request: Request) -> Response:
        """Replace a role's actions in a namespace by these."""
        return await self._grant(request, self._namespace(request), NAMESPACE_ACTIONS)

    async def revoke_in_namespace(self, request: Request) -> Response:
        """Revoke all actions of a role in a namespace."""
        ticket = await self._revoke(request, self._namespace(request), NAMESPACE_ACTIONS)
        await self._broker.published(ticket or 0)
        return done()

    async def of_subscriptions(self, request: Request) -> Response:
        """The roles that may use each subscription of a namespace; without a list, all may."""
        meta = self._broker.namespaces.get(*namespace_of(request))
        return json_answer(roles_by_subscription(meta.settings))

    async def grant_on_subscription(self, request: Request) -> Response:
        """Let only these roles use a subscription; without a role, all who may consume."""
        roles = _roles_of(await self._body(request))
        async with self._lists:
            return await self._set_roles(request, roles)

    async def revoke_on_subscription(self, request: Request) -> Response:
        """Take a role from the list of a subscription; the last role takes the list with it.
        Raises RequestRefused without a list.
        """
        async with self._lists:
            meta = self._broker.namespaces.get(*namespace_of(request))
            roles = roles_by_subscription(meta.settings).get(_subscription(request))
            if roles is None:
                raise RequestRefused(PERMISSIONS_NOT_SET, "couldn't find subscription")
            left = [role for role in roles if role != text_of(request, "role")]
            return await self._set_roles(request, left or None)

    async def _set_roles(self, request: Request, roles: Sequence[str] | None) -> Response:
        tenant, namespace = namespace_of(request)
        subscription = _subscription(request)
        changes: dict[str, str | None] = dict(roles_setting(subscription, roles or ()))
        if roles is None:
            changes = dict.fromkeys(changes)
        meta = self._broker.namespaces.get(tenant, namespace)
        _check_lists({**meta.settings, **changes})
        ticket = await self._broker.topics.alter_namespace(tenant, namespace, changes)
        principal = request.scope["exchange"].principal
        text = f"{tenant}/{namespace} {subscription} {' '.join(roles or ())}"
        self._broker.audit.changed(principal, origin(request), "subscription_roles_set", text)
        return await self._done_at(ticket)

    async def of_topic(self, request: Request) -> Response:
        """The actions that each role may do on a topic, by grants on the namespace or the topic."""
        by_role = self._actions(self._namespace(request))
        for role, actions in self._actions(self._existing_topic(request)).items():
            by_role[role] = sorted({*by_role.get(role, ()), *actions})
        return json_answer(by_role)

    async def grant_on_topic(self, request: Request) -> Response:
        """Replace a role's actions on a topic by these."""
        return await self._grant(request, self._existing_topic(request), TOPIC_ACTIONS)

    async def revoke_on_topic(self, request: Request) -> Response:
        """Revoke all actions that a role was granted on a topic, which may be deleted meanwhile.
        Raises RequestRefused if no role was granted any.
        """
        ticket = await self._revoke(request, _topic(request), TOPIC_ACTIONS)
        if ticket is None and not self._actions(self._existing_topic(request)):
            raise RequestRefused(PERMISSIONS_NOT_SET, "Permissions are not set at the topic level")
        await self._broker.published(ticket or 0)
        return done()

    def _namespace(self, request: Request) -> str:
        tenant, namespace = namespace_of(request)
        self._broker.namespaces.get(tenant, namespace)
        return _plain(f"{tenant}/{namespace}")

    def _existing_topic(self, request: Request) -> str:
        """Return the path's topic as a resource. Raises TopicNotFound, RequestRefused."""
        resource = _topic(request)
        self._broker.topics.get(name_of(request)[0])
        return resource

    def _actions(self, resource: str) -> dict[str, list[str]]:
        """Return Pulsar's actions of each role, from grants on exactly this resource."""
        return _by_resource(self._broker.permissions.list()).get(resource, {})

    async def _grant(
        self, request: Request, resource: str, meanings: Mapping[str, tuple[str, ...]]
    ) -> Response:
        wanted = _actions_of(await self._body(request))
        role = text_of(request, "role")
        grants = [Grant(role, word, resource) for action in wanted for word in meanings[action]]
        await self._broker.published(self._replace(request, resource, meanings, grants))
        return done()

    async def _revoke(
        self, request: Request, resource: str, meanings: Mapping[str, tuple[str, ...]]
    ) -> int | None:
        """Revoke the grants; return the ticket, None without grants."""
        if not self._present(text_of(request, "role"), resource, meanings):
            return None
        return self._replace(request, resource, meanings, [])

    def _present(
        self, role: str, resource: str, meanings: Mapping[str, tuple[str, ...]]
    ) -> list[Grant]:
        words = {word for ours in meanings.values() for word in ours}
        grants = self._broker.permissions.list(role)
        return [grant for grant in grants if grant.resource == resource and grant.action in words]

    def _replace(
        self,
        request: Request,
        resource: str,
        meanings: Mapping[str, tuple[str, ...]],
        grants: Sequence[Grant],
    ) -> int:
        """Replace a role's grants on the resource by these, all or none; return the ticket."""
        present = self._present(text_of(request, "role"), resource, meanings)
        changes, ticket = self._broker.permissions.replace(grants, present)
        for change in changes:
            is_new = isinstance(change, Granted)
            action = "permission_granted" if is_new else "permission_revoked"
            self._audit(request, action, change.grant)
        return ticket

    def _audit(self, request: Request, action: str, grant: Grant) -> None:
        principal = request.scope["exchange"].principal
        on = f"{grant.subject} {grant.action} {grant.resource}"
        self._broker.audit.changed(principal, origin(request), action, on)


def shown_permissions(broker: Broker, tenant: str, namespace: str) -> dict[str, object]:
    """Return the permissions of a namespace and of its topics, as the namespace's policies show
    them.
    """
    space = f"{tenant}/{namespace}"
    by_resource = _by_resource(broker.permissions.list())
    of_topics = {
        f"persistent://{resource}": roles
        for resource, roles in by_resource.items()
        if resource.startswith(f"{space}/") and _is_plain(resource)
    }
    return {
        "namespace_auth": by_resource.get(space, {}),
        "destination_auth": of_topics,
        "subscription_auth_roles": roles_by_subscription(
            broker.namespaces.get(tenant, namespace).settings
        ),
    }


def _by_resource(grants: Iterable[Grant]) -> dict[str, dict[str, list[str]]]:
    """Return Pulsar's actions of each role, by resource."""
    granted: dict[str, dict[str, set[str]]] = {}
    for grant in grants:
        if grant.action in (*TOPIC_ACTIONS, "admin"):
            words = EFFECTIVE_ACTIONS if grant.action == "admin" else (grant.action,)
            granted.setdefault(grant.resource, {}).setdefault(grant.subject, set()).update(words)
    return {
        resource: {role: sorted(actions) for role, actions in roles.items()}
        for resource, roles in granted.items()
    }


def _subscription(request: Request) -> str:
    return text_of(request, "of_subscription")


def _roles_of(body: object) -> list[str]:
    """Return the roles in a body. Raises RequestRefused."""
    if body is None:
        raise RequestRefused(BAD_BODY, "Roles should not be null")
    if not isinstance(body, list) or not all(isinstance(role, str) and role for role in body):
        raise RequestRefused(BAD_BODY, 'a list of roles is wanted, as ["anna", "bob"]')
    if not all(map(str.isprintable, body)):
        raise RequestRefused(BAD_BODY, "a role is wanted in printable text")
    return body


def _check_lists(settings: Mapping[str, Setting | None]) -> None:
    """Raises RequestRefused if the lists of a namespace's subscriptions are too long."""
    lists = [(name, value) for name, value in settings.items() if name.startswith(ROLES_OF)]
    if sum(len(name) + len(str(value or "")) for name, value in lists) > LISTS_CHARACTERS_MAX:
        text = f"subscriptions and roles of a namespace: expected at most {LISTS_CHARACTERS_MAX}"
        raise RequestRefused(BAD_LIMIT, f"{text} characters together")


def _topic(request: Request) -> str:
    return _plain(name_of(request)[0].full)


def _plain(resource: str) -> str:
    """Return the resource, if as a pattern it matches only itself. Raises RequestRefused."""
    if not _is_plain(resource):
        raise RequestRefused(INVALID_NAME, f"permissions cannot be about {resource}: it has * or @")
    return resource


def _is_plain(resource: str) -> bool:
    try:
        return "@" not in resource and parse_pattern(resource).resource() is not None
    except ValueError:
        return False


def _actions_of(body: object) -> list[str]:
    """Return Pulsar's actions in a body. Raises RequestRefused."""
    if not isinstance(body, list) or not all(isinstance(name, str) for name in body):
        raise RequestRefused(BAD_BODY, 'a list of actions is wanted, as ["produce", "consume"]')
    for action in body:
        if action not in TOPIC_ACTIONS:
            raise RequestRefused(
                BAD_BODY, f"there is no action {action!r}: {', '.join(TOPIC_ACTIONS)}"
            )
    return sorted(set(body))

"""`/api/v1/users` and `/api/v1/permissions`: users, their access tokens, and permissions.

Knows bodies and the broker, no connection. Only the answer that creates a token holds a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from braidlog.broker.access.patterns import parse_pattern
from braidlog.broker.access.rights import Action, Resource
from braidlog.broker.access.rules import ACTION_WORDS, Grant
from braidlog.broker.access.users import UserMeta, principal_of
from braidlog.broker.errors import InvalidRequest
from braidlog.protocols.http.bodies import BodyReader
from braidlog.protocols.http.login import origin
from braidlog.protocols.http.path_names import path_bytes
from braidlog.protocols.http.requests import json_response

if TYPE_CHECKING:
    from braidlog.broker.broker import Broker


class CreateUser(msgspec.Struct, forbid_unknown_fields=True):
    """PUT of a user. Without a password they log in by tokens or certificates."""

    password: str | None = None
    roles: list[str] = []


class AlterUser(msgspec.Struct, forbid_unknown_fields=True):
    """PATCH of a user: the fields to change."""

    password: str | None = None
    roles: list[str] | None = None
    active: bool | None = None


class CreateToken(msgspec.Struct, forbid_unknown_fields=True):
    """PUT of an access token; without `expires_us` it never expires."""

    expires_us: int | None = None


class TokenInfo(msgspec.Struct):
    """An access token, without its text. Times in microseconds since 1970."""

    name: str
    created_us: int
    expires_us: int | None


class NewToken(TokenInfo):
    """An access token just created: the only answer with the token's text."""

    token: str = ""


class UserInfo(msgspec.Struct):
    """A user, without secrets."""

    name: str
    id: int
    created_us: int
    active: bool
    has_password: bool
    roles: list[str]
    tokens: list[TokenInfo]


class UserList(msgspec.Struct):
    """All users, by number."""

    users: list[UserInfo]


class Permission(msgspec.Struct, forbid_unknown_fields=True):
    """A permission of a subject for an action on resources (docs/security.md)."""

    subject: str
    action: str
    resource: str


class PermissionList(msgspec.Struct):
    """Permissions in the order in which they were granted."""

    permissions: list[Permission]


class Verdict(msgspec.Struct):
    """Verdict on a user's right to an action. `enforced` is false without `access.required`: every
    client may do everything then.
    """

    allowed: bool
    enforced: bool


class UsersApi:
    """Handlers of a broker's users and permissions."""

    def __init__(self, broker: Broker, bodies: BodyReader) -> None:
        self._broker = broker
        self._bodies = bodies

    async def list_users(self, request: Request) -> Response:
        """Every user."""
        return json_response(UserList([_info(user) for user in self._broker.users.all()]))

    async def show(self, request: Request) -> Response:
        """A user."""
        return json_response(_info(self._user(request)))

    async def create(self, request: Request) -> Response:
        """Create a user; answered once the user is on disk."""
        wanted = await self._bodies.read(request, CreateUser)
        user, ticket = await self._broker.users.create(
            _name(request, "user"), wanted.password, roles=wanted.roles
        )
        self._audit(request, "user_created", user.name)
        await self._broker.published(ticket)
        return json_response(_info(user), 201)

    async def alter(self, request: Request) -> Response:
        """Change a user's password, roles, or permission to log in."""
        wanted = await self._bodies.read(request, AlterUser)
        user, users = self._user(request), self._broker.users
        ticket = await users.alter(
            user, password=wanted.password, is_active=wanted.active, roles=wanted.roles
        )
        self._audit(request, "user_changed", user.name)
        changed = self._user(request)  # Before the wait: another client may delete the user.
        await self._broker.published(ticket)
        return json_response(_info(changed))

    async def delete(self, request: Request) -> Response:
        """Remove a user with their tokens."""
        user = self._user(request)
        ticket = await self._broker.users.delete(user)
        self._audit(request, "user_deleted", user.name)
        await self._broker.published(ticket)
        return Response(status_code=204)

    async def create_token(self, request: Request) -> Response:
        """Create an access token; only this answer has the token's text."""
        wanted = await self._bodies.read(request, CreateToken)
        name = _name(request, "token")
        users = self._broker.users
        text, ticket = await users.create_token(self._user(request), name, wanted.expires_us)
        self._audit(request, "token_created", f"{self._user(request).name} {name}")
        # Before the wait: another client may revoke the token meanwhile.
        token = next(token for token in self._user(request).tokens if token.name == name)
        await self._broker.published(ticket)
        return json_response(NewToken(token.name, token.created_us, token.expires_us, text), 201)

    async def delete_token(self, request: Request) -> Response:
        """Revoke an access token."""
        user, name = self._user(request), _name(request, "token")
        ticket = await self._broker.users.delete_token(user, name)
        self._audit(request, "token_revoked", f"{user.name} {name}")
        await self._broker.published(ticket)
        return Response(status_code=204)

    async def list_permissions(self, request: Request) -> Response:
        """Every permission, or the permissions of a `?subject=`."""
        grants = self._broker.permissions.list(request.query_params.get("subject"))
        permissions = [Permission(grant.subject, grant.action, grant.resource) for grant in grants]
        return json_response(PermissionList(permissions))

    async def grant(self, request: Request) -> Response:
        """Grant a permission; an existing permission stays."""
        wanted = await self._bodies.read(request, Permission)
        grant = Grant(wanted.subject, wanted.action, wanted.resource)
        ticket = await self._broker.permissions.grant(grant)
        self._audit(request, "permission_granted", _text(grant))
        await self._broker.published(ticket)
        return json_response(wanted, 201)

    async def revoke(self, request: Request) -> Response:
        """Revoke the permission that `?subject=`, `?action=` and `?resource=` name."""
        query = request.query_params
        grant = Grant(query.get("subject", ""), query.get("action", ""), query.get("resource", ""))
        ticket = await self._broker.permissions.revoke(grant)
        self._audit(request, "permission_revoked", _text(grant))
        await self._broker.published(ticket)
        return Response(status_code=204)

    async def test(self, request: Request) -> Response:
        """Verdict on `?user=`, `?action=` and `?resource=`, by the current permissions."""
        query = request.query_params
        action, resource = query.get("action", ""), query.get("resource", "")
        if action not in ACTION_WORDS[1:]:
            raise InvalidRequest(f"there is no action {action!r}: {', '.join(ACTION_WORDS[1:])}")
        user = self._broker.users.get(query.get("user", ""))
        allowed = self._broker.rules.allows(principal_of(user), Action(action), _resource(resource))
        return json_response(Verdict(allowed, self._broker.access.rules is not None))

    def _audit(self, request: Request, action: str, on: str) -> None:
        principal = request.scope["exchange"].principal
        self._broker.audit.changed(principal, origin(request), action, on)

    def _user(self, request: Request) -> UserMeta:
        return self._broker.users.get(_name(request, "user"))


def _name(request: Request, part: str) -> str:
    """Return a name in the path. Raises InvalidRequest for a name that is not text."""
    try:
        return path_bytes(request, part).decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the {part}'s name is not UTF-8") from error


def _text(grant: Grant) -> str:
    return f"{grant.subject} {grant.action} {grant.resource}"


def _resource(text: str) -> Resource:
    """Return the resource that a pattern without a star names. Raises InvalidRequest."""
    try:
        return parse_pattern(text).resource()
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


def _info(user: UserMeta) -> UserInfo:
    return UserInfo(
        name=user.name,
        id=user.user_id,
        created_us=user.created_us,
        active=user.is_active,
        has_password=bool(user.password_hash),
        roles=user.roles,
        tokens=[TokenInfo(token.name, token.created_us, token.expires_us) for token in user.tokens],
    )

"""Users, passwords and access tokens in the form of Iggy's commands; `logins.py` has the logins.

They are the broker's own (`broker.users`), whoever created them. The root user is that of the
listener's options until a client gives this user a password or a token: from then on the user is
stored too. Users are numbered from 1 in the broker and from 0 here. Their permissions are stored as
the broker's own grants (`permissions.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.broker import errors
from braidlog.broker.access.rights import CLUSTER, USERS, Action
from braidlog.broker.access.rules import Grant, GrantChange, Granted
from braidlog.broker.access.users import ROOT_USER_ID, UserMeta, principal_of
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.context import ROOT, IggyAnswer, IggyContext
from braidlog.protocols.iggy.errors import Absent, ErrorCode, Refusal
from braidlog.protocols.iggy.logins import root_password
from braidlog.protocols.iggy.messages import UNBOUNDED, Name
from braidlog.protocols.iggy.permissions import (
    EVERYTHING,
    granting_nothing,
    grants_for,
    is_iggys,
    permissions_of,
)
from braidlog.protocols.iggy.topic_options import check_no_options

# Iggy's limits of names and passwords, in bytes.
USERNAME_BYTES = range(3, 51)
PASSWORD_BYTES = range(3, 101)
TOKEN_NAME_BYTES = range(3, 31)
ACTIVE, INACTIVE = 1, 2  # Status of a user.


def get_user(context: IggyContext, request: u.GetUser) -> IggyAnswer:
    """Return a user with permissions; every user may see their own entry. Raises Absent."""
    user = _find(context, request.user)
    if user is None or user.user_id - ROOT_USER_ID != context.client.user_id:
        _check_rights(context, Action.DESCRIBE)
    if user is None:
        raise Absent(ErrorCode.RESOURCE_NOT_FOUND)
    return IggyAnswer(_details(context, user))


def get_users(context: IggyContext, request: u.GetUsers) -> IggyAnswer:
    """Return all users."""
    _check_rights(context, Action.DESCRIBE)
    return IggyAnswer([_info(user) for user in _all(context)])


def visible_users(context: IggyContext) -> list[UserMeta]:
    """Return the users that the caller may see, by number: all, or only the caller."""
    if not sees_users(context):
        return [_caller(context)]
    return sorted(_all(context), key=lambda user: user.user_id)


def sees_users(context: IggyContext) -> bool:
    """Return True if the caller may see all users."""
    try:
        _check_rights(context, Action.DESCRIBE)
    except (Refusal, errors.NotAuthorized):
        return False
    return True


def user_records(context: IggyContext, user: UserMeta) -> tuple[r.UserDetails, r.UserPermissions]:
    """Return the records of a user and the user's permissions."""
    return _info(user), r.UserPermissions(_permissions(context, user))


async def create_user(context: IggyContext, request: u.CreateUser) -> IggyAnswer:
    """Create a user. Raises Refusal."""
    _check_rights(context)
    check_no_options(request.options)
    grants = _grants(context, request.username, request.permissions)
    permitted = granting_nothing(context.broker, request.permissions)
    _check_size(request.username, USERNAME_BYTES, ErrorCode.INVALID_USERNAME)
    _check_size(request.password, PASSWORD_BYTES, ErrorCode.INVALID_PASSWORD)
    if _find(context, request.username) is not None:
        raise Refusal(ErrorCode.USER_ALREADY_EXISTS)
    replacing = _Replacing(context, request.username, grants)
    try:
        user, ticket = await context.broker.users.create(
            request.username,
            request.password,
            is_active=_is_active(request.status),
            permitted=permitted,
            grants=tuple if request.permissions is None else replacing.changes,
        )
    except errors.LimitExceeded as error:
        raise Refusal(ErrorCode.USERS_LIMIT_REACHED, str(error)) from None
    except errors.InvalidRequest as error:
        raise Refusal(ErrorCode.INVALID_USERNAME, str(error)) from None
    _audit(context, "user_created", user.name)
    replacing.audit()
    details = _details(context, user)
    await context.broker.published(ticket)
    return IggyAnswer(details)


async def update_user(context: IggyContext, request: u.UpdateUser) -> IggyAnswer:
    """Change a user's name or status. Raises Refusal."""
    _check_rights(context)
    check_no_options(request.options)
    user = _get_stored(context, request.user)
    if request.username is not None:
        _check_size(request.username, USERNAME_BYTES, ErrorCode.INVALID_USERNAME)
        namesake = _find(context, request.username)
        if namesake is not None and namesake.user_id != user.user_id:
            raise Refusal(ErrorCode.USER_ALREADY_EXISTS)
    is_active = None if request.status is None else _is_active(request.status)
    try:
        ticket = await context.broker.users.alter(user, name=request.username, is_active=is_active)
    except errors.InvalidRequest as error:
        raise Refusal(ErrorCode.INVALID_USERNAME, str(error)) from None
    _audit(context, "user_changed", user.name)
    await context.broker.published(ticket)
    return IggyAnswer()


async def delete_user(context: IggyContext, request: u.DeleteUser) -> IggyAnswer:
    """Delete a user with the user's tokens; root cannot be deleted. Raises Refusal."""
    _check_rights(context)
    user = _find(context, request.user)
    if user is not None and user.user_id == ROOT_USER_ID:
        raise Refusal(ErrorCode.CANNOT_DELETE_USER)
    stored = _get_stored(context, request.user)
    ticket = await context.broker.users.delete(stored)
    _audit(context, "user_deleted", stored.name)
    await context.broker.published(ticket)
    return IggyAnswer()


async def update_permissions(context: IggyContext, request: u.UpdatePermissions) -> IggyAnswer:
    """Set a user's permissions, and remove all others that Iggy's clients can name.

    Raises Refusal.
    """
    _check_rights(context)
    user = _find(context, request.user)
    if user is None:
        raise Refusal(ErrorCode.RESOURCE_NOT_FOUND)
    if user.user_id == ROOT_USER_ID:
        raise Refusal(ErrorCode.CANNOT_CHANGE_PERMISSIONS)
    grants = _grants(context, user.name, request.permissions)
    permitted = granting_nothing(context.broker, request.permissions)
    replacing = _Replacing(context, user.name, grants)
    ticket = context.broker.users.set_permissions(user, permitted, replacing.changes)
    replacing.audit()
    await context.broker.published(ticket)
    return IggyAnswer()


async def change_password(context: IggyContext, request: u.ChangePassword) -> IggyAnswer:
    """Change the caller's own password, or another user's with the right to do so. Raises
    Refusal.
    """
    user = _find(context, request.user)
    if user is None or user.user_id - ROOT_USER_ID != context.client.user_id:
        _check_rights(context)
    if user is None:
        raise Refusal(ErrorCode.RESOURCE_NOT_FOUND)
    _check_size(request.new, PASSWORD_BYTES, ErrorCode.INVALID_PASSWORD)
    users, host = context.broker.users, context.connection.host
    expected = root_password(context, user.name)
    try:
        if expected is None:
            user = await users.verify(user.name, request.old, host, must_be_active=False)
        else:
            await users.verify_configured(user.name, request.old, expected, host)
            user = await _stored_root(context)
    except errors.NotAuthenticated as error:
        raise Refusal(ErrorCode.INVALID_CREDENTIALS, str(error)) from None
    ticket = await users.set_password(user, request.new)
    _audit(context, "user_changed", user.name)
    await context.broker.published(ticket)
    return IggyAnswer()


def get_tokens(context: IggyContext, request: u.GetTokens) -> IggyAnswer:
    """Return the caller's tokens, without their secrets."""
    user = _caller(context)
    return IggyAnswer([r.TokenDetails(token.name, token.expires_us or 0) for token in user.tokens])


async def create_token(context: IggyContext, request: u.CreateToken) -> IggyAnswer:
    """Create a token for the caller; the secret is shown only this once. Raises Refusal."""
    _check_size(request.name, TOKEN_NAME_BYTES, ErrorCode.INVALID_TOKEN_NAME)
    broker = context.broker
    user = _caller(context)
    if user.user_id == ROOT_USER_ID and broker.users.by_id(ROOT_USER_ID) is None:
        user = await _stored_root(context)
    never = request.expiry_us in (0, UNBOUNDED)
    expires_us = None if never else broker.now_us() + request.expiry_us
    try:
        text, ticket = await broker.users.create_token(user, request.name, expires_us)
    except errors.UserExists as error:
        raise Refusal(ErrorCode.TOKEN_ALREADY_EXISTS, str(error)) from None
    except errors.LimitExceeded as error:
        raise Refusal(ErrorCode.TOKENS_LIMIT_REACHED, str(error)) from None
    except errors.InvalidRequest as error:
        raise Refusal(ErrorCode.INVALID_TOKEN_NAME, str(error)) from None
    _audit(context, "token_created", f"{user.name} {request.name}")
    await broker.published(ticket)
    return IggyAnswer([r.RawToken(text)])


async def delete_token(context: IggyContext, request: u.DeleteToken) -> IggyAnswer:
    """Delete a token of the caller. Raises Refusal."""
    try:
        user = _caller(context)
        ticket = await context.broker.users.delete_token(user, request.name)
    except errors.UserNotFound as error:
        raise Refusal(ErrorCode.RESOURCE_NOT_FOUND, str(error)) from None
    _audit(context, "token_revoked", f"{user.name} {request.name}")
    await context.broker.published(ticket)
    return IggyAnswer()


def _root(context: IggyContext) -> UserMeta:
    """Return root, as stored or as in the options."""
    stored = context.broker.users.by_id(ROOT_USER_ID)
    return stored or UserMeta(ROOT_USER_ID, context.options.username, "", 0, True, [])


async def _stored_root(context: IggyContext) -> UserMeta:
    """Return the stored root user, created if needed. Raises the errors of `Users.create`."""
    users = context.broker.users
    stored = users.by_id(ROOT_USER_ID)
    if stored is None:
        stored, _ = await users.create(context.options.username, None, user_id=ROOT_USER_ID)
    return stored


def _all(context: IggyContext) -> list[UserMeta]:
    others = [user for user in context.broker.users.all() if user.user_id != ROOT_USER_ID]
    return [_root(context), *others]


def _find(context: IggyContext, name: Name) -> UserMeta | None:
    """Return a user by name, or by the dialect's number of the user."""
    root = _root(context)
    if isinstance(name, str):
        return root if name == root.name else context.broker.users.find(name)
    number = name + ROOT_USER_ID - context.dialect.behaviour.users_from
    return root if number == ROOT_USER_ID else context.broker.users.by_id(number)


def _get_stored(context: IggyContext, name: Name) -> UserMeta:
    """Return a user that can be changed. Raises Refusal."""
    user = _find(context, name)
    if user is None:
        raise Refusal(ErrorCode.RESOURCE_NOT_FOUND)
    if user.user_id == ROOT_USER_ID:
        raise Refusal(ErrorCode.FEATURE_UNAVAILABLE, "root's name and status are settings")
    return user


def _caller(context: IggyContext) -> UserMeta:
    """Return the logged-in user. Raises Refusal if the user was deleted since."""
    number = context.client.user_id
    if number is None:
        raise Refusal(ErrorCode.UNAUTHENTICATED)
    if number == ROOT:
        return _root(context)
    user = context.broker.users.by_id(number + ROOT_USER_ID)
    if user is None:
        raise Refusal(ErrorCode.UNAUTHENTICATED, "the user was deleted")
    return user


def _check_rights(context: IggyContext, action: Action = Action.ADMINISTER) -> None:
    """Check that the caller may see or change users; root and users with the right may.

    Raises Refusal, NotAuthorized.
    """
    if context.rules is not None:
        context.check(action, USERS)
    elif context.client.user_id != ROOT:
        raise Refusal(ErrorCode.UNAUTHORIZED, "only root looks after users")


def _grants(context: IggyContext, name: str, permissions: u.Permissions | None) -> list[Grant]:
    """Return the grants of a user with these permissions. Raises Refusal."""
    return [] if permissions is None else grants_for(context.broker, name, permissions)


class _Replacing:
    """The replacement of all of a user's grants that Iggy's clients can name."""

    def __init__(self, context: IggyContext, name: str, grants: list[Grant]) -> None:
        self._context = context
        self._name = name
        self._grants = grants
        self._changes: Sequence[GrantChange] = ()

    def changes(self) -> Sequence[GrantChange]:
        """Return the changes. Raises InvalidRequest, Refusal above the limit of permissions."""
        permissions = self._context.broker.permissions
        present = filter(is_iggys, permissions.list(self._name))
        try:
            self._changes = permissions.replacement(self._grants, present)
        except errors.LimitExceeded as error:
            raise Refusal(ErrorCode.ERROR, str(error)) from None
        return self._changes

    def audit(self) -> None:
        """Note the changes, which were written."""
        for change in self._changes:
            action = "permission_granted" if isinstance(change, Granted) else "permission_revoked"
            grant = change.grant
            _audit(self._context, action, f"{grant.subject} {grant.action} {grant.resource}")


def _audit(context: IggyContext, action: str, on: str) -> None:
    connection = context.connection
    context.broker.audit.changed(connection.principal, connection.at, action, on)


def _check_size(text: str, sizes: range, code: ErrorCode) -> None:
    if len(text.encode()) not in sizes:
        raise Refusal(code, f"{sizes.start} to {sizes.stop - 1} bytes are allowed")


def _is_active(status: int) -> bool:
    if status not in (ACTIVE, INACTIVE):
        raise Refusal(ErrorCode.INVALID_USER_STATUS, f"status {status}")
    return status == ACTIVE


def _info(user: UserMeta) -> r.UserDetails:
    status = ACTIVE if user.is_active else INACTIVE
    return r.UserDetails(user.user_id - ROOT_USER_ID, user.created_us, status, user.name)


def _details(context: IggyContext, user: UserMeta) -> list[r.UserDetails | r.UserPermissions]:
    user = context.broker.users.by_id(user.user_id) or user
    return list(user_records(context, user))


def _permissions(context: IggyContext, user: UserMeta) -> u.Permissions | None:
    broker, principal = context.broker, principal_of(user)
    is_root = user.user_id == ROOT_USER_ID and broker.access.rules is None
    if is_root or broker.permissions.allows(principal, Action.ADMINISTER, CLUSTER):
        return EVERYTHING
    return permissions_of(broker, user.name, user.permitted)

"""Logins, and the sessions of dialect W that another connection continues.

The root user is that of the listener's options until a client gives this user a password or a
token. Users are numbered from 1 in the broker and from 0 here.
"""

from __future__ import annotations

from braidlog.broker import errors
from braidlog.broker.access.authentication import Identity
from braidlog.broker.access.rights import ANONYMOUS
from braidlog.broker.access.users import ROOT_USER_ID
from braidlog.protocols.iggy import replies as r
from braidlog.protocols.iggy import user_messages as u
from braidlog.protocols.iggy.context import ROOT, IggyAnswer, IggyContext
from braidlog.protocols.iggy.errors import ErrorCode, Refusal
from braidlog.protocols.iggy.producer_names import ids_among
from braidlog.protocols.iggy.sessions import LogicalSession
from braidlog.protocols.iggy.vsr_dialects import FRAMINGS


async def login(context: IggyContext, request: u.LoginUser) -> IggyAnswer:
    """Log a user in by password, also again on the same connection. Raises Refusal."""
    authentication, at = context.broker.authentication, context.connection.at
    _note_library(context, request.version)
    name, password = request.username, request.password
    expected = root_password(context, name)
    try:
        if expected is None:
            identity = await authentication.password(name, password, at)
        else:
            identity = await authentication.configured_password(name, password, expected, at)
    except errors.NotAuthenticated as error:
        raise Refusal(ErrorCode.INVALID_CREDENTIALS, str(error)) from None
    if identity.user_id is None:
        return _let_in(context, ROOT, identity, request.secret, is_kept=False)
    return _let_in(context, identity.user_id - ROOT_USER_ID, identity, request.secret)


def login_with_token(context: IggyContext, request: u.LoginWithToken) -> IggyAnswer:
    """Log a user in by an access token. Raises Refusal."""
    broker = context.broker
    _note_library(context, request.version)
    try:
        identity = broker.authentication.bearer(request.token, context.connection.at)
    except errors.NotAuthenticated as error:
        raise Refusal(ErrorCode.INVALID_TOKEN, str(error)) from None
    user = broker.users.find(identity.principal.name)
    if user is None:
        raise Refusal(ErrorCode.INVALID_TOKEN, "a token of nobody whom Iggy could number")
    return _let_in(context, user.user_id - ROOT_USER_ID, identity, request.secret)


def bind_session(context: IggyContext, request: u.BindSession) -> IggyAnswer:
    """Continue a session on this connection. Raises Refusal: the client has to log in."""
    sessions = context.shared.sessions
    session = sessions.proven(request.client, request.secret, request.session)
    if session is None or not any(request.secret):  # Zeros are no secret.
        raise Refusal(ErrorCode.UNAUTHENTICATED, "no such session")
    identity = session.identity
    try:
        if session.is_kept:
            context.broker.authentication.renewed(identity)
        if identity.has_expired(context.broker.now_us()):
            raise errors.NotAuthenticated("the token has expired")
    except errors.NotAuthenticated as error:
        sessions.end(session)
        raise Refusal(ErrorCode.UNAUTHENTICATED, str(error)) from None
    _note_library(context, request.version)
    _act_for(context, session.user_id, identity, is_kept=session.is_kept)
    _carry(context, session)
    return _login_info(context)


def _note_library(context: IggyContext, version: str) -> None:
    """Keep the version of the client's library, which older dialects do not send."""
    if version:
        context.connection.note_library(f"iggy {version}")


def logout(context: IggyContext, request: u.LogoutUser) -> IggyAnswer:
    """Log out: the client has to log in again."""
    context.client.user_id = context.client.proof = None
    context.connection.act_for(ANONYMOUS)
    if context.logical is not None:
        context.shared.sessions.end(context.logical)
        context.logical = None
    return IggyAnswer()


def _let_in(
    context: IggyContext, number: int, identity: Identity, secret: bytes, *, is_kept: bool = True
) -> IggyAnswer:
    """Set the connection's user. `secret` is the client's own, since W. `is_kept`: the user is
    stored, and may be changed or removed while logged in. Raises Refusal.
    """
    if context.dialect.behaviour.keeps_sessions:
        _check_client(context, number, secret)
    _act_for(context, number, identity, is_kept=is_kept)
    if context.dialect.behaviour.keeps_sessions:
        _carry(context, _registered(context, number, identity, secret, is_kept=is_kept))
    else:
        context.session = _new_number(context)
    return _login_info(context)


def _check_client(context: IggyContext, number: int, secret: bytes) -> None:
    """Check that the client's id is not that of another client. Raises Refusal."""
    sessions, key = context.shared.sessions, context.client_key
    known = sessions.find(key)
    if known is not None and (sessions.proven(key, secret, 0) is None or known.user_id != number):
        raise Refusal(ErrorCode.INVALID_SESSION, "the client's id is that of another session")


def _registered(
    context: IggyContext, number: int, identity: Identity, secret: bytes, *, is_kept: bool
) -> LogicalSession:
    """Return the client's session: a new session, unless this login repeats an earlier login, whose
    answer was lost.
    """
    sessions, key = context.shared.sessions, context.client_key
    session = sessions.find(key)
    if session is not None:
        session.identity, session.is_kept = identity, is_kept
        return session
    member_id, session_number = context.client.client_id, _new_number(context)
    session = LogicalSession(key, secret, session_number, member_id, number, identity, is_kept)
    sessions.add(session)
    return session


def _carry(context: IggyContext, session: LogicalSession) -> None:
    """Let the connection carry a session from now on; its former session ends."""
    shared, client, former = context.shared, context.client, context.logical
    if former is not None and former is not session:
        shared.sessions.end(former)
    context.logical, context.session = session, session.number
    shared.sessions.hold(session, context.connection)
    # The client stays the same member of its groups.
    if client.client_id != session.member_id:
        shared.forget(client)
        client.client_id = session.member_id
        shared.clients[client.client_id] = client


def _new_number(context: IggyContext) -> int:
    broker, numbers = context.broker, context.shared.session_numbers
    if not numbers.has_begun:
        numbers.begin(ids_among(broker.producers.names()), broker.now_us())
    return numbers.next(broker.now_us(), broker.config.cluster.node_id)


def _act_for(context: IggyContext, number: int, identity: Identity, *, is_kept: bool) -> None:
    proof = identity if is_kept else None
    try:
        context.connection.act_for(identity.principal, proof)
    except errors.LimitExceeded as error:
        raise Refusal(ErrorCode.UNAUTHENTICATED, str(error)) from None
    context.client.user_id, context.client.proof = number, proof


def _login_info(context: IggyContext) -> IggyAnswer:
    framing = FRAMINGS.get(context.dialect)
    protocol_version = 0 if framing is None else framing.version
    number, version = context.client.user_id, context.broker.version
    assert number is not None, "the client has logged in"
    return IggyAnswer([r.LoginInfo(number, context.session, protocol_version, version)])


def root_password(context: IggyContext, name: str) -> str | None:
    """Return root's password from the listener's options, if root is the name; None if root has a
    stored password, or the options' password cannot be used to log in.
    """
    options, stored = context.options, context.broker.users.find(name)
    if name != options.username:
        return None
    if stored is not None and (stored.user_id != ROOT_USER_ID or stored.password_hash):
        return None
    if stored is not None and not stored.is_active:
        return None
    if options.password_file is None and not context.connection.loopback:
        return None  # The default password is public.
    try:
        return options.password()
    except (OSError, UnicodeDecodeError) as error:
        context.connection.log.error("password_file_unreadable", reason=str(error))
        return None

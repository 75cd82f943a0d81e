"""Proving who a client is, by whatever its protocol carries: password, token or certificate.

Every protocol comes here, so that one person is one principal whichever protocol they speak. Knows
no protocol and no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from braidlog.broker.access.bearer import TokenVerifier, looks_signed
from braidlog.broker.access.rights import Principal
from braidlog.broker.access.scram import ScramServer
from braidlog.broker.access.users import UserMeta, Users, principal_of
from braidlog.broker.errors import NotAuthenticated
from braidlog.storage.metadata.user_records import ScramKey


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client proved to be, until when, in seconds since 1970 (None: forever), and by what, so
    that it can be checked later whether that still holds.
    """

    principal: Principal
    expires_s: float | None = None
    user_id: int | None = None  # None: not one of our users, others vouch for them.
    token_digest: bytes | None = None  # Of our access token, if they used one.
    deactivations: int = 0  # How often the user of that name had been made inactive by then.

    def has_expired(self, now_us: int) -> bool:
        """Whether the token that proved it no longer does, at that time since 1970."""
        return self.expires_s is not None and now_us >= self.expires_s * 1e6


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to log in: by which way (password, token, certificate; listener, where all clients
    of one are the same user), the protocol and the client's host, and the name; that is empty if an
    invalid token or certificate gave none.
    """

    way: str
    at: str
    name: str
    succeeded: bool


def host_of(at: str) -> str:
    """The host in `PROTOCOL HOST`."""
    return at.rpartition(" ")[2]


class Authentication:
    """The ways to log in. Each raises NotAuthenticated, with the same text for a wrong name and a
    wrong password.
    """

    def __init__(
        self,
        users: Users,
        verifier: TokenVerifier,
        *,
        required: bool,
        on_attempt: Callable[[Attempt], None],
    ) -> None:
        """`required`: whether a client must prove who it is before anything else. `on_attempt` is
        called with each attempt.
        """
        self.required = required
        self._users = users
        self._verifier = verifier
        self._on_attempt = on_attempt

    async def password(self, name: str, password: str, at: str) -> Identity:
        """Log in by name and password; `at` is the protocol and the client's host.

        Raises NotAuthenticated, LimitExceeded.
        """
        try:
            user = await self._users.verify(name, password, host_of(at))
        except NotAuthenticated:
            self._on_attempt(Attempt("password", at, name, succeeded=False))
            raise
        self._on_attempt(Attempt("password", at, name, succeeded=True))
        return _identity(self._users, user)

    async def configured_password(
        self, name: str, password: str, expected: str, at: str
    ) -> Identity:
        """Log in by the name and password that a listener's settings have; otherwise as `password`.

        Raises NotAuthenticated, LimitExceeded.
        """
        try:
            await self._users.verify_configured(name, password, expected, host_of(at))
        except NotAuthenticated:
            self._on_attempt(Attempt("password", at, name, succeeded=False))
            raise
        self._on_attempt(Attempt("password", at, name, succeeded=True))
        return self._vouched_for(Principal(name))

    def scram(self, mechanism: str, at: str) -> ScramLogin:
        """Begin a login by SCRAM-SHA-256 or SCRAM-SHA-512, which sends no password; `at` as with a
        password.
        """
        return ScramLogin(mechanism, at, self._users, self._on_attempt)

    def bearer(self, token: str, at: str) -> Identity:
        """Log in by a signed token or one of Braidlog's own access tokens; `at` as with a password.

        Raises NotAuthenticated.
        """
        try:
            if looks_signed(token):
                proved = self._verifier.verify(token)
                identity = self._vouched_for(self._named(proved.name), proved.expires_s)
            else:
                user, kept = self._users.verify_token(token, host_of(at))
                expires_s = None if kept.expires_us is None else kept.expires_us / 1e6
                identity = _identity(self._users, user, expires_s, kept.digest)
        except NotAuthenticated:
            self._on_attempt(Attempt("token", at, "", succeeded=False))
            raise
        self._on_attempt(Attempt("token", at, identity.principal.name, succeeded=True))
        return identity

    def certificate(self, certificate: Mapping[str, Any] | None, at: str) -> Identity:
        """Log in by a client certificate, which the TLS library has checked already, as
        `ssl.SSLObject.getpeercert` returns it: its first common name is the user's name. `at` as
        with a password. Raises NotAuthenticated.
        """
        for part in (certificate or {}).get("subject", ()):
            for name, value in part:
                if name == "commonName" and value:
                    return self._vouched("certificate", value, at)
        self._on_attempt(Attempt("certificate", at, "", succeeded=False))
        raise NotAuthenticated("no certificate with a common name")

    def listener(self, name: str, at: str) -> Identity:
        """Log in as the user that all clients of the listener act as; `at` as with a password.

        Raises NotAuthenticated.
        """
        return self._vouched("listener", name, at)

    def renewed(self, identity: Identity) -> Principal:
        """The principal of a client that logged in before users were changed.

        Raises NotAuthenticated if its user is gone or not active, or its token was revoked. A new
        password changes nothing.
        """
        if identity.user_id is None:
            principal = self._named(identity.principal.name)
            self._check_active_since(identity, self._users.find(principal.name))
            return principal
        user = self._users.by_id(identity.user_id)
        if user is None:
            raise NotAuthenticated(f"user {identity.principal.name} was removed")
        if not user.is_active:
            raise NotAuthenticated(f"user {user.name} is not active any more")
        self._check_active_since(identity, user)
        digest = identity.token_digest
        if digest is not None and all(token.digest != digest for token in user.tokens):
            raise NotAuthenticated(f"the token of {user.name} was taken back")
        return principal_of(user)

    def _vouched(self, way: str, name: str, at: str) -> Identity:
        try:
            identity = self._vouched_for(self._named(name))
        except NotAuthenticated:
            self._on_attempt(Attempt(way, at, name, succeeded=False))
            raise
        self._on_attempt(Attempt(way, at, name, succeeded=True))
        return identity

    def _vouched_for(self, principal: Principal, expires_s: float | None = None) -> Identity:
        """The identity of a client for which others vouch."""
        count = self._users.deactivations(self._users.find(principal.name))
        return Identity(principal, expires_s, deactivations=count)

    def _check_active_since(self, identity: Identity, user: UserMeta | None) -> None:
        """Check that the user was not made inactive since the login, however briefly.

        Raises NotAuthenticated.
        """
        if self._users.deactivations(user) > identity.deactivations:
            raise NotAuthenticated(f"user {identity.principal.name} was made inactive")

    def _named(self, name: str) -> Principal:
        """The principal of somebody whom others vouch for; a user of that name lends its roles."""
        user = self._users.find(name)
        if user is None:
            return Principal(name)
        if not user.is_active:
            raise NotAuthenticated(f"user {name} is not active")
        return principal_of(user)


def _identity(
    users: Users, user: UserMeta, expires_s: float | None = None, digest: bytes | None = None
) -> Identity:
    """The identity of one of our users who has just logged in."""
    count = users.deactivations(user)
    return Identity(principal_of(user), expires_s, user.user_id, digest, count)


class ScramLogin:
    """One SCRAM login under way: the client's first message, then its last."""

    def __init__(
        self, mechanism: str, at: str, users: Users, on_attempt: Callable[[Attempt], None]
    ) -> None:
        """`at` and `on_attempt` as in `Authentication`."""
        self._mechanism, self._at = mechanism, at
        self._users, self._on_attempt = users, on_attempt
        self._server = ScramServer(mechanism)
        self._name = ""
        self._key: ScramKey | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the next message is the client's last."""
        return self._key is not None

    def begin(self, message: bytes) -> bytes:
        """The answer to the client's first message. Raises NotAuthenticated."""
        try:
            self._name = self._server.read_first(message)
            self._key = self._users.scram_key(self._name, self._mechanism, host_of(self._at))
        except NotAuthenticated:
            self._tell(succeeded=False)
            raise
        return self._server.challenge(self._key)

    def finish(self, message: bytes) -> tuple[bytes, Identity]:
        """The answer to the client's last message, and who it is. Raises NotAuthenticated."""
        assert self._key is not None, "the first message comes first"
        try:
            answer = self._server.finish(message)
        except NotAuthenticated:
            answer = b""
        try:
            user = self._users.scram_ended(
                self._name, self._key, host_of(self._at), is_right=bool(answer)
            )
        except NotAuthenticated:
            self._tell(succeeded=False)
            raise
        self._tell(succeeded=True)
        return answer, _identity(self._users, user)

    def _tell(self, *, succeeded: bool) -> None:
        self._on_attempt(Attempt("password", self._at, self._name, succeeded=succeeded))

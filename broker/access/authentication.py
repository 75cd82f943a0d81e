"""Client authentication: password, token or TLS certificate.

Every protocol logs in here, so that a person is the same principal in every protocol. The module
knows no protocol and no connection.
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
    """An authenticated client, with the proof that later checks need.

    `expires_s` is in seconds since 1970; None never expires.
    """

    principal: Principal
    expires_s: float | None = None
    user_id: int | None = None  # None: no stored user; others vouch.
    token_digest: bytes | None = None  # Of the client's Braidlog token.
    deactivations: int = 0  # Earlier deactivations of the user of that name.

    def has_expired(self, now_us: int) -> bool:
        """Return True if the token has expired at that time since 1970."""
        return self.expires_s is not None and now_us >= self.expires_s * 1e6


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt to log in.

    `method` is password, token, certificate, or listener (all clients of the listener act as
    the same user). `at` is the protocol and the client's host. `name` is empty if an invalid
    token or certificate gave no name.
    """

    method: str
    at: str
    name: str
    succeeded: bool


def host_of(at: str) -> str:
    """Return the host in `PROTOCOL HOST`."""
    return at.rpartition(" ")[2]


class Authentication:
    """The methods of login. Each method raises NotAuthenticated.

    The text of the error is the same for a wrong name and a wrong password.
    """

    def __init__(
        self,
        users: Users,
        verifier: TokenVerifier,
        *,
        required: bool,
        on_attempt: Callable[[Attempt], None],
    ) -> None:
        """With `required`, a client must log in before any other request. `on_attempt` is called
        with each attempt.
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
        """Log in by the name and password of a listener's settings; otherwise as `password`.

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
        """Begin a login by SCRAM-SHA-256 or SCRAM-SHA-512, which sends no password.

        `at` is as in `password`.
        """
        return ScramLogin(mechanism, at, self._users, self._on_attempt)

    def bearer(self, token: str, at: str) -> Identity:
        """Log in by a signed token or a Braidlog access token; `at` as in `password`.

        Raises NotAuthenticated.
        """
        try:
            if looks_signed(token):
                proved = self._verifier.verify(token)
                identity = self._vouched_for(self._named(proved.name), proved.expires_s)
            else:
                user, token_meta = self._users.verify_token(token, host_of(at))
                expires_s = None if token_meta.expires_us is None else token_meta.expires_us / 1e6
                identity = _identity(self._users, user, expires_s, token_meta.digest)
        except NotAuthenticated:
            self._on_attempt(Attempt("token", at, "", succeeded=False))
            raise
        self._on_attempt(Attempt("token", at, identity.principal.name, succeeded=True))
        return identity

    def certificate(self, certificate: Mapping[str, Any] | None, at: str) -> Identity:
        """Log in by a client certificate; its first common name is the user's name.

        The TLS library has checked the certificate already. The argument is the result of
        `ssl.SSLObject.getpeercert`; `at` is as in `password`. Raises NotAuthenticated.
        """
        for part in (certificate or {}).get("subject", ()):
            for name, value in part:
                if name == "commonName" and value:
                    return self._vouched("certificate", value, at)
        self._on_attempt(Attempt("certificate", at, "", succeeded=False))
        raise NotAuthenticated("no certificate with a common name")

    def listener(self, name: str, at: str) -> Identity:
        """Log in as the user that all clients of the listener act as; `at` as in `password`.

        Raises NotAuthenticated.
        """
        return self._vouched("listener", name, at)

    def renewed(self, identity: Identity) -> Principal:
        """Return the present principal of a client that logged in before users were changed.

        Raises NotAuthenticated if the user was removed or deactivated, or the token was revoked. A
        new password changes nothing.
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

    def _vouched(self, method: str, name: str, at: str) -> Identity:
        try:
            identity = self._vouched_for(self._named(name))
        except NotAuthenticated:
            self._on_attempt(Attempt(method, at, name, succeeded=False))
            raise
        self._on_attempt(Attempt(method, at, name, succeeded=True))
        return identity

    def _vouched_for(self, principal: Principal, expires_s: float | None = None) -> Identity:
        """Return the identity of a client with a certificate, signed token or configured name."""
        count = self._users.deactivations(self._users.find(principal.name))
        return Identity(principal, expires_s, deactivations=count)

    def _check_active_since(self, identity: Identity, user: UserMeta | None) -> None:
        """Check that the user was not deactivated since the login, however briefly.

        Raises NotAuthenticated.
        """
        if self._users.deactivations(user) > identity.deactivations:
            raise NotAuthenticated(f"user {identity.principal.name} was made inactive")

    def _named(self, name: str) -> Principal:
        """Return the principal of that name; a stored user of the same name lends its roles."""
        user = self._users.find(name)
        if user is None:
            return Principal(name)
        if not user.is_active:
            raise NotAuthenticated(f"user {name} is not active")
        return principal_of(user)


def _identity(
    users: Users, user: UserMeta, expires_s: float | None = None, digest: bytes | None = None
) -> Identity:
    """Return the identity of a stored user who has just logged in."""
    count = users.deactivations(user)
    return Identity(principal_of(user), expires_s, user.user_id, digest, count)


class ScramLogin:
    """A SCRAM login under way: first the client's first message, then the client's last message."""

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
        """True if the next message is the client's last."""
        return self._key is not None

    def begin(self, message: bytes) -> bytes:
        """Return the answer to the client's first message. Raises NotAuthenticated."""
        try:
            self._name = self._server.read_first(message)
            self._key = self._users.scram_key(self._name, self._mechanism, host_of(self._at))
        except NotAuthenticated:
            self._tell(succeeded=False)
            raise
        return self._server.challenge(self._key)

    def finish(self, message: bytes) -> tuple[bytes, Identity]:
        """Return the answer to the client's last message, and the identity.

        Raises NotAuthenticated.
        """
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

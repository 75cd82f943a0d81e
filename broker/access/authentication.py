"""Proving who a client is, by whatever its protocol carries: password, token or certificate.

Every protocol comes here, so that one person is one principal whichever protocol they speak. Knows
no protocol and no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.access.bearer import TokenVerifier, looks_signed
from broker.access.rights import Principal
from broker.access.users import Users, principal_of
from broker.errors import NotAuthenticated


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client proved to be, and until when, in seconds since 1970 (None: for ever)."""

    principal: Principal
    expires_s: float | None = None


class Authentication:
    """The ways to prove who one is. Each raises NotAuthenticated, whose text tells nothing more
    than that.
    """

    def __init__(
        self,
        users: Users,
        verifier: TokenVerifier,
        *,
        required: bool,
        refused: Callable[[str, str], None],
    ) -> None:
        """`required`: whether a client must prove who it is before anything else. `refused` is told
        how (password, token, certificate) and from which host somebody failed.
        """
        self.required = required
        self._users = users
        self._verifier = verifier
        self._refused = refused

    async def password(self, name: str, password: str, host: str) -> Identity:
        """By name and password. Raises NotAuthenticated, LimitExceeded."""
        try:
            return Identity(principal_of(await self._users.verify(name, password, host)))
        except NotAuthenticated:
            self._refused("password", host)
            raise

    def bearer(self, token: str, host: str) -> Identity:
        """By a signed token, or by an access token of ours. Raises NotAuthenticated."""
        try:
            if not looks_signed(token):
                user = self._users.verify_token(token, host)
                return Identity(principal_of(user))
            proved = self._verifier.verify(token)
            return Identity(self._named(proved.name), proved.expires_s)
        except NotAuthenticated:
            self._refused("token", host)
            raise

    def certificate(self, certificate: Mapping[str, Any] | None, host: str) -> Identity:
        """By a client certificate that the TLS library has checked already, as
        `ssl.SSLObject.getpeercert` tells it: its first common name is the user's. Raises
        NotAuthenticated.
        """
        for part in (certificate or {}).get("subject", ()):
            for name, value in part:
                if name == "commonName" and value:
                    return Identity(self._named(value))
        self._refused("certificate", host)
        raise NotAuthenticated("no certificate with a common name")

    def _named(self, name: str) -> Principal:
        """The principal of somebody whom others vouch for: a user's roles, where there is one."""
        user = self._users.find(name)
        if user is None:
            return Principal(name)
        if not user.is_active:
            raise NotAuthenticated(f"user {name} is not active")
        return principal_of(user)

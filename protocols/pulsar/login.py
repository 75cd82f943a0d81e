"""Authenticates Pulsar clients: credentials in CONNECT and AUTH_RESPONSE, and tokens that expire.

"Connection establishment" and "Authentication" in Apache Pulsar's binary protocol document. Knows
no password and no key: the broker's authentication does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import BrokerError, LimitExceeded, NotAuthenticated
from braidlog.broker.server.adapters import EndConnection
from braidlog.protocols.pulsar import messages
from braidlog.protocols.pulsar.errors import refusal
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import (
    AuthData,
    CommandAuthResponse,
    CommandConnect,
)

if TYPE_CHECKING:
    from braidlog.broker.access.authentication import Authentication, Identity
    from braidlog.broker.server.connection import Connection

NO_REQUEST: Final = (1 << 64) - 1  # The request id -1 of an error that answers no request.
REFRESH: Final = b"PulsarAuthRefresh"  # Content of Apache Pulsar's challenge.
# Methods without credentials in CONNECT: the certificate of TLS was checked before.
WITHOUT_CREDENTIALS: Final = frozenset({"", "none", "tls"})
CHALLENGE_VERSION: Final = 14  # The oldest protocol version with AUTH_CHALLENGE.


class PulsarLogin:
    """The client's identity on a connection, and the identity's expiry."""

    def __init__(self, connection: Connection, authentication: Authentication) -> None:
        self._connection = connection
        self._authentication = authentication
        self._expires_s: float | None = None
        self._can_refresh = False
        self._is_challenged = False

    def is_needed(self, command: CommandConnect) -> bool:
        """Return True if the client has yet to authenticate.

        The principal of a listener is only for clients without credentials, as Apache's anonymous
        role: credentials are checked.
        """
        if not self._authentication.required:
            return False
        has_credentials = command.auth_method_name not in WITHOUT_CREDENTIALS
        return has_credentials or self._connection.principal.is_anonymous

    async def connect(self, command: CommandConnect) -> None:
        """Check the credentials of CONNECT. Raises EndConnection, with an error, if they fail."""
        identity = await self._prove(command.auth_method_name, command.auth_data)
        try:
            self._connection.act_for(identity.principal, identity)
        except LimitExceeded as error:
            raise _end(error) from error
        self._expires_s = identity.expires_s
        self._can_refresh = (
            command.feature_flags.supports_auth_refresh
            and command.protocol_version >= CHALLENGE_VERSION
        )

    async def refresh(self, command: CommandAuthResponse) -> None:
        """Take new login data after a challenge; without a challenge the command only counts as
        activity.

        Raises EndConnection, also for the credentials of another principal.
        """
        if not self._is_challenged:
            return
        auth: AuthData = command.response
        identity = await self._prove(auth.auth_method_name, auth.auth_data)
        if identity.principal.name != self._connection.principal.name:
            raise _end(NotAuthenticated("the fresh token is somebody else's"))
        self._connection.act_for(identity.principal, identity)
        self._is_challenged = False
        self._expires_s = identity.expires_s

    def check_expiry(self, now_s: float, server_version: str, protocol_version: int) -> list[bytes]:
        """Return the frames to send at `now_s` (seconds since 1970): a challenge once the client's
        token has expired, else nothing. Raises EndConnection if the client left a challenge
        unanswered or knows no challenges.
        """
        if self._expires_s is None or now_s < self._expires_s:
            return []
        if self._is_challenged or not self._can_refresh:
            raise EndConnection("the token has expired")
        self._is_challenged = True
        return [messages.auth_challenge(server_version, protocol_version, REFRESH)]

    async def _prove(self, method: str, data: bytes) -> Identity:
        """Verify the credentials. Raises EndConnection."""
        at = self._connection.at
        try:
            text = data.decode()
            if method == "token":
                return self._authentication.bearer(text, at)
            if method == "basic":
                name, _, password = text.partition(":")
                return await self._authentication.password(name, password, at)
            raise NotAuthenticated(f"authentication is needed, by token or basic, not {method!r}")
        except UnicodeDecodeError as error:
            raise _end(NotAuthenticated("the credentials are not text")) from error
        except BrokerError as error:
            raise _end(error) from error


def _end(error: BrokerError) -> EndConnection:
    refused = refusal(error)
    return EndConnection(
        f"login refused: {refused.text}", messages.error(NO_REQUEST, refused.code, refused.text)
    )

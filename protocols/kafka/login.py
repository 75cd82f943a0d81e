"""Authenticates Kafka clients: SASL against the broker's own users and tokens, by any mechanism.

Kafka protocol guide, "SASL Authentication Sequence"; PLAIN is RFC 4616, SCRAM RFC 5802, OAUTHBEARER
RFC 7628 with Kafka's KIP-255. Knows no request, no password and no key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import trio

from braidlog.broker.access.authentication import Identity
from braidlog.broker.errors import NotAuthenticated
from braidlog.broker.runtime.endings import EndConnection

if TYPE_CHECKING:
    from braidlog.broker.access.authentication import Authentication
    from braidlog.broker.server.connection import Connection

LOOK_S: Final = 30.0  # Interval of the checks for an expired token.

Step = tuple[bytes, Identity | None]  # The answer, and the client's identity once known.


class LoginExchange(Protocol):
    """A login in progress by a mechanism."""

    async def step(self, data: bytes) -> Step:
        """Return the answer to the client's next message. Raises NotAuthenticated,
        LimitExceeded.
        """


class Plain:
    """A single message with zeros between: authorization id (empty or equal to the name), name,
    password. Implements `LoginExchange`.
    """

    def __init__(self, authentication: Authentication, at: str) -> None:
        self._authentication, self._at = authentication, at

    async def step(self, data: bytes) -> Step:
        parts = _text(data).split("\0")
        if len(parts) != 3 or not parts[1] or parts[0] not in ("", parts[1]):
            raise NotAuthenticated("PLAIN wants a name and a password, with a zero before each")
        return b"", await self._authentication.password(parts[1], parts[2], self._at)


class OauthBearer:
    """A token: the broker's own or a signed token, as Pulsar and HTTP clients send. Implements
    `LoginExchange`.
    """

    def __init__(self, authentication: Authentication, at: str) -> None:
        self._authentication, self._at = authentication, at

    async def step(self, data: bytes) -> Step:
        header, *pairs = _text(data).split("\1")
        values = [pair.removeprefix("auth=") for pair in pairs if pair.startswith("auth=")]
        scheme, _, token = (values or [""])[0].partition(" ")
        binding, _, acts_for = header.partition(",")
        if binding != "n" or scheme.lower() != "bearer":
            raise NotAuthenticated("OAUTHBEARER wants a bearer token")
        identity = self._authentication.bearer(token.strip(), self._at)
        if acts_for.rstrip(",").removeprefix("a=") not in ("", identity.principal.name):
            raise NotAuthenticated("nobody may act for somebody else")
        return b"", identity


class Scram:
    """Proves the password in two steps without sending it. Implements `LoginExchange`."""

    def __init__(self, authentication: Authentication, at: str, mechanism: str) -> None:
        self._login = authentication.scram(mechanism, at)

    async def step(self, data: bytes) -> Step:
        if not self._login.has_begun:
            return self._login.begin(data), None
        return self._login.finish(data)


MECHANISMS: Final[Mapping[bytes, Callable[[Authentication, str], LoginExchange]]] = {
    b"PLAIN": Plain,
    b"SCRAM-SHA-256": lambda by, at: Scram(by, at, "SCRAM-SHA-256"),
    b"SCRAM-SHA-512": lambda by, at: Scram(by, at, "SCRAM-SHA-512"),
    b"OAUTHBEARER": OauthBearer,
}


class KafkaLogin:
    """The client's identity on a connection, and the identity's expiry."""

    def __init__(self, connection: Connection, authentication: Authentication) -> None:
        self.is_done = False  # by SASL; a certificate may have identified the client before
        self._connection = connection
        self._authentication = authentication
        self._exchange: LoginExchange | None = None
        self._ends_at: float | None = None

    @property
    def is_needed(self) -> bool:
        """Return True if the client has yet to authenticate."""
        return self._authentication.required and self._connection.principal.is_anonymous

    @property
    def has_begun(self) -> bool:
        """True once a mechanism is agreed; the mechanism's messages follow."""
        return self._exchange is not None

    def begin(self, mechanism: bytes | None) -> bool:
        """Begin a login by this mechanism; return False if MECHANISMS lacks the mechanism."""
        make = MECHANISMS.get(mechanism or b"")
        if make is None:
            return False
        self._exchange = make(self._authentication, self._connection.at)
        return True

    async def step(self, data: bytes) -> bytes:
        """Return the answer to the client's next message.

        Raises NotAuthenticated, LimitExceeded.
        """
        if self._exchange is None:
            raise NotAuthenticated("no mechanism was agreed on")
        answer, identity = await self._exchange.step(data)
        if identity is not None:
            self._connection.act_for(identity.principal, identity)
            self._exchange, self.is_done = None, True
            if identity.expires_s is not None:
                self._ends_at = trio.current_time() + identity.expires_s - time.time()
        return answer

    def check_expiry(self, now: float, due: float) -> float:
        """Return the time of the next expiry check, in trio's time; at the latest `due`.

        Raises EndConnection once the token has expired: the client reconnects with a fresh token.
        """
        if self._ends_at is not None and now >= self._ends_at:
            raise EndConnection("the token has expired")
        return min(due, now + LOOK_S) if self._authentication.required else due


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotAuthenticated("the credentials are not text") from error

"""Typed requests and replies of a login by SASL. Knows no bytes and no broker."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SaslHandshakeRequest:
    """Names the mechanism of a login (key 17). After version 0 bare messages follow."""

    mechanism: bytes | None


@dataclass(slots=True)
class SaslHandshakeReply:
    """Answers a SaslHandshakeRequest with the mechanisms that are served."""

    error: int
    mechanisms: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class SaslAuthenticateRequest:
    """One message of the mechanism (key 36)."""

    data: bytes | None


@dataclass(slots=True)
class SaslAuthenticateReply:
    """Answers a SaslAuthenticateRequest; `message` says why a login is refused."""

    error: int
    message: bytes | None = None
    data: bytes = b""


SaslRequest = SaslHandshakeRequest | SaslAuthenticateRequest
SaslReply = SaslHandshakeReply | SaslAuthenticateReply

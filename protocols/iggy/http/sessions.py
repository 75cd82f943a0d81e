"""Logins over HTTP: each is a JSON Web Token (RFC 7519) and a session of the same number here.

The key lives as long as the listener: after a restart clients log in again. Knows no route.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import jwt

from braidlog.broker.errors import NotAuthenticated

if TYPE_CHECKING:
    from collections.abc import Callable

    from braidlog.broker.access.authentication import Identity
    from braidlog.broker.access.rights import Principal

SESSIONS_MAX: Final = 10_000  # Some 1 KB each; the oldest is dropped for a new login.
ALGORITHM: Final = "HS256"
ISSUER: Final = "iggy.apache.org"  # Issuer and audience of Iggy's server.
KEY_BYTES: Final = 32
US: Final = 1_000_000
REFUSED: Final = "the token is invalid, or has expired, or the user has logged out"


@dataclass(frozen=True, slots=True)
class HttpSession:
    """A login; `proof` is None for root of the settings."""

    number: str
    user_id: int
    principal: Principal
    proof: Identity | None
    expires_s: int


class HttpSessions:
    """The logins of a listener."""

    def __init__(
        self, token_s: float, now_us: Callable[[], int], sessions_max: int = SESSIONS_MAX
    ) -> None:
        """Create tokens that are valid for `token_s`."""
        self._key = os.urandom(KEY_BYTES)
        self._token_s = token_s
        self._now_us = now_us
        self._sessions_max = sessions_max
        self._sessions: dict[str, HttpSession] = {}  # In the order of their beginnings.

    def begin(
        self, user_id: int, principal: Principal, proof: Identity | None
    ) -> tuple[str, HttpSession]:
        """Return a new token and its session."""
        now_s = self._now_us() // US
        expires_s = now_s + max(int(self._token_s), 1)
        session = HttpSession(os.urandom(16).hex(), user_id, principal, proof, expires_s)
        claims = {
            "jti": session.number,
            "sub": str(user_id),
            "aud": ISSUER,
            "iss": ISSUER,
            "iat": now_s,
            "nbf": now_s,
            "exp": expires_s,
        }
        self._make_room(now_s)
        self._sessions[session.number] = session
        return jwt.encode(claims, self._key, ALGORITHM), session

    def find(self, token: str) -> HttpSession:
        """Return the session of a token. Raises NotAuthenticated."""
        # The session has the expiry: the broker's clock decides.
        options: Any = {
            "require": ["exp", "iat", "jti", "sub"],
            **dict.fromkeys(("verify_exp", "verify_iat", "verify_nbf"), False),
        }
        try:
            claims = jwt.decode(
                token, self._key, [ALGORITHM], options, audience=ISSUER, issuer=ISSUER
            )
        except jwt.InvalidTokenError:
            raise NotAuthenticated(REFUSED) from None
        session = self._sessions.get(claims["jti"])
        if session is None or self._now_us() >= session.expires_s * US:
            raise NotAuthenticated(REFUSED)
        return session

    def end(self, session: HttpSession) -> None:
        """End a login: its token is refused from now on."""
        self._sessions.pop(session.number, None)

    def _make_room(self, now_s: int) -> None:
        """Drop expired sessions, and the oldest session if there are too many."""
        for number, session in [*self._sessions.items()]:
            if session.expires_s > now_s and len(self._sessions) < self._sessions_max:
                break  # All have the same life: later sessions expire later.
            del self._sessions[number]

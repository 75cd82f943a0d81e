"""Sign-ins of browsers: a random cookie stands for an Authorization header kept in memory.

The browser never stores a password or token, and a sign-out forgets both. Each changing form has a
token that belongs to the cookie: another site can send a form, but cannot know the token. Knows no
page and no broker.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

COOKIE = "braidlog_console"
COOKIE_TEXT = re.compile(r"[0-9a-f]{64}")
# Signed-in browsers, some 500 bytes each; a further sign-in ends the least recently used.
SESSIONS_MAX = 1000
SESSION_IDLE_S = 8 * 3600.0  # A working day.


@dataclass(slots=True)
class SignedIn:
    """A signed-in browser. `name` is shown on each page."""

    authorization: str
    name: str
    used_s: float


class Sessions:
    """The signed-in browsers of a listener."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._secret = os.urandom(32)
        self._sessions: OrderedDict[bytes, SignedIn] = OrderedDict()  # Least recently used first.

    def find(self, cookie: str) -> SignedIn | None:
        """Return the session of a cookie; None without one, or after SESSION_IDLE_S."""
        key = _key(cookie)
        session = self._sessions.get(key)
        if session is None:
            return None
        now = self._clock_s()
        if now - session.used_s > SESSION_IDLE_S:
            del self._sessions[key]
            return None
        session.used_s = now
        self._sessions.move_to_end(key)
        return session

    def sign_in(self, authorization: str, name: str) -> str:
        """Return a new cookie for a user whose credentials were checked."""
        cookie = new_cookie()
        self._sessions[_key(cookie)] = SignedIn(authorization, name, self._clock_s())
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return cookie

    def sign_out(self, cookie: str) -> None:
        """Forget the session of a cookie."""
        self._sessions.pop(_key(cookie), None)

    def form_token(self, cookie: str) -> str:
        """Return the token that forms of this browser must contain."""
        return hmac.new(self._secret, cookie.encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, cookie: str, token: str) -> bool:
        """Return True if a form of this browser contained its token."""
        return hmac.compare_digest(self.form_token(cookie).encode(), token.encode())


def new_cookie() -> str:
    """Return a new random cookie."""
    return os.urandom(32).hex()


def read_cookie(text: str | None) -> str | None:
    """Return a browser's cookie; None if the text has not the form of a cookie."""
    return text if text is not None and COOKIE_TEXT.fullmatch(text) else None


def _key(cookie: str) -> bytes:
    """Return the key of a session: a search by digest shows nothing about near misses."""
    return hashlib.sha256(cookie.encode()).digest()

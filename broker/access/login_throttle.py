"""Slows down password guessing, by name and by address, without hashing and without waiting.

After some failures in a row the next attempt is refused for a while. Each further failure doubles
that time. The module knows no password and no clock.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

# Failures in a row without a wait: a person mistypes, or a client tries an old password on several
# connections at once.
FREE_FAILURES: Final = 5
FIRST_WAIT_S: Final = 1.0
WAIT_S_MAX: Final = 60.0
# Names and addresses that failed, and pairs of both that logged in, some 200 bytes each. The
# oldest entry is dropped first.
REMEMBERED_MAX: Final = 10_000


@dataclass(slots=True)
class _Failures:
    count: int = 0
    until: float = 0.0


class LoginThrottle:
    """Failures in a row of each key: a user's name or an address."""

    def __init__(self, *, is_on: bool = True) -> None:
        """With `is_on` False no attempt has to wait."""
        self._is_on = is_on
        self._failures: OrderedDict[str, _Failures] = OrderedDict()
        self._let_in: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def wait_s(self, keys: tuple[str, ...], now: float) -> float:
        """Return the seconds until these keys may try again; 0 or less: at once.

        `now` in seconds.
        """
        known = (self._failures.get(key) for key in keys)
        return max(
            (failures.until - now for failures in known if failures is not None), default=0.0
        )

    def failed(self, keys: tuple[str, ...], now: float) -> None:
        """Count a failure for each key."""
        for key in keys if self._is_on else ():
            failures = self._failures.setdefault(key, _Failures())
            self._failures.move_to_end(key)
            failures.count += 1
            over = failures.count - FREE_FAILURES
            if over >= 0:
                failures.until = now + min(FIRST_WAIT_S * 2 ** min(over, 16), WAIT_S_MAX)
        while len(self._failures) > REMEMBERED_MAX:
            self._failures.popitem(last=False)

    def succeeded(self, keys: tuple[str, ...]) -> None:
        """Forget the failures of these keys, and remember that they logged in together."""
        for key in keys:
            self._failures.pop(key, None)
        self._let_in[keys] = None
        self._let_in.move_to_end(keys)
        if len(self._let_in) > REMEMBERED_MAX:
            self._let_in.popitem(last=False)

    def has_let_in(self, keys: tuple[str, ...]) -> bool:
        """Return True if these keys have logged in together before."""
        return keys in self._let_in

"""Limits of each principal: connections, requests and bytes a second, topics created an hour.

A principal over its rate is not refused but slowed down: the broker reads its connections again
when the debt is paid. Anonymous clients have no limits of their own. The module knows no connection
and no protocol.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from braidlog.broker.access.rights import Principal
from braidlog.broker.errors import LimitExceeded
from braidlog.broker.runtime.bucket import Bucket

if TYPE_CHECKING:
    from braidlog.broker.config.settings import AccessConfig, PrincipalLimits

# The longest time without a read from a connection. The broker must see a client's keepalives
# before the protocol drops the client.
PAUSE_S_MAX: Final = 10.0
# Principals remembered, some 500 bytes each. The least recently used principal without a connection
# is dropped first: its debt is the smallest.
PRINCIPALS_MAX: Final = 10_000
HOUR_S: Final = 3600.0


class Allowance:
    """The limits and the usage of a principal, over all its connections."""

    def __init__(self, name: str, limits: PrincipalLimits, clock_s: Callable[[], float]) -> None:
        self.connections = 0
        self._name = name
        self._limits = limits
        self._requests = _bucket(limits.requests_per_s, 1.0, clock_s)
        self._bytes = _bucket(limits.bytes_per_s, 1.0, clock_s)
        topics = limits.topics_per_hour
        self._topics = Bucket(topics / HOUR_S, HOUR_S, clock_s) if topics else None

    def connect(self) -> None:
        """Count a connection. Raises LimitExceeded."""
        most = self._limits.connections
        if most is not None and self.connections >= most:
            raise LimitExceeded(f"{self._name} has {most} connections already")
        self.connections += 1

    def disconnect(self) -> None:
        """Count the end of a connection."""
        self.connections -= 1

    def spend(self, requests: int, size: int) -> float:
        """Count requests and bytes of both directions; return the seconds to read no more."""
        pause_s = 0.0
        if self._requests is not None:
            pause_s = self._requests.spend(requests)
        if self._bytes is not None:
            pause_s = max(pause_s, self._bytes.spend(size))
        return min(pause_s, PAUSE_S_MAX)

    def make_topic(self) -> None:
        """Count a topic before its creation. Raises LimitExceeded."""
        if self._topics is None:
            return
        wait_s = self._topics.spend(1)
        if wait_s > 0:
            self._topics.spend(-1)  # The topic is not created.
            raise LimitExceeded(
                f"{self._name} may make {self._limits.topics_per_hour} topics an hour:"
                f" the next one in {wait_s:.0f} s"
            )


class Quotas:
    """The allowances of all principals, by the settings."""

    def __init__(self, config: AccessConfig, clock_s: Callable[[], float]) -> None:
        """`clock_s` is a steady clock in seconds."""
        self._default = config.limits
        self._by_user = config.user_limits
        self._clock_s = clock_s
        self._allowances: OrderedDict[str, Allowance] = OrderedDict()

    def of(self, principal: Principal) -> Allowance | None:
        """Return the allowance of a principal, None if the principal has no limits."""
        if principal.is_anonymous:
            return None
        name = principal.name
        allowance = self._allowances.get(name)
        if allowance is not None:
            self._allowances.move_to_end(name)
            return allowance
        limits = self._by_user.get(name, self._default)
        if not limits.has_any:
            return None
        if len(self._allowances) >= PRINCIPALS_MAX:
            self._forget_one()
        allowance = self._allowances[name] = Allowance(name, limits, self._clock_s)
        return allowance

    def _forget_one(self) -> None:
        for name, allowance in self._allowances.items():
            if not allowance.connections:
                del self._allowances[name]
                return


def _bucket(rate: int | None, burst_s: float, clock_s: Callable[[], float]) -> Bucket | None:
    return None if rate is None else Bucket(rate, burst_s, clock_s)

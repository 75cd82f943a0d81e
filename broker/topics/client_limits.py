"""Limits and rates that the settings of a topic set for its clients: Pulsar's policies, enforced.

`Topic.client_limits` has the values in force, through the three levels: the topic's own setting,
else the namespace's, else the broker's. Knows no client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from braidlog.broker.errors import PolicyViolated, RecordTooLarge
from braidlog.broker.topics.settings import limit_of, of_subscription, rated_subscriptions

if TYPE_CHECKING:
    from braidlog.storage.metadata.catalogue_records import Setting, TopicMeta

UNLIMITED: Final = 1 << 62


class EncryptionRequired(PolicyViolated):
    """The producer or message is not encrypted, and the topic's settings require encryption."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages and bytes in a period; None: no limit."""

    messages: int | None
    size: int | None
    period_s: int = 1
    is_relative: bool = False  # Added to the rate at which messages are published.


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of a topic; None: no limit, and for unacknowledged messages: the default."""

    producers: int | None = None
    consumers: int | None = None
    subscription_consumers: int | None = None
    subscriptions: int | None = None
    unacked_consumer: int | None = None
    unacked_subscription: int | None = None
    message_bytes: int | None = None
    publish: Rate | None = None
    dispatch: Rate | None = None
    subscription_dispatch: Rate | None = None
    # Of subscriptions with a rate of their own, in place of `subscription_dispatch`.
    single_dispatch: Mapping[bytes, Rate | None] = field(default_factory=dict)
    subscribe: Rate | None = None
    creates_subscriptions: bool = True
    subscription_types: frozenset[str] | None = None  # None: all.
    delays: bool = True
    reads_header: bool = False
    delay_ms_max: int | None = None
    deliveries: int | None = None
    dead_letters: str | None = None  # The name of a topic in the namespace.
    needs_schema: bool = False
    adds_schemas: bool = True
    needs_encryption: bool = False

    @property
    def delivery_times(self) -> tuple[bool, bool]:
        """True if records wait for their delivery times, and if a header names times, too."""
        return self.delays, self.delays and self.reads_header

    def dispatch_to(self, subscription: bytes) -> Rate | None:
        """Return the rate of delivery to this subscription."""
        return self.single_dispatch.get(subscription, self.subscription_dispatch)

    @property
    def checks_messages(self) -> bool:
        """True if each message of a producer has to be checked."""
        return (
            self.message_bytes is not None or self.delay_ms_max is not None or self.needs_encryption
        )

    def check_message(self, size: int, delay_ms: int, *, is_encrypted: bool) -> None:
        """Check a message, in Apache's words. Raises RecordTooLarge, EncryptionRequired,
        PolicyViolated.
        """
        if self.message_bytes is not None and size > self.message_bytes:
            raise RecordTooLarge("Exceed maximum message size")
        if self.needs_encryption and not is_encrypted:
            raise EncryptionRequired("Messages must be encrypted")
        most = self.delay_ms_max
        if most is not None and delay_ms > most:
            raise PolicyViolated(f"Exceeds max allowed delivery delay of {most} milliseconds")


@dataclass(slots=True)
class KnownLimits:
    """The limits by the settings of two levels, computed once for each change of a level."""

    limits: ClientLimits = field(default_factory=ClientLimits)
    _inherited: Mapping[str, Setting] | None = None
    _own: Mapping[str, Setting] | None = None

    def of(self, inherited: Mapping[str, Setting], own: Mapping[str, Setting]) -> ClientLimits:
        """Return the limits. Levels are compared by identity: a change replaces the mapping."""
        if inherited is not self._inherited or own is not self._own:
            self._inherited, self._own = inherited, own
            limits = client_limits({**inherited, **own})
            if limits != self.limits:
                self.limits = limits
        return self.limits


def client_limits(settings: Mapping[str, Setting]) -> ClientLimits:
    """Return the limits by the settings in force."""
    return ClientLimits(
        producers=limit_of(settings, "producers_max"),
        consumers=limit_of(settings, "consumers_max"),
        subscription_consumers=limit_of(settings, "subscription_consumers_max"),
        subscriptions=limit_of(settings, "subscriptions_max"),
        unacked_consumer=_unacked(settings, "unacked_consumer_max"),
        unacked_subscription=_unacked(settings, "unacked_subscription_max"),
        message_bytes=limit_of(settings, "message_bytes_max"),
        publish=_rate(settings, "publish_rate"),
        dispatch=_rate(settings, "dispatch_rate"),
        subscription_dispatch=_rate(settings, "subscription_dispatch_rate"),
        single_dispatch={
            name.encode(): _rate(settings, "subscription_dispatch_rate", name)
            for name in rated_subscriptions(settings)
        },
        subscribe=_subscribe_rate(settings),
        creates_subscriptions=bool(settings.get("auto_subscription_creation", True)),
        subscription_types=_subscription_types(settings),
        delays=bool(settings.get("delayed_delivery", True)),
        reads_header=bool(settings.get("deliver_at_header")),
        delay_ms_max=limit_of(settings, "delayed_delivery_max_ms"),
        deliveries=limit_of(settings, "deliveries_max"),
        dead_letters=_name(settings, "dead_letter_topic"),
        needs_schema=bool(settings.get("schema_required")),
        adds_schemas=bool(settings.get("schema_auto_update", True)),
        needs_encryption=bool(settings.get("encryption_required")),
    )


def check_topics(metas: Sequence[TopicMeta], inherited: Mapping[str, Setting], more: int) -> None:
    """Raise PolicyViolated if the namespace of these topics may not have so many more
    partitions.
    """
    most = limit_of(inherited, "topics_max")
    if most is not None and sum(len(meta.partition_ids) for meta in metas) + more > most:
        # Apache's words.
        raise PolicyViolated("Exceed maximum number of topics in namespace.")


def _name(settings: Mapping[str, Setting], name: str) -> str | None:
    value = settings.get(name)
    return value if isinstance(value, str) and value else None


def _unacked(settings: Mapping[str, Setting], name: str) -> int | None:
    if name not in settings:
        return None
    return limit_of(settings, name) or UNLIMITED


def _rate(settings: Mapping[str, Setting], name: str, subscription: str = "") -> Rate | None:
    end = of_subscription("", subscription) if subscription else ""
    messages = limit_of(settings, f"{name}_messages{end}")
    size = limit_of(settings, f"{name}_bytes{end}")
    if messages is None and size is None:
        return None
    period_s = limit_of(settings, f"{name}_period_s{end}") or 1
    return Rate(messages, size, period_s, bool(settings.get(f"{name}_relative{end}")))


def _subscription_types(settings: Mapping[str, Setting]) -> frozenset[str] | None:
    names = settings.get("subscription_types")
    return frozenset(names.split(",")) if isinstance(names, str) and names else None


def _subscribe_rate(settings: Mapping[str, Setting]) -> Rate | None:
    times = limit_of(settings, "subscribe_rate")
    if times is None:
        return None
    return Rate(times, None, limit_of(settings, "subscribe_rate_period_s") or 30)

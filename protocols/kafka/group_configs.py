"""Settings of groups, by Kafka's names: those of share groups (KIP-932). Knows no request.

They are stored with the namespace, so every broker of a cluster knows them. A name without a row
has the broker's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from braidlog.broker.delivery.pulling import DELIVERIES_MAX, LOCK_S, LOCKED_MAX, ShareLimits
from braidlog.broker.errors import InvalidRequest, LimitExceeded
from braidlog.protocols.kafka.consumer_group import HEARTBEAT_S, SESSION_S

if TYPE_CHECKING:
    from braidlog.protocols.kafka.context import KafkaContext
    from braidlog.protocols.kafka.names import NameSpace
    from braidlog.protocols.kafka_settings import Setting

PREFIX: Final = "kafka_group:"
# Of a namespace: each takes some 100 bytes, and every change writes all of them.
GROUP_SETTINGS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class GroupSetting:
    """A setting: its default, and its least and greatest number, or its words."""

    default: str
    least: int = 0
    greatest: int = 0
    words: tuple[str, ...] = ()
    broker_name: str = ""
    is_topic: bool = False  # The name of a topic, or nothing; Kafka 4.3 lacks the setting.

    def check(self, name: str, text: str) -> str:
        """Return the value to store. Raises InvalidRequest."""
        if self.is_topic:
            return text
        if self.words:
            if text.lower() not in self.words:
                shown = ", ".join(self.words)
                raise InvalidRequest(f"Invalid value {text} for configuration {name}: {shown}")
            return text
        try:
            number = int(text)
        except ValueError:
            reason = f"Invalid value {text} for configuration {name}: Not a number of type INT"
            raise InvalidRequest(reason) from None
        if number < self.least:
            reason = f"Value must be at least {self.least}"
            raise InvalidRequest(f"Invalid value {text} for configuration {name}: {reason}")
        if number > self.greatest:
            reason = f"Value must be no more than {self.greatest}"
            raise InvalidRequest(f"Invalid value {text} for configuration {name}: {reason}")
        return str(number)

    @property
    def is_number(self) -> bool:
        """True for a whole number."""
        return not self.words and not self.is_topic


EARLIEST, LATEST = "earliest", "latest"
DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"  # KIP-1191's name.
# Bounds are those that Kafka's brokers have by default.
GROUP_SETTINGS: Final[Mapping[str, GroupSetting]] = {
    DEAD_LETTERS: GroupSetting("", is_topic=True),
    "share.auto.offset.reset": GroupSetting(LATEST, words=(LATEST, EARLIEST)),
    "share.delivery.count.limit": GroupSetting(
        str(DELIVERIES_MAX), 2, 10, broker_name="group.share.delivery.count.limit"
    ),
    "share.heartbeat.interval.ms": GroupSetting(
        str(int(HEARTBEAT_S * 1000)), 5000, 15000, broker_name="group.share.heartbeat.interval.ms"
    ),
    "share.isolation.level": GroupSetting(
        "read_uncommitted", words=("read_committed", "read_uncommitted")
    ),
    "share.partition.max.record.locks": GroupSetting(
        str(LOCKED_MAX), 100, 4000, broker_name="group.share.partition.max.record.locks"
    ),
    "share.record.lock.duration.ms": GroupSetting(
        str(int(LOCK_S * 1000)), 15000, 60000, broker_name="group.share.record.lock.duration.ms"
    ),
    "share.renew.acknowledge.enable": GroupSetting("true", words=("true", "false")),
    "share.session.timeout.ms": GroupSetting(
        str(int(SESSION_S * 1000)), 45000, 60000, broker_name="group.share.session.timeout.ms"
    ),
}


class ShareSettings:
    """The settings in force for a group."""

    def __init__(self, own: Mapping[str, str]) -> None:
        """`own` are those that were set."""
        self.own = own

    def value(self, name: str) -> str:
        """Return a setting's value."""
        return self.own.get(name) or GROUP_SETTINGS[name].default

    def seconds(self, name: str) -> float:
        """Return a time."""
        return int(self.value(name)) / 1000

    def limits(self, names: NameSpace) -> ShareLimits:
        """The limits of the group's queues; `names` are those of the listener's topics."""
        topic = self.value(DEAD_LETTERS)
        return ShareLimits(
            int(self.value("share.delivery.count.limit")),
            int(self.value("share.partition.max.record.locks")),
            self.seconds("share.record.lock.duration.ms"),
            names.topic_name(topic.encode()) if topic else None,
        )

    @property
    def starts_early(self) -> bool:
        """True if a partition without a position begins at its first record."""
        return self.value("share.auto.offset.reset").lower() == EARLIEST

    @property
    def renews(self) -> bool:
        """True if members may renew locks."""
        return self.value("share.renew.acknowledge.enable").lower() == "true"


def settings_of(context: KafkaContext, group: bytes) -> ShareSettings:
    stored = _stored(context)
    if not any(key.startswith(PREFIX) for key in stored):
        return ShareSettings({})
    prefix = _prefix(group)
    return ShareSettings(
        {
            key.removeprefix(prefix): str(value)
            for key, value in stored.items()
            if key.startswith(prefix)
        }
    )


def _stored(context: KafkaContext) -> Mapping[str, Setting]:
    meta = context.broker.namespaces.find(*context.namespace)
    return {} if meta is None else meta.settings


def _prefix(group: bytes) -> str:
    return f"{PREFIX}{group.hex()}:"


async def change_settings(
    context: KafkaContext, group: bytes, changes: Mapping[str, str | None], *, is_check: bool
) -> int:
    """Set or unset settings of a group; return the ticket. Raises InvalidRequest, LimitExceeded and
    the errors of `alter_namespace`.
    """
    prefix = _prefix(group)
    stored: dict[str, Setting | None] = {}
    for name, value in changes.items():
        row = GROUP_SETTINGS.get(name)
        if row is None:
            raise InvalidRequest(f"Unknown group config name: {name}")
        stored[prefix + name] = None if value is None else row.check(name, value)
    if is_check:
        return 0
    tenant, namespace = context.namespace
    count = sum(key.startswith(PREFIX) for key in {*_stored(context), *stored})
    if count > GROUP_SETTINGS_MAX and any(value is not None for value in stored.values()):
        raise LimitExceeded(f"groups have at most {GROUP_SETTINGS_MAX} settings together")
    return await context.broker.topics.alter_namespace(tenant, namespace, stored)

"""Settings of groups, by Kafka's names: `consumer.*` (KIP-848), `share.*` (KIP-932) and `streams.*`
(KIP-1071). Knows no request. Texts of refusals are Kafka's.

They are stored with the namespace, so every broker of a cluster knows them. A name without a row
has the broker's default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from braidlog.broker.delivery.pulling import LOCK_S, LOCKED_MAX, ShareLimits
from braidlog.broker.errors import InvalidRequest, LimitExceeded
from braidlog.broker.topics.dead_letter_topics import dead_letter_topic
from braidlog.broker.topics.settings_table import DELIVERIES_MAX
from braidlog.protocols.kafka.consumer_group import ASSIGN_S, HEARTBEAT_S, SESSION_S
from braidlog.protocols.kafka.periods import period_us

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic
    from braidlog.protocols.kafka.context import KafkaContext
    from braidlog.protocols.kafka.names import NameSpace
    from braidlog.protocols.kafka_settings import Setting

PREFIX: Final = "kafka_group:"
# Of a namespace: each takes some 100 bytes, and every change writes all of them.
GROUP_SETTINGS_MAX: Final = 1000
CONSUMER_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
CONSUMER_SESSION: Final = "consumer.session.timeout.ms"
CONSUMER_ASSIGNMENT: Final = "consumer.assignment.interval.ms"
SHARE_ASSIGNMENT: Final = "share.assignment.interval.ms"


INT_MAX: Final = 2**31 - 1
# Numbers as Java reads them.
INTEGER: Final = re.compile("[+-]?[0-9]+", re.ASCII)
EARLIEST, LATEST = "earliest", "latest"
BY_DURATION: Final = "by_duration:"  # Before a period: from the records of that age on.
TRUE, FALSE = "true", "false"


@dataclass(frozen=True, slots=True)
class GroupSetting:
    """A setting: its default, and its least and greatest number, or its words."""

    default: str
    effect: str
    least: int = 0
    greatest: int = INT_MAX
    least_of_all: int = 0  # Whatever a broker's bounds are.
    words: tuple[str, ...] = ()
    broker_name: str = ""
    has_least: bool = True  # A broker has a name for the least number.
    has_periods: bool = False  # Besides the words, a period is a value.
    is_topic: bool = False  # The name of a topic, or nothing; Kafka 4.3 lacks the setting.

    def parse(self, name: str, text: str) -> str:
        """Return the value to store, unless a bound forbids the value. Raises InvalidRequest."""
        if self.is_topic:
            return text
        value = text.strip()
        if self.words:
            return self._word(name, text, value)
        number = int(value) if INTEGER.fullmatch(value) else INT_MAX + 1
        if not -INT_MAX - 1 <= number <= INT_MAX:
            raise _invalid(name, text, "Not a number of type INT")
        if number < self.least_of_all:
            raise _invalid(name, str(number), f"Value must be at least {self.least_of_all}")
        return str(number)

    def _word(self, name: str, text: str, value: str) -> str:
        if self.is_switch:
            if value.lower() not in self.words:
                raise _invalid(name, text, "Expected value to be either true or false")
            return value.lower()
        if value in self.words:
            return value
        if not self.has_periods:
            raise _invalid(name, text, f"String must be one of: {', '.join(sorted(self.words))}")
        if not value.startswith(BY_DURATION) or period_us(value.removeprefix(BY_DURATION)) is None:
            reason = f"Invalid value `{value}` for configuration {name}. The value must be either "
            reason += "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
            raise _invalid(name, text, reason)
        return value

    def check_bounds(self, name: str, value: str) -> None:
        """Check a parsed value against the bounds of a broker. Raises InvalidRequest."""
        if not self.is_number:
            return
        if int(value) < self.least:
            bound = self.bound_name("min")
            raise InvalidRequest(f"{name} must be greater than or equal to {bound}")
        if int(value) > self.greatest:
            bound = self.bound_name("max")
            raise InvalidRequest(f"{name} must be less than or equal to {bound}")

    def bound_name(self, side: str) -> str:
        """Return the name of a bound, `min` or `max`, among the settings of a broker."""
        group, kind, rest = self.broker_name.split(".", 2)
        return f"{group}.{kind}.{side}.{rest.removeprefix('num.')}"

    @property
    def is_number(self) -> bool:
        """True for a whole number."""
        return not self.words and not self.is_topic

    @property
    def is_switch(self) -> bool:
        """True for a setting that is on or off."""
        return TRUE in self.words


def _invalid(name: str, text: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid value {text} for configuration {name}: {reason}")


def _interval(kind: str, limits: tuple[float, float, float], effect: str) -> GroupSetting:
    """Return the setting of a time in ms; `limits` are default, least and greatest."""
    default, least, greatest = (int(1000 * limit) for limit in limits)
    name = f"group.{kind}.ms"
    return GroupSetting(str(default), effect, least, greatest, min(least, 1), broker_name=name)


HEARTBEATS: Final = HEARTBEAT_S, HEARTBEAT_S, 15
SESSIONS: Final = SESSION_S, SESSION_S, 60
ASSIGNMENTS: Final = ASSIGN_S, 0, 15
NO_STREAMS: Final = "kept for Kafka's tools: there are no streams groups"
DELIVERIES: Final = "share.delivery.count.limit"
DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"  # KIP-1191's name.
# In the order in which Kafka checks the bounds, which are those of Kafka's brokers by default.
GROUP_SETTINGS: Final[Mapping[str, GroupSetting]] = {
    CONSUMER_HEARTBEAT: _interval(
        "consumer.heartbeat.interval", HEARTBEATS, "time between two heartbeats of a member"
    ),
    CONSUMER_SESSION: _interval(
        "consumer.session.timeout", SESSIONS, "time after which a silent member is removed"
    ),
    CONSUMER_ASSIGNMENT: _interval(
        "consumer.assignment.interval", ASSIGNMENTS, "least time between two assignments"
    ),
    "share.heartbeat.interval.ms": _interval(
        "share.heartbeat.interval", HEARTBEATS, "time between two heartbeats of a member"
    ),
    "share.session.timeout.ms": _interval(
        "share.session.timeout", SESSIONS, "time after which a silent member is removed"
    ),
    "share.record.lock.duration.ms": GroupSetting(
        *(str(int(LOCK_S * 1000)), "time after which others get a member's unsettled record"),
        *(15_000, 60_000, 1000),
        broker_name="group.share.record.lock.duration.ms",
    ),
    DELIVERIES: GroupSetting(
        *(str(DELIVERIES_MAX), "deliveries after which a record is archived"),
        *(2, 10, 2),
        broker_name="group.share.delivery.count.limit",
    ),
    "share.partition.max.record.locks": GroupSetting(
        *(str(LOCKED_MAX), "records of a partition that members hold at most"),
        *(100, 4000, 100),
        broker_name="group.share.partition.max.record.locks",
    ),
    SHARE_ASSIGNMENT: _interval(
        "share.assignment.interval", ASSIGNMENTS, "least time between two assignments"
    ),
    "streams.heartbeat.interval.ms": _interval(
        "streams.heartbeat.interval", HEARTBEATS, NO_STREAMS
    ),
    "streams.session.timeout.ms": _interval("streams.session.timeout", SESSIONS, NO_STREAMS),
    "streams.num.standby.replicas": GroupSetting(
        *("0", NO_STREAMS, 0, 2),
        broker_name="group.streams.num.standby.replicas",
        has_least=False,
    ),
    "streams.assignment.interval.ms": _interval(
        "streams.assignment.interval", ASSIGNMENTS, NO_STREAMS
    ),
    "streams.initial.rebalance.delay.ms": GroupSetting(
        *("3000", NO_STREAMS), broker_name="group.streams.initial.rebalance.delay.ms"
    ),
    "share.auto.offset.reset": GroupSetting(
        *(LATEST, "first record of a partition without a position"),
        words=(EARLIEST, LATEST),
        has_periods=True,
    ),
    "share.isolation.level": GroupSetting(
        *("read_uncommitted", "kept for Kafka's tools: there are no transactions"),
        words=("read_committed", "read_uncommitted"),
    ),
    "share.renew.acknowledge.enable": GroupSetting(
        *(TRUE, "members may lengthen their locks"), words=(TRUE, FALSE)
    ),
    DEAD_LETTERS: GroupSetting(
        "", "topic for records that are rejected or delivered too often", is_topic=True
    ),
}


class GroupSettings:
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

    def own_seconds(self, name: str) -> float | None:
        """Return a time; None if the group has no such setting of its own."""
        return int(self.own[name]) / 1000 if name in self.own else None

    def limits(self, names: NameSpace, topic: Topic) -> ShareLimits:
        """The limits of the group's queue of a topic: those that the group has, else the topic's.
        `names` are those of the listener's topics.
        """
        own, of_topic = self.own.get(DEAD_LETTERS), topic.client_limits
        letters = dead_letter_topic(topic.name, of_topic.dead_letters)
        return ShareLimits(
            int(self.own.get(DELIVERIES) or of_topic.deliveries or DELIVERIES_MAX),
            int(self.value("share.partition.max.record.locks")),
            self.seconds("share.record.lock.duration.ms"),
            names.topic_name(own.encode()) if own else letters,
        )

    @property
    def starts_early(self) -> bool:
        """True if a partition without a position begins at its first record."""
        return self.value("share.auto.offset.reset") == EARLIEST

    @property
    def start_age_us(self) -> int | None:
        """Age of the records from which on a partition without a position begins; None: the start
        does not depend on the time.
        """
        value = self.value("share.auto.offset.reset")
        return period_us(value.removeprefix(BY_DURATION)) if value.startswith(BY_DURATION) else None

    @property
    def renews(self) -> bool:
        """True if members may renew locks."""
        return self.value("share.renew.acknowledge.enable") == TRUE


NO_SETTINGS: Final = GroupSettings({})


def settings_of(context: KafkaContext, group: bytes) -> GroupSettings:
    """Return the settings of a group."""
    stored = _stored(context)
    if not stored:
        return NO_SETTINGS
    prefix = _prefix(group)
    # Names are looked up: other groups may have a thousand settings, and every heartbeat asks.
    return GroupSettings(
        {name: str(stored[prefix + name]) for name in GROUP_SETTINGS if prefix + name in stored}
    )


def groups_with_settings(context: KafkaContext) -> set[bytes]:
    """Return the names of the groups that have settings of their own."""
    keys = (key.removeprefix(PREFIX) for key in _stored(context) if key.startswith(PREFIX))
    return {bytes.fromhex(key.partition(":")[0]) for key in keys}


def _stored(context: KafkaContext) -> Mapping[str, Setting]:
    meta = context.broker.namespaces.find(*context.namespace)
    return {} if meta is None else meta.settings


def _prefix(group: bytes) -> str:
    return f"{PREFIX}{group.hex()}:"


async def change_settings(
    context: KafkaContext, group: bytes, changes: Mapping[str, str | None], *, is_check: bool
) -> int:
    """Set or unset settings of a group; return the ticket. An unknown name can be unset. Raises
    InvalidRequest, LimitExceeded and the errors of `alter_namespace`.
    """
    prefix = _prefix(group)
    stored = {prefix + name: value for name, value in checked(changes).items()}
    if is_check:
        return 0
    tenant, namespace = context.namespace
    count = sum(key.startswith(PREFIX) for key in {*_stored(context), *stored})
    if count > GROUP_SETTINGS_MAX and any(value is not None for value in stored.values()):
        raise LimitExceeded(f"groups have at most {GROUP_SETTINGS_MAX} settings together")
    return await context.broker.topics.alter_namespace(tenant, namespace, stored)


def checked(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the values to store; None unsets a setting. Raises InvalidRequest."""
    for name, value in changes.items():
        if value is not None and name not in GROUP_SETTINGS:
            raise InvalidRequest(f"Unknown group config name: {name}")
    parsed = {
        name: None if (value := changes[name]) is None else row.parse(name, value)
        for name, row in GROUP_SETTINGS.items()
        if name in changes
    }
    for name, value in parsed.items():
        if value is not None:
            GROUP_SETTINGS[name].check_bounds(name, value)
    return parsed

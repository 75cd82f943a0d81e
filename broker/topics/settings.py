"""Settings of a topic: as users write them, as they are stored, and their effect on its logs.

A topic's own setting overrides the broker's configuration, name by name. `settings_table.py` has
the settings. Knows no topic and no file.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from braidlog.broker.config.settings import LogConfig
from braidlog.broker.config.wording import explain
from braidlog.broker.errors import InvalidRequest
from braidlog.broker.topics.settings_table import TOPIC_SETTINGS
from braidlog.broker.topics.topic_setting import NO_LIMIT
from braidlog.storage.log.settings import LogSettings

if TYPE_CHECKING:
    from braidlog.broker.topics.topic_setting import TopicSetting
    from braidlog.storage.metadata.catalogue_records import Setting

INT64_MAX = 2**63 - 1  # The catalogue stores no larger numbers.
OF_LOGS = [field.name for field in fields(LogSettings) if field.init]
ZERO_IS_NONE = [n for n in OF_LOGS if n in TOPIC_SETTINGS and TOPIC_SETTINGS[n].zero_is_none]
# The broker's settings of logs, and the settings of topics alone.
_Merged = msgspec.defstruct(
    "TopicSettings",
    [
        (name, row.hint, row.default)
        for name, row in TOPIC_SETTINGS.items()
        if name not in LogConfig.__struct_fields__
    ],
    bases=(LogConfig,),
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)
ChoiceT = TypeVar("ChoiceT", bound=enum.Enum)
# A topic can have these settings for single subscriptions too, as `NAME:SUBSCRIPTION`.
OF_SUBSCRIPTIONS: Final = frozenset(
    name for name, row in TOPIC_SETTINGS.items() if row.pulsar == "subscriptionDispatchRate"
)
# Characters of the names of such subscriptions: a change of any setting writes all settings.
SUBSCRIPTION_NAMES_MAX: Final = 4096


def of_subscription(name: str, subscription: str) -> str:
    """Return the name of a setting for a single subscription."""
    return f"{name}:{subscription}"


def row_of(name: str) -> TopicSetting | None:
    """Return the row of a setting, also of a setting for a single subscription."""
    base, colon, subscription = name.partition(":")
    if colon and not (subscription and base in OF_SUBSCRIPTIONS):
        return None
    return TOPIC_SETTINGS.get(base)


def rated_subscriptions(settings: Iterable[str]) -> list[str]:
    """Return the subscriptions with settings of their own, in order of their names."""
    parts = (name.partition(":") for name in settings if ":" in name)
    return sorted({subscription for base, _, subscription in parts if base in OF_SUBSCRIPTIONS})


def check_subscriptions(settings: Iterable[str]) -> None:
    """Raise InvalidRequest if the settings are about too many subscriptions."""
    if sum(map(len, rated_subscriptions(settings))) > SUBSCRIPTION_NAMES_MAX:
        text = f"at most {SUBSCRIPTION_NAMES_MAX} characters of names of subscriptions"
        raise InvalidRequest(f"settings of single subscriptions of a topic: expected {text}")


def read_settings(settings: Mapping[str, Setting | None]) -> dict[str, Setting | None]:
    """Turn settings as users write them into the stored form; None unsets a setting.

    Sizes and times may have units (`1GiB`, `7d`); `none` means no limit, or no group that holds.
    Raises InvalidRequest for an unknown name, and for text that is no value; `log_settings` checks
    the rest.
    """
    if unknown := sorted(name for name in settings if row_of(name) is None):
        from difflib import get_close_matches  # Only after a mistake, as in `wording.py`.

        near = get_close_matches(unknown[0], TOPIC_SETTINGS)
        meant = f", did you mean {' or '.join(near)}?" if near else ""
        known = ", ".join(sorted(TOPIC_SETTINGS))
        raise InvalidRequest(f"no topic has a setting {unknown[0]!r}{meant}; there are: {known}")
    stored: dict[str, Setting | None] = {}
    for name, value in settings.items():
        row = row_of(name)
        assert row is not None, "unknown names are refused above"
        try:
            parsed = row.parse(value) if isinstance(value, str) else value
        except ValueError as error:
            raise InvalidRequest(f"topic setting {name}: {error}") from None
        if isinstance(parsed, int) and abs(parsed) > INT64_MAX:
            raise InvalidRequest(f"topic setting {name}: expected a number of at most {INT64_MAX}")
        stored[name] = parsed
    return stored


def in_force(
    config: LogConfig, settings: Mapping[str, Setting | None]
) -> dict[str, Setting | None]:
    """Return the settings in force, by name, for the logs of such a topic. Raises
    InvalidRequest.
    """
    values = {name: value for name, value in settings.items() if value is not None}
    return asdict(log_settings(config, values))


def log_settings(config: LogConfig, settings: Mapping[str, Setting]) -> LogSettings:
    """Return the log settings of a topic with these settings; settings not for logs are ignored.

    Raises InvalidRequest for an invalid value.
    """
    merged = msgspec.structs.asdict(config)
    for name, value in settings.items():
        if (row := row_of(name)) is None:
            continue
        plain = None if row.is_limit and value == NO_LIMIT else value
        if name == row.name:
            merged[name] = plain
        else:
            _converted({row.name: plain})
    converted = _converted(merged)
    values = {name: getattr(converted, name) for name in OF_LOGS}
    for name in ZERO_IS_NONE:
        values[name] = values[name] or None
    return msgspec.convert(values, LogSettings)


def _converted(values: Mapping[str, object]) -> msgspec.Struct:
    """Return the checked values. Raises InvalidRequest."""
    try:
        return msgspec.convert(values, _Merged)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"topic setting {explain(error, _Merged)}") from None


def limit_of(settings: Mapping[str, Setting], name: str) -> int | None:
    """Return the value of a limit that is no setting of logs; None for no limit."""
    value = settings.get(name)
    return value if isinstance(value, int) and value > 0 else None


def choice_of(settings: Mapping[str, Setting], name: str, kind: type[ChoiceT]) -> ChoiceT:
    """Return the choice that holds for a setting, by default that of the table."""
    return kind(settings.get(name, TOPIC_SETTINGS[name].default))

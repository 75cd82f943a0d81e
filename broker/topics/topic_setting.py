"""The form of a setting of a topic: values, range, default, the protocols' names, and effect.

`settings_table.py` has the settings. Knows no topic and no file.
"""

from __future__ import annotations

import enum
import typing
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Final

import msgspec

from braidlog.broker.config.settings import plain_value

if typing.TYPE_CHECKING:
    from braidlog.storage.metadata.catalogue_records import Setting

NO_LIMIT: Final = -1  # Kafka's and Iggy's clients write "unlimited" as this number.
Switch = bool
Count = Annotated[int, msgspec.Meta(ge=0)]
Limit = Annotated[int, msgspec.Meta(ge=0)] | None
Millionths = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Deliveries = Annotated[int, msgspec.Meta(ge=2, le=10)]  # Kafka's bounds of a group's limit.
Name = str | None


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """A setting of a topic.

    `hint` is the annotation of its values, with their range; the end of the name is the unit. An
    enum stands for the values of its members. `broker` names the broker's setting that holds for
    topics without a value of their own. Several settings can be one policy of Pulsar.
    """

    name: str
    hint: object
    default: Setting | enum.Enum | None
    effect: str  # Markdown, for users.
    _: KW_ONLY
    broker: str = ""
    kafka: str = ""
    pulsar: str = ""
    iggy: str = ""
    zero_is_none: bool = False  # 0 means no limit, as in Pulsar.

    @property
    def choices(self) -> tuple[str, ...]:
        """The possible texts; empty for numbers, switches and names."""
        if isinstance(self.hint, type) and issubclass(self.hint, enum.Enum):
            return tuple(str(member.value) for member in self.hint)
        return typing.get_args(self.hint) if typing.get_origin(self.hint) is typing.Literal else ()

    @property
    def is_list(self) -> bool:
        """True if a value is a list of words, as Kafka's cleanup policy."""
        return any("," in choice for choice in self.choices)

    @property
    def is_switch(self) -> bool:
        """True if the values are true and false."""
        return self.hint is bool

    @property
    def is_limit(self) -> bool:
        """True for a number that can be absent; NO_LIMIT stands for its absence."""
        return type(None) in typing.get_args(self.hint) and not self.is_name

    @property
    def is_name(self) -> bool:
        """True if the values are names, which can be absent."""
        return self.hint == Name

    def parse(self, text: str) -> Setting | None:
        """Return the stored form of a user's text, which may have a unit; None for no name. Raises
        ValueError.
        """
        if not text.strip():
            raise ValueError("expected a value")
        if self.is_switch:
            switches = {"true": True, "false": False}
            if text.strip().lower() not in switches:
                raise ValueError(f"{text!r} is neither true nor false")
            return switches[text.strip().lower()]
        if self.choices and text not in self.choices:
            raise ValueError(f"{text!r} is none of {', '.join(self.choices)}")
        plain = plain_value(self.name, text, self.hint)
        if plain is None:
            return NO_LIMIT if self.is_limit else None
        assert isinstance(plain, str | int)
        if isinstance(plain, str) and not self.choices and not self.is_name:
            if not plain.strip().isdecimal():
                raise ValueError(f"{text!r} is not a number")
            return int(plain)
        return plain

"""The neutral form of messages for cases and drivers. Knows no client library."""

import base64
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(slots=True)
class ClientMessage:
    """A sent or received message. Key and value: absent, empty or bytes."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    partition: int = 0
    offset: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; bytes become base64."""
        return {
            "value": _to_text(self.value),
            "key": _to_text(self.key),
            "headers": [[name, _to_text(value)] for name, value in self.headers],
            "partition": self.partition,
            "offset": self.offset,
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "ClientMessage":
        """Return the message of a JSON form."""
        return cls(
            value=_from_text(fields["value"]),
            key=_from_text(fields["key"]),
            headers=[(name, _from_text(value) or b"") for name, value in fields["headers"]],
            partition=fields["partition"],
            offset=fields["offset"],
        )


class Driver(Protocol):
    """The actions that every library offers. Each call opens its own connections and closes them
    before returning.
    """

    def produce(
        self, topic: str, messages: list[ClientMessage], compression: str | None = None
    ) -> None:
        """Send in order and wait until every message is acknowledged.

        `compression` is the library's own name for a codec; None means no compression.
        """

    def read(self, topic: str, count: int) -> list[ClientMessage]:
        """Return the first `count` messages of the topic, without a group."""

    def read_as_group(self, topic: str, group: str, count: int) -> list[ClientMessage]:
        """Return the next `count` messages of the group, acknowledged, with the consumer closed."""


class Timeout(Exception):
    """The client did not receive the expected messages in time."""


READ_TIMEOUT_S = 60.0


def _to_text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _from_text(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)

"""Refusals: calls of the broker's interfaces that fail with a chosen error.

A `Refusing` object stands before each of the logs, the positions and the topic registry. The
product knows nothing of this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from braidlog.broker import errors
from braidlog.broker.local_parts import Foundation, LocalParts, Parts

if TYPE_CHECKING:
    from braidlog.broker.topics.namespaces import Namespaces
    from braidlog.broker.topics.registry import NamespaceRegistry, TopicRegistry
    from braidlog.broker.topics.topics import Topics
    from braidlog.storage.directory.data_dir import DataDir
    from braidlog.storage.directory.directory import Directory, NewPartition
    from braidlog.storage.log.committer import Committer
    from braidlog.storage.log.log import Log
    from braidlog.storage.log.settings import LogSettings
    from braidlog.storage.metadata.positions import Positions

# The operation of each method that can be refused, by interface.
LOG = {"append": "append", "append_all": "append", "read": "read"}
POSITIONS = {"move": "commit", "move_all": "commit"}
TOPICS = {
    "create": "create_topic",
    "auto_create": "create_topic",
    "delete": "delete_topic",
    "alter_settings": "alter_topic",
    "add_partitions": "alter_topic",
    "keep_partitions": "alter_topic",
}
OPERATIONS = sorted({*LOG.values(), *POSITIONS.values(), *TOPICS.values()})
ERRORS: Mapping[str, type[errors.BrokerError]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower(): kind
    for kind in errors.BrokerError.__subclasses__()
}


@dataclass(slots=True)
class _Pending:
    """Refusals of an operation that are still to come."""

    kind: type[errors.BrokerError]
    count: int


class Refusals:
    """The refusals of a broker that are still to come."""

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}

    def refuse(self, operation: str, error: str, count: int) -> None:
        """Let the next `count` calls of an operation raise the broker's error of that name.

        Raises ValueError for unknown names.
        """
        if operation not in OPERATIONS:
            raise ValueError(_unknown("operation", operation, OPERATIONS))
        if error not in ERRORS:
            raise ValueError(_unknown("error", error, sorted(ERRORS)))
        self._pending[operation] = _Pending(ERRORS[error], count)

    def check(self, operation: str) -> None:
        """Raise the error that is due for a call of the operation, if any."""
        pending = self._pending.get(operation)
        if pending is None:
            return
        pending.count -= 1
        if pending.count <= 0:
            del self._pending[operation]
        raise pending.kind("refused by a fault of braidlog.testing")

    def heal(self) -> None:
        """Refuse nothing any more."""
        self._pending.clear()


class Refusing:
    """An object of the broker with some methods that may be refused."""

    def __init__(self, target: object, methods: Mapping[str, str], refusals: Refusals) -> None:
        self._target = target
        for name, operation in methods.items():
            setattr(self, name, _checked(getattr(target, name), operation, refusals))

    def __getattr__(self, name: str) -> object:
        return getattr(self._target, name)


class RefusingTopics(Refusing):
    """A topic registry that may refuse changes."""

    def __init__(self, topics: TopicRegistry, refusals: Refusals) -> None:
        super().__init__(topics, TOPICS, refusals)
        self._topics = topics

    def __len__(self) -> int:
        return len(self._topics)


class RefusingDirectory(Refusing):
    """A data directory with logs that may refuse appends and reads. Implements `Directory`."""

    def __init__(self, data_dir: DataDir, refusals: Refusals) -> None:
        super().__init__(data_dir, {}, refusals)
        self._data_dir = data_dir
        self._refusals = refusals

    def create_partitions(
        self, new: Sequence[NewPartition], settings: LogSettings, committer: Committer
    ) -> list[Log]:
        logs = self._data_dir.create_partitions(new, settings, committer)
        return [self._refusing(log) for log in logs]

    def open_of_topic(
        self, named: NewPartition, settings: LogSettings, committer: Committer
    ) -> Log:
        return self._refusing(self._data_dir.open_of_topic(named, settings, committer))

    def _refusing(self, log: Log) -> Log:
        return cast("Log", Refusing(log, LOG, self._refusals))


class RefusingParts(Refusing):
    """`Parts` of a broker with positions and topics that may refuse changes."""

    def __init__(self, parts: LocalParts, refusals: Refusals) -> None:
        super().__init__(parts, {}, refusals)
        self._parts = parts
        self._refusals = refusals
        self.cursors = cast("Positions", Refusing(parts.cursors, POSITIONS, refusals))

    def registries(
        self, topics: Topics, namespaces: Namespaces
    ) -> tuple[TopicRegistry, NamespaceRegistry]:
        registries = self._parts.registries(topics, namespaces)
        refusing = cast("TopicRegistry", RefusingTopics(registries[0], self._refusals))
        return refusing, registries[1]


def refusing_directory(data_dir: DataDir, refusals: Refusals) -> Directory:
    """Return the data directory behind the refusals."""
    return cast("Directory", RefusingDirectory(data_dir, refusals))


def refusing_parts(data_dir: DataDir, refusals: Refusals) -> Callable[[Foundation], Parts]:
    """Return a function that makes the parts of a broker behind the refusals."""

    def make(foundation: Foundation) -> Parts:
        return cast("Parts", RefusingParts(LocalParts(foundation, data_dir), refusals))

    return make


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    return f"{kind} {name!r} is unknown, expected one of {', '.join(known)}"


def _checked(
    method: Callable[..., object], operation: str, refusals: Refusals
) -> Callable[..., object]:
    def call(*arguments: object, **named: object) -> object:
        refusals.check(operation)
        return method(*arguments, **named)

    return call

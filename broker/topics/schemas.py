"""Schemas of a topic, kept verbatim by version: all partitions share them. Knows no protocol.

A new definition becomes a new version if it may follow the latest one: by the topic's setting
`schema_compatibility`, which `schema_rules.py` explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.broker.topics.schema_rules import (
    FOR_CONSUMERS,
    TRANSITIVE,
    BadDefinition,
    Strategy,
    check_definition,
    difference,
)
from braidlog.storage.metadata.catalogue_records import DELETED_SCHEMA_TYPE, SchemaMeta

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic

__all__ = [
    "IncompatibleSchema",
    "SchemaMeta",
    "Schemas",
    "compatible",
    "in_force",
    "latest_version",
    "numbered",
    "readable",
    "schema_of",
    "strategy_of",
    "version_of",
]


SCHEMAS_MAX: Final = 1000  # Of one topic: kept in memory, each up to 64 KiB.


class IncompatibleSchema(Exception):
    """The schema may not follow the topic's latest one, or is no schema."""


def schema_of(schemas: Sequence[SchemaMeta], version: int) -> SchemaMeta | None:
    """A version of a topic's schemas, even one before a deletion; None if there is none."""
    if not 0 <= version < len(schemas) or schemas[version].is_deletion:
        return None
    return schemas[version]


def latest_version(schemas: Sequence[SchemaMeta]) -> int | None:
    """The newest version; None without a schema, or once it was deleted."""
    return len(schemas) - 1 if schemas and not schemas[-1].is_deletion else None


def numbered(schemas: Sequence[SchemaMeta], version: int | None) -> tuple[int, SchemaMeta] | None:
    """A schema with its version: of that version, or the latest; None if there is none."""
    number = latest_version(schemas) if version is None else version
    found = None if number is None else schema_of(schemas, number)
    return None if number is None or found is None else (number, found)


def in_force(schemas: Sequence[SchemaMeta]) -> range:
    """The versions since the last deletion, oldest first."""
    first = len(schemas)
    while first and not schemas[first - 1].is_deletion:
        first -= 1
    return range(first, len(schemas))


def version_of(topic: Topic, schema: SchemaMeta) -> int | None:
    """The version of an identical schema, whatever its name; None if there is none."""
    for version in in_force(topic.meta.schemas):
        known = topic.meta.schemas[version]
        same_type = known.type == schema.type and known.properties == schema.properties
        if same_type and known.data == schema.data:
            return version
    return None


def compatible(topic: Topic, schema: SchemaMeta) -> None:
    """Raises IncompatibleSchema if the schema may not follow the topic's latest one."""
    _check(topic, schema, strategy_of(topic))


def readable(topic: Topic, schema: SchemaMeta) -> None:
    """Raises IncompatibleSchema if the topic may not be read with that schema."""
    strategy = strategy_of(topic)
    _check(topic, schema, FOR_CONSUMERS.get(strategy, strategy))


def _check(topic: Topic, schema: SchemaMeta, strategy: Strategy) -> None:
    schemas = [topic.meta.schemas[version] for version in in_force(topic.meta.schemas)]
    try:
        check_definition(schema)
        known = schemas if strategy in TRANSITIVE else schemas[-1:]
        reasons = (difference(strategy, one, schema) for one in reversed(known))
        reason = next(filter(None, reasons), "")
    except BadDefinition as error:
        reason = str(error)
    if reason:
        raise IncompatibleSchema(f"Incompatible schema: {reason}")


def strategy_of(topic: Topic) -> Strategy:
    """The strategy in force: the topic's, else its namespace's, else FULL."""
    return Strategy(topic.settings.get("schema_compatibility", Strategy.FULL.value))


class Schemas:
    """Adds schemas to topics."""

    def __init__(self, catalogue: LocalCatalogue) -> None:
        self._catalogue = catalogue

    def add(self, topic: Topic, schema: SchemaMeta) -> tuple[int, int]:
        """The version that the schema has now, and the ticket after which that is on disk.

        Raises IncompatibleSchema, StorageFull, StorageFailed.
        """
        version = version_of(topic, schema)
        if version is None:
            compatible(topic, schema)
            return self._append(topic, schema)
        return version, self._catalogue.ticket

    def delete(self, topic: Topic) -> tuple[int, int]:
        """Delete the schema; returns the version that says so, and the ticket as `add` does.

        Any schema may be the next one. Records keep their versions and are decoded as before.
        Raises IncompatibleSchema where there are too many versions, StorageFull, StorageFailed.
        """
        return self._append(topic, SchemaMeta(DELETED_SCHEMA_TYPE, "", b"", {}))

    def _append(self, topic: Topic, schema: SchemaMeta) -> tuple[int, int]:
        version = len(topic.meta.schemas)
        if version >= SCHEMAS_MAX:
            raise IncompatibleSchema(f"a topic has at most {SCHEMAS_MAX} schemas")
        if not topic.is_persistent:  # Nothing of it is kept on disk.
            topic.meta.schemas.append(schema)
            return version, 0
        self._catalogue.add_schema(topic.meta.topic_id, schema)
        return version, self._catalogue.ticket

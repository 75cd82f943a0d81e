"""Schemas of a topic, stored verbatim by version: all partitions share them. Knows no protocol.

A new definition becomes a new version if compatible with the latest version, by the topic's setting
`schema_compatibility` (see `schema_rules.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from braidlog.broker.topics.catalogue import LocalCatalogue
from braidlog.broker.topics.schema_rules import (
    FOR_CONSUMERS,
    TRANSITIVE,
    AutoUpdateStrategy,
    BadDefinition,
    SchemaStrategy,
    check_definition,
    difference,
)
from braidlog.broker.topics.settings import choice_of
from braidlog.storage.metadata.catalogue_records import DELETED_SCHEMA_TYPE, SchemaMeta

if TYPE_CHECKING:
    from braidlog.broker.topics.topic import Topic

__all__ = [
    "IncompatibleSchema",
    "SchemaMeta",
    "Schemas",
    "check_needed",
    "compatible",
    "in_force",
    "latest_version",
    "numbered",
    "readable",
    "schema_of",
    "strategy_of",
    "version_of",
]


SCHEMAS_MAX: Final = 1000  # Per topic: held in memory, each up to 64 KiB.


class IncompatibleSchema(Exception):
    """The schema is invalid, or may not follow the topic's latest schema."""


def check_needed(topic: Topic) -> None:
    """Check that a producer may come without a schema. Raises IncompatibleSchema if the topic has a
    schema and its settings demand that producers have schemas, too.
    """
    if topic.client_limits.needs_schema and latest_version(topic.meta.schemas) is not None:
        text = "Producers cannot connect or send message without a schema to topics with a schema"
        raise IncompatibleSchema(text)  # Apache's words.


def schema_of(schemas: Sequence[SchemaMeta], version: int) -> SchemaMeta | None:
    """Return a version of a topic's schemas, even from before a deletion; None if unknown."""
    if not 0 <= version < len(schemas) or schemas[version].is_deletion:
        return None
    return schemas[version]


def latest_version(schemas: Sequence[SchemaMeta]) -> int | None:
    """Return the newest version; None without a schema, or after a deletion."""
    return len(schemas) - 1 if schemas and not schemas[-1].is_deletion else None


def numbered(schemas: Sequence[SchemaMeta], version: int | None) -> tuple[int, SchemaMeta] | None:
    """Return (version, schema) of that version, or of the latest; None if there is no
    such schema.
    """
    number = latest_version(schemas) if version is None else version
    schema = None if number is None else schema_of(schemas, number)
    return None if number is None or schema is None else (number, schema)


def in_force(schemas: Sequence[SchemaMeta]) -> range:
    """Return the versions since the last deletion, oldest first."""
    first = len(schemas)
    while first and not schemas[first - 1].is_deletion:
        first -= 1
    return range(first, len(schemas))


def version_of(topic: Topic, schema: SchemaMeta) -> int | None:
    """Return the version of an identical schema under any name; None if there is no such schema."""
    for version in in_force(topic.meta.schemas):
        known = topic.meta.schemas[version]
        same_type = known.type == schema.type and known.properties == schema.properties
        if same_type and known.data == schema.data:
            return version
    return None


def compatible(topic: Topic, schema: SchemaMeta) -> None:
    """Raise IncompatibleSchema if the schema may not follow the topic's latest schema."""
    _check(topic, schema, strategy_of(topic))


def readable(topic: Topic, schema: SchemaMeta) -> None:
    """Raise IncompatibleSchema if the topic may not be read with that schema."""
    strategy = strategy_of(topic)
    _check(topic, schema, FOR_CONSUMERS.get(strategy, strategy))


def _check(topic: Topic, schema: SchemaMeta, strategy: SchemaStrategy) -> None:
    schemas = [topic.meta.schemas[version] for version in in_force(topic.meta.schemas)]
    try:
        check_definition(schema)
        known = schemas if strategy in TRANSITIVE else schemas[-1:]
        reasons = (difference(strategy, earlier, schema) for earlier in reversed(known))
        reason = next(filter(None, reasons), "")
    except BadDefinition as error:
        reason = str(error)
    if reason:
        raise IncompatibleSchema(f"Incompatible schema: {reason}")


def strategy_of(topic: Topic) -> SchemaStrategy:
    """Return the strategy in force: the topic's, else its namespace's, else that under the older
    name, else FULL.
    """
    settings = topic.settings
    older = settings.get("schema_auto_update_compatibility")
    if older is not None and "schema_compatibility" not in settings:
        return AutoUpdateStrategy(older).strategy
    return choice_of(settings, "schema_compatibility", SchemaStrategy)


class Schemas:
    """Adds schemas to topics."""

    def __init__(self, catalogue: LocalCatalogue, now_us: Callable[[], int]) -> None:
        self._catalogue = catalogue
        self._now_us = now_us

    def add(self, topic: Topic, schema: SchemaMeta) -> tuple[int, int]:
        """Add a schema; return its version, and the ticket that makes the version durable.

        Raises IncompatibleSchema, StorageFull, StorageFailed.
        """
        version = version_of(topic, schema)
        if version is None:
            compatible(topic, schema)
            return self._append(topic, schema)
        return version, self._catalogue.ticket

    def delete(self, topic: Topic) -> tuple[int, int]:
        """Delete the schema; return the version that marks the deletion, and the ticket as `add`
        does.

        Any schema may follow. Records keep their versions and are decoded as before. Raises
        IncompatibleSchema at the limit of versions, StorageFull, StorageFailed.
        """
        return self._append(topic, SchemaMeta(DELETED_SCHEMA_TYPE, "", b"", {}))

    def _append(self, topic: Topic, schema: SchemaMeta) -> tuple[int, int]:
        version = len(topic.meta.schemas)
        if version >= SCHEMAS_MAX:
            raise IncompatibleSchema(f"a topic has at most {SCHEMAS_MAX} schemas")
        schema = msgspec.structs.replace(schema, created_us=self._now_us())
        if not topic.is_persistent:  # Such a topic stores nothing on disk.
            topic.meta.schemas.append(schema)
            return version, 0
        topic.check_here()
        add = self._catalogue.state.add_schema
        return version, self._catalogue.change(add, topic.meta.topic_id, schema)

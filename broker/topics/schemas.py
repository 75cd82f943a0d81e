"""Schemas of a topic, kept verbatim by version: all partitions share them. Knows no protocol.

What a schema says is not looked into: a differing type is incompatible, a differing definition of
the same type is a new version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.topics.catalogue import LocalCatalogue
from storage.metadata.catalogue_records import SchemaMeta

if TYPE_CHECKING:
    from broker.topics.topic import Topic

__all__ = ["IncompatibleSchema", "SchemaMeta", "Schemas", "compatible", "version_of"]


class IncompatibleSchema(Exception):
    """The topic has a schema of another type."""


def version_of(topic: Topic, schema: SchemaMeta) -> int | None:
    """The version of an identical schema, whatever its name; None if there is none."""
    for version, known in enumerate(topic.meta.schemas):
        same_type = known.type == schema.type and known.properties == schema.properties
        if same_type and known.data == schema.data:
            return version
    return None


def compatible(topic: Topic, schema: SchemaMeta) -> None:
    """Raises IncompatibleSchema if the topic's latest schema has another type."""
    schemas = topic.meta.schemas
    if schemas and schemas[-1].type != schema.type:
        raise IncompatibleSchema(
            f"Incompatible schema: exists schema type {schemas[-1].type}, new schema type"
            f" {schema.type}"
        )


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
            version = len(topic.meta.schemas)
            self._catalogue.add_schema(topic.meta.topic_id, schema)
        return version, self._catalogue.ticket

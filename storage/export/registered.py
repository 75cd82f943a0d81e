"""Schemas that are registered for topics, as a log's place knows them. Knows no Spark."""

from collections.abc import Mapping
from dataclasses import dataclass

# Pulsar's SchemaInfo: names of the types whose values have an Avro definition.
AVRO, JSON = "AVRO", "JSON"
_NAMES = {2: JSON, 4: AVRO}  # By Pulsar's numbers, which the catalogue keeps.


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One version of a topic's schema: Pulsar's name of its type, and its definition."""

    type: str
    definition: str


def type_name(number: int) -> str:
    """The name of a type of Pulsar's protocol; its number if tables cannot decode its values."""
    return _NAMES.get(number, str(number))


def by_version(schemas: Mapping[int, RegisteredSchema]) -> list[RegisteredSchema]:
    """Schemas in the order of their versions; a version at which the schema was deleted has no
    type.
    """
    versions = range(max(schemas, default=-1) + 1)
    return [schemas.get(version, RegisteredSchema("", "")) for version in versions]

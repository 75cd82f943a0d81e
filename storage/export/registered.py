"""Registered schemas of topics. Knows no Spark."""

from collections.abc import Mapping
from dataclasses import dataclass

# Names in Pulsar's SchemaInfo of the types whose values have an Avro definition.
AVRO, JSON = "AVRO", "JSON"
_NAMES = {2: JSON, 4: AVRO}  # By Pulsar's numbers, as in the catalogue.


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A version of a topic's schema: Pulsar's name of the type, and the definition."""

    type: str
    definition: str


def type_name(number: int) -> str:
    """Return the name of a Pulsar schema type; the number if tables cannot decode its values."""
    return _NAMES.get(number, str(number))


def by_version(schemas: Mapping[int, RegisteredSchema]) -> list[RegisteredSchema]:
    """Return schemas in version order; a version that deleted the schema has no type."""
    versions = range(max(schemas, default=-1) + 1)
    return [schemas.get(version, RegisteredSchema("", "")) for version in versions]

"""Schema validity and compatibility, by Pulsar's strategies.

AVRO and JSON definitions are Avro schemas (Pulsar's clients send both so), parsed by fastavro and
compared by Avro's rules of schema resolution. Other types are compared by type alone. Knows no
topic, and of protocols only Pulsar's type numbers.
"""

from __future__ import annotations

import enum
import json
from functools import lru_cache
from typing import Any, Final

from braidlog.broker.config.wording import explain
from braidlog.broker.runtime.threads import import_in_thread, is_imported
from braidlog.storage.metadata.catalogue_records import SchemaMeta

Definition = Any  # JSON, as fastavro takes it.

# Values of Pulsar's Schema.Type whose definitions are Avro schemas.
JSON: Final = 2
PROTOBUF: Final = 3
AVRO: Final = 4
IN_AVRO: Final = frozenset({JSON, PROTOBUF, AVRO})

# Per definition: a journal record, held in memory, and milliseconds to parse.
DEFINITION_BYTES_MAX: Final = 64 * 1024
DEPTH_MAX: Final = 32  # Depth of nested definitions; Python's own limit is a thousand calls.
REASON_CHARACTERS: Final = 500  # Characters; a reason may quote the definition.
PARSED_MAX: Final = 64  # Parsed definitions in the cache, at worst about 100 KB each.


class SchemaStrategy(enum.Enum):
    """Pulsar's compatibility strategies: which reader must be able to read which writer's data."""

    FULL = "full"  # Both directions; the default.
    BACKWARD = "backward"  # New readers read data of old writers.
    FORWARD = "forward"  # Old readers read data of new writers.
    FULL_TRANSITIVE = "full_transitive"  # FULL against every version, not just the latest.
    BACKWARD_TRANSITIVE = "backward_transitive"
    FORWARD_TRANSITIVE = "forward_transitive"
    ALWAYS_COMPATIBLE = "always_compatible"
    ALWAYS_INCOMPATIBLE = "always_incompatible"


class AutoUpdateStrategy(enum.Enum):
    """The strategies under Pulsar's older names, which count where a newer name is not set."""

    DISABLED = "AutoUpdateDisabled"
    BACKWARD = "Backward"
    FORWARD = "Forward"
    FULL = "Full"
    ALWAYS_COMPATIBLE = "AlwaysCompatible"
    BACKWARD_TRANSITIVE = "BackwardTransitive"
    FORWARD_TRANSITIVE = "ForwardTransitive"
    FULL_TRANSITIVE = "FullTransitive"

    @property
    def strategy(self) -> SchemaStrategy:
        """The strategy of that name."""
        if self is AutoUpdateStrategy.DISABLED:
            return SchemaStrategy.ALWAYS_INCOMPATIBLE
        return SchemaStrategy[self.name]


TRANSITIVE: Final = frozenset(
    {
        SchemaStrategy.FULL_TRANSITIVE,
        SchemaStrategy.BACKWARD_TRANSITIVE,
        SchemaStrategy.FORWARD_TRANSITIVE,
    }
)
BACKWARD_ONLY: Final = frozenset({SchemaStrategy.BACKWARD, SchemaStrategy.BACKWARD_TRANSITIVE})
FORWARD_ONLY: Final = frozenset({SchemaStrategy.FORWARD, SchemaStrategy.FORWARD_TRANSITIVE})
# Strategies for a consumer's schema, where they differ from a producer's: a consumer writes
# nothing, so a consumer only has to read the existing data; checkConsumerCompatibility in Apache's
# SchemaRegistryServiceImpl.
FOR_CONSUMERS: Final = {
    SchemaStrategy.FULL: SchemaStrategy.BACKWARD,
    SchemaStrategy.FORWARD: SchemaStrategy.BACKWARD,
    SchemaStrategy.FORWARD_TRANSITIVE: SchemaStrategy.BACKWARD,
}


PARSER: Final = "fastavro"


def has_parser() -> bool:
    """Return whether the parser is loaded."""
    return is_imported(PARSER)


async def load_parser() -> None:
    """Import the parser of Avro schemas: 3 MB, wasted if no client has a schema. Call this before a
    schema may arrive; else the first schema blocks the loop for 30 ms.
    """
    await import_in_thread(PARSER)


class BadDefinition(Exception):
    """A definition cannot be parsed; the text gives the reason."""


def check_definition(schema: SchemaMeta) -> None:
    """Raise BadDefinition for an invalid or too large definition."""
    if len(schema.data) > DEFINITION_BYTES_MAX:
        raise BadDefinition(f"a schema's definition has at most {DEFINITION_BYTES_MAX} bytes")
    if schema.type in IN_AVRO:
        _parsed(schema.data)


def difference(strategy: SchemaStrategy, last: SchemaMeta, new: SchemaMeta) -> str:
    """Return the reason that `new` may not follow `last`, or an empty text. Raises BadDefinition
    for either schema.
    """
    if strategy is SchemaStrategy.ALWAYS_COMPATIBLE:
        return ""
    if strategy is SchemaStrategy.ALWAYS_INCOMPATIBLE:
        return "the topic takes no other schema"
    if last.type != new.type:
        return f"exists schema type {last.type}, new schema type {new.type}"
    if new.type not in IN_AVRO:
        return ""
    old_definition, new_definition = _parsed(last.data), _parsed(new.data)
    backward = forward = ""
    if strategy not in FORWARD_ONLY:
        backward = _unreadable(new_definition, old_definition)
    if strategy not in BACKWARD_ONLY:
        forward = _unreadable(old_definition, new_definition)
    if backward:
        return f"what was written before could not be read: {backward}"
    return f"readers of the last version could not read it: {forward}" if forward else ""


@lru_cache(maxsize=PARSED_MAX)
def _parsed(data: bytes) -> Definition:
    import fastavro  # See `load_parser`.

    try:
        definition = json.loads(data)
        _check_depth(definition, DEPTH_MAX)
        return fastavro.parse_schema(definition)
    except BadDefinition:
        raise
    except Exception as error:  # fastavro fails in many ways, also with KeyError and TypeError.
        reason = definition_fault(error)[:REASON_CHARACTERS]
        raise BadDefinition(f"not an Avro schema: {reason}") from None


def definition_fault(error: Exception) -> str:
    """Return in plain words the reason that fastavro could not parse a definition."""
    from fastavro.schema import SchemaParseException, UnknownType

    if isinstance(error, UnknownType):
        return f"unknown type {error}"
    if isinstance(error, KeyError):
        return f"field {error.args[0]} is missing"
    if isinstance(error, SchemaParseException | json.JSONDecodeError | RecursionError):
        return explain(error)
    return "a type is a name, an object or a list of types"


def _check_depth(definition: Definition, left: int) -> None:
    if not left:
        raise BadDefinition(f"definitions lie more than {DEPTH_MAX} deep in each other")
    inner = definition.values() if isinstance(definition, dict) else definition
    if isinstance(definition, dict | list):
        for schema in inner:
            _check_depth(schema, left - 1)


# Avro 1.12, "Schema Resolution": the writer's type, and the types that a reader may use for it.
PROMOTIONS: Final = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}


def _unreadable(reader: Definition, writer: Definition) -> str:
    """Return the reason that the reader's schema cannot read the writer's data, or an
    empty text.
    """
    try:
        return _Resolution(_named(reader), _named(writer)).unreadable(reader, writer, "")
    except (KeyError, TypeError) as error:  # Names that are not text pass fastavro.
        raise BadDefinition(f"a definition is malformed: {error!r}") from None


def _named(definition: Definition) -> dict[str, Definition]:
    """Return the named types of a parsed definition, by full name."""
    named = definition.get("__named_schemas", {}) if isinstance(definition, dict) else {}
    assert isinstance(named, dict)
    return named


class _Resolution:
    """A comparison of a reader's schema with a writer's."""

    def __init__(self, readers: dict[str, Definition], writers: dict[str, Definition]) -> None:
        self._readers, self._writers = readers, writers
        self._compared: set[tuple[str, str]] = set()  # Records, which may be recursive.

    def unreadable(self, reader: Definition, writer: Definition, path: str) -> str:
        """Return the first place that cannot be read, with the reason, or an empty text."""
        if isinstance(reader, str):
            reader = self._readers.get(reader, reader)
        if isinstance(writer, str):
            writer = self._writers.get(writer, writer)
        if isinstance(writer, list):
            reasons = (self.unreadable(reader, branch, path) for branch in writer)
            return next(filter(None, reasons), "")
        if isinstance(reader, list):
            if any(not self.unreadable(branch, writer, path) for branch in reader):
                return ""
            return f"{path or 'the schema'}: no branch of the union takes {_type(writer)}"
        read_as, written = _type(reader), _type(writer)
        if read_as != written:
            if read_as in PROMOTIONS.get(written, ()):
                return ""
            return f"{path or 'the schema'}: {written} cannot be read as {read_as}"
        return self._same_type(reader, writer, path)

    def _same_type(self, reader: Definition, writer: Definition, path: str) -> str:
        match _type(reader):
            case "record" | "error":
                return self._record(reader, writer, path)
            case "array":
                return self.unreadable(reader["items"], writer["items"], f"{path}[]")
            case "map":
                return self.unreadable(reader["values"], writer["values"], f"{path}{{}}")
            case "enum":
                unknown = set(writer["symbols"]) - set(reader["symbols"])
                if unknown and "default" not in reader:
                    return f"{path or 'the schema'}: unknown symbols {sorted(unknown)}"
            case "fixed" if reader["size"] != writer["size"]:
                return f"{path or 'the schema'}: sizes differ"
        return ""

    def _record(self, reader: Definition, writer: Definition, path: str) -> str:
        pair = (reader["name"], writer["name"])
        if pair in self._compared:
            return ""
        self._compared.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            place = f"{path}.{field['name']}" if path else field["name"]
            names = (field["name"], *field.get("aliases", ()))
            schema = next((written[name] for name in names if name in written), None)
            if schema is None:
                if "default" not in field:
                    return f"{place}: a field without a default that was not written"
            elif reason := self.unreadable(field["type"], schema["type"], place):
                return reason
        return ""


def _type(definition: Definition) -> str:
    return str(definition["type"] if isinstance(definition, dict) else definition)

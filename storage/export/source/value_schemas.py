"""Choice of the schema that decodes values: the given schema, or each topic's registered schemas.

Values of a registered Avro schema are read by the version that their record names, into the columns
of the latest version at the query's begin. Knows a log reader and no Spark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from braidlog.storage.export.places import open_log
from braidlog.storage.export.registered import AVRO, JSON, RegisteredSchema
from braidlog.storage.export.source.offsets import select
from braidlog.storage.export.source.options import BadOption, Selection, ValueFormat
from braidlog.storage.export.source.value_types import struct_type
from braidlog.storage.export.source.values import Undecodable, ValueDecoder, decoder_of

TYPES = {"avro": AVRO, "json": JSON}  # Pulsar's name of the schema type by value format.


@dataclass(frozen=True, slots=True)
class Values:
    """Conversion of the values of all topics of a query to a single column."""

    place: str
    type: pa.StructType
    value_decoder: ValueDecoder | None = None
    by_topic: Mapping[str, ValueDecoder] = field(default_factory=dict)

    def of(self, topic: str) -> "TopicValues":
        """Return the decoder for a topic's values. Raises BadOption for a topic created later."""
        decoder = self.value_decoder or self.by_topic.get(topic)
        if decoder is None:
            raise BadOption(
                f"{topic} came after the query began, whose schemas are registered ones"
            )
        return TopicValues(self.place, topic, decoder)


class TopicValues:
    """Decodes the values of a topic; reads the schemas again for an unknown schema version."""

    def __init__(self, place: str, topic: str, decoder: ValueDecoder) -> None:
        self._place = place
        self._topic = topic
        self._decoder = decoder

    def decode(self, rows: pa.RecordBatch) -> tuple[pa.Array, list[Undecodable]]:
        """Return the same as `ValueDecoder.decode`; with writers the rows need a column
        schemaVersion.
        """
        decoder = self._decoder
        if not decoder.writers:
            return decoder.decode(rows["value"])
        versions = rows["schemaVersion"]
        if not decoder.knows(versions):
            schemas = open_log(self._place).schemas([self._topic]).get(self._topic, ())
            writers = _definitions(schemas, TYPES[decoder.name])
            decoder = self._decoder = replace(decoder, writers=writers)
        return decoder.decode(rows["value"], versions)


def values_of(place: str, selection: Selection, format_: ValueFormat) -> Values:
    """Return the decoders for the options. Raises BadOption, OSError."""
    if format_.schema.strip():
        value_decoder = decoder_of(format_)
        return Values(place, value_decoder.type, value_decoder)
    log = open_log(place)
    topics = sorted({state.topic for state in select(log, selection)})
    schemas = log.schemas(topics)
    decoders = {topic: _registered(topic, schemas.get(topic, ()), format_) for topic in topics}
    if not decoders:
        raise BadOption("no topic is there whose registered schema could be taken")
    first = next(iter(decoders))
    for topic, decoder in decoders.items():
        if decoder.type != decoders[first].type:
            raise BadOption(f"{first} and {topic} have schemas of different columns")
    return Values(place, decoders[first].type, None, decoders)


def _registered(
    topic: str, schemas: Sequence[RegisteredSchema], format_: ValueFormat
) -> ValueDecoder:
    if not schemas:
        raise BadOption(f"{topic} has no registered schema: valueSchema is wanted")
    wanted, latest = TYPES[format_.name], schemas[-1]
    if latest.type != wanted:
        text = f"{topic} has a registered schema of type {latest.type}, not {wanted}"
        raise BadOption(f"{text}: valueSchema is wanted, or another valueFormat")
    type_ = struct_type(latest.definition, avro=True)
    writers = _definitions(schemas, wanted) if wanted == AVRO else ()
    return ValueDecoder(format_.name, type_, latest.definition, writers)


def _definitions(schemas: Sequence[RegisteredSchema], wanted: str) -> tuple[str, ...]:
    """Return definitions by version; empty for a schema of another type."""
    return tuple(schema.definition if schema.type == wanted else "" for schema in schemas)

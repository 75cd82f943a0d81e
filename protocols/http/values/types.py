"""The schema types of PIP-64 and Pulsar by name and number. Knows no bytes of values."""

from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import Schema

NONE = "NONE"
BYTES = "BYTES"
JSON = "JSON"
AVRO = "AVRO"
KEY_VALUE = "KEY_VALUE"
STRING = "STRING"

# Pulsar's HTTP side and SchemaInfo use upper-case names; its protobuf has other names.
NUMBERS: dict[str, int] = {
    NONE: Schema.Type.Value("None"),
    BYTES: Schema.Type.Value("None"),
    STRING: Schema.Type.Value("String"),
    JSON: Schema.Type.Value("Json"),
    "PROTOBUF": Schema.Type.Value("Protobuf"),
    AVRO: Schema.Type.Value("Avro"),
    "BOOLEAN": Schema.Type.Value("Bool"),
    "INT8": Schema.Type.Value("Int8"),
    "INT16": Schema.Type.Value("Int16"),
    "INT32": Schema.Type.Value("Int32"),
    "INT64": Schema.Type.Value("Int64"),
    "FLOAT": Schema.Type.Value("Float"),
    "DOUBLE": Schema.Type.Value("Double"),
    "DATE": Schema.Type.Value("Date"),
    "TIME": Schema.Type.Value("Time"),
    "TIMESTAMP": Schema.Type.Value("Timestamp"),
    KEY_VALUE: Schema.Type.Value("KeyValue"),
    "INSTANT": Schema.Type.Value("Instant"),
    "LOCAL_DATE": Schema.Type.Value("LocalDate"),
    "LOCAL_TIME": Schema.Type.Value("LocalTime"),
    "LOCAL_DATE_TIME": Schema.Type.Value("LocalDateTime"),
    "PROTOBUF_NATIVE": Schema.Type.Value("ProtobufNative"),
}
NAMES: dict[int, str] = {number: name for name, number in NUMBERS.items()} | {0: BYTES}

# Types without information about the data, and types with a definition.
WITHOUT_SCHEMA = frozenset((NONE, BYTES))
WITH_DEFINITION = frozenset((JSON, AVRO, "PROTOBUF", "PROTOBUF_NATIVE"))
PRIMITIVE = frozenset(NUMBERS) - WITHOUT_SCHEMA - WITH_DEFINITION - {KEY_VALUE}


def name_of(number: int) -> str:
    """Return the upper-case name of a type's number; an unknown number as text."""
    return NAMES.get(number, str(number))

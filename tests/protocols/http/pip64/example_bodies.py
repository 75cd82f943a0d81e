"""Bodies of the examples, for the tests with and without a socket."""

AVRO_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
FIRST_TWO = {
    "schema_type": "AVRO",
    "value_schema": {"type": "AVRO", "schema": AVRO_ORDER},
    "messages": [
        {
            "key": "c1",
            "value": {"id": 7, "note": {"string": "first"}},
            "properties": {"src": "web"},
            "eventTime": 1764000000000,
            "partition": 1,
        },
        {"value": {"id": 8, "note": None}, "partition": 1},
    ],
}

"""The rules of docs/mapping.md in words: a writer's source and a reader's view of each field.

`views.py` has the same rules as functions. Tests compare the two, and compare the broker with them.
The page is made from this table: `python -m conformance.mapping --write`.
"""

from dataclasses import dataclass

KEY, VALUE, HEADERS, KINDS = "key", "value", "headers", "kinds of headers"
PUBLISH, APPEND, EVENT, DELIVERY = "publish time", "append time", "event time", "delivery time"
ORDERING_KEY, PRODUCER, SEQUENCE = "ordering key", "producer name", "sequence id"
MESSAGE_ID, SCHEMA = "message id", "schema version"
FIELDS = (KEY, VALUE, HEADERS, KINDS, PUBLISH, APPEND, EVENT, DELIVERY, ORDERING_KEY, PRODUCER)
FIELDS += (SEQUENCE, MESSAGE_ID, SCHEMA)

TITLES = {
    "kafka-0": "Kafka, format 0",
    "kafka-1": "Kafka, format 1",
    "kafka-2": "Kafka, record batches",
    "pulsar": "Pulsar",
    "iggy": "Iggy, classic dialects",
    "iggy-typed": "Iggy, later dialects",
    "rest": "HTTP",
}
ABOUT = {
    "kafka-0": "0.8 and 0.9 clients, and Fetch below version 4",
    "kafka-1": "0.10 clients; they read format 0 here",
    "kafka-2": "clients since 0.11, and Fetch from version 4 on; share groups",
    "pulsar": "all clients",
    "iggy": "crates 0.0.60 to 0.6",
    "iggy-typed": "crates 0.7 to 0.12",
    "rest": "PIP-64",
}

CLOCK = "the broker's clock"
WRITES: dict[str, dict[str, str]] = {
    "kafka-0": {KEY: "key", VALUE: "value", APPEND: CLOCK},
    "kafka-1": {KEY: "key", VALUE: "value", PUBLISH: "timestamp; -1 is none", APPEND: CLOCK},
    "kafka-2": {
        KEY: "key",
        VALUE: "value",
        HEADERS: "headers; a null value is empty to others",
        PUBLISH: "timestamp; -1 is none",
        APPEND: CLOCK,
    },
    "pulsar": {
        KEY: "`partition_key`, Base64 decoded; absent if missing or with `null_partition_key`",
        VALUE: "payload; absent with `null_value`",
        HEADERS: "properties",
        PUBLISH: "`publish_time`",
        APPEND: CLOCK,
        EVENT: "`event_time`; 0 is none",
        DELIVERY: "`deliver_at_time` of the entry; 0 and below is none",
        ORDERING_KEY: "`ordering_key`",
        PRODUCER: "`producer_name`",
        SEQUENCE: "`sequence_id` of the message, else of the batch",
        SCHEMA: "`schema_version`",
    },
    "iggy": {
        KEY: "the partitioning key of the SEND, for each message",
        VALUE: "payload, never empty",
        HEADERS: "user headers",
        KINDS: "kinds of the user headers",
        APPEND: CLOCK,
        MESSAGE_ID: "id; a random UUID for 0",
    },
    "iggy-typed": {
        KEY: "the partitioning key of the SEND, for each message",
        VALUE: "payload; empty from crate 0.11 only",
        HEADERS: "user headers; a name of another kind than text counts as bytes",
        KINDS: "kinds of the user headers' values",
        PUBLISH: "origin timestamp; 0 is none",
        APPEND: CLOCK,
        MESSAGE_ID: "id; for 0 a random UUID, from crate 0.11 on 0",
    },
    "rest": {
        KEY: "`key`",
        VALUE: "`value`; absent with null",
        HEADERS: "`properties`",
        PUBLISH: "arrival of the request, in whole milliseconds",
        APPEND: CLOCK,
        EVENT: "`eventTime`; 0 is none",
        DELIVERY: "`deliverAt`, or `deliverAfterMs` from now on; 0 is none",
        PRODUCER: "`producer_name` of the request, else `rest`",
        SEQUENCE: "`sequenceId`",
        SCHEMA: "the version of the request's schema",
    },
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A reader's place and form of a field; with `seen_as` empty, the field stays in the log."""

    seen_as: str
    how: str = "unchanged"


STAYS = Rule("", "no such field in the protocol")
MS = "in milliseconds, rounded down"
TEXT_VALUES = "numbers as decimals, booleans as `true` and `false`, other values unchanged"
KEY_HEADER_RULE = "the last header, `braidlog.key` of kind raw, if the key has 1 to 255 bytes"
IGGY_HEADER_RULE = (
    "headers with a text name of 1 to 255 bytes and a value of 1 to 255 bytes; in order, names may"
    " repeat"
)
IGGY_KIND_RULE = "unchanged; raw if the value of a text header is not UTF-8"
PUBLISH_ELSE = "the publish time, else the append time"

READS: dict[str, dict[str, Rule]] = {
    "kafka-0": {KEY: Rule("key"), VALUE: Rule("value")},
    "kafka-2": {
        KEY: Rule("key"),
        VALUE: Rule("value"),
        HEADERS: Rule("headers", f"in order, names may repeat; {TEXT_VALUES}"),
        KINDS: Rule("headers", "only in the form of a value"),
        PUBLISH: Rule("timestamp", f"{PUBLISH_ELSE}, {MS}"),
        APPEND: Rule("timestamp", "where there is no publish time"),
    },
    "pulsar": {
        KEY: Rule(
            "partition_key",
            "text, else Base64 with `partition_key_b64_encoded`; `null_partition_key` where absent",
        ),
        VALUE: Rule("payload", "an absent value is empty with `null_value`"),
        HEADERS: Rule(
            "properties",
            f"in order, names may repeat; {TEXT_VALUES}. Name and value in Base64 if either is"
            " not UTF-8: the last property, `braidlog.base64`, lists the places",
        ),
        KINDS: Rule("properties", "only in the form of a value"),
        PUBLISH: Rule("publish_time", f"{PUBLISH_ELSE}, {MS}; 0 before 1970"),
        APPEND: Rule("publish_time", "where there is no publish time"),
        EVENT: Rule("event_time", f"{MS}; none below 1 ms"),
        DELIVERY: Rule("deliver_at_time", f"{MS}; none below 1 ms"),
        ORDERING_KEY: Rule("ordering_key"),
        PRODUCER: Rule("producer_name", "`braidlog` if missing or not UTF-8"),
        SEQUENCE: Rule("sequence_id", "the offset where there is none"),
        SCHEMA: Rule("schema_version"),
    },
    "iggy": {
        KEY: Rule("headers", KEY_HEADER_RULE),
        VALUE: Rule("payload", "a record with an absent or empty value is **left out**"),
        HEADERS: Rule("headers", IGGY_HEADER_RULE),
        KINDS: Rule("headers", IGGY_KIND_RULE),
        APPEND: Rule("timestamp", "in microseconds"),
        MESSAGE_ID: Rule("id", "0 where there is none"),
    },
    "iggy-typed": {
        KEY: Rule("headers", KEY_HEADER_RULE),
        VALUE: Rule("payload", "a record with an absent value is **left out**"),
        HEADERS: Rule("headers", IGGY_HEADER_RULE),
        KINDS: Rule("headers", IGGY_KIND_RULE),
        PUBLISH: Rule("origin_timestamp", f"{PUBLISH_ELSE}, in microseconds; 0 before 1970"),
        APPEND: Rule("timestamp", "in microseconds"),
        MESSAGE_ID: Rule("id", "0 where there is none"),
    },
    "rest": {
        KEY: Rule("key", "text, else Base64 with `key_encoding`; left out where absent"),
        VALUE: Rule("value", "text, else Base64 with `encoding`; null where absent"),
        HEADERS: Rule(
            "properties",
            f"a map of texts; {TEXT_VALUES}. If a name repeats or some text is not UTF-8, all"
            " headers are also in `headers`, in order",
        ),
        KINDS: Rule("properties", "only in how a value reads"),
        PUBLISH: Rule("publishTime", f"{PUBLISH_ELSE}, {MS}"),
        APPEND: Rule("publishTime", "where there is no publish time"),
        EVENT: Rule("eventTime", MS),
        DELIVERY: Rule("deliverAt", MS),
        ORDERING_KEY: Rule("orderingKey", "left out if not UTF-8"),
        PRODUCER: Rule("producerName", "left out if not UTF-8"),
        SEQUENCE: Rule("sequenceId"),
        SCHEMA: Rule("schema_version", "with the value read by that schema"),
    },
}

AS_SENT = "as sent"
UNSHOWN_KEY = Rule("", "Iggy clients never see the partitioning key of Iggy writers")
# Readers of the writer's own protocol receive the sent bytes: these are the differences from above.
WITHIN: dict[tuple[str, str], dict[str, Rule]] = {
    ("kafka-1", "kafka-2"): {
        PUBLISH: Rule("timestamp", AS_SENT),
        APPEND: Rule("", "a time that the client did not give stays -1"),
    },
    ("kafka-2", "kafka-2"): {
        HEADERS: Rule("headers", "as sent, null values too"),
        PUBLISH: Rule("timestamp", AS_SENT),
        APPEND: Rule("", "a time that the client did not give stays -1"),
    },
    ("iggy", "iggy"): {
        KEY: UNSHOWN_KEY,
        HEADERS: Rule("headers", AS_SENT),
        KINDS: Rule("headers", AS_SENT),
    },
    ("iggy", "iggy-typed"): {KEY: UNSHOWN_KEY},
    ("iggy-typed", "iggy"): {KEY: UNSHOWN_KEY},
    ("iggy-typed", "iggy-typed"): {
        KEY: UNSHOWN_KEY,
        HEADERS: Rule("headers", AS_SENT),
        KINDS: Rule("headers", AS_SENT),
        PUBLISH: Rule("origin_timestamp", AS_SENT),
    },
}
# Handed over byte for byte: no field is read.
UNTOUCHED = (("pulsar", "pulsar"),)

# Fields that a reader's protocol requires and a writer may lack: also shown in the pair's table.
MADE_UP = {
    "pulsar": {PUBLISH: "the append time", PRODUCER: "`braidlog`", SEQUENCE: "the offset"},
    "kafka-2": {PUBLISH: "the append time"},
    "iggy": {MESSAGE_ID: "0"},
    "iggy-typed": {PUBLISH: "the append time", MESSAGE_ID: "0"},
    "rest": {PUBLISH: "the append time"},
}


def rule_of(writer: str, reader: str, field: str) -> Rule:
    """Return the rule for a field of the writer."""
    own = WITHIN.get((writer, reader), {})
    return own.get(field) or READS[reader].get(field, STAYS)

"""Records with random fields and mostly awkward values, from a seed."""

from msgspec.structs import replace

from braidlog.storage.formats.record import Header, HeaderKind, Record
from conformance.mapping.views import IGGY_TEXT_MAX, KEY_HEADER

NOW_US = 1_700_000_000_123_456
LATEST_US = (2**63 - 1) // 1000 * 1000
# 0, values around 0, before 1970, the log's last time, and a time that Kafka treats as none.
TIMES = (None, 0, 1, 999, 1000, 1999, -1, -1000, -1001, -(10**12), NOW_US, LATEST_US)
LONG = b"n" * IGGY_TEXT_MAX
TEXTS = (b"", b"a", b"\x00", "äöü €".encode(), b"\xff\xfe", b"\xc3", LONG, LONG + b"n")
NAMES = (b"a", b"a", b"b", *TEXTS, KEY_HEADER, b"braidlog.base64")
VALUES = (None, b"", b"v", b"\x00", b"\xff" * 7, b"x" * 5000)
KINDS = [int(kind) for kind in HeaderKind]
SIZES = (1, 2, 4, 8, 16)


def records(rng, count):
    """Return `count` records; their offsets are set later."""
    return [record(rng) for _ in range(count)]


def record(rng):
    """Return a record with random fields."""
    return Record(
        0,
        0,
        publish_us=rng.choice(TIMES),
        event_us=rng.choice(TIMES),
        deliver_at_us=rng.choice(TIMES),
        key=rng.choice((None, *TEXTS)),
        value=rng.choice(VALUES),
        headers=[header(rng) for _ in range(rng.choice((0, 0, 1, 2, 5)))],
        ordering_key=rng.choice((None, *TEXTS)),
        producer_name=rng.choice((b"p", *TEXTS)),
        sequence_id=rng.choice((None, 0, 1, 2**32, 2**64 - 1)),
        message_id=rng.choice((0, 1, 2**127 + 1, 2**128 - 1)),
        schema_version=rng.choice((None, b"", b"\x01", bytes(8), b"s" * 9)),
    )


def header(rng):
    """Return a header of any kind: its value often has the size of a number."""
    numbers = rng.randbytes(rng.choice(SIZES))
    value = rng.choice((*TEXTS, numbers, numbers, b"\x01"))
    return Header(rng.choice(NAMES), value, rng.choice(KINDS))


# Fields that a writer's clients would not, or could not, send.


def for_iggy(records, *, empty_payloads=False):
    """Return records that Iggy accepts.

    Iggy refuses empty payloads (except in its newest form), non-text names, and empty or long names
    and values; a SEND has a single key, of 1 to 255 bytes, or none.
    """
    key = records[0].key
    key = key if key and len(key) <= IGGY_TEXT_MAX else None
    return [
        replace(
            record,
            key=key,
            value=record.value or (b"" if empty_payloads else b"-"),
            headers=[h for h in record.headers if fits_iggy(h)],
        )
        for record in records
    ]


def fits_iggy(header):
    name, value = header.name, header.value
    is_text = name.decode(errors="replace").encode() == name
    return is_text and 1 <= len(name) <= IGGY_TEXT_MAX and 1 <= len(value) <= IGGY_TEXT_MAX


def for_batch_form(records):
    """Return records for Iggy's newest form: times are 32-bit deltas of a common base."""
    times = [NOW_US, NOW_US + 1, NOW_US + 2**32 - 1]
    return [replace(record, publish_us=times[i % 3]) for i, record in enumerate(records)]


def for_pulsar(records):
    """Return records for Pulsar: a client always sends a publish time."""
    return [replace(record, publish_us=record.publish_us or 0) for record in records]


def for_pulsar_batch(records):
    """Return a batch: producer, publish time, schema and delivery time are the first message's."""
    first = records[0]
    return [
        replace(
            record,
            producer_name=first.producer_name,
            publish_us=first.publish_us,
            schema_version=first.schema_version,
            deliver_at_us=first.deliver_at_us,
        )
        for record in records
    ]


def for_rest(records):
    """Return records for JSON: properties are a map of texts, times are not below 0, a request has
    a single producer name.
    """
    return [
        replace(
            record,
            headers=[Header(n, v) for n, v in text_map(record.headers).items()],
            event_us=None if record.event_us is None else max(record.event_us, 0),
            deliver_at_us=None if record.deliver_at_us is None else max(record.deliver_at_us, 0),
            producer_name=b"",
        )
        for record in records
    ]


def text_map(headers):
    is_text = lambda value: value.decode(errors="replace").encode() == value  # noqa: E731
    return {h.name: h.value for h in headers if is_text(h.name) and is_text(h.value)}

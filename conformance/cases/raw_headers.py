"""Pulsar properties reach Iggy as headers, Iggy's typed headers reach Pulsar as properties."""

from conformance.clients.raw.iggy import RAW_KIND, STRING_KIND, UINT32_KIND, IggyWire
from conformance.clients.raw.pulsar import Fields, PulsarWire, encode, field_of, parse
from conformance.runner import RAW, Context

CLIENTS = [RAW]
HEADERS = [
    (b"text", STRING_KIND, b"order"),
    (b"number", UINT32_KIND, b"\x07\x00\x00\x00"),
    (b"plain", RAW_KIND, b"abc"),
]


def run(context: Context) -> None:
    topic = context.topic()
    with PulsarWire(context.address("pulsar")) as pulsar, IggyWire(context.address("iggy")) as iggy:
        pulsar.open_producer(topic)
        ledger, entry = pulsar.publish(0, _publish([(b"b", b"2"), (b"a", b"1")]), b"from pulsar")
        assert ledger > 0 and entry == 0
        iggy.send_messages(topic, [(77, HEADERS, b"from iggy")])
        first, second = iggy.poll(topic, 10)
        assert first.payload == b"from pulsar"
        assert sorted(first.headers) == [(b"a", STRING_KIND, b"1"), (b"b", STRING_KIND, b"2")]
        assert (second.message_id, sorted(second.headers)) == (77, sorted(HEADERS))
        pulsar.subscribe(topic, "raw")
        own, foreign = pulsar.next_message(), pulsar.next_message()
    assert own.payload == b"from pulsar"
    assert foreign.payload == b"from iggy"
    assert [name for name, _ in _properties(foreign.metadata)] == [b"text", b"number", b"plain"]
    assert _properties(foreign.metadata)[0] == (b"text", b"order")


def _publish(properties: list[tuple[bytes, bytes]]) -> Fields:
    fields: Fields = [(3, 1_700_000_000_123)]
    return fields + [(4, encode([(1, name), (2, value)])) for name, value in properties]


def _properties(metadata: Fields) -> list[tuple[bytes, bytes]]:
    properties = []
    for number, value in metadata:
        if number == 4:
            assert isinstance(value, bytes)
            pair = parse(value)
            properties.append((field_of(pair, 1), field_of(pair, 2)))
    return properties

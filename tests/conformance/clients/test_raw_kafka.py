"""The hand-made parser of Kafka's bytes, which judges the crash runs."""

from conformance.clients.raw.kafka import message, parse_set


def test_a_set_cut_anywhere_yields_its_whole_messages():
    whole = message(b"key", b"value") + message(None, b"")
    first = len(message(b"key", b"value"))
    for stop in range(len(whole)):
        messages = parse_set(whole[:stop])
        assert messages == ([(0, b"key", b"value")] if stop >= first else [])
    assert parse_set(whole) == [(0, b"key", b"value"), (0, None, b"")]

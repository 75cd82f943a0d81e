"""Sets with a record without a key, in every format and compression."""

import pytest

from braidlog.broker.runtime.steps import run
from braidlog.protocols.kafka.keys import INLINE_BYTES, NO_KEY, has_keyless, keyless, refuse_keyless
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES
from braidlog.storage.formats.kafka.set_prepare import packed
from braidlog.storage.formats.record import Record
from tests.storage.formats.kafka.test_record_batches import PACK, batch, timed

KEYED = [Record(n, 1, key=b"" if n else b"k", value=None) for n in range(3)]
KEYLESS = [*KEYED, Record(3, 1, key=None, value=b"v")]


def sets(records):
    plain = KAFKA.encode(records, 0)
    yield 0, plain
    for codec in (1, 2, 3):
        yield 0, packed(plain, codec, records[-1].offset)
    batches = KAFKA_BATCHES.encode(records, 0)
    yield 2, batches
    for codec, pack in PACK.items():
        yield 2, batch(pack(batches[61:]), len(records), attributes=codec)


@pytest.mark.parametrize(("records", "expected"), [(KEYED, False), (KEYLESS, True)])
def test_a_record_without_a_key_is_found(records, expected):
    for magic, message_set in sets(records):
        assert has_keyless(memoryview(message_set), magic) is expected


@pytest.mark.parametrize("value", [b"v", b"v" * INLINE_BYTES])
@pytest.mark.parametrize(("version", "code"), [(2, 2), (8, 87)])
async def test_a_compacted_topic_takes_no_record_without_a_key(version, code, value):
    keyed = memoryview(KAFKA.encode([Record(0, 1, key=b"k", value=value)], 0))
    unkeyed = memoryview(KAFKA.encode([Record(0, 1, key=None, value=value)], 0))
    assert await run(refuse_keyless(keyed, 0, version, "foo-0")) is None
    refused = await run(refuse_keyless(unkeyed, 0, version, "foo-0"))
    assert (refused.error_code, refused.base_offset) == (code, -1)
    (record,) = refused.record_errors
    assert record.batch_index == 0
    assert record.batch_index_error_message == f"{NO_KEY} foo-0".encode()


def test_the_places_of_records_without_a_key():
    records = [*KEYLESS, Record(4, 1, key=b"k"), Record(5, 1, key=None)]
    for magic, message_set in sets(records):
        assert keyless(memoryview(message_set), magic) == [3, 5]
        assert keyless(memoryview(message_set[:-1]), magic) in ([], [3])


def test_unreadable_sets_are_left_to_the_check_of_the_set():
    for magic in (0, 1, 2):
        assert not has_keyless(memoryview(b"\x00" * 70), magic)


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize(("key", "expected"), [(b"k", False), (b"", False), (None, True)])
def test_sets_of_format_1_too(codec, key, expected):
    inner = timed(b"a", 1000, key=b"k") + timed(b"b", 1000, key=key)
    sent = timed(PACK[codec](inner), 1000, codec=codec) if codec else inner
    assert has_keyless(memoryview(sent), 1) is expected


def test_a_packed_set_in_a_packed_set_is_left_to_the_check_of_the_set():
    keyless = KAFKA.encode(KEYLESS, 0)
    once = packed(keyless, 1, 3)
    assert has_keyless(memoryview(once), 0)
    assert not has_keyless(memoryview(packed(once, 1, 3)), 0)


def test_a_partial_message_in_a_packed_set_does_not_end_the_search():
    cut = packed(KAFKA.encode(KEYED, 0)[:-1], 1, 2)
    keyless = KAFKA.encode(KEYLESS[3:], 0)
    for after in (keyless, packed(keyless, 1, 3)):
        assert has_keyless(memoryview(cut + after), 0)
    assert not has_keyless(memoryview(cut + cut), 0)

"""The C extension's conversion for readers of another protocol equals the codecs' conversion."""

import random

import pytest

from braidlog.storage.errors import BodyError
from braidlog.storage.formats.base import Stored, WantedRecords
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.pulsar import foreign_entries as pulsar_run
from braidlog.storage.formats.pulsar.entry_runs import PULSAR
from braidlog.storage.formats.pulsar.foreign_entries import records_to_entries, set_to_entries
from braidlog.storage.formats.quick import SPEEDUPS
from braidlog.storage.formats.record import Record
from tests.storage.formats.entries_of import body, entry, metadata, single
from tests.storage.formats.speedup_samples import kafka_set, mutated

pytestmark = pytest.mark.skipif(SPEEDUPS is None, reason="the extension is not built, or left out")

ROUNDS = 300
APPEND_US = 1_700_000_000_123_456
BASE = 70  # Offset of the first record of a stored body of Pulsar's.


# Kafka's sets read by Pulsar.


@pytest.mark.parametrize("seed", range(4))
def test_entries_of_sets_sound_and_mutated(seed):
    chance = random.Random(seed)
    entry_count = 0
    for _ in range(ROUNDS):
        data, start = mutated(chance, kafka_set(chance)), chance.choice([0, 0, 1, 5, 20])
        count_max = chance.choice([1, 3, 100])
        entries = set_to_entries(data, start, APPEND_US, count_max)
        assert len(entries) <= count_max
        records = KAFKA.decode(data, 0, APPEND_US, start_offset=start).records[: len(entries)]
        assert [record.offset for record in records] == list(range(start, start + len(entries)))
        assert entries == records_to_entries(records), (seed, data)
        entry_count += len(entries)
    assert entry_count > ROUNDS // 5


@pytest.mark.parametrize("first", [0, 100, 127, (1 << 14) - 3, (1 << 35) - 3, (1 << 62) - 3])
@pytest.mark.parametrize("key", [None, b"", b"key", b"k" * 127])
def test_a_whole_valid_set_becomes_entries(first, key):
    records = [
        Record(offset, APPEND_US, key=key, value=b"v" * (offset - first))
        for offset in range(first, first + 300)
    ]
    converted = set_to_entries(KAFKA.encode(records, first), first, APPEND_US, 1000)
    assert converted == records_to_entries(records)


def test_times_before_1970_equal_the_codecs():
    records = [Record(0, -5000, value=b"v")]
    assert set_to_entries(KAFKA.encode(records, 0), 0, -5000, 1) == records_to_entries(records)


@pytest.mark.parametrize(
    "odd",
    [
        Record(1, APPEND_US),
        Record(1, APPEND_US, key=b"k" * 128, value=b"v"),
        Record(1, APPEND_US, key="ключ".encode(), value=b"v"),
        Record(2, APPEND_US, value=b"v"),
    ],
    ids=["null", "long key", "not ASCII", "offset that is missing"],
)
def test_entries_end_before_messages_for_python(odd):
    stored = KAFKA.encode([Record(0, APPEND_US, value=b"v"), odd], 0)
    assert len(set_to_entries(stored, 0, APPEND_US, 9)) == 1
    assert set_to_entries(stored, 1, APPEND_US, 9) == []


def test_without_the_extension_there_are_no_entries(monkeypatch):
    monkeypatch.setattr(pulsar_run, "SPEEDUPS", None)
    assert set_to_entries(KAFKA.encode([Record(0, 1, value=b"v")], 0), 0, 1, 9) == []


# Pulsar's entries read by Kafka.


def some_entry(chance):
    """Return an entry as clients send entries, and its number of records."""
    keys = [{}, {"partition_key": ""}, {"partition_key": "key"}, {"null_partition_key": True}]
    nulls = [{}, {}, {}, {"null_value": True}]
    if chance.random() < 0.3:
        about = chance.choice(keys) | chance.choice(nulls)
        if chance.random() < 0.05:
            about = {"partition_key": "a2V5", "partition_key_b64_encoded": True}
        return entry(metadata(**about), chance.randbytes(chance.randrange(150))), 1
    count = chance.randrange(1, 20)
    singles = [
        single(
            chance.randbytes(chance.randrange(150)),
            sequence_id=number,
            compacted_out=chance.random() < 0.05,
            **chance.choice(keys),
            **chance.choice(nulls),
        )
        for number in range(count)
    ]
    payload = b"".join(singles)
    if chance.random() < 0.2:
        payload = mutated(chance, payload)
    return entry(metadata(num_messages_in_batch=count), payload), count


def converted(stored, wanted):
    return KAFKA.converted(Stored(stored, PULSAR.format, BASE, APPEND_US, 100), wanted)


@pytest.mark.parametrize("seed", range(6))
def test_sets_of_entries_sound_and_mutated(seed):
    chance = random.Random(seed)
    message_count = 0
    for _ in range(ROUNDS):
        entries = [some_entry(chance) for _ in range(chance.randrange(1, 6))]
        if chance.random() < 0.3:
            entries[0] = mutated(chance, entries[0][0]), entries[0][1]
        stored = body(*entries)
        try:  # Bodies with flags, and bodies without valid metadata, are not converted.
            if PULSAR.inspect(stored).flags:
                continue
        except BodyError:
            continue
        start = BASE + chance.choice([0, 0, 1, 7, 30, 200])
        wanted = WantedRecords(start, chance.choice([1, 7, 100]), chance.choice([60, 500, 9000]))
        part = converted(stored, wanted)
        assert len(part.records) <= wanted.bytes_max and part.count <= wanted.records_max
        message_count += part.count
        if not part.count:
            continue
        limits = {"start_offset": start, "records_max": part.count}
        records = PULSAR.decode(stored, BASE, APPEND_US, **limits).records
        assert bytes(part.records) == KAFKA.encode(records, BASE), (seed, stored)
        assert part.first_offset == records[0].offset
        assert records[-1].offset < part.next_offset
        following = PULSAR.decode(stored, BASE, APPEND_US, start_offset=part.next_offset).records
        whole = PULSAR.decode(stored, BASE, APPEND_US, start_offset=start)
        assert whole.failed or whole.records == records + following, (seed, stored)
    assert message_count > ROUNDS


def test_a_whole_valid_body_becomes_a_set():
    batch = b"".join(single(b"v" * at, partition_key="k") for at in range(50))
    batched = entry(metadata(num_messages_in_batch=50), batch)
    stored = body((batched, 50), (entry(metadata(null_value=True), b""), 1), (batched, 50))
    part = converted(stored, WantedRecords(0, 1000, 1 << 20))
    assert (part.count, part.first_offset, part.next_offset) == (101, BASE, BASE + 101)
    assert not part.is_full
    assert part.records == KAFKA.encode(PULSAR.decode(stored, BASE, 1).records, BASE)


def test_a_set_reports_a_lack_of_room():
    stored = body((entry(metadata(num_messages_in_batch=3), single(b"v" * 74) * 3), 3))
    for room, count in ((0, 0), (99, 0), (100, 1), (299, 2), (300, 3)):
        part = converted(stored, WantedRecords(0, 100, room))
        assert (part.count, part.next_offset) == (count, BASE + count)
        assert part.is_full == (count < 3)
    part = converted(stored, WantedRecords(BASE + 1, 1, 9000))
    assert (part.count, part.first_offset, part.next_offset) == (1, BASE + 1, BASE + 2)
    assert part.is_full


@pytest.mark.parametrize(
    "odd",
    [
        (entry(metadata(), b"v", checksum=False), 1),
        (entry(metadata(partition_key="a2V5", partition_key_b64_encoded=True), b"v"), 1),
        (entry(metadata(num_messages_in_batch=2), single(b"v") * 3), 2),
        (entry(metadata(num_messages_in_batch=2), single(b"v") * 3)[:-1], 2),
        (entry(metadata(num_messages_in_batch=3), single(b"v") * 2), 3),
        (entry(metadata(num_messages_in_batch=2), single(b"v") * 2), 3),
        (entry(metadata(), b"v"), 2),
    ],
)
def test_a_set_ends_before_an_entry_for_python(odd):
    plain = (entry(metadata(num_messages_in_batch=2), single(b"v") * 2), 2)
    part = converted(body(plain, odd, plain), WantedRecords(0, 100, 9000))
    assert (part.count, part.next_offset, part.is_full) == (2, BASE + 2, False)
    assert converted(body(odd), WantedRecords(0, 100, 9000)).count == 0


def test_no_other_format_becomes_a_set(monkeypatch):
    stored = body((entry(metadata(), b"v"), 1))
    assert KAFKA.converted(Stored(stored, 1, BASE, 1, 1), WantedRecords(0, 1, 99)) is None
    monkeypatch.setattr("braidlog.storage.formats.kafka.message_sets.SPEEDUPS", None)
    assert converted(stored, WantedRecords(0, 1, 99)) is None

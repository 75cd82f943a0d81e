"""The C extension equals the Python code, for any bytes."""

import random
import struct
import zlib

import pytest

from braidlog.broker.errors import CorruptBatch
from braidlog.broker.reading import entries
from braidlog.protocols.pulsar.machine import FRAME_BYTES_MAX, PulsarMachine
from braidlog.protocols.pulsar.messages import NO_SEQUENCE, ReceiptWriter
from braidlog.storage.errors import StorageError
from braidlog.storage.formats import batch, quick
from braidlog.storage.formats.api import BodyInfo
from braidlog.storage.formats.base import Stored, WantedRecords
from braidlog.storage.formats.iggy.classic import IGGY, RECORD_HEAD
from braidlog.storage.formats.kafka import record_batches
from braidlog.storage.formats.kafka import set_layout as kafka_layout
from braidlog.storage.formats.kafka import set_prepare as kafka_prepare
from braidlog.storage.formats.kafka.message_sets import KAFKA
from braidlog.storage.formats.kafka.set_layout import NO_LIMIT
from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX, parse_send
from braidlog.storage.formats.pulsar.pb.PulsarApi_pb2 import MessageMetadata
from braidlog.storage.formats.pulsar.prepare import JOINED_ENTRY_BYTES
from braidlog.storage.formats.record import Record
from tests.storage.formats.speedup_samples import (
    kafka_batch,
    kafka_set,
    mutated,
    pulsar_send,
    pulsar_sends,
    resealed,
)

C = quick.SPEEDUPS
pytestmark = pytest.mark.skipif(C is None, reason="the extension is not built, or left out")

LIMITS = (FRAME_BYTES_MAX - 4, JOINED_ENTRY_BYTES)
ROUNDS = 300


@pytest.fixture
def in_python(monkeypatch):
    """Return a function that runs a function of a module without the extension."""

    def run(module, function, *arguments, **options):
        with monkeypatch.context() as patched:
            patched.setattr(module, "SPEEDUPS", None)
            try:
                return function(*arguments, **options)
            except StorageError as error:
                return type(error), str(error)

    return run


def test_checksums_of_every_length_around_the_wide_steps():
    chance = random.Random(4)
    data = chance.randbytes(5000)
    for size in (*range(1, 300), 4095, 4096, 4999):
        value = data[-size:]
        stored = KAFKA.encode([Record(0, 1, value=value)], 0)
        part = IGGY.converted(Stored(stored, KAFKA.format, 0, 1, 1), WantedRecords(0, 1, 10_000))
        assert RECORD_HEAD.unpack_from(part.records)[-1] == zlib.crc32(value)
        send = pulsar_send(chance, producer_id=7, sequence_id=1, payload=value)
        assert C.send_producer(send, 1 << 20, 1 << 20) == 7


@pytest.mark.parametrize("seed", range(4))
def test_kafka_sets_sound_and_mutated(seed, in_python):
    chance = random.Random(seed)
    refused = 0
    for _ in range(ROUNDS):
        data = mutated(chance, kafka_set(chance))
        limit = chance.choice([NO_LIMIT, NO_LIMIT, 60])
        ours, theirs = bytearray(data), bytearray(data)
        checked = C.kafka_check_and_stamp(ours, 1000, limit)
        wanted = in_python(
            kafka_prepare, kafka_prepare.check_and_stamp, memoryview(theirs), 1000, limit
        )
        if checked is None:
            refused += 1
            assert issubclass(wanted[0], StorageError), (seed, data)
        else:
            assert (checked, ours) == (wanted, theirs), (seed, data)
    assert 0 < refused < ROUNDS


def test_checked_messages_are_stamped_again(in_python):
    data = bytearray(kafka_set(random.Random(1)))
    count, end, _ = C.kafka_check_and_stamp(data, 0, NO_LIMIT)
    ours, theirs = bytearray(data[:end]), bytearray(data[:end])
    messages = kafka_prepare.Messages(memoryview(ours), count, 0)
    kafka_prepare.stamp(messages, 77)
    in_python(kafka_prepare, kafka_prepare._stamp, memoryview(theirs), 77)
    assert ours == theirs
    with pytest.raises((TypeError, BufferError)):
        C.kafka_check_and_stamp(bytes(data), 5, NO_LIMIT)


@pytest.mark.parametrize("seed", range(4))
def test_places_in_sets_sound_and_mutated(seed, in_python):
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        records = [
            Record(offset, 1, value=chance.randbytes(chance.randrange(9)))
            for offset in sorted(chance.sample(range(40), 12))
        ]
        data = KAFKA.encode(records, 0)
        if chance.random() < 0.5:
            data = data[: chance.randrange(len(data))]
        for offset in range(-1, 42):
            ours = kafka_layout.skip_below(data, offset)
            assert ours == in_python(kafka_layout, kafka_layout.skip_below, data, offset), seed
        for pos in range(len(data)):
            ours = kafka_layout.entry_before(data, pos)
            assert ours == in_python(kafka_layout, kafka_layout.entry_before, data, pos), seed


def keyed_entry(chance):
    """Return a stored entry with or without keys of all kinds."""
    metadata = MessageMetadata(producer_name="p", sequence_id=chance.randrange(99), publish_time=1)
    if chance.random() < 0.7:
        metadata.partition_key = chance.choice(["", "key", "a2V5", "ключ"])
        metadata.partition_key_b64_encoded = chance.random() < 0.3
    if chance.random() < 0.4:
        metadata.ordering_key = chance.randbytes(chance.choice([0, 1, 9]))
    if chance.random() < 0.3:
        metadata.num_messages_in_batch = chance.randrange(1000)
        metadata.properties.add(key="k", value="v")
    packed = metadata.SerializeToString()
    rest = struct.pack(">I", len(packed)) + packed + b"payload"
    return chance.choice([b"\x0e\x01abcd", b"\x0e\x01abcd", b""]) + rest


@pytest.mark.parametrize("seed", range(4))
def test_keys_of_pulsar_entries_sound_and_mutated(seed, monkeypatch):
    chance = random.Random(seed)
    key_count = 0
    for _ in range(ROUNDS):
        entry = memoryview(mutated(chance, keyed_entry(chance)))
        quick = C.entry_key(entry)
        with monkeypatch.context() as patched:
            patched.setattr(entries, "SPEEDUPS", None)
            try:
                wanted = entries.entry_key(entry)
            except CorruptBatch:
                continue
        assert quick in (None, wanted), (seed, bytes(entry))
        key_count += quick is not None
    assert key_count > ROUNDS / 4


def sends_in_python(received, count):
    """Return the results of machine and codec for the SENDs at the front, each
    parsed separately.
    """
    machine = PulsarMachine()
    machine.connected()
    pos, sent, entries, times = 0, [], [], []
    view = memoryview(received)
    for delta in range(count):
        command, start, stop = machine.next_send(view, pos)
        info = parse_send(view[start:stop])
        assert (info.record_count, info.flags, info.chunk) == (1, 0, None)
        assert not command.HasField("highest_sequence_id")
        assert not command.HasField("txnid_most_bits") and not command.HasField("message_id")
        sent.append((command.sequence_id, NO_SEQUENCE, delta, None))
        entries += (ENTRY_PREFIX.pack(stop - start, delta, 1), view[start:stop])
        if info.publish_us is not None:
            times.append(info.publish_us // 1000)
        pos = stop
    return pos, sent, b"".join(entries), times[0] if times else -1, max(times, default=-1)


@pytest.mark.parametrize("seed", range(4))
def test_pulsar_sends_sound_and_mutated(seed):
    chance = random.Random(seed)
    send_count = 0
    for _ in range(ROUNDS):
        producer, received = pulsar_sends(chance)
        received = mutated(chance, received)
        sender = C.send_producer(received, *LIMITS)
        result = C.cut_sends(received, 50, *LIMITS, producer, 0, NO_SEQUENCE)
        count = len(result[1])
        assert result == sends_in_python(received, count), (seed, received)
        assert (sender == producer) == bool(count)
        send_count += count
    assert send_count > ROUNDS


@pytest.mark.parametrize("seed", range(4))
def test_a_pulsar_send_alone(seed):
    chance = random.Random(seed)
    machine = PulsarMachine()
    machine.connected()
    single_count = 0
    for number in range(ROUNDS):
        sound = pulsar_send(chance, producer_id=chance.randrange(1 << 20), sequence_id=number)
        data = chance.choice((sound, sound + b"?", sound[:-1], mutated(chance, sound)))
        result = C.single_send(data, *LIMITS)
        wanted = machine.next_send(memoryview(data), 0)
        if result is None:
            assert wanted is None or data != sound
        else:
            single_count += 1
            command, entry_pos, end = wanted
            assert result == (command.producer_id, command.sequence_id, entry_pos)
            assert end == len(data)
    assert ROUNDS / 4 < single_count < ROUNDS
    assert C.single_send(b"", *LIMITS) is None
    assert C.single_send(sound, LIMITS[0], 8) is None


@pytest.mark.parametrize("seed", range(4))
def test_pulsar_receipts(seed):
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        producer, sequence, ledger, entry = (
            chance.getrandbits(chance.randint(1, bits)) for bits in (64, 64, 64, 63)
        )
        highest = chance.choice((NO_SEQUENCE, chance.getrandbits(chance.randint(1, 64))))
        writer = ReceiptWriter()
        writer.begin(producer, ledger)
        wanted = writer.write(sequence, entry, highest)
        assert C.pulsar_receipt(producer, sequence, ledger, entry, highest) == wanted


def test_pulsar_sends_end_with_the_producer_the_frames_and_the_size():
    chance = random.Random(9)
    first = pulsar_send(chance, producer_id=1, sequence_id=7)
    other = pulsar_send(chance, producer_id=2, sequence_id=8)
    assert len(C.cut_sends(first + other, 50, *LIMITS, 1, 0, NO_SEQUENCE)[1]) == 1
    assert len(C.cut_sends(first + first, 1, *LIMITS, 1, 0, NO_SEQUENCE)[1]) == 1
    assert C.cut_sends(first[:-1], 50, *LIMITS, 1, 0, NO_SEQUENCE) == (0, [], b"", -1, -1)
    assert C.send_producer(first, LIMITS[0], 8) is None
    size, _, entries, *_ = C.cut_sends(first, 50, *LIMITS, 1, 41, NO_SEQUENCE)
    assert size == len(first)
    assert ENTRY_PREFIX.unpack_from(entries)[1:] == (41, 1)


@pytest.mark.parametrize(
    "field",
    [
        {"num_messages_in_batch": 1},
        {"compression": 3},
        {"encryption_keys": [MessageMetadata().encryption_keys.add(key="k", value=b"v")]},
        {"chunk_id": 0, "num_chunks_from_msg": 2, "total_chunk_msg_size": 9, "uuid": "u"},
        {"deliver_at_time": 1 << 42},
        {"marker_type": 1},
        {"replicated_from": "elsewhere"},
        {"txnid_least_bits": 1},
    ],
    ids=lambda field: next(iter(field)),
)
def test_unusual_pulsar_sends_are_left_to_python(field):
    data = pulsar_send(random.Random(1), producer_id=1, sequence_id=2, **field)
    assert C.send_producer(data, *LIMITS) is None


@pytest.mark.parametrize("seed", range(4))
def test_kafka_batches_sound_and_mutated(seed, in_python):
    chance = random.Random(seed)
    refused = 0
    for _ in range(ROUNDS):
        sound = kafka_batch(chance)
        data = bytearray(chance.choice((sound, mutated(chance, sound), resealed(chance, sound))))
        limit = chance.choice([NO_LIMIT, NO_LIMIT, 100])
        base_offset = chance.choice((0, 1, 1 << 40))
        theirs = bytearray(data)
        info = C.kafka_batch(data, base_offset, limit)
        wanted = in_python(
            record_batches,
            record_batches.prepare,
            memoryview(theirs),
            base_offset,
            message_bytes_max=limit,
        )
        if info is None:
            refused += 1
            assert isinstance(wanted, tuple) or wanted.info.record_count == 0, (seed, theirs)
        else:
            assert BodyInfo(*info) == wanted.info, (seed, theirs)
            assert data == theirs
    assert ROUNDS / 10 < refused < ROUNDS * 0.9


@pytest.mark.parametrize("seed", range(4))
def test_batch_heads_of_any_fields(seed, in_python):
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        signed = [chance.choice((-1, 0, 1 << 62, -(1 << 63), chance.getrandbits(60)))] * 9
        fields = (
            1,
            chance.randrange(256),
            chance.randrange(1 << 16),
            chance.randrange(1 << 7),
            chance.randrange(1 << 64),
            chance.randrange(1 << 64),
            signed[0],
            (1 << 32) - 1,
            chance.randrange(1 << 32),
            signed[1],
            chance.choice((None, signed[2])),
            chance.choice((None, signed[3])),
            signed[4],
            chance.randrange(1 << 64),
            *signed[5:8],
        )
        body = [chance.randbytes(chance.randrange(300))]
        salt = chance.randrange(1 << 32)
        head = batch.head_of(salt, body, 0, fields)
        assert head == C.batch_head(salt, body[0], *fields)
        assert head == in_python(batch, batch.head_of, salt, body, 0, fields)


@pytest.mark.parametrize("place", range(17))
def test_a_batch_head_takes_no_number_that_its_field_cannot_hold(place):
    fields = [1] * 17
    fields[place] = 1 << 64
    assert C.batch_head(1, b"", *fields) is None
    with pytest.raises(struct.error):
        batch.head_of(1, [b""], 0, tuple(fields))
    fields[place] = -(1 << 63) - 1
    assert C.batch_head(1, b"", *fields) is None

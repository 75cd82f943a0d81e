"""The extension in C says what the Python code beside it says, whatever bytes it is given."""

import random
import struct
import zlib
from functools import partial

import pytest

from broker.delivery import entries
from broker.errors import CorruptBatch
from protocols.pulsar.machine import FRAME_BYTES_MAX, PulsarMachine
from protocols.pulsar.messages import NO_SEQUENCE
from protocols.pulsar.runs import JOINED_ENTRY_BYTES
from storage.codecs import iggy, iggy_forms, kafka_prepare, quick
from storage.codecs.base import Stored, Wanted
from storage.codecs.iggy import HEADER_BYTES_MAX, IGGY, RECORD_HEAD, body_from_send, pack_key
from storage.codecs.iggy_forms import BATCH_HEAD_BYTES, body_from_batch, body_of_small
from storage.codecs.iggy_typed import pack_header
from storage.codecs.kafka import KAFKA
from storage.codecs.kafka_layout import NO_LIMIT
from storage.codecs.pb.PulsarApi_pb2 import MessageMetadata
from storage.codecs.pulsar import ENTRY_PREFIX, parse_send
from storage.codecs.record import Record
from storage.errors import CorruptBody, StorageError
from tests.storage.codecs.speedup_samples import (
    iggy_messages,
    kafka_set,
    mutated,
    pulsar_send,
    pulsar_sends,
)
from tests.storage.codecs.test_iggy_forms import batch, frame

C = quick.SPEEDUPS
pytestmark = pytest.mark.skipif(C is None, reason="the extension is not built, or left out")

LIMITS = (FRAME_BYTES_MAX - 4, JOINED_ENTRY_BYTES)
ROUNDS = 300


@pytest.fixture
def in_python(monkeypatch):
    """Run a function of a module without the extension."""

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
        part = IGGY.converted(Stored(stored, KAFKA.format, 1, 0, 1, True), Wanted(0, 1, 10_000))
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
        found = C.kafka_check_and_stamp(ours, 1000, limit)
        wanted = in_python(
            kafka_prepare, kafka_prepare.check_and_stamp, memoryview(theirs), 1000, limit
        )
        if found is None:
            refused += 1
            assert issubclass(wanted[0], StorageError), (seed, data)
        else:
            assert (found, ours) == (wanted, theirs), (seed, data)
    assert 0 < refused < ROUNDS


@pytest.mark.parametrize("seed", range(4))
def test_sets_for_iggy_sound_and_mutated(seed):
    chance = random.Random(seed)
    made = 0
    for _ in range(ROUNDS):
        data = mutated(chance, kafka_set(chance))
        wanted = Wanted(
            chance.choice((0, 0, 3)), chance.randrange(1, 12), chance.choice((100, 5000))
        )
        part = IGGY.converted(Stored(data, KAFKA.format, 5, 0, 12, True), wanted)
        made += part.count
        if not part.count:
            continue
        decoded = KAFKA.decode(data, 0, 5, start_offset=wanted.start_offset, records_max=part.count)
        records = decoded.records
        assert part.records == IGGY.readable(IGGY.encode(records, 0)), (seed, data)
        assert (part.first_offset, part.next_offset) == (records[0].offset, records[-1].offset + 1)
        assert len(part.records) <= wanted.bytes_max and part.count <= wanted.records_max
    assert made > ROUNDS // 10


def test_kafka_offsets_are_stamped_as_far_as_the_set_is_whole():
    data = bytearray(kafka_set(random.Random(1)))
    wanted = bytearray(data)
    kafka_prepare.check_and_stamp(memoryview(wanted), 77, NO_LIMIT)
    assert C.kafka_stamp(data, 77)
    assert data == wanted
    assert not C.kafka_stamp(bytearray(data[:-1]), 5)
    assert not C.kafka_stamp(bytearray(b"\xff" * 40), 5)
    with pytest.raises((TypeError, BufferError)):
        C.kafka_stamp(bytes(data), 5)


def keyed_entry(chance):
    """A stored entry with or without keys of all kinds."""
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
    found = 0
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
        found += quick is not None
    assert found > ROUNDS / 4


def sends_in_python(received, count):
    """What the machine and the codec make of the SENDs at the front, each by itself."""
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
    taken = 0
    for _ in range(ROUNDS):
        producer, received = pulsar_sends(chance)
        received = mutated(chance, received)
        found = C.send_producer(received, *LIMITS)
        result = C.cut_sends(received, 50, *LIMITS, producer, 0, NO_SEQUENCE)
        count = len(result[1])
        assert result == sends_in_python(received, count), (seed, received)
        assert (found == producer) == bool(count)
        taken += count
    assert taken > ROUNDS


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
def test_pulsar_sends_out_of_the_ordinary_are_left_to_python(field):
    data = pulsar_send(random.Random(1), producer_id=1, sequence_id=2, **field)
    assert C.send_producer(data, *LIMITS) is None


@pytest.mark.parametrize("seed", range(4))
def test_iggy_messages_sound_and_mutated(seed, in_python):
    chance = random.Random(seed)
    refused = 0
    for _ in range(ROUNDS):
        data = mutated(chance, iggy_messages(chance))
        block = chance.randbytes(16)
        limit = chance.choice([10_000, 10_000, 300])
        arguments = (data, 1000, 1_700_000_000_000_000)
        options = {
            "key": b"k",
            "payload_bytes_max": limit,
            "random_bytes": partial(same, block),
        }
        wanted = in_python(iggy, body_from_send, *arguments, **options)
        head = iggy.pack_key(b"k")
        found = C.iggy_body(
            data, head, *arguments[1:], limit, HEADER_BYTES_MAX, options["random_bytes"]
        )
        if found is None:
            refused += 1
            is_text = not isinstance(wanted, tuple)
            assert is_text or issubclass(wanted[0], StorageError), (seed, data)
        else:
            assert (found[0], found[1]) == (bytes(wanted.body), wanted.info.record_count)
    assert 0 < refused < ROUNDS


def same(block, size):
    """Random bytes of which both ways see the same, however many they ask for at a time."""
    return block * (size // 16)


def test_iggy_random_bytes_must_be_what_was_asked_for():
    data = iggy_messages(random.Random(3), with_ids=False)
    for wrong in (lambda size: b"", lambda size: "text", lambda size: None):
        with pytest.raises(TypeError):
            C.iggy_body(data, b"", 0, 0, 1 << 20, 1 << 20, wrong)
    with pytest.raises(ZeroDivisionError):
        C.iggy_body(data, b"", 0, 0, 1 << 20, 1 << 20, lambda size: 1 // 0)


def test_a_wrong_request_says_what_python_says():
    with pytest.raises(CorruptBody):
        body_from_send(iggy_messages(random.Random(3))[:-1], 0, 9)


def batch_parts(chance):
    """Frames of a batch of crate 0.11, their checksums right whatever else is wrong."""
    wrong = chance.random() < 0.4
    for number in range(chance.randrange(1, 12)):
        block = b"".join(
            pack_header(
                b"n%d" % at, chance.randbytes(chance.randrange(1, 9)), 1, chance.choice([2, 1])
            )
            for at in range(chance.choice([0, 0, 1, 3]))
        )
        spoilt = wrong and chance.random() < 0.3
        yield frame(
            chance.randbytes(chance.choice([0, 1, 5, 100, 100])),
            number=number + (spoilt and chance.random() < 0.2),
            headers=mutated(chance, block) if spoilt else block,
            delta=chance.choice([0, 1, 1 << 31]),
        )


@pytest.mark.parametrize("seed", range(4))
def test_iggy_batches_sound_and_not(seed, in_python):
    chance = random.Random(seed)
    refused = 0
    times = [0, 5, 1_700_000_000_000_000, (1 << 63) - 2, (1 << 64) - 1]
    for _ in range(ROUNDS):
        frames = list(batch_parts(chance))
        data = batch(*frames, sent_us=chance.choice(times))
        if chance.random() < 0.1:
            data = data[:BATCH_HEAD_BYTES] + mutated(chance, data[BATCH_HEAD_BYTES:])
        made = body_of_small(memoryview(data), pack_key(b"k"), 1 << 40, 9)
        wanted = in_python(iggy_forms, body_from_batch, data, len(frames), 1 << 40, 9, key=b"k")
        refused += made is None
        if made is not None:
            assert (bytes(made.body), made.info) == (bytes(wanted.body), wanted.info), (seed, data)
    assert 0 < refused < ROUNDS


def test_iggy_batches_with_messages_of_every_size(in_python):
    chance = random.Random(6)
    sizes = range(177)
    frames = [frame(chance.randbytes(size), number=at) for at, size in enumerate(sizes)]
    data = memoryview(batch(*frames, sent_us=5))
    made = body_of_small(data, pack_key(b"k"), 7, 9)
    wanted = in_python(iggy_forms, body_from_batch, data, len(sizes), 7, 9, key=b"k")
    assert bytes(made.body) == bytes(wanted.body) and made.info == wanted.info
    assert body_of_small(memoryview(batch(frame(bytes(177)))), b"", 7, 9) is None


def test_iggy_batches_that_are_cut_are_left_to_python():
    data = batch(frame(b"x", number=0), frame(b"y" * 40, number=1))
    for end in range(BATCH_HEAD_BYTES, len(data)):
        assert body_of_small(memoryview(data[:end]), b"", 0, 9) is None


def test_iggy_frames_need_as_much_room_as_they_take():
    frames = frame(b"x", number=0) + frame(b"y" * 40, number=1)
    for body, sums in ((168, 16), (170, 16), (169, 8), (169, 24), (0, 0)):
        room = bytearray(body), 0, bytearray(sums)
        assert C.iggy_frames(frames, *room, 0, 9, 5) is None
    assert C.iggy_frames(frames, bytearray(169), 0, bytearray(16), 0, 9, 5) == (41, 0, 5, 5)

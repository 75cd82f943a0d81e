"""A call that checks, stamps and writes a produced set stores the same as `append`."""

import os
import random
import struct

import pytest

from braidlog.storage.errors import StorageError
from braidlog.storage.formats.api import NO_PRODUCER, BodyInfo, Prepared, WriteAtOnce
from braidlog.storage.formats.kafka import prepare as kafka
from braidlog.storage.formats.kafka.record_batches import KAFKA_BATCHES, PRODUCER_BIT
from braidlog.storage.formats.kafka.record_batches import NO_PRODUCER as NO_ID
from braidlog.storage.formats.pulsar import prepare as pulsar
from braidlog.storage.formats.pulsar.entry_runs import ENTRY_PREFIX, parse_send
from braidlog.storage.formats.record import Record
from braidlog.storage.log.disk import Disk
from braidlog.storage.log.settings import Durability
from tests.storage.formats.speedup_samples import (
    kafka_batch,
    kafka_set,
    mutated,
    pulsar_entry,
    resealed,
    sealed,
)
from tests.storage.log.logs import OneLog

pytestmark = pytest.mark.skipif(
    kafka.WRITE is None,
    reason="without the extension no call writes at once: all sets go through `append`",
)

LIMITS = kafka.SetLimits(1 << 20, 1 << 20, 1 << 20)
PRODUCER = struct.Struct(">qhi")
PRODUCER_POS = 43
APPEND_US = 1_700_000_000_000_000


def write_at_once(producer=NO_PRODUCER, bytes_max=1 << 20):
    return WriteAtOnce(kafka.WRITE, bytes_max, APPEND_US, producer)


def store_in_python(store, data):
    """Store a set as `Partition.append` does; return False if it is refused, or takes long."""
    try:
        prepared = kafka.prepare(memoryview(bytearray(data)), store.log.log_end_offset, LIMITS)
    except StorageError:
        return False
    if not isinstance(prepared, Prepared) or not prepared.info.record_count:
        return False
    body_format = prepared.body_format
    store.log.append([prepared.body], prepared.info, body_format=body_format, append_us=APPEND_US)
    return True


def sample(chance):
    kind = chance.random()
    if kind < 0.3:
        return mutated(chance, kafka_set(chance))
    sound = kafka_batch(chance)
    return chance.choice((sound, sound, mutated(chance, sound), resealed(chance, sound)))


def contents(store):
    store.commit()
    log, segments = store.log, store.log.segment_set.view.segments
    return (
        log.log_end_offset,
        [(batch.header, bytes(batch.body)) for batch in store.all_batches()],
        [segment[1:] for segment in log.segments()],
        [(segment.max_time_us, segment.indexed_pos) for segment in segments],
    )


@pytest.mark.parametrize("seed", range(3))
def test_sets_are_stored_as_by_append(seed, tmp_path):
    chance = random.Random(seed)
    settings = {"index_interval_bytes": 1000, "segment_bytes": 1 << 20}
    ours, theirs = OneLog(tmp_path / "ours", **settings), OneLog(tmp_path / "theirs", **settings)
    at_once = 0
    for number in range(150):
        data = sample(chance)
        producer = NO_PRODUCER
        if kafka.producer_of(memoryview(data)) != NO_ID:
            producer = PRODUCER.unpack_from(data, PRODUCER_POS)
        end_offset, size = ours.log.log_end_offset, ours.log.size_bytes
        written = ours.log.append_at_once(memoryview(bytearray(data)), write_at_once(producer))
        is_stored = store_in_python(theirs, data)
        if written is None:
            assert (ours.log.log_end_offset, ours.log.size_bytes) == (end_offset, size)
            store_in_python(ours, data)
        else:
            at_once += 1
            assert is_stored
            assert ours.log.log_end_offset == end_offset + written[0]
        if number % 10 == 0:
            ours.commit()
            theirs.commit()
            assert ours.log.durable_offset == ours.log.log_end_offset
    assert contents(ours) == contents(theirs)
    assert at_once > 50


@pytest.mark.parametrize("seed", range(3))
def test_entries_are_stored_as_by_append(seed, tmp_path):
    chance = random.Random(seed)
    settings = {"index_interval_bytes": 1000, "segment_bytes": 1 << 14}
    ours, theirs = OneLog(tmp_path / "ours", **settings), OneLog(tmp_path / "theirs", **settings)
    once, at_once = pulsar.write_at_once(), 0
    once.append_us = APPEND_US
    for number in range(300):
        entry = mutated(chance, pulsar_entry(chance, sequence_id=number))
        once.producer = chance.choice([(0, 0, number), (5, -3, number)])
        end_offset, size = ours.log.log_end_offset, ours.log.size_bytes
        written = ours.log.append_at_once(memoryview(entry), once)
        try:
            send = parse_send(memoryview(entry))
        except StorageError:
            send = None
        if written is None:
            assert (ours.log.log_end_offset, ours.log.size_bytes) == (end_offset, size)
        else:
            at_once += 1
            assert written == (1, send.publish_us, once.producer[0], number)
        for store in [theirs] if written else [ours, theirs] if send else []:
            producer, epoch, sequence = once.producer
            info = BodyInfo(
                send.record_count,
                send.publish_us,
                send.publish_us,
                send.flags,
                producer,
                epoch,
                sequence,
                sequence,
            )
            body = ENTRY_PREFIX.pack(len(entry), 0, send.record_count) + bytes(entry)
            store.log.append([body], info, body_format=pulsar.BODY_FORMAT, append_us=APPEND_US)
    assert contents(ours) == contents(theirs)
    assert 100 < at_once < 300


def test_an_entry_above_the_joined_size_is_left_to_append(tmp_path):
    def entry_of(payload):
        return pulsar_entry(random.Random(1), sequence_id=1, payload=payload)

    store, once = OneLog(tmp_path), pulsar.write_at_once()
    once.bytes_max = 1 << 20
    room = pulsar.JOINED_ENTRY_BYTES - len(entry_of(b""))
    for payload_bytes in (room, room + 1):
        entry = memoryview(entry_of(bytes(payload_bytes)))
        is_joined = len(entry) <= pulsar.JOINED_ENTRY_BYTES
        assert is_joined == (payload_bytes == room)
        assert (store.log.append_at_once(entry, once) is not None) == is_joined


def batch_of(*producer):
    data = bytearray(KAFKA_BATCHES.encode([Record(0, 1, value=b"value", publish_us=1000)], 0))
    PRODUCER.pack_into(data, PRODUCER_POS, *producer)
    return sealed(data)


SOUND = bytes(batch_of(NO_ID, -1, -1))


def refused(store, data=SOUND, **options):
    """Return True if a set is refused; then nothing is stored."""
    before = (store.log.log_end_offset, store.log.size_bytes)
    written = store.log.append_at_once(memoryview(bytearray(data)), write_at_once(**options))
    assert written is not None or (store.log.log_end_offset, store.log.size_bytes) == before
    return written is None


def test_a_large_batch_is_left_to_append(tmp_path):
    store = OneLog(tmp_path)
    assert refused(store, bytes_max=len(SOUND) - 1)
    assert not refused(store, bytes_max=len(SOUND))


def test_a_batch_that_is_not_the_producers_next_is_left_to_append(tmp_path):
    store, data = OneLog(tmp_path), batch_of(5, 3, 7)
    for producer in (NO_PRODUCER, (6, 3, 7), (5, 4, 7), (5, 3, 6)):
        assert refused(store, data, producer=producer)
    assert refused(store, producer=(5, 3, 7))
    written = store.log.append_at_once(memoryview(data), write_at_once((5, 3, 7)))
    assert written == (1, 1000, 5 | PRODUCER_BIT, 7)


def test_a_batch_has_the_time_of_its_records(tmp_path):
    store = OneLog(tmp_path)
    assert not refused(store)
    assert store.log.segment_set.last.max_time_us == 1000


def test_a_refused_set_keeps_no_file_open(tmp_path):
    store = OneLog(tmp_path)
    store.append(append_us=APPEND_US)
    file = store.log.segment_set.last.file
    assert refused(store, b"?" * 100)
    assert file.holds == 1  # Until a round has synced the append.
    store.commit()
    assert refused(store, b"?" * 100)
    assert file.holds == 0


def test_a_full_segment_is_left_to_append(tmp_path):
    store = OneLog(tmp_path, segment_bytes=400)
    store.append(b"x" * 200, append_us=APPEND_US)
    assert refused(store)
    store.log.roll()
    assert not refused(store)


def test_a_sealed_log_takes_nothing(tmp_path):
    store = OneLog(tmp_path)
    store.log.seal()
    assert refused(store)


def test_offsets_above_the_reservation_are_left_to_append(tmp_path):
    store = OneLog(tmp_path, durability=Durability.WRITTEN)
    store.log._written._reservation.limit = store.log.log_end_offset
    assert refused(store)


def test_a_replaced_disk_writes_itself(tmp_path):
    class OwnDisk(Disk):
        def write(self, path, fd, parts, pos):
            return super().write(path, fd, parts, pos)

    store = OneLog(tmp_path)
    store.files.disk = OwnDisk()
    assert refused(store)
    store.files.disk = Disk()
    assert not refused(store)


def test_a_write_that_fails_is_left_to_append(tmp_path):
    store = OneLog(tmp_path)
    store.append(append_us=APPEND_US)
    file = store.log.segment_set.last.file
    fd, file.fd = file.fd, os.open("/dev/full", os.O_RDWR)
    try:
        assert refused(store)
    finally:
        os.close(file.fd)
        file.fd = fd
    assert not refused(store)

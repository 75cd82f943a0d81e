"""Sequences over restarts: the snapshot file, and the walk of later batches."""

import pytest
from crc32c import crc32c

from braidlog.storage.log.sequence_store import (
    CRC,
    HEAD,
    SEQUENCES_NAME,
    BadSnapshot,
    catch_up,
    load,
    pack_table,
    save,
    unpack_table,
)
from braidlog.storage.log.sequences import ProducerState, SequenceTable, StoredBatch
from tests.storage.log.logs import OneLog


def some_table(next_offset=5):
    table = SequenceTable(next_offset)
    table.note(1, 0, StoredBatch(0, 9, 0), 1_000_000)
    table.note(1 << 62, 3, StoredBatch(-1, 2**62, 10), 2_000_000)
    return table


def test_a_snapshot_equals_its_table():
    table = unpack_table(pack_table(some_table(), 4), 4)
    assert table.next_offset == 5
    assert list(table) == list(some_table())


def test_the_snapshot_is_these_bytes():
    table = SequenceTable(5)
    table.note(1, 0, StoredBatch(2, 3, 4), 9)
    body = bytes.fromhex("91 95 01 00 09 91 93 02 03 04 02")
    head = b"BRAIDSEQ" + bytes.fromhex("0200 0000 00000000 0400000000000000 0500000000000000")
    packed = pack_table(table, 4)
    assert packed[:32] == head
    assert packed[32:36] == len(body).to_bytes(4, "little")
    assert packed[44:] == body


def snapshot(version, body):
    head = HEAD.pack(b"BRAIDSEQ", version, 0, 0, 4, 5, len(body), crc32c(body))
    return head + CRC.pack(crc32c(head)) + body


def test_a_version_1_snapshot_has_no_sequences_below_the_remembered():
    table = unpack_table(snapshot(1, bytes.fromhex("91 94 01 00 09 91 93 02 03 04")), 4)
    assert list(table) == [ProducerState(1, 0, 9, [StoredBatch(2, 3, 4)], first_sequence=2)]
    with pytest.raises(BadSnapshot, match="version 3, expected 1 to 2"):
        unpack_table(snapshot(3, b"\x90"), 4)


def test_every_flipped_byte_is_found():
    packed = pack_table(some_table(), 4)
    for place in range(len(packed)):
        bad = bytearray(packed)
        bad[place] ^= 0x40
        with pytest.raises(BadSnapshot):
            unpack_table(bytes(bad), 4)
    for end in range(len(packed)):
        with pytest.raises(BadSnapshot):
            unpack_table(packed[:end], 4)
    with pytest.raises(BadSnapshot):
        unpack_table(packed, 5)


def sequences(log, producer_id):
    table = load(log.files, log.log)
    catch_up(table, log.log)
    state = table.find(producer_id)
    return table, None if state is None else state.last_sequence


def test_without_a_snapshot_the_table_starts_empty_at_the_end(tmp_path):
    log = OneLog(tmp_path)
    log.append(producer_id=3, first_sequence=0, last_sequence=0)
    log.commit()
    assert sequences(log, 3)[1] is None
    log.append(producer_id=3, first_sequence=1, last_sequence=4, count=4)
    log.commit()
    table, last = sequences(log, 3)  # The first load wrote a snapshot.
    assert last == 4
    assert [batch.base_offset for batch in table.find(3).recent] == [1]


def test_batches_behind_the_snapshot_are_noted(tmp_path):
    log = OneLog(tmp_path, segment_bytes=2000)
    load(log.files, log.log)
    for number in range(40):
        log.append(producer_id=1 + number % 2, first_sequence=number, last_sequence=number)
    log.commit()
    table, last = sequences(log, 1)
    assert (last, table.find(2).last_sequence) == (38, 39)
    assert table.next_offset == 40
    save(log.files, log.log, pack_table(table, 1))
    for number in range(40, 60):
        log.append(producer_id=1, first_sequence=number, last_sequence=number)
    table, last = sequences(log, 1)
    assert (last, table.find(2).last_sequence) == (59, 39)
    assert [batch.base_offset for batch in table.find(1).recent] == [55, 56, 57, 58, 59]


def test_retention_may_have_removed_batches_that_were_not_noted(tmp_path):
    log = OneLog(tmp_path, segment_bytes=2000)
    load(log.files, log.log)
    for number in range(40):
        log.append(producer_id=1, first_sequence=number, last_sequence=number)
    log.commit()
    log.log.drop(2)
    assert log.log.log_start_offset > 0
    assert sequences(log, 1)[1] == 39


def test_damage_is_skipped(tmp_path):
    log = OneLog(tmp_path)
    load(log.files, log.log)
    for number in range(30):
        log.append(producer_id=1, first_sequence=number, last_sequence=number)
    log.commit()
    path = log.file("00000000000000000000.log")
    with open(path, "r+b") as file:
        file.seek(64 + 5 * (128 + 4))
        file.write(bytes(200))
    assert sequences(log, 1)[1] == 29


def test_a_left_over_new_file_does_no_harm(tmp_path):
    log = OneLog(tmp_path)
    with open(log.file(f"{SEQUENCES_NAME}.new"), "wb") as file:
        file.write(b"half")
    load(log.files, log.log)
    assert unpack_table(log.files.read_whole(log.file(SEQUENCES_NAME)), 1).next_offset == 0


def test_a_snapshot_ahead_of_the_log_counts_up_to_its_end(tmp_path):
    log = OneLog(tmp_path)
    save(log.files, log.log, pack_table(SequenceTable(100), 1))
    log.append(producer_id=1, first_sequence=0, last_sequence=0)
    assert load(log.files, log.log).next_offset == 1

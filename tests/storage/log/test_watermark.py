from crc32c import crc32c

from braidlog.storage.log.local_files import LocalFiles
from braidlog.storage.log.watermark import (
    SLOT_BYTES,
    SLOT_DISTANCE,
    WATERMARK_MAGIC,
    SlotFile,
    Watermark,
    pack_slot,
    read_watermark,
    unpack_slot,
)
from tests.storage.log.layouts import SLOT
from tests.storage.log.logs import flip


def slot_file(tmp_path):
    return SlotFile(
        LocalFiles(tmp_path), str(tmp_path / "watermark"), WATERMARK_MAGIC, kind=1, partition_id=9
    )


def test_slot_bytes_equal_the_format_page():
    data = pack_slot(WATERMARK_MAGIC, 1, 9, Watermark(100, 2000, 33))
    parsed = SLOT.parse(data)
    assert len(data) == SLOT_BYTES == SLOT.sizeof()
    assert (parsed.magic, parsed.kind, parsed.partition_id) == (b"BRAIDWMK", 1, 9)
    assert (parsed.sequence, parsed.log_start_offset, parsed.offset) == (33, 100, 2000)
    assert parsed.crc == crc32c(data[:60])
    assert SLOT.build(parsed) == data
    assert unpack_slot(data, WATERMARK_MAGIC, 1, 9) == Watermark(100, 2000, 33)


def test_every_flipped_bit_is_found():
    data = pack_slot(WATERMARK_MAGIC, 1, 9, Watermark(100, 2000, 33))
    for bit in range(len(data) * 8):
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        assert unpack_slot(bytes(wrong), WATERMARK_MAGIC, 1, 9) is None


def test_a_slot_of_another_partition_is_ignored():
    data = pack_slot(WATERMARK_MAGIC, 1, 9, Watermark(100, 2000, 33))
    assert unpack_slot(data, WATERMARK_MAGIC, 1, 8) is None
    assert unpack_slot(data, WATERMARK_MAGIC, 2, 9) is None
    assert unpack_slot(data, b"BRAIDRSV", 1, 9) is None


def test_writes_alternate_between_two_sectors(tmp_path):
    slots = slot_file(tmp_path)
    for offset in (10, 20, 30):
        slots.write(0, offset)
    data = (tmp_path / "watermark").read_bytes()
    assert SLOT.parse(data[:SLOT_BYTES]).offset == 20
    assert SLOT.parse(data[SLOT_DISTANCE:]).offset == 30
    assert read_watermark(str(tmp_path), 9) == Watermark(0, 30, 3)


def test_the_older_slot_counts_if_the_newer_is_broken(tmp_path):
    slots = slot_file(tmp_path)
    slots.write(0, 10)
    slots.write(5, 20)
    flip(tmp_path / "watermark", 20)
    assert read_watermark(str(tmp_path), 9) == Watermark(0, 10, 1)
    again = slot_file(tmp_path)
    assert again.mark == Watermark(0, 10, 1)
    again.write(5, 40)
    assert read_watermark(str(tmp_path), 9) == Watermark(5, 40, 2)


def test_no_slot_is_a_watermark_of_zero(tmp_path):
    assert read_watermark(str(tmp_path), 9) == Watermark(0, 0, 0)
    (tmp_path / "watermark").write_bytes(b"x" * 40)
    assert read_watermark(str(tmp_path), 9) == Watermark(0, 0, 0)
    assert not slot_file(tmp_path).has_mark

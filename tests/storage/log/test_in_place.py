"""Batches read without their bodies: the same bytes as from reads, or none."""

import random

import pytest

from braidlog.storage.log.in_place import IN_PLACE_BYTES_MIN, IN_PLACE_RUN_BYTES_MIN
from tests.storage.log.logs import FORMAT, OneLog
from tests.storage.log.test_file_part import WarmDisk

LARGE = IN_PLACE_RUN_BYTES_MIN


def bodies(seed, count, most=3 * IN_PLACE_BYTES_MIN):
    random_ = random.Random(seed)
    return [random_.randbytes(random_.randrange(IN_PLACE_BYTES_MIN, most)) for _ in range(count)]


@pytest.fixture
def opened(tmp_path):
    return OneLog(tmp_path, WarmDisk())


def restarted(opened):
    opened.stop()
    return OneLog(opened.path, WarmDisk(), segment_bytes=opened.settings.segment_bytes)


def in_place(opened, offset, bytes_max=1 << 20, body_format=FORMAT):
    return opened.log.read_in_place(offset, bytes_max, body_format)


def test_appended_batches_are_read_in_place(opened):
    written = bodies(1, 20)
    opened.fill(written, 3)
    opened.log.read(0, 0)  # So that the place of offset 3 is known.
    run = in_place(opened, 3)
    count = run.record_count // 3
    assert run.bodies.read() == b"".join(written[1 : 1 + count])
    assert run.next_offset == 3 + run.record_count
    assert run.last_bytes == len(written[count])
    assert LARGE <= len(run.bodies) <= 1 << 20


@pytest.mark.parametrize("seed", range(8))
def test_any_mix_of_both_ways_returns_the_same_bytes(tmp_path, seed):
    """The log has small and large batches and restarts, and the reads have random sizes."""
    random_ = random.Random(seed)
    opened = OneLog(tmp_path, WarmDisk(), segment_bytes=1 << 20)
    written = bodies(seed, 40)
    for number in random_.sample(range(40), 4):
        written[number] = b"small"
    opened.fill(written[:20])
    if seed % 2:
        opened = restarted(opened)
    opened.fill(written[20:])
    runs = 0
    for _ in range(2):
        bodies_read, offset = [], 0
        while offset < 40:
            run = in_place(opened, offset, random_.randrange(LARGE, 1 << 20))
            if run is None:
                batch = opened.log.read(offset, 0)[0]
                bodies_read.append(bytes(batch.body))
                offset = batch.next_offset
            else:
                bodies_read.append(run.bodies.read())
                offset, runs = run.next_offset, runs + 1
        assert b"".join(bodies_read) == b"".join(written)
    assert runs


def test_batches_from_before_the_start_are_checked_once(tmp_path):
    opened = OneLog(tmp_path, WarmDisk())
    opened.fill(bodies(2, 12))
    opened = restarted(opened)
    opened.log.read(0, 0)
    assert in_place(opened, 1) is None
    opened.log.read(1, 1 << 20)
    assert in_place(opened, 1) is not None


def test_a_damaged_unchecked_body_is_never_returned(tmp_path):
    opened = OneLog(tmp_path, WarmDisk())
    written = bodies(3, 30)
    opened.fill(written)
    place = opened.log.read(15, 0)[0].file_pos
    opened = restarted(opened)
    path = opened.log.segment_set.last.path
    with open(path, "r+b") as file:
        file.seek(place + 1000)
        file.write(b"\0damage\0")
    opened.log.read(0, 0)
    opened.log.read(1, 1 << 24)  # The answer ends before the batch.
    offset = 1
    while run := in_place(opened, offset):
        offset = run.next_offset
    assert 1 < offset <= 15


def test_a_damaged_header_ends_the_run_before_it(opened):
    opened.fill(bodies(4, 30))
    batch = opened.log.read(14, 0)[0]
    with open(opened.log.segment_set.last.path, "r+b") as file:
        file.seek(batch.file_pos + 20)
        file.write(b"\xff")
    opened.log.read(0, 0)
    run = in_place(opened, 1, 1 << 24)
    assert run.next_offset == 14


def test_no_batch_above_the_watermark_or_of_another_format_is_returned(opened):
    written = bodies(5, 30)
    opened.fill(written[:15])
    opened.fill(written[15:], commit=False)
    opened.log.read(0, 0)
    assert in_place(opened, 1, 1 << 24).next_offset == 15
    assert in_place(opened, 15) is None
    assert in_place(opened, 1, body_format=FORMAT + 1) is None
    for offset in (-1, 99):
        assert in_place(opened, offset) is None


def test_a_run_begins_at_a_remembered_place_within_a_batch(opened):
    """Batches of three records; an earlier read returned the second up to its second record."""
    written = bodies(10, 20)
    opened.fill(written, 3)
    batch = opened.log.read(3, 0)[0]
    opened.log.remember_within(4, batch, 1000)
    run = in_place(opened, 4, 2 * LARGE)
    count = (run.next_offset - 3) // 3
    assert run.bodies.read() == (b"".join(written[1 : 1 + count]))[1000:]
    assert run.record_count == run.next_offset - 4
    assert run.last_bytes == len(written[count])
    assert in_place(opened, 5) is None
    assert in_place(opened, run.next_offset).bodies.read().startswith(written[1 + count])
    assert opened.log.read(4, 0)[0].base_offset == 3  # A plain read returns the whole batch.


def test_a_run_may_begin_with_a_small_end_of_a_batch(opened):
    written = bodies(11, 20)
    opened.fill(written, 2)
    batch = opened.log.read(2, 0)[0]
    opened.log.remember_within(3, batch, len(written[1]) - 1)
    run = in_place(opened, 3)
    assert run.bodies.read(0)[:101] == written[1][-1:] + written[2][:100]
    opened.log.remember_within(3, batch, 1)
    assert in_place(opened, 3, 2 * LARGE).next_offset > 3


def test_the_rest_of_a_batch_may_be_all_that_fits(opened):
    written = [bytes(3 * LARGE), bytes(IN_PLACE_BYTES_MIN)]
    opened.fill(written, 2)
    opened.log.remember_within(1, opened.log.read(0, 0)[0], 2 * LARGE)
    run = in_place(opened, 1, LARGE + IN_PLACE_BYTES_MIN)
    assert (run.next_offset, run.record_count) == (4, 3)
    assert len(run.bodies) == LARGE + IN_PLACE_BYTES_MIN


def test_places_within_a_removed_segment_are_forgotten(tmp_path):
    opened = OneLog(tmp_path, WarmDisk(), segment_bytes=1 << 20, retention_bytes=1)
    opened.fill(bodies(12, 60), 2)
    batch = opened.log.read(2, 0)[0]
    opened.log.remember_within(3, batch, 1000)
    assert in_place(opened, 3) is not None
    opened.log.retain(1 << 60)
    opened.commit()
    assert in_place(opened, 3) is None
    opened.log.remember_within(3, batch, 1000)  # By a slow reader.
    assert in_place(opened, 3) is None


def test_few_bytes_are_copied(opened):
    opened.fill(bodies(6, 20))
    opened.log.read(0, 0)
    assert in_place(opened, 1, LARGE - 1) is None
    assert in_place(opened, 1, LARGE + 3 * IN_PLACE_BYTES_MIN) is not None


def test_an_empty_result_holds_no_descriptor(opened):
    opened.fill([*bodies(7, 3), b"small", *bodies(8, 3)])
    opened.log.read(0, 0)
    assert in_place(opened, 1) is None
    assert opened.files.leases.count == 0


def test_retention_between_read_and_send_does_no_harm(tmp_path):
    opened = OneLog(tmp_path, WarmDisk(), segment_bytes=1 << 20, retention_bytes=1)
    written = bodies(9, 60)
    opened.fill(written)
    opened.log.read(0, 0)
    run = in_place(opened, 1)
    opened.log.retain(1 << 60)
    opened.commit()
    assert opened.log.log_start_offset >= run.next_offset
    assert run.bodies.read() == b"".join(written[1 : run.next_offset])
    assert in_place(opened, 1) is None
